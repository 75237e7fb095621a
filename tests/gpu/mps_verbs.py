"""One script of verbs and programs with their variables, under NVIDIA's nvidia-cuda-mps-control and under ours.

usage: mps_verbs.py [--build BUILD] [--all]

Both daemons start from the same environment (CUDA_MPS_PIPE_DIRECTORY, CUDA_MPS_LOG_DIRECTORY) with the first GPU alone, and get
the same lines on standard input. What a line prints and ends with is compared, with processes and the device by their names: SERVER,
CLIENT1, GPU. Lines that differ on purpose are in DIFFERENT, with the reason. SM partitions are not compared: stock MPS has them with
-S, since CUDA 13.1. Then the same with the verbs of protocol 3, where stock MPS has them (driver 615 and later); elsewhere ours
are played alone, and each line must end as ENDINGS says.

--all: prints every line, and what both said.

Exit status: 1 if a line differs that is not in DIFFERENT, or one that is there never does; 77 without a GPU or stock MPS.
"""

import argparse
import contextlib
import os
import pathlib
import pwd
import re
import shutil
import subprocess
import sys
import tempfile

PATIENCE = 40
CONTROL = "nvidia-cuda-mps-control"
# A program: prints what it sees of the device; then, for each line, allocates and frees so many MiB.
PROGRAM = r'''
import ctypes, sys
cuda, context, number, size, at = (ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_int(), ctypes.c_size_t(),
                                   ctypes.c_uint64())
result = cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) or cuda.cuCtxSetCurrent(context)
if result:
    sys.exit(print("error", result, flush=True))
cuda.cuDeviceGetAttribute(ctypes.byref(number), 16, 0)
cuda.cuDeviceTotalMem_v2(ctypes.byref(size), 0)
print(number.value, "multiprocessors,", size.value >> 20, "MiB", flush=True)
for line in sys.stdin:
    result = cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(int(line) << 20)) or cuda.cuMemFree_v2(at)
    print("allocated" if not result else f"error {result}", flush=True)
'''


class Side:
    """One daemon and the programs of its script."""

    def __init__(self, folder, control, libraries, gpu, protocol="2"):
        self.control_path, self.gpu, self.protocol = control, gpu, protocol
        self.user = pwd.getpwuid(os.getuid()).pw_name
        self.environment = {key: value for key, value in os.environ.items()
                            if not key.startswith(("CUDA_MPS_", "CUDA_VISIBLE_DEVICES", "FRMPS_"))}
        # The daemon's: to its programs the GPU is number 0.
        self.daemon = {"CUDA_VISIBLE_DEVICES": gpu}
        self.environment.update({"CUDA_MPS_PIPE_DIRECTORY": folder + "/pipe", "CUDA_MPS_LOG_DIRECTORY": folder + "/log"})
        for name in "pipe", "log":
            os.mkdir(f"{folder}/{name}")
        self.libraries = libraries
        self.programs, self.clients, self.names, self.said = [], [], {}, []

    def run(self, *words, lines=""):
        try:
            done = subprocess.run([self.control_path, *words], input=lines, env={**self.environment, **self.daemon},
                                  capture_output=True, text=True, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            return "no answer", "", ""
        return done.stdout, done.stderr, f"[{done.returncode}]"

    def named(self, text):
        for value, name in sorted(self.names.items(), key=lambda item: -len(item[0])):
            text = re.sub(rf"(?<![\w-]){re.escape(value)}(?![\w-])", name, text)
        return "\n".join(" ".join(line.split()) for line in text.splitlines())

    def note(self, what, out, err, status):
        errors = "".join(f"(stderr) {line}\n" for line in err.splitlines())
        self.said.append((what, self.named(out + errors + status)))

    def server(self):
        if self.protocol == "3":
            return self.run("server", "get", self.user, "pid")[0].strip() or "1"
        found = self.run(lines="get_server_list\n")[0].split()
        server = found[-1] if found else "1"
        self.names[server] = "SERVER"
        return server

    def step(self, line):
        """A line for the control program, or what a program does."""
        what, *words = line.split()
        if what == "daemon":
            said = self.run(*words)
        elif what == "program":
            said = self.begin(dict(word.split("=", 1) for word in words)), "", ""
        elif what == "allocate":
            said = self.tell(self.programs[int(words[0])], words[1]), "", ""
        elif what == "end":
            self.end(self.programs[int(words[0])])
            return
        else:
            sent = line
            if "SERVER" in line:
                sent = sent.replace("SERVER", self.server())
            if "CLIENT" in line:
                sent = sent.replace("CLIENT", self.clients[-1])
            sent = sent.replace("USER", self.user).replace("GPU", self.gpu)
            said = self.run(*sent.split()) if self.protocol == "3" else self.run(lines=sent + "\n")
        self.note(line, *said)

    def begin(self, variables):
        folders = f"{self.libraries}:{self.environment.get('LD_LIBRARY_PATH', '')}"
        child = subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                 stderr=subprocess.DEVNULL,
                                 env={**self.environment, **variables, "LD_LIBRARY_PATH": folders})
        self.programs.append(child)
        self.clients.append(str(child.pid))
        self.names[str(child.pid)] = f"CLIENT{len(self.clients)}"
        return child.stdout.readline()

    @staticmethod
    def tell(child, line):
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(line + "\n")
            child.stdin.flush()
        return child.stdout.readline() or f"ended with {child.wait(PATIENCE)}"

    @staticmethod
    def end(child):
        with contextlib.suppress(subprocess.TimeoutExpired, BrokenPipeError):
            child.communicate(timeout=PATIENCE)
        child.kill()

    def play(self, script):
        self.names.update({self.gpu: "GPU", self.user: "USER", self.environment["CUDA_MPS_PIPE_DIRECTORY"]: "PIPE"})
        try:
            for line in script:
                self.step(line)
        finally:
            for child in self.programs:
                self.end(child)
            self.run("-q") if self.protocol == "3" else self.run(lines="quit -t 1\n")


SCRIPT = """
get_server_list
daemon -d
daemon -d
get_server_list
get_default_active_thread_percentage
get_default_device_pinned_mem_limit 0
get_default_client_priority
ps
get_device_client_list
device_query
device_query --csv
lspart
nonsense
get_server_status
get_server_status 1
get_client_list 1
get_active_thread_percentage 1
terminate_client 1 1
set_default_active_thread_percentage 0
set_default_active_thread_percentage 101
set_default_active_thread_percentage half
set_default_client_priority 7
start_server -uid 0
get_server_status SERVER
program
program
get_server_list
get_server_status SERVER
get_client_list SERVER
get_device_client_list
get_device_client_list SERVER
ps
ps -p SERVER
device_query SERVER
allocate 0 1024
set_default_active_thread_percentage 50
get_default_active_thread_percentage
get_active_thread_percentage SERVER
program
program CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25
program CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=80
set_active_thread_percentage SERVER 30
get_active_thread_percentage SERVER
program
set_default_active_thread_percentage 12.5
get_default_active_thread_percentage
set_default_active_thread_percentage 100
set_active_thread_percentage SERVER 100
set_default_device_pinned_mem_limit 0 4G
get_default_device_pinned_mem_limit 0
get_device_pinned_mem_limit SERVER 0
program
allocate 6 3000
allocate 6 5000
program CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2G
allocate 7 1500
allocate 7 3000
set_device_pinned_mem_limit SERVER 0 900M
get_device_pinned_mem_limit SERVER 0
program
allocate 8 700
allocate 8 1000
set_default_client_priority 1
get_default_client_priority
program
set_default_client_priority 0
program CUDA_MPS_CLIENT_PRIORITY=1
terminate_client SERVER CLIENT
allocate 10 16
allocate 0 16
end 0
end 1
end 2
end 3
end 4
end 5
end 6
end 7
end 8
end 9
end 10
get_client_list SERVER
shutdown_server SERVER
get_server_list
program
allocate 11 16
shutdown_server SERVER -f
get_server_list
set_default_device_pinned_mem_limit 0 5T
get_default_device_pinned_mem_limit 0
set_default_device_pinned_mem_limit 9 1G
quit -t 5
get_server_list
"""

ENDS = "what is refused ends with 1, and standard error says why"
LATER = "a default of the service holds for programs of servers that run, too"
UNITS = "8 multiprocessors are the least that is granted, there 2"
SEES = "a program sees its limit as its device's memory"
BUS = "stock MPS writes another bus than in device_query"
DIFFERENT = {
    "get_server_list": "where there is no daemon standard error says why",
    "ps": "without a server nothing is printed",
    "ps -p SERVER": "an executable is the file that runs, not the name that it was started by",
    **dict.fromkeys(("set_default_active_thread_percentage 12.5", "get_default_active_thread_percentage"),
                    "whole percents"),
    "lspart": "stock MPS has it with -S, since CUDA 13.1",
    "get_device_client_list": BUS,
    "get_device_client_list SERVER": BUS,
    **dict.fromkeys(("nonsense", "get_server_status", "get_server_status 1", "get_client_list 1",
                     "get_active_thread_percentage 1", "terminate_client 1 1", "set_default_client_priority 7",
                     "set_default_active_thread_percentage 0", "set_default_active_thread_percentage 101",
                     "set_default_active_thread_percentage half", "set_default_device_pinned_mem_limit 0 5T",
                     "set_default_device_pinned_mem_limit 9 1G"), ENDS),
    **dict.fromkeys(("get_active_thread_percentage SERVER", "get_device_pinned_mem_limit SERVER 0", "allocate 6 5000"),
                    LATER),
    "program": f"{LATER}; {SEES}; {UNITS}",
    "program CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=80": LATER,
    "program CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2G": SEES,
    "program CUDA_MPS_CLIENT_PRIORITY=1": f"{SEES}; beside programs of priority 0 it has three quarters of the device",
    "allocate 8 700": "what a context needs is not counted against the program",
    "get_default_device_pinned_mem_limit 0": "5T is refused; stock MPS takes it for 5M",
}


# The name of a server is its user's: the one that ours has.
SCRIPT3 = """
daemon -d -p 3
server list --format=csv
server create USER
server list --format=csv,noheader
server get USER status
server get USER uid
server get USER allowed-devices
server set USER --pinned-memory-limit=4G --active-thread-percentage=50
namespace list --server=USER --format=csv
namespace get default USER pinned-memory-limit
program
client list --server=USER --format=csv,noheader
client get CLIENT server
client get CLIENT maws-ns
client get CLIENT pci-id
device list --server=USER --format=csv
sm-partition list --server=USER --format=csv
feature describe --format=csv
server delete USER
client terminate CLIENT
allocate 0 16
end 0
sm-partition create large --server=USER --device=GPU --chunks=2
sm-partition list --all --format=csv
sm-partition delete large --server=USER --device=GPU
server delete USER --force
server create other --uid=54321
server delete other
server get USER pid
"""
# What ours ends with, where it is not 0.
ENDINGS = {"server delete USER": 1, "server create other --uid=54321": 1, "server delete other": 1, "server get USER pid": 1}
DIFFERENT3 = {
    "server create other --uid=54321": "a server has its user's name, and an unknown user none but uid_54321",
    "feature describe --format=csv": "features are enabled by default there, and there are none here",
}


def has_protocol_3(control):
    return "--protocol" in subprocess.run([control, "-h"], capture_output=True, text=True).stdout


def play_3(build, folder):
    """Return: what is wrong with the verbs of protocol 3"""
    both = list(sides(build, folder, "3"))
    ours = both[1]
    ours.play(SCRIPT3.splitlines()[1:])
    wrong = [f"> {line}\n{said}" for line, said in ours.said
             if re.search(r"\[(\d+)\]$", said) and not said.endswith(f"[{ENDINGS.get(line, 0)}]")]
    if not has_protocol_3(both[0].control_path):
        print("stock MPS has no protocol 3 here: ours was played alone")
        return wrong
    both[0].play(SCRIPT3.splitlines()[1:])
    return wrong + [f"> {line}\n{stock}\n-- ours:\n{own}" for (line, stock), (_, own) in zip(both[0].said, ours.said)
                    if stock != own and line not in DIFFERENT3]


def sides(build, folder, protocol="2"):
    """NVIDIA's, then ours."""
    library = next((line.split("=> ")[1] for line in subprocess.run(["ldconfig", "-p"], capture_output=True, text=True).stdout.splitlines()
                    if "libcuda.so.1 " in line), "/usr/local/nvidia/lib64/libcuda.so.1")
    gpu = re.search(r"UUID: (GPU-[0-9a-f-]+)", subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout)[1]
    for name, control, libraries in (("stock", shutil.which(CONTROL), os.path.dirname(library.strip())),
                                     ("ours", str(build / "server" / CONTROL), str(build / "client"))):
        os.mkdir(folder + "/" + name)
        yield Side(f"{folder}/{name}", control, libraries, gpu, protocol)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default="build")
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    if not shutil.which("nvidia-smi") or not shutil.which(CONTROL):
        print("no GPU or no stock MPS here")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        said = []
        for side in sides(options.build.resolve(), folder):
            side.play(SCRIPT.splitlines()[1:])
            said.append(side.said)
    with tempfile.TemporaryDirectory() as folder:
        wrong, equal = play_3(options.build.resolve(), folder), {}
    for (line, stock), (_, ours) in zip(*said):
        text = f"> {line}\n{stock}" + ("" if stock == ours else f"\n-- ours:\n{ours}")
        equal[line] = equal.get(line, True) and stock == ours
        if stock != ours and line not in DIFFERENT:
            wrong.append(text)
        if options.all:
            print(text)
    wrong += [f"> {line}\ndoes not differ: {DIFFERENT[line]}" for line in DIFFERENT if equal[line]]
    print(*wrong, f"{len(equal)} lines, {len(DIFFERENT)} differ on purpose, {len(wrong)} are not as they should be", sep="\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
