"""What the fault matrix (matrix.py) runs programs under: a private service of frmps, stock MPS, or nothing.

Nothing here sleeps to wait for somebody: programs say lines, the service's log is followed, and whatever has no line of
its own (a state in `frmpsctl status`) is looked at again at each line of the log. The log is a pipe with a thread of
ours at its end; each program's output is another one.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from processes import with_children
from program import Program


PATIENCE = 60  # seconds that a program or the service may take to do anything at all


class Broken(RuntimeError):
    """The system under test did not do what every run needs: it did not start, or never became quiet."""


class Log:
    """Lines of a pipe as they come."""

    def __init__(self, pipe, copy):
        self.lines = []
        self.changed = threading.Condition()
        self.ended = False
        self.copy = copy
        self.thread = threading.Thread(target=self._read, args=(pipe,), daemon=True)
        self.thread.start()

    def _read(self, pipe):
        with open(self.copy, "a") as copy:
            for line in pipe:
                copy.write(line)
                copy.flush()
                with self.changed:
                    self.lines.append(line.rstrip("\n"))
                    self.changed.notify_all()
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def position(self):
        with self.changed:
            return len(self.lines)

    def since(self, position):
        with self.changed:
            return self.lines[position:]

    def wait(self, holds, until):
        """Until holds(), which is looked at whenever there is something new; at least once a second, for what changes
        without a line. Return: what holds() said last."""
        seen = -1
        while True:
            with self.changed:
                while len(self.lines) == seen and not self.ended:
                    if not self.changed.wait(timeout=max(0.0, min(1.0, until - time.monotonic()))):
                        break
                seen = len(self.lines)
            value = holds()
            if value or self.ended or time.monotonic() >= until:
                return value


class System:
    """Programs run natively."""

    name = "native"

    def __init__(self, build, kernels):
        """@kernels: the module of each part that a program plays: survivor, culprit"""
        self.build = build
        self.kernels = kernels
        self.work = tempfile.mkdtemp(prefix="frmps-matrix-")

    def environment(self, policy):
        environment = dict(os.environ)
        environment.pop("FRMPS_SOCKET", None)
        environment["FRMPS_LOG"] = "off"
        return environment

    def start(self, arguments, policy="fail", cap=None):
        """@cap: how many of the multiprocessors it may use, percent; None: all"""
        environment = self.environment(policy)
        if cap:
            environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(cap)
        part = "survivor" if arguments[:2] == ["culprit", "same"] else arguments[0]
        environment["FRMPS_BENCH_MODULE"] = str(self.kernels[part])
        return Program([str(self.build / "tests" / "matrix_worker"), *arguments], environment)

    def up(self):
        pass

    def down(self):
        shutil.rmtree(self.work, ignore_errors=True)

    def quiet(self, clients, until, gone=None):
        """Until nothing of an earlier run is left."""

    def crash(self):
        """What must never be: the reason, or an empty text."""
        return ""


class StockMps(System):
    name = "mps"

    def environment(self, policy):
        environment = super().environment(policy)
        environment["CUDA_MPS_PIPE_DIRECTORY"] = self.work + "/pipe"
        environment["CUDA_MPS_LOG_DIRECTORY"] = self.work + "/log"
        return environment

    def control(self, order):
        return subprocess.run(["nvidia-cuda-mps-control"], env=self.environment("fail"), input=order + "\n", text=True,
                              capture_output=True).stdout

    def up(self):
        os.makedirs(self.work + "/pipe", exist_ok=True)
        os.makedirs(self.work + "/log", exist_ok=True)
        subprocess.run(["nvidia-cuda-mps-control", "-d"], env=self.environment("fail"), check=True)

    def down(self):
        self.control("quit -t 1")
        super().down()

    def victim(self, role):
        pids = self.control("get_server_list").split()
        return int(pids[0]) if role == "active" and pids else None


class Frmps(System):
    """A private service, of one GPU as a rule."""

    name = "frmps"

    def __init__(self, build, kernels, backend, more="", devices="0"):
        super().__init__(build, kernels)
        self.backend = backend
        self.device_count = devices.count(",") + 1
        self.socket = self.work + "/frmps.sock"
        self.config = f"devices = {devices}\nlog_level = debug\nquarantine_faults = 0\n{more}"
        self.log_path = self.work + "/log"
        self.server = None
        self.log = None
        self.sessions = {}
        self.parsed = 0

    def environment(self, policy):
        environment = super().environment(policy)
        environment["FRMPS_SOCKET"] = self.socket
        # PyTorch counts GPUs by NVML, which shows all of the machine.
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(str(number) for number in range(self.device_count))
        environment["FRMPS_RECOVERY"] = policy
        environment["LD_LIBRARY_PATH"] = f"{self.build / 'client'}:{environment.get('LD_LIBRARY_PATH', '')}"
        return environment

    def up(self):
        path = pathlib.Path(self.work, "conf")
        path.write_text(self.config)
        self.server = subprocess.Popen([str(self.build / "server" / "frmps-server"), "--config", str(path), "--socket",
                                        self.socket, "--backend", self.backend], stderr=subprocess.PIPE, text=True)
        self.log = Log(self.server.stderr, self.log_path)
        self.log.wait(lambda: any("ready: " in line for line in self.log.since(0)), time.monotonic() + 60)
        if not any("ready: " in line for line in self.log.since(0)):
            raise Broken("frmps-server did not come up:\n" + "\n".join(self.log.since(0)[-20:]))

    def down(self):
        if self.server and self.server.poll() is None:
            self.server.send_signal(signal.SIGTERM)
            try:
                self.server.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self.server.kill()
                self.server.wait()
        self.log.thread.join()
        self.server.stderr.close()
        super().down()

    def status(self):
        """None while nobody answers."""
        answer = subprocess.run([str(self.build / "server" / "frmpsctl"), "--socket", self.socket, "status", "--json"],
                                capture_output=True, text=True)
        with contextlib.suppress(ValueError):
            return json.loads(answer.stdout)
        return None

    def domain(self, status):
        return next((d for d in status["domains"] if d["uid"] is not None), None) if status else None

    def is_quiet(self, clients, gone):
        status = self.status()
        domains = [domain for domain in status["domains"] if domain["uid"] is not None] if status else []
        served = [client for domain in domains for client in domain["clients"]]
        pids = [executor["pid"] for domain in domains for executor in domain["executors"]]
        keeper = status["keeper"] if status else None
        return (bool(domains) and bool(keeper) and keeper["state"] == "serving" and len(served) == clients and
                all(self.is_settled(domain) for domain in domains) and
                gone not in [status["pid"], keeper["pid"], *pids])

    @staticmethod
    def is_settled(domain):
        """One for one program alone has no standby."""
        states = sorted((executor["role"], executor["state"]) for executor in domain["executors"])
        wanted = [("active", "active")] if domain["alone"] else [("active", "active"), ("standby", "warm")]
        return domain["state"] == "steady" and states == wanted

    def quiet(self, clients, until, gone=None):
        """Until `clients` programs are served and a standby is warm; `gone` is a process that was killed."""
        if not self.log.wait(lambda: self.is_quiet(clients, gone), until):
            raise self.broken("the service does not become quiet")

    def broken(self, what, position=0):
        """An exception that says how the service is, and the end of its log since a position."""
        status = self.status()
        return Broken(f"{what}: " + (json.dumps(self.domain(status)) if status else "nobody answers") + "\n" +
                      "\n".join(self.log.since(position)[-20:]))

    def executor(self, pid):
        """What the daemon has heard of an executor so far; nothing if it is not there."""
        return next((executor for executor in self.domain(self.status())["executors"] if executor["pid"] == pid), {})

    def victim(self, role):
        """The process to kill."""
        status = self.status()
        if role == "daemon":
            return status["pid"]
        if role == "keeper":
            return status["keeper"]["pid"]
        return next(executor["pid"] for executor in self.domain(status)["executors"] if executor["role"] == role)

    def pid_of(self, session):
        """The process of a session, however long ago."""
        lines = self.log.since(self.parsed)
        self.parsed += len(lines)
        for line in lines:
            match = re.search(r"session opened: (\d+) \(process (\d+)", line)
            if match:
                self.sessions[match[1]] = int(match[2])
        return self.sessions.get(session, 0)

    def blamed(self, lines):
        """Processes that these lines of the log say are guilty."""
        pids = set()
        for line in lines:
            match = re.search(r"verdict: culprit is (process .*?), kernel ", line)
            if match:
                pids |= {int(pid) for pid in re.findall(r"process (\d+)", match[1])}
            for pattern in (r"a kernel of session (\d+) wrote outside",
                            r"a fault is contained: kernel .* of session (\d+)"):
                match = re.search(pattern, line)
                if match:
                    pids.add(self.pid_of(match[1]))
            match = re.search(r"work of process (\d+) .* longer than max_kernel_seconds", line)
            if match:
                pids.add(int(match[1]))
        return pids

    @staticmethod
    def phases(lines):
        """Milliseconds of each phase of the verdicts in these lines."""
        found = []
        for line in lines:
            match = re.search(r"verdict: .*; (took|contained in|ended in) ([\d.]+) ms(?: \((.*)\))?$", line)
            if match:
                pairs = [phase.rsplit(" ", 1) for phase in match[3].split(", ")] if match[3] else [(match[1].split()[0], match[2])]
                found.append({name: float(ms) for name, ms in pairs} | {"in all": float(match[2])})
        return found

    def crash(self):
        if self.server.poll() is not None:
            return "frmps-server has ended"
        for line in self.log.since(0):
            if re.search(r"Sanitizer|runtime error:|daemon was ended by signal (?!9 )", line):
                return line
        return ""

    # What must not grow.

    def processes(self):
        """By role: the holder, the daemon, the keeper, executors."""
        status = self.status()
        found = {"holder": [self.server.pid], "daemon": [status["pid"]], "keeper": [status["keeper"]["pid"]],
                 "executors": [e["pid"] for d in status["domains"] for e in d["executors"]]}
        return found

    def tree(self):
        """The service's own and all that it has started, at any depth."""
        return with_children([self.server.pid])

    def holdings(self):
        """What the service's processes hold now, as numbers by name."""
        roles = self.processes()
        found = {"processes": len(self.tree())}
        for role, pids in roles.items():
            found[f"fds of {role}"] = sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids)
        for role in ("holder", "daemon", "keeper"):
            status = pathlib.Path(f"/proc/{roles[role][0]}/status").read_text()
            found[f"KiB of {role}"] = int(re.search(r"RssAnon:\s+(\d+)", status)[1])
            found[f"threads of {role}"] = int(re.search(r"Threads:\s+(\d+)", status)[1])
        found["KiB shared"] = self.shared_bytes() >> 10
        found["device MiB"] = self.device_bytes(roles["executors"]) >> 20
        return found

    def shared_bytes(self):
        """Of all memory that the service has descriptors of, as far as it is used."""
        files = {}
        for pid in self.tree():
            with contextlib.suppress(OSError):
                for path in pathlib.Path(f"/proc/{pid}/fd").iterdir():
                    with contextlib.suppress(OSError):
                        if os.readlink(path).startswith("/memfd:"):
                            stat = path.stat()
                            files[stat.st_ino] = stat.st_blocks * 512
        return sum(files.values())

    def device_bytes(self, executors):
        """Of the whole GPU, or the chunks of memory that the host backend's executors have mapped."""
        if self.backend == "cuda":
            query = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                                   capture_output=True, text=True, check=True)
            return int(query.stdout.split()[0]) << 20
        chunks = {}
        for pid in executors:
            for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
                place, _, offset, _, inode, *name = line.split()
                if name and name[0].startswith("/memfd:frmps-chunk"):
                    low, high = (int(word, 16) for word in place.split("-"))
                    chunks[inode] = max(chunks.get(inode, 0), int(offset, 16) + high - low)
        return sum(chunks.values())

    def is_sanitized(self):
        return "libasan" in pathlib.Path(f"/proc/{self.server.pid}/maps").read_text()
