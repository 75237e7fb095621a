#!/usr/bin/env python3
"""PyTorch programs beside faults: what they compute must be what they compute without any.

usage: framework_faults.py [--build BUILD] [--on-fault default,fast] [--rows ROW,...] [--loops LOOP,...] [--lives N]
                           [--out FILE.json]

A life is one service with all loops (framework_survivor.py) at once, beside which each fault (the culprits of the fault
matrix) happens once, one after the other; a loop that was told an error begins anew before the next fault. Afterwards
each loop runs natively, without the service and without faults, as far as its longest run got. A run ends as
  exact   the checksums of all iterations are those of the fault-free run, and so is the state it leaves: weights,
          moments, caches, counters
  told    a call failed; the checksums up to there are those of the fault-free run
  WRONG   some checksum, or the state, is another one
  HANG    it said nothing any more
The pause is the longest time between two ends of WINDOW iterations, less the ordinary one, from before the fault until
three further windows are done.

Exit status: 1 if a loop was WRONG or hung, if it was told with on_fault = default beside a fault that can be contained, if
somebody else than the culprit was blamed, or if a loop that does one iteration twice is not noticed; 77 without a GPU or
without PyTorch.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "bench" / "lib"), str(HERE)]
import matrix  # noqa: E402
from machine import machine  # noqa: E402
from matrix_systems import Broken, System  # noqa: E402
from program import Program  # noqa: E402
from systems import is_gpu_here  # noqa: E402

LOOPS = ("graph", "graph-state", "eager", "train")
ROWS = tuple(row for row in matrix.FAULTS if row != "none")
UNCONTAINED = ("stack", "jump")
WINDOW = 8  # of framework_survivor
PATIENCE = 120  # seconds that anything at all may take
HEAD = f"{'on_fault':10}{'fault':12}" + "".join(f"{loop:>22}" for loop in LOOPS) + \
       "   culprit told             blamed"


class Survivor:
    """One run of a loop, from its start to its end. @faults: those it lived through, with the pause it saw at each"""

    def __init__(self, system, loop, work):
        self.loop = loop
        self.log = pathlib.Path(tempfile.mkstemp(prefix=loop + "-", dir=work)[1])
        self.program = Program(command(loop, self.log), system.environment("fail"))
        self.faults = []
        self.ending = None
        self.ended_by = None  # beside which fault it was told

    def expect(self, word):
        """Return: its line; None if it has ended."""
        line = self.program.hear(word, time.monotonic() + PATIENCE)
        if not line and not self.program.result and self.program.process.poll() is None:
            self.program.kill()  # HANG
        return line

    def end(self):
        self.program.say("stop")
        self.program.end(time.monotonic() + PATIENCE)
        self.program.close()

    def iterations(self):
        return self.log.stat().st_size // 8

    def judge(self, reference, states):
        """@reference: the log of the fault-free run; @states: what it left after so many iterations"""
        result, count = self.program.result, self.iterations()
        if not result:
            self.ending = "HANG"
        elif self.log.read_bytes() != reference[:8 * count]:
            self.ending = "WRONG"
        elif result["outcome"] == "told":
            self.ending = "told"
        else:
            self.ending = "exact" if result["state"] == states[str(count)] else "WRONG"

    def found(self):
        return {"loop": self.loop, "ending": self.ending, "iterations": self.iterations(), "faults": self.faults,
                "result": self.program.result, "errors": "".join(self.program.errors)[-500:] if self.ending == "HANG"
                else ""}


def command(loop, log, *more):
    return [sys.executable, "-B", str(HERE / "framework_survivor.py"), loop, str(log), *more]


class Life:
    """Of one service."""

    def __init__(self, options, kernels, on_fault, work):
        self.options, self.work = options, work
        self.system = matrix.service(options, kernels, on_fault)
        self.alive, self.ended, self.events, self.bad = {}, [], [], []

    def gather(self):
        """Starts the loops that are not there."""
        for loop in self.options.loops:
            if loop not in self.alive:
                self.alive[loop] = Survivor(self.system, loop, self.work)
        for survivor in self.alive.values():
            if not survivor.faults and not survivor.expect("ready"):
                raise Broken(f"{survivor.loop} does not start: {''.join(survivor.program.errors)[-2000:]}")
        self.system.quiet(len(self.alive), time.monotonic() + PATIENCE)

    def say_all(self, text):
        for survivor in self.alive.values():
            survivor.program.say(text)

    def culprit(self, row):
        """Return: (what it was told, its process)."""
        patient = ["--warm-ms", str(matrix.WARM_MS), "--wait-ms", str(matrix.UNTOLD_MS)] if row in matrix.GUARDED else []
        culprit = self.system.start(["culprit", row, *patient], "fail")
        try:
            if not culprit.hear("ready", time.monotonic() + PATIENCE):
                raise Broken(f"the culprit does not start: {''.join(culprit.errors)}")
            self.say_all("watch")
            for survivor in self.alive.values():
                survivor.expect("watching")
            culprit.say("go")
            found = culprit.end(time.monotonic() + PATIENCE)
            return found["code"] if found else None, culprit.pid
        finally:
            culprit.close()

    def fault(self, row):
        self.gather()
        position = self.system.log.position()
        code, pid = self.culprit(row)
        self.say_all("more 3")
        pauses, ends = {}, []
        for loop, survivor in list(self.alive.items()):
            line = survivor.expect("more")
            pauses[loop] = float(line.split()[1]) if line else None
            survivor.faults.append({"row": row, "pause_ms": pauses[loop]})
            if not line:
                survivor.end()
                survivor.ended_by = row
                ends.append(f"  {loop}: {survivor.program.result or ''.join(survivor.program.errors)[-500:]}")
                self.ended.append(self.alive.pop(loop))
        self.system.quiet(len(self.alive), time.monotonic() + PATIENCE)
        lines = self.system.log.since(position)
        blamed = self.system.blamed(lines)
        if blamed - {pid}:
            self.bad.append(f"{row}: blamed, and innocent: {blamed - {pid}}")
            self.bad += [line.rstrip() for line in lines if self.system.blamed([line]) - {pid}]
        self.events.append({"row": row, "code": code, "blamed": "culprit" if pid in blamed else "nobody",
                            "pauses_ms": pauses})
        self.tell(self.events[-1])
        if ends and self.system.on_fault == "default" and row not in UNCONTAINED:
            ends += ["  | " + line for line in self.system.log.since(position)]
        for line in ends:
            print(line, flush=True)

    def tell(self, event):
        cells = [f"{event['pauses_ms'][loop]:.0f} ms" if event["pauses_ms"].get(loop) is not None
                 else "ended" if loop in event["pauses_ms"] else "-" for loop in LOOPS]
        native = self.options.native[event["row"]]
        told = f"{event['code']}" + ("" if event["code"] == native else f" (natively {native})")
        print(f"{self.system.on_fault:10}{event['row']:12}" + "".join(f"{cell:>22}" for cell in cells) +
              f"   {told:25}{event['blamed']}", flush=True)

    def play(self):
        self.system.up()
        try:
            for row in self.options.rows:
                self.fault(row)
        except Broken as problem:
            self.bad += [str(problem), *self.system.log.since(0)[-40:]]
        finally:
            for survivor in self.alive.values():
                survivor.end()
                self.ended.append(survivor)
            self.bad += [self.system.crash()] if self.system.crash() else []
            self.system.down()

    def judge(self, references):
        for survivor in self.ended:
            survivor.judge(*references[survivor.loop])
        self.bad += [f"{survivor.loop} is {survivor.ending}: {survivor.program.result or survivor.found()['errors']}"
                     for survivor in self.ended if self.is_bad(survivor)]

    def is_bad(self, survivor):
        if survivor.ending == "told":
            return self.system.on_fault == "default" and survivor.ended_by not in UNCONTAINED
        return survivor.ending in ("WRONG", "HANG")

    def found(self):
        return {"on_fault": self.system.on_fault, "events": self.events, "bad": self.bad,
                "runs": [survivor.found() for survivor in self.ended]}


def references(options, kernels, survivors, work):
    """Runs the loops natively, and each once more with an iteration done twice.

    Return: of each loop (its log, states by number of iterations), and what is wrong with that."""
    system, running, twice, bad = System(options.build, kernels), {}, {}, []
    for loop in options.loops:
        runs = [survivor for survivor in survivors if survivor.loop == loop]
        points = sorted({max(survivor.iterations(), WINDOW) for survivor in runs} | {4 * WINDOW})
        for programs, name, more in ((running, "reference", []), (twice, "twice", ["--twice", str(2 * WINDOW)])):
            log = pathlib.Path(work, f"{name}-{loop}")
            check = ",".join(map(str, points if programs is running else [4 * WINDOW]))
            programs[loop] = log, Program(command(loop, log, "--check", check, *more), system.environment("fail"))
    found = {}
    for loop in options.loops:
        for log, program in (running[loop], twice[loop]):
            if not program.end(time.monotonic() + 10 * PATIENCE):
                bad.append(f"{loop} does not run natively: {''.join(program.errors)[-2000:]}")
            program.close()
        found[loop] = running[loop][0].read_bytes(), (running[loop][1].result or {}).get("states", {})
        spoiled = twice[loop][0].read_bytes()
        common = 8 * 2 * WINDOW
        if spoiled[:common] != found[loop][0][:common] or spoiled[common:] == found[loop][0][common:len(spoiled)]:
            bad.append(f"{loop}: an iteration that is done twice is not noticed")
    system.down()
    return found, bad


def summary(lives, loops):
    for on_fault in dict.fromkeys(life.system.on_fault for life in lives):
        chosen = [life for life in lives if life.system.on_fault == on_fault]
        for loop in loops:
            runs = [survivor for life in chosen for survivor in life.ended if survivor.loop == loop]
            faults = [fault for survivor in runs for fault in survivor.faults]
            pauses = [fault["pause_ms"] for fault in faults if fault["pause_ms"] is not None]
            told = sum(1 for survivor in runs if survivor.ending == "told")
            wrong = sum(1 for survivor in runs if survivor.ending in ("WRONG", "HANG"))
            iterations = sum(survivor.iterations() for survivor in runs if survivor.ending in ("exact", "told"))
            pause = f"{statistics.median(pauses):.0f} ms, at most {max(pauses):.0f}" if pauses else "-"
            print(f"{on_fault:10}{loop:12}{len(faults):3} faults: went on {len(faults) - told - wrong}, told {told}, "
                  f"wrong or hung {wrong}; {iterations} iterations as natively; pause {pause}")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)

    def words(known):
        def parse(text):
            if set(text.split(",")) - set(known):
                raise argparse.ArgumentTypeError(f"{text} is not of {', '.join(known)}")
            return text.split(",")
        return parse

    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent.parent / "build")
    parser.add_argument("--on-fault", type=words(("default", "fast")), default=["default", "fast"])
    parser.add_argument("--rows", type=words(ROWS), default=list(ROWS))
    parser.add_argument("--loops", type=words(LOOPS), default=list(LOOPS))
    parser.add_argument("--lives", type=int, default=1)
    parser.add_argument("--out", default="")
    options = parser.parse_args()
    options.build, options.backend = options.build.resolve(), "cuda"
    return options


def run(options, work):
    kernels = matrix.device_kernels(work)
    options.native = matrix.native_codes(options, kernels)
    lives, bad = [], []
    print(HEAD)
    for on_fault in options.on_fault:
        for _ in range(options.lives):
            lives.append(Life(options, kernels, on_fault, work))
            lives[-1].play()
    known, bad = references(options, kernels, [survivor for life in lives for survivor in life.ended], work)
    for life in lives:
        if not bad:
            life.judge(known)
        bad += life.bad
    summary(lives, options.loops)
    for line in bad:
        print("BAD: " + line)
    if options.out:
        matrix.save(options.out, {"native_codes": options.native, "lives": [life.found() for life in lives]})
    return not bad


def main():
    options = arguments()
    if not is_gpu_here() or not importlib.util.find_spec("torchvision"):
        print("no GPU, or no PyTorch with torchvision")
        return 77
    work = tempfile.mkdtemp(prefix="frmps-frameworks-")
    print("machine:", json.dumps(machine()))
    try:
        return 0 if run(options, work) else 1
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    sys.exit(main())
