"""The ways to reach the GPU that are compared: natively, through stock MPS, through frmps.

A program is the same for all of them: it opens whatever libcuda.so.1 the loader finds.
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


def is_gpu_here():
    if not shutil.which("nvidia-smi"):
        return False
    return subprocess.run(["nvidia-smi", "-L"], capture_output=True).returncode == 0


def processor_seconds(pid):
    """What a process has used so far; 0 if there is none."""
    with contextlib.suppress(OSError):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


class System:
    """One way to reach the GPU: environment for programs, and what runs in the background meanwhile."""

    name = "native"

    def __init__(self, build):
        self.build = build
        self.work = tempfile.mkdtemp(prefix="frmps-bench-")

    def environment(self):
        env = dict(os.environ)
        env.pop("FRMPS_SOCKET", None)
        return env

    def processes(self):
        """That work on behalf of the programs."""
        return []

    def service_cpu(self):
        """Processor seconds that they have used so far."""
        return sum(processor_seconds(pid) for pid in self.processes())

    @contextlib.contextmanager
    def up(self):
        yield self


class StockMps(System):
    name = "MPS"

    def environment(self):
        env = super().environment()
        env["CUDA_MPS_PIPE_DIRECTORY"] = self.work + "/pipe"
        env["CUDA_MPS_LOG_DIRECTORY"] = self.work + "/log"
        return env

    def control(self, order):
        return subprocess.run(["nvidia-cuda-mps-control"], env=self.environment(), input=order + "\n",
                              capture_output=True, text=True).stdout

    def processes(self):
        return [int(word) for word in self.control("get_server_list").split() if word.isdigit()]

    @contextlib.contextmanager
    def up(self):
        os.makedirs(self.work + "/pipe", exist_ok=True)
        os.makedirs(self.work + "/log", exist_ok=True)
        subprocess.run(["nvidia-cuda-mps-control", "-d"], env=self.environment(), check=True)
        try:
            # It starts its server with the first program: that one is not to be measured.
            subprocess.run([str(self.build / "bench" / "driver_path"), "first"], env=self.environment(), check=True,
                           capture_output=True)
            yield self
        finally:
            self.control("quit")


class Frmps(System):
    """@settings: keys of the configuration, or (in capitals) of the service's environment; BUILD is where service and
    library come from, if they are not those of the programs."""

    name = "frmps"

    def __init__(self, build, backend, name="frmps", settings=None):
        super().__init__(build)
        settings = dict(settings or {})
        self.name, self.backend = name, backend
        self.service = pathlib.Path(settings.pop("BUILD", build)).resolve()
        self.variables = {key: value for key, value in settings.items() if key.isupper()}
        self.config = {key: value for key, value in settings.items() if not key.isupper()}
        self.socket = self.work + "/frmps.sock"
        self.server = None

    def environment(self):
        env = super().environment()
        env["FRMPS_SOCKET"] = self.socket
        env["LD_LIBRARY_PATH"] = f"{self.service / 'client'}:{env.get('LD_LIBRARY_PATH', '')}"
        if self.backend == "host":
            env["FRMPS_BENCH_MODULE"] = str(self.build / "bench" / "host_kernels.so")
        return env

    def processes(self):
        """The service's own and all that it has started, at any depth."""
        found = [self.server.pid]
        for pid in found:
            with contextlib.suppress(OSError):
                for path in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
                    found += [int(child) for child in path.read_text().split()]
        return found

    def is_complete(self):
        """Whether no executor is starting any more: what is measured is not to pay for it."""
        status = subprocess.run([str(self.service / "server" / "frmpsctl"), "status", "--json", "--socket", self.socket],
                                capture_output=True)
        if status.returncode != 0:
            return False
        domains = json.loads(status.stdout)["domains"]
        wanted = 1 + int(self.config.get("standbys", 1))
        return any(sum(one["state"] in ("active", "warm") for one in domain["executors"]) >= wanted
                   for domain in domains)

    @contextlib.contextmanager
    def up(self):
        log = open(self.work + "/server.log", "w")
        command = [str(self.service / "server" / "frmps-server"), "--socket", self.socket, "--backend", self.backend]
        if self.config:
            config = pathlib.Path(self.work, "frmps.conf")
            config.write_text("".join(f"{key} = {value}\n" for key, value in self.config.items()))
            command += ["--config", str(config)]
        self.server = subprocess.Popen(command, stderr=log, env={**os.environ, **self.variables})
        until = time.monotonic() + 60
        while not self.is_complete():
            if self.server.poll() is not None or time.monotonic() > until:
                raise RuntimeError("frmps-server did not come up:\n" + open(log.name).read())
            time.sleep(0.05)
        try:
            yield self
        finally:
            self.server.send_signal(signal.SIGTERM)
            self.server.wait(timeout=30)


def all_here(build, variants=()):
    """Every system where there is a GPU; else frmps on the host backend. @variants: more of frmps, (name, settings)"""
    here = [System(build), StockMps(build), Frmps(build, "cuda")] if is_gpu_here() else [Frmps(build, "host")]
    return here + [Frmps(build, here[-1].backend, name, settings) for name, settings in variants]
