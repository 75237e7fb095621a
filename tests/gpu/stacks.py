#!/usr/bin/env python3
"""What processes wait for, thread by thread: for programs and services that say nothing any more.

usage: stacks.py PID...

Each process and all that it has started, at any depth. Of each thread: its name and state, the system call it is in and
from where (a library and the offset in it; for an ioctl also the file), the function of the kernel it sleeps in, and the
kernel's stack where that may be read. Backtraces follow where gdb is there, which stops a process while it looks; the end
of the kernel's log is last.
"""

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench" / "lib"))
from processes import with_children  # noqa: E402

STALL_SECONDS = 5.0
LOG_LINES = 40
CALLS = {0: "read", 7: "poll", 16: "ioctl", 35: "nanosleep", 47: "recvmsg", 61: "wait4", 202: "futex", 230: "clock_nanosleep",
         232: "epoll_wait", 271: "ppoll", 281: "epoll_pwait"}  # x86-64


def text_of(path):
    with contextlib.suppress(OSError):
        return pathlib.Path(path).read_text(errors="replace").strip()
    return ""


def place(maps, address):
    """The file that an address of a process lies in, and where in it."""
    for line in maps:
        fields = line.split(maxsplit=5)
        low, high = (int(word, 16) for word in fields[0].split("-"))
        if low <= address < high:
            name = os.path.basename(fields[5]) if len(fields) > 5 else "anonymous"
            return f"{name}+{address - low + int(fields[2], 16):#x}"
    return f"{address:#x}"


def call(pid, maps, line):
    """@line: of /proc/PID/task/TID/syscall: a number, six arguments, the stack and the next instruction"""
    words = line.split()
    if not words or not words[0].isdigit():
        return line  # it runs, or may not be looked at
    number, arguments = int(words[0]), [int(word, 16) for word in words[1:7]]
    name = CALLS.get(number, f"call {number}")
    if name == "ioctl":
        with contextlib.suppress(OSError):
            name += f" {arguments[1]:#x} of {os.readlink(f'/proc/{pid}/fd/{arguments[0]}')}"
    return f"{name} from {place(maps, int(words[8], 16))}"


def threads_of(pid):
    maps = text_of(f"/proc/{pid}/maps").splitlines()
    for task in sorted(pathlib.Path(f"/proc/{pid}/task").glob("[0-9]*"), key=lambda path: int(path.name)):
        state = text_of(task / "stat").rpartition(") ")[2][:1]
        yield (f"  {task.name} {text_of(task / 'comm'):16} {state or '?'}  {call(pid, maps, text_of(task / 'syscall'))}"
               f"  [{text_of(task / 'wchan')}]")
        yield from ("      " + line for line in text_of(task / "stack").splitlines()[:12])


def backtraces(pid):
    if not shutil.which("gdb"):
        return []
    command = ["gdb", "-p", str(pid), "-batch", "-ex", "set pagination off", "-ex", "thread apply all backtrace 16"]
    with contextlib.suppress(subprocess.TimeoutExpired):
        found = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=60)
        return ["    " + line for line in found.stdout.splitlines() if line.startswith(("#", "Thread"))]
    return ["    gdb does not come back"]


def kernel_log():
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run(["dmesg"], capture_output=True, text=True, errors="replace",
                              timeout=10).stdout.splitlines()[-LOG_LINES:]
    return []


def stacks(pids):
    """Lines. What can be read without stopping anybody comes first, of all."""
    everybody = with_children(dict.fromkeys(pids))
    lines = [f"at {time.time():.3f}, {text_of('/proc/uptime').split()[0]} s after the machine's start"]
    for pid in everybody:
        command = text_of(f"/proc/{pid}/cmdline").replace("\0", " ")[:120]
        lines += [f"process {pid}: {command}", *threads_of(pid)]
    for pid in everybody:
        lines += [f"backtraces of process {pid}", *backtraces(pid)]
    return [*lines, "kernel log", *kernel_log()]


class Stall(threading.Thread):
    """Looks at everybody when a number has stood still for STALL_SECONDS; once each time it does.

    @number: called four times a second; @pids: called when it is time; @report: called with the lines"""

    def __init__(self, number, pids, report):
        super().__init__(daemon=True)
        self.number, self.pids, self.report = number, pids, report
        self.over = threading.Event()

    def run(self):
        last, since = None, time.monotonic()
        while not self.over.wait(0.25):
            now = self.number()
            if now != last:
                last, since = now, time.monotonic()
            elif time.monotonic() - since > STALL_SECONDS:
                self.report(stacks(self.pids()))
                since = float("inf")

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()


if __name__ == "__main__":
    if len(sys.argv) < 2 or not all(word.isdigit() for word in sys.argv[1:]):
        sys.exit(__doc__)
    print("\n".join(stacks([int(word) for word in sys.argv[1:]])))
