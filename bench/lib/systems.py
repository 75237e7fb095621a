"""The compared ways to reach the GPU: natively, through stock MPS, through frmps.

All systems run the same programs, which open whatever libcuda.so.1 the loader finds.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import weakref

from processes import with_children


def gpu_count():
    if not shutil.which("nvidia-smi"):
        return 0
    done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    return done.stdout.count("GPU ") if not done.returncode else 0


def is_gpu_here():
    return gpu_count() > 0


def processor_seconds(pid):
    """Processor time of a process so far; 0 without the process."""
    with contextlib.suppress(OSError):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


WEIGHTS = tuple(range(100, 900, 100))
SECTIONS = "".join(f"[program */weight_{weight}]\nweight = {weight}\n" for weight in WEIGHTS) + \
    "[program */offline]\nclass = offline\n[program */half]\nclass = offline\nsm_percent = 50\n"


class System:
    """A way to reach the GPU: environment for programs, and processes in the background."""

    name = "native"
    backend = "cuda"
    has_weights = False

    def __init__(self, build):
        self.build = build
        self.work = tempfile.mkdtemp(prefix="frmps-bench-")
        weakref.finalize(self, shutil.rmtree, self.work, ignore_errors=True)

    def environment(self, background=False):
        """Of a program. @background: other programs should not wait for it"""
        env = {key: value for key, value in os.environ.items()
               if key != "FRMPS_SOCKET" and not key.startswith("CUDA_MPS_")}
        shim = (self.build / "client").resolve()
        folders = [folder for folder in env.pop("LD_LIBRARY_PATH", "").split(":")
                   if folder and pathlib.Path(folder).resolve() != shim]
        return {**env, "LD_LIBRARY_PATH": ":".join(folders)} if folders else env

    def executable(self, program, called=None):
        """@called: a name; the program is then a copy with this name, for the service"""
        path = self.build / "bench" / program
        if not called:
            return path
        copy = pathlib.Path(self.work, program, called)
        if not copy.exists():
            copy.parent.mkdir(exist_ok=True)
            shutil.copy(path, copy)
        return copy

    def processes(self):
        """That work on behalf of the programs."""
        return []

    def service_cpu(self):
        """Processor seconds of the background processes so far."""
        return sum(processor_seconds(pid) for pid in self.processes())

    @contextlib.contextmanager
    def up(self, devices="0"):  # pylint: disable=unused-argument
        """@devices: those that a service serves, as in the configuration of frmps; the others have all"""
        yield self


class StockMps(System):
    """With the best settings: a control daemon of its own, its server started ahead, no limit of threads
    or memory, and its lower client priority for programs in the background."""

    name = "MPS"

    def environment(self, background=False):
        env = super().environment()
        env["CUDA_MPS_PIPE_DIRECTORY"] = self.work + "/pipe"
        env["CUDA_MPS_LOG_DIRECTORY"] = self.work + "/log"
        if background:
            env["CUDA_MPS_CLIENT_PRIORITY"] = "1"
        return env

    def control(self, order):
        """Nothing is heard of a control daemon that does not answer."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return subprocess.run(["nvidia-cuda-mps-control"], env=self.environment(), input=order + "\n", timeout=60,
                                  capture_output=True, text=True).stdout
        return ""

    def processes(self):
        return [int(word) for word in self.control("get_server_list").split() if word.isdigit()]

    def start(self):
        """MPS starts its server with the first program, which must not be measured."""
        os.makedirs(self.work + "/pipe", exist_ok=True)
        os.makedirs(self.work + "/log", exist_ok=True)
        first = [str(self.build / "bench" / "driver_path"), "first"]
        try:
            for command in (["nvidia-cuda-mps-control", "-d"], first):
                subprocess.run(command, env=self.environment(), check=True, stdout=subprocess.DEVNULL, timeout=60)
        except (OSError, subprocess.SubprocessError) as problem:
            raise RuntimeError(f"stock MPS did not come up: {problem}") from problem

    @contextlib.contextmanager
    def up(self, devices="0"):
        try:
            self.start()
            yield self
        finally:
            self.control("quit -t 1")


class Frmps(System):
    """Its configuration has sections only for programs with the names weight_NUMBER, offline or half.
    @settings: keys of the configuration, or (in capitals) of the service's environment; BUILD is the folder
    of service and library, if not that of the programs."""

    name = "frmps"
    has_weights = True

    def __init__(self, build, backend, name="frmps", settings=None):
        super().__init__(build)
        settings = dict(settings or {})
        self.name, self.backend = name, backend
        self.service = pathlib.Path(settings.pop("BUILD", build)).resolve()
        self.variables = {key: value for key, value in settings.items() if key.isupper()}
        self.config = {key: value for key, value in settings.items() if not key.isupper()}
        self.socket = self.work + "/frmps.sock"
        self.devices = "0"
        self.server = None

    def environment(self, background=False):
        env = super().environment()
        env["FRMPS_SOCKET"] = self.socket
        # PyTorch counts GPUs by NVML, which shows all of the machine.
        if self.devices != "all":
            env["CUDA_VISIBLE_DEVICES"] = self.devices
        env["LD_LIBRARY_PATH"] = f"{self.service / 'client'}:{env.get('LD_LIBRARY_PATH', '')}"
        if self.backend == "host":
            env["FRMPS_BENCH_MODULE"] = str(self.build / "bench" / "host_kernels.so")
        return env

    def processes(self):
        """The service's process and its descendants, at any depth."""
        return with_children([self.server.pid])

    def is_complete(self):
        """True if no executor is starting any more: a start would disturb the measurement."""
        try:
            found = json.loads(self.order("status", "--json"))
        except OSError:
            return False
        wanted = 1 + int(self.config.get("standbys", 1))
        return all(any(sum(one["state"] in ("active", "warm") for one in domain["executors"]) >= wanted
                       for domain in device["domains"])
                   for device in (found if isinstance(found, list) else [found]))

    def start(self, devices):
        self.devices = devices
        command = [str(self.service / "server" / "frmps-server"), "--socket", self.socket, "--backend", self.backend]
        config = pathlib.Path(self.work, "frmps.conf")
        keys = "".join(f"{key} = {value}\n" for key, value in {"devices": devices, **self.config}.items())
        config.write_text(keys + SECTIONS)
        with open(self.work + "/server.log", "w") as log:
            self.server = subprocess.Popen([*command, "--config", str(config)], stderr=log,
                                           env={**super().environment(), **self.variables})
        until = time.monotonic() + 60
        while not self.is_complete():
            if self.server.poll() is not None or time.monotonic() > until:
                log = pathlib.Path(self.work, "server.log").read_text()
                raise RuntimeError("frmps-server did not come up:\n" + log)
            time.sleep(0.05)

    @contextlib.contextmanager
    def up(self, devices="0"):
        try:
            self.start(devices)
            yield self
        finally:
            if self.server:
                self.stop()

    @contextlib.contextmanager
    def partition(self, chunks):
        """Makes a partition of so many chunks of multiprocessors. Return: CUDA_MPS_SM_PARTITION for its programs"""
        name = self.order("sm_partition", "add", "0", str(chunks)).split()[1]
        try:
            yield name
        finally:
            self.order("sm_partition", "rm", "0", name)

    def order(self, *words):
        """Return: the output of frmpsctl"""
        done = subprocess.run([str(self.service / "server" / "frmpsctl"), "--socket", self.socket, *words],
                              capture_output=True, text=True)
        if done.returncode:
            raise OSError(done.stderr.strip())
        return done.stdout

    def stop(self):
        self.server.send_signal(signal.SIGTERM)
        try:
            self.server.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.server.kill()
            self.server.wait()


def unbuilt(folder):
    """Return: the first file that is missing in a build folder, or None."""
    needed = ("server/frmps-server", "server/frmpsctl", "client/libcuda.so.1", "bench/driver_path", "bench/fault",
              "bench/scale", "bench/mix", "bench/shares", "bench/suspend", "bench/ring", "bench/host_kernels.so")
    return next((name for name in needed if not (folder / name).exists()), None)


def find(build, backend, variants=()):
    """The systems that are here, and notes on those that are not. @backend: cuda or host; variants: more of frmps,
    (name, settings)"""
    more = [Frmps(build, backend, name, settings) for name, settings in variants]
    if backend == "host":
        return [Frmps(build, "host"), *more], []
    notes = []
    if pathlib.Path("/tmp/nvidia-mps/control").exists():
        notes.append("An MPS daemon of the machine seems to run: native programs may go through it.")
    if not shutil.which("nvidia-cuda-mps-control"):
        notes.append("Stock MPS was not measured: there is no nvidia-cuda-mps-control.")
        return [System(build), Frmps(build, "cuda"), *more], notes
    return [System(build), StockMps(build), Frmps(build, "cuda"), *more], notes
