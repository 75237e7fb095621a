"""The second fault of the fault matrix (matrix.py --second): a fault that is examined, and every phase of a promotion,
interrupted once.

A phase is held for as long as it takes to interrupt it, so that nothing depends on who is faster, but for waiting:
  examining   the device stands still for long behind the fault (FRMPS_HOST_FAULT_MS: the host backend's alone)
  fencing     the service's main process, which waits for the executors' ends, is stopped
  waiting     the only standby is stopped before it is warm; the phase ends when another executor has started
  activating  the standby is stopped when it is warm
  steady      again, and nobody has taken the place of the standby yet: the phase ends by itself, later
What happens then:
  fault       a kernel of another culprit faults
  active      the active executor is killed: with SIGKILL, as the kernel does when memory runs out
  standby     the one that would take over or is taking over is killed; in steady the next one, while it warms
  daemon      the daemon is killed
"""

import contextlib
import os
import pathlib
import re
import signal
import time

from matrix_systems import Broken
from stage import until

PHASES = {
    "examining": ("fault", "active", "standby", "daemon", "keeper"),
    "fencing": ("standby", "daemon", "keeper"),
    "waiting": ("standby", "daemon", "keeper"),
    "activating": ("standby", "daemon", "keeper"),
    "steady": ("fault", "active", "standby", "daemon", "keeper"),
}
SECONDS = tuple(f"{phase}-{what}" for phase, events in PHASES.items() for what in events)
FAULT_ROWS = ("trap", "far-write", "far-read", "null", "misaligned", "shared", "assert", "illegal", "stack")
SECOND_FAULT = "illegal"
FAULT_MS = 1000  # how long a fault is examined


def is_reached(second, row):
    """Whether what follows this row passes through the phase: a contained fault costs no executor."""
    return row in FAULT_ROWS if second.startswith("examining-") else row == "kill-active"


def must_be_exact(second, row):
    """Whether all that survivors had on the device ends before anything is cut, and nothing is issued after it."""
    return row != "kill-active" and second != "examining-active"


class Second:
    """What a run (matrix.py) has of it: prepare() before the first fault, strike() behind it."""

    def __init__(self, name):
        self.phase, self.what = name.split("-")
        self.culprit = self.gone = self.stopped = None

    # Before.

    def prepare(self, run):
        self.system, self.log = run.system, run.system.log
        self.until = until()
        if self.what == "fault":
            self.culprit = run.start_culprit(SECOND_FAULT, "--wait-ms", "30000")
        if self.phase == "fencing":
            self.stop(self.system.server.pid)
        elif self.phase == "activating":
            self.stop_ready()
        elif self.phase == "waiting":
            self.stop_unready()
        self.position = self.log.position()
        self.first = run.culprit

    def stop(self, pid):
        """What it was about to say when the signal came is said when this returns."""
        os.kill(pid, signal.SIGSTOP)
        self.stopped = pid
        while not all(self.is_still(thread) for thread in pathlib.Path("/proc", str(pid), "task").iterdir()):
            time.sleep(0.001)

    @staticmethod
    def is_still(thread):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            return (thread / "stat").read_text().rpartition(")")[2].split()[0] in "TtZX"
        return True

    def release(self):
        if self.stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.stopped, signal.SIGCONT)
        self.stopped = None

    def started(self, position):
        """The latest executor that was started since."""
        found = [re.search(r"executor (\d+) is started", line) for line in self.log.since(position)]
        return next((int(match[1]) for match in reversed(found) if match), None)

    def next_executor(self, position):
        pid = self.log.wait(lambda: self.started(position), self.until)
        if not pid:
            raise Broken("no executor was started in place of one that was killed")
        return pid

    def stop_ready(self):
        """One that owes answers is not chosen."""
        while time.monotonic() < self.until:
            self.stop(self.system.victim("standby"))
            if self.system.executor(self.stopped).get("behind") == 0:
                return
            self.release()
            time.sleep(0.01)
        raise Broken("the standby always owes answers")

    def stop_unready(self):
        """A standby that got warm before it could be stopped makes room for another one."""
        victim = self.system.victim("standby")
        while time.monotonic() < self.until:
            position = self.log.position()
            os.kill(victim, signal.SIGKILL)
            victim = self.next_executor(position)
            self.stop(victim)
            self.system.status()  # until it is answered the daemon hears what the executor had said before
            if self.system.executor(victim).get("state") != "warm":
                return
        raise Broken("no standby was stopped before it was warm")

    def let_fault(self):
        self.culprit.say("go")
        if not self.culprit.hear("launched", self.until):
            raise Broken("the second culprit did not launch")

    # In the phase.

    def said(self, text):
        return any(text in line for line in self.log.since(self.position))

    def is_reached(self):
        if self.phase == "examining":
            return self.first.hear("launched", self.until)
        if self.phase == "waiting":
            return self.said("no standby is ready")
        if self.phase == "steady":
            return self.said("promotion: executor")
        status = self.system.status()
        return status and self.system.domain(status)["state"] == self.phase

    def is_over(self):
        last = {"examining": "verdict: ", "waiting": "promotion: executor"}
        return self.phase in last and self.said(last[self.phase])

    def victim(self):
        """The process to kill; `standby` is the one that was stopped, if any was."""
        if self.what != "standby":
            return self.system.victim(self.what)
        if self.phase == "steady":
            return self.next_executor(self.position)
        return self.stopped if self.phase != "fencing" and self.stopped else self.system.victim("standby")

    def strike(self):
        """Return: False if the phase was over before."""
        if not self.log.wait(self.is_reached, self.until):
            raise self.system.broken(f"the promotion does not get to {self.phase}", self.position)
        if self.culprit:
            self.let_fault()
        else:
            self.gone = self.victim()
            os.kill(self.gone, signal.SIGKILL)
        in_time = not self.is_over()
        if self.what == "daemon" and self.phase != "fencing":
            self.log.wait(lambda: self.said("the daemon was ended by signal 9"), self.until)
        self.release()
        return in_time

    def close(self):
        self.release()
        if self.culprit:
            self.culprit.close()
