#!/usr/bin/env python3
"""PyTorch programs that are saved in files at random moments, end, and come back, compute what they compute undisturbed,
to the bit.

usage: saved_training.py [--build BUILD] [--times N] [--seed SEED] [--in FOLDER]

A training, a decoder in a CUDA graph, and two processes that share tensors run side by side, and each is saved N times
(6) at random moments: every other time it goes on beside its files, else it ends and comes back from them. Then they are
told to end, and others do as many steps undisturbed. With --times 17 that is 51 moments. The programs are those of
suspended_training.py; CRIU saves their processes. FOLDER has the files (a folder in /dev/shm). Exit status: 1 if a
checksum differs or a program or an order fails; 77 without a GPU, PyTorch, or a CRIU that works.
"""

import contextlib
import ctypes
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "bench" / "lib"), str(HERE)]
import suspended_training  # noqa: E402
from processes import with_children  # noqa: E402
from suspended_training import PATIENCE, STEPS, Failed, disturbed, parser_of  # noqa: E402

PR_SET_CHILD_SUBREAPER = 36


def is_there(pid):
    """This process is the parent of all that a restore has made, and of children that a program has left."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    return pathlib.Path(f"/proc/{pid}").exists()


class Saved:
    """A program whose pipe to this one has a name: another one could not be saved."""

    def __init__(self, system, name, folder):
        self.name, self.system = name, system
        self.output, self.errors = folder / (name + ".out"), folder / (name + ".err")
        environment = {**system.environment("fail"), "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
        orders = folder / (name + ".in")
        orders.unlink(missing_ok=True)
        os.mkfifo(orders)
        # Open for both, so that the pipe never ends.
        self.orders = os.open(orders, os.O_RDWR)
        with self.output.open("w") as output, self.errors.open("w") as errors, orders.open("r+b", buffering=0) as given:
            self.pid = subprocess.Popen([sys.executable, "-B", suspended_training.__file__, "--program", name],
                                        env=environment, stdin=given, stdout=output, stderr=errors,
                                        start_new_session=True).pid
        self.wait("ready")

    def say(self, line):
        os.write(self.orders, line + b"\n")

    def wait(self, text):
        until = time.monotonic() + PATIENCE
        while text not in self.output.read_text():
            if time.monotonic() > until or not self.is_there():
                if text in self.output.read_text():
                    return
                raise Failed(f"{self.name} does not say {text}: {self.errors.read_text()[-2000:]}")
            time.sleep(0.01)

    def is_there(self):
        return is_there(self.pid)

    def result(self):
        self.wait("checksum")
        return json.loads(self.output.read_text().splitlines()[-1])

    def session(self):
        found = [client["session"] for domain in self.system.status()["domains"] for client in domain["clients"]
                 if client["pid"] == self.pid]
        if not found:
            raise Failed(f"{self.name} has no session: {self.errors.read_text()[-2000:]}")
        return found[0]


def order(system, *words):
    """Return: (seconds that it took, what it says if it fails)"""
    begin = time.monotonic()
    done = subprocess.run([str(system.build / "server" / "frmpsctl"), "--socket", system.socket, *words], capture_output=True,
                          text=True)
    return time.monotonic() - begin, done.stderr.strip() if done.returncode else ""


def disturb(program, folder, ends):
    saved, pids = folder / "saved", with_children([program.pid])
    took, problem = order(program.system, "checkpoint", str(program.session()), str(saved), *(["--end"] if ends else []))
    if problem:
        raise Failed(f"{program.name} is not saved: {problem}")
    size = sum(file.stat().st_size for file in saved.rglob("*") if file.is_file())
    text = f"      {program.name}: {size >> 20} MiB, saved in {took:.3f} s"
    if ends:
        until = time.monotonic() + PATIENCE
        while any(is_there(pid) for pid in pids):
            if time.monotonic() > until:
                raise Failed(f"{program.name} does not end")
            time.sleep(0.001)
        took, problem = order(program.system, "restore", str(saved))
        if problem:
            raise Failed(f"{program.name} is not restored: {problem}")
        text += f", restored in {took:.3f} s"
    print(text, flush=True)
    shutil.rmtree(saved)


def results(programs):
    return {program.name: program.result() for program in programs}


def play_in(system, times, folder):
    programs = [Saved(system, name, folder) for name in STEPS]
    for program in programs:
        program.say(b"go on")
    for number in range(times):
        for program in programs:
            time.sleep(random.random() * 0.3)
            disturb(program, folder, number % 2)
    for program in programs:
        program.say(b"end")
    found = results(programs)
    undisturbed = [Saved(system, name, folder) for name in STEPS]
    for program in undisturbed:
        program.say(b"go %d" % found[program.name]["steps"])
    expected = results(undisturbed)
    for name, result in found.items():
        if result != expected[name]:
            raise Failed(f"{name} has computed something else than undisturbed")
        print(f"ok    {name}: saved {times} times in {result['steps']} steps")
    for line in system.log.since(0):
        if any(text in line for text in ("has been saved", "has come from files", "is on the device again")):
            print("     ", line.split("info: ")[-1].strip())


def has_criu():
    with contextlib.suppress(OSError):
        return subprocess.run(["criu", "check"], capture_output=True).returncode == 0
    return False


def main():
    parser = parser_of(__doc__, 6, 13)
    parser.add_argument("--in", dest="folder", type=pathlib.Path, default="/dev/shm")
    options = parser.parse_args()
    if not has_criu():
        print("no CRIU that works")
        return 77
    # Restored processes are children of nobody who is still there.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        return disturbed(options, lambda system, times: play_in(system, times, pathlib.Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
