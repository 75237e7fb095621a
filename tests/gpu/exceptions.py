#!/usr/bin/env python3
"""Faults of every class beside every kind of program, by a plan, in parts of less than eight minutes.

usage: exceptions.py [--build BUILD] [--host] [--part I/N] [--only TEXT,...] [--times N] [--seconds LIMIT] [--out FILE.json]
       exceptions.py --list [--host] [--part I/N] [--only TEXT,...]
       exceptions.py --merge FILE.json... --out FILE.json
       exceptions.py --table FILE.json

The plan is exceptions_plan.py. A cell has survivors that live through all its events; an event is one culprit or several,
which fault at the same moment or one after another. Survivors and culprits are those of the fault matrix
(matrix_worker.c); cells with PyTorch and with culprits as people write them are runs of framework_faults.py and
real_culprits.py. One service serves all cells of a part. After each event it must hold that
  - every survivor goes on, and every word of its memory is what it must be
  - every culprit got the error that it gets natively, and the service names its process and that error
  - nobody else is named
  - the service's executors are the same as before
An event's pauses are the longest times between two ends of kernels of each survivor, less the kernel's own time; "usual"
is the same just before the fault. Survivors that do something between two kernels have the longest time of that as well.

--only: cells whose names contain one of the texts. --times: events of each cell instead of the plan's. --part: of N parts
that take about the same time. A cell that would not end within --seconds (470) from the start is not begun, nor any
behind it, and the last line says so. --merge: results of the same kind of machine, as
one. --table: a result in Markdown. --host: a short plan on the host backend.

Exit status: 1 if anything did not hold, or cells were not run; 2: usage; 77 without a GPU.
"""

import argparse
import itertools
import json
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "bench" / "lib"), str(HERE)]
import exceptions_plan  # noqa: E402
import exceptions_table  # noqa: E402
import matrix  # noqa: E402
from exceptions_plan import BESIDE, GRIDS  # noqa: E402
from matrix_systems import PATIENCE, Broken  # noqa: E402
from stage import Stage, Survivor, main, make_parser, save  # noqa: E402

SECONDS = 470  # of a part: below eight minutes
XIDS = 10  # lines of the kernel log that are kept of an event


def named(lines, pid_of):
    """What verdicts in lines of the log say. Of a program that is gone they have the session alone.

    @pid_of: finds the process of a session. Return: the code by process."""
    found = {}
    for line in lines:
        match = re.search(r"verdict: culprit is (.*?), kernel \S+, code (\d+)", line)
        if match:
            pids = re.findall(r"process (\d+)", match[1]) or map(pid_of, re.findall(r"session (\d+)", match[1]))
            found |= {int(pid): int(match[2]) for pid in pids}
    return found


def told_shortly(lines):
    """The firmware writes hundreds of lines about one fault: only the first of them are kept."""
    xids = itertools.count()
    return [line for line in lines if "Xid" not in line or next(xids) < XIDS]


class Life(Stage):
    """Of one service; faults: so far."""

    def __init__(self, options, kernels):
        super().__init__(matrix.service(options, kernels))
        self.options, self.faults = options, 0
        self.system.up()

    def executors(self):
        return sorted(self.system.processes()["executors"])

    def gather(self, cell):
        """Starts the survivors of a cell, where none are left."""
        if not self.survivors:
            self.enter({f"survivor {i}": Survivor(self.system.start(["survivor", *arguments]))
                        for i, arguments in enumerate(BESIDE[cell.beside])})

    def start_culprits(self, cell, classes):
        return [self.system.start(["culprit", fault, *GRIDS[cell.grid], "--wait-ms", str(PATIENCE * 500), "--delay-ms",
                                   str(i * cell.apart_ms)])
                for i, fault in enumerate(classes)]


class Event:
    """One, beside survivors. found: what a result keeps of it."""

    def __init__(self, life, cell, number):
        self.life, self.cell = life, cell
        self.classes = cell.event(number)
        self.found = {"classes": self.classes, "bad": []}

    def bad(self, text):
        self.found["bad"].append(text)

    def play(self):
        life, system = self.life, self.life.system
        with life.culprits(life.start_culprits(self.cell, self.classes)) as culprits:
            life.quiet(len(culprits))
            life.watch()
            self.found["usual"] = list(life.measured().values())
            before, position = life.executors(), system.log.position()
            life.watch()
            for culprit in culprits:
                culprit.say("go")
            self.found["codes"] = life.codes(culprits)
        life.faults += len(culprits)
        self.found["fault_number"] = life.faults
        self.found["pauses"] = list(life.measured().values())
        life.quiet()
        life.ask("check", "checked")
        lines = system.log.since(position)
        self.judge_survivors()
        self.judge_culprits([culprit.pid for culprit in culprits], lines)
        self.judge_executors(before != life.executors())
        if self.found["bad"]:
            self.found["log"] = told_shortly(lines)

    def judge_survivors(self):
        for survivor in self.life.survivors.values():
            if survivor.has_ended():
                self.bad(f"a survivor ends: {survivor.program.result or survivor.errors()}")

    def judge_culprits(self, pids, lines):
        native, codes = self.life.options.native, named(lines, self.life.system.pid_of)
        for fault, pid, code in zip(self.classes, pids, self.found["codes"]):
            if code != native[fault]:
                self.bad(f"{fault}: its program got {code}, natively {native[fault]}")
            if codes.get(pid) != native[fault]:
                self.bad(f"{fault}: the service names " + (f"{codes[pid]} as its error" if pid in codes else
                                                           "nobody for it"))
        others = (self.life.system.blamed(lines) | set(codes)) - set(pids)
        if others:
            self.bad(f"processes {others} are named, and innocent")

    def judge_executors(self, replaced):
        if replaced:
            self.bad("the service's executors are replaced")
        if any("exceptions are left to the driver" in line for line in self.life.system.log.since(0)):
            self.bad("the service leaves exceptions to the driver")


def play_events(life, cell, times):
    """Return: what was found of a cell of the plan's own. Survivors that end are replaced for the next event."""
    found = {"events": [], "survivors": [], "bad": []}
    try:
        for number in range(times):
            life.gather(cell)
            event = Event(life, cell, number)
            found["events"].append(event.found)
            event.play()
            if event.found["bad"]:
                found["survivors"] += life.leave().values()
    finally:
        found["survivors"] += life.leave().values()
    return found


def events_of(result):
    """Return: the events of another script's result, as far as they have something in common with ours."""
    found = [event for life in result.get("lives", []) for event in life["events"]] + result.get("cases", [])
    return [{"classes": [row for row, _ in one.get("faults", [])] or [one.get("row") or one.get("case")], "bad": [],
             "pauses": [None if pause is None else [pause, 0.0] for pause in one.get("pauses_ms", {}).values()]}
            for one in found]


def play_script(options, cell, seconds):
    """Return: what another script of this folder found."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [sys.executable, "-B", str(HERE / cell.script[0]), "--build", str(options.build), "--out", out.name,
                   *cell.script[1:]]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
            try:
                said = run.communicate(timeout=seconds)[0]
            except subprocess.TimeoutExpired:
                run.send_signal(signal.SIGINT)  # it ends its service
                return {"bad": [f"{cell.script[0]} does not end within {seconds:.0f} s", run.communicate()[0][-3000:]]}
        if run.returncode == 77:
            return {"skipped": said.strip().splitlines()[-1], "bad": []}
        text = pathlib.Path(out.name).read_text()
    result = json.loads(text) if text else {}
    return {"result": result, "events": events_of(result), "bad": [said[-3000:]] if run.returncode else []}


class Part:
    """The cells of one call; results are saved after each of them."""

    def __init__(self, options, kernels, cells):
        self.options, self.kernels, self.cells = options, kernels, cells
        self.life, self.found, self.end = None, [], time.monotonic() + options.seconds

    def play(self, cell):
        if cell.script:
            self.end_life()  # such a run has a service of its own
            return play_script(self.options, cell, self.end - time.monotonic())
        self.life = self.life or Life(self.options, self.kernels)
        return play_events(self.life, cell, self.options.times or cell.times)

    def end_life(self):
        if self.life:
            self.life.system.down()
        self.life = None

    def run_cell(self, cell):
        begin = time.monotonic()
        try:
            found = self.play(cell)
            crash = self.life.system.crash() if self.life else ""
            found["bad"] += [crash] if crash else []
        except Broken as problem:
            found = {"bad": [str(problem)]}
            self.end_life()
        found["bad"] += [f"a survivor was {one['outcome']}: {one.get('wrong') or one.get('code')}"
                         for one in found.get("survivors", []) if one["outcome"] != "exact"]
        found["bad"] += [f"event {i + 1}: {text}" for i, event in enumerate(found.get("events", [])) for text in event["bad"]]
        found |= {"name": cell.name, "how": cell.how, "classes": cell.classes, "grid": cell.grid, "beside": cell.beside,
                  "seconds": round(time.monotonic() - begin, 1)}
        self.found.append(found)
        print(exceptions_table.line(found), flush=True)

    def run(self):
        try:
            for cell in self.cells:
                if time.monotonic() + cell.seconds > self.end:
                    break
                self.run_cell(cell)
                self.save()
        finally:
            self.end_life()
        left = [cell.name for cell in self.cells[len(self.found):]]
        failed = [cell["name"] for cell in self.found if cell["bad"]]
        print(f"{len(self.found)} cells, {len(failed)} failed" + (f": {', '.join(failed)}" if failed else "") +
              (f"; for want of time not run: {', '.join(left)}" if left else ""))
        return not failed and not left

    def save(self):
        save(self.options.out, {"native_codes": self.options.native, "cells": self.found})


def arguments():
    parser = make_parser(__doc__)

    def one_of(text):
        match = re.fullmatch(r"(\d+)/(\d+)", text)
        if not match or not 1 <= int(match[1]) <= int(match[2]):
            raise argparse.ArgumentTypeError(f"{text} is no part like 2/10")
        return int(match[1]), int(match[2])

    parser.add_argument("--host", action="store_true", help="the short plan, on the host backend")
    parser.add_argument("--list", action="store_true", help="the cells, and about how long they take")
    parser.add_argument("--part", type=one_of, metavar="I/N")
    parser.add_argument("--only", type=lambda text: text.split(","), default=[""], metavar="TEXT,...")
    parser.add_argument("--times", type=int, default=0, metavar="N")
    parser.add_argument("--seconds", type=float, default=SECONDS, metavar="LIMIT")
    parser.add_argument("--merge", nargs="+", metavar="FILE.json")
    parser.add_argument("--table", metavar="FILE.json")
    options = parser.parse_args()
    if options.merge and not options.out:
        parser.error("--merge needs --out")
    options.backend = "host" if options.host else "cuda"
    plan = exceptions_plan.host_plan() if options.host else exceptions_plan.plan()
    options.cells = [cell for cell in plan if any(text in cell.name for text in options.only)]
    if not options.cells:
        parser.error(f"no cell is called like {', '.join(options.only)}; --list shows the names")
    if options.part:
        options.cells = exceptions_plan.part(options.cells, *options.part)
    return options


def read(path):
    return json.loads(pathlib.Path(path).read_text())


def show_list(cells):
    for cell in cells:
        print(f"{cell.seconds:6.0f} s  {cell.name}")
    print(f"{len(cells)} cells, about {sum(cell.seconds for cell in cells) / 60:.0f} minutes in all")


def run(options, work):
    kernels = matrix.host_kernels(options.build) if options.host else matrix.device_kernels(work)
    options.rows = exceptions_plan.CLASSES
    options.native = matrix.native_codes(options, kernels)
    return Part(options, kernels, options.cells).run()


def merge(options):
    """Return: whether all cells are there and good."""
    merged = exceptions_table.merge([read(path) for path in options.merge])
    pathlib.Path(options.out).write_text(json.dumps(merged, indent=1) + "\n")
    missing = {cell.name for cell in options.cells} - {cell["name"] for cell in merged["cells"]}
    print(f"{len(merged['cells'])} cells" + (f"; {len(missing)} are missing: {', '.join(sorted(missing))}"
                                             if missing else ""))
    return not missing and not any(cell["bad"] for cell in merged["cells"])


def play(options):
    """Return: exit status"""
    if options.list:
        show_list(options.cells)
    elif options.merge:
        return 0 if merge(options) else 1
    elif options.table:
        print(exceptions_table.table(read(options.table)))
    else:
        return main(lambda work: run(options, work), not options.host)
    return 0


if __name__ == "__main__":
    sys.exit(play(arguments()))
