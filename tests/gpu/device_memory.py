"""Two logical devices of one GPU, of which the second has a size (key device_memory).

usage: device_memory.py [--build BUILD] [--backend cuda|host] [--size GIB]

Programs on the second device see its size, two of them together get no more than that, what one frees the other gets, and the
first device has all of the GPU. With --backend host it tries itself without a GPU.

Exit status: 1 if something is not as it should be; 77 without a GPU.
"""

import argparse
import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile
import time

# On a device: answers each line, "take" or "give", with what it has, what is free and what there is, MiB.
PROGRAM = r'''
import ctypes, sys
cuda, context, step = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), int(sys.argv[2]) << 20
free, total, pieces = ctypes.c_size_t(), ctypes.c_size_t(), []
def do(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    assert not code, f"{name} is {code}"
do("cuInit", 0)
do("cuDevicePrimaryCtxRetain", ctypes.byref(context), int(sys.argv[1]))
do("cuCtxSetCurrent", context)
for line in sys.stdin:
    while line == "take\n":
        piece = ctypes.c_uint64()
        if cuda.cuMemAlloc_v2(ctypes.byref(piece), ctypes.c_size_t(step)):
            break
        do("cuMemsetD8_v2", piece, 1, ctypes.c_size_t(step))
        pieces.append(piece)
    while line == "give\n" and pieces:
        do("cuMemFree_v2", pieces.pop())
    do("cuCtxSynchronize")
    do("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    print(len(pieces) * (step >> 20), free.value >> 20, total.value >> 20, flush=True)
'''


class Program:
    def __init__(self, build, environment, device, step):
        self.process = subprocess.Popen([build / "server" / "frmps-run", sys.executable, "-c", PROGRAM, str(device), str(step)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def ask(self, word):
        """Return: what it has, what is free, what there is, MiB"""
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return [int(number) for number in self.process.stdout.readline().split()]

    def end(self):
        self.process.communicate()
        return self.process.returncode


def is_there(backend):
    """The driver, as the service finds it."""
    try:
        return backend == "host" or not ctypes.CDLL("libcuda.so.1").cuInit(0)
    except OSError:
        return False


class Check:
    def __init__(self):
        self.failed = False

    def __call__(self, what, good, more=""):
        self.failed |= not good
        print(f"{'ok' if good else 'FAILED':7} {what}{': ' if more else ''}{more}", flush=True)


def play(check, start, size, step):
    """@start: a program on a device"""
    one, other, beside = start(1), start(1), start(0)
    has, free, total = one.ask("look")
    check("a program sees the size of its device", total == size and has == 0 and 0 < free <= size, f"{free} of {total} MiB are free")
    has, free, _ = one.ask("take")
    check("it gets what is free, and no more", size - 3 * 1024 <= has <= size and free < step, f"{has} MiB, {free} are free")
    check("another one beside it gets nothing", other.ask("take")[0] == 0)
    _, free, total = beside.ask("look")
    check("the other device is that of the GPU", total > size, f"{total} MiB")
    if free > size + 4 * step:
        taken = beside.ask("take")[0]
        check("and gives what the GPU has left", taken > 0, f"{taken} MiB")
        beside.ask("give")
    one.ask("give")
    began, again = time.monotonic(), 0
    while not again and time.monotonic() - began < 60:
        again = other.ask("take")[0]
    check("what one has freed another one gets", again > has - 4 * step, f"{again} MiB after {time.monotonic() - began:.2f} s")
    check("programs end well", [program.end() for program in (one, other, beside)] == [0, 0, 0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default="build")
    parser.add_argument("--backend", choices=("cuda", "host"), default="cuda")
    parser.add_argument("--size", type=int, default=16, help="GiB, 2 at least")
    options = parser.parse_args()
    if not is_there(options.backend):
        print("no GPU")
        return 77
    build, size = options.build.resolve(), options.size << 10
    step, check = size // 64, Check()
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "FRMPS_SOCKET": os.path.join(folder, "frmps.sock"), "FRMPS_SHIM_DIR": str(build / "client")}
        configuration = pathlib.Path(folder, "conf")
        configuration.write_text(f"devices = 0,0\n[device 1]\ndevice_memory = {size}M\n", encoding="utf-8")
        with open(os.path.join(folder, "log"), "w+", encoding="utf-8") as log:
            service = subprocess.Popen([build / "server" / "frmps-server", "--config", configuration, "--backend", options.backend],
                                       env=environment, stderr=log)
            try:
                for device in "0", "1":
                    while subprocess.run([build / "server" / "frmpsctl", "--device", device, "ping"], env=environment,
                                         capture_output=True, check=False).returncode:
                        if service.poll() is not None:
                            raise SystemExit("the service does not start")
                        time.sleep(0.05)
                play(check, lambda device: Program(build, environment, device, step), size, step)
            finally:
                service.terminate()
                check("the service ends", service.wait() == 0)
                log.seek(0)
                print(log.read()[-4000:] if check.failed else "", end="")
    return int(check.failed)


if __name__ == "__main__":
    sys.exit(main())
