"""Programs beside faults: what the scripts of faults have in common (matrix.py, exceptions.py, framework_faults.py,
real_culprits.py). A stage is a system (matrix_systems.py) with survivors, which live through all that happens, and
culprits, which fault once."""

import argparse
import contextlib
import json
import pathlib
import shutil
import signal
import sys
import tempfile
import time

from machine import machine
from matrix_systems import PATIENCE, Broken
from systems import is_gpu_here

BUILD = pathlib.Path(__file__).resolve().parents[2] / "build"


def until(seconds=PATIENCE):
    return time.monotonic() + seconds


class Survivor:
    """A program that says `ready`, and answers orders until it is told to stop. @more: how many kernels, or other pieces
    of its work, a pause is measured with"""

    def __init__(self, program, more=20, patience=PATIENCE):
        self.program, self.more, self.patience = program, more, patience

    def has_ended(self):
        return bool(self.program.result) or self.program.process.poll() is not None

    def errors(self):
        return "".join(self.program.errors)[-2000:]

    def expect(self, word):
        """Return: its line; None if it has ended. One that says nothing in time is killed."""
        line = self.program.hear(word, until(self.patience))
        if not line and not self.has_ended():
            self.program.kill()  # HANG
        return line

    def end(self):
        """Return: its last words, when it has looked at everything once more."""
        self.program.say("stop")
        self.program.end(until(self.patience))
        self.program.close()
        outcome = "HANG" if self.program.process.returncode == -signal.SIGKILL else "died"
        return self.program.result or {"outcome": outcome, "errors": self.errors()}


class Stage:
    """@system: is up while anybody is on the stage"""

    def __init__(self, system, patience=PATIENCE):
        self.system, self.patience = system, patience
        self.survivors = {}  # by name

    def enter(self, survivors):
        """Adds survivors that were just started. @survivors: by name"""
        self.survivors |= survivors
        for name, survivor in survivors.items():
            if not survivor.expect("ready"):
                raise Broken(f"{name} does not start: {survivor.errors()}")

    def quiet(self, culprits=0, gone=None):
        """Until only those who have not ended are served, and so many culprits; `gone` is a process that was killed."""
        running = sum(1 for survivor in self.survivors.values() if not survivor.has_ended())
        self.system.quiet(running + culprits, until(self.patience), gone)

    def ask(self, order, word):
        """@order: may have {more}, the survivor's. Return: the answers by name; None of those that have ended."""
        asked = {name: survivor for name, survivor in self.survivors.items() if not survivor.program.result}
        for survivor in asked.values():
            survivor.program.say(order.format(more=survivor.more))
        return dict.fromkeys(self.survivors) | {name: survivor.expect(word) for name, survivor in asked.items()}

    def watch(self):
        """From now on survivors measure."""
        self.ask("watch", "watching")

    def measured(self):
        """Waits until survivors have gone on. Return: what each has measured, longest gap first, by name; None of those
        that have ended."""
        return {name: [float(word) for word in line.split()[1:]] if line else None
                for name, line in self.ask("more {more}", "more").items()}

    def leave(self):
        """Return: the last words of all survivors, by name."""
        survivors, self.survivors = self.survivors, {}
        for survivor in survivors.values():
            survivor.program.say("stop")
        return {name: survivor.end() for name, survivor in survivors.items()}

    def close(self):
        """Ends those who are left, wherever they are."""
        for survivor in self.survivors.values():
            survivor.program.close()
        self.survivors = {}

    def expect_ready(self, culprits):
        for culprit in culprits:
            if not culprit.hear("ready", until(self.patience)):
                raise Broken(f"a culprit does not start: {''.join(culprit.errors)}")

    @contextlib.contextmanager
    def culprits(self, programs):
        """Programs that were started and are ready in the block, and gone behind it."""
        try:
            self.expect_ready(programs)
            yield programs
        finally:
            for program in programs:
                program.close()

    def codes(self, culprits):
        """Waits for the ends of culprits. Return: the error that each got."""
        found = [culprit.end(until(self.patience)) for culprit in culprits]
        for culprit in culprits:
            culprit.close()
        return [one["code"] if one else None for one in found]


# The frame of such a script.


def make_parser(text):
    found = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--build", type=lambda path: pathlib.Path(path).resolve(), default=BUILD)
    found.add_argument("--out", default="", metavar="FILE.json")
    return found


def words(known):
    """A type of arguments: some of these words, with commas."""
    def parse(text):
        unknown = [word for word in text.split(",") if word not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown[0]} is none of {', '.join(known)}")
        return text.split(",")
    return parse


def save(path, content):
    """Writes a result with the machine that it is of, if there is a path."""
    if path:
        block = {"machine": machine(), "command": " ".join([pathlib.Path(sys.argv[0]).name, *sys.argv[1:]])}
        pathlib.Path(path).write_text(json.dumps({**block, **content}, indent=1) + "\n")


def main(run, needs_gpu=True):
    """@run: with a folder for files; says whether all is well. Return: the exit status of the script"""
    if needs_gpu and not is_gpu_here():
        print("no GPU")
        return 77
    print("machine:", json.dumps(machine()), flush=True)
    work = tempfile.mkdtemp(prefix="frmps-faults-")
    try:
        return 0 if run(work) else 1
    finally:
        shutil.rmtree(work)
