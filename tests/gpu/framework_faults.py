#!/usr/bin/env python3
"""PyTorch programs beside faults: what they compute must be what they compute without any.

usage: framework_faults.py [--build BUILD] [--rows ROW,...] [--loops LOOP,...] [--programs N,...] [--lives N]
                           [--every SECONDS --for SECONDS] [--burst N] [--strict] [--out FILE.json]
                           [--keep FOLDER]

A life is one service with the first N of the loops (framework_survivor.py) at once. Beside them each fault (the
culprits of the fault matrix) happens once, one after the other; a loop that was told an error begins anew before the
next fault. Or instead, in this order:
  --every, --for   one culprit every so many seconds for so long. Its process was started ahead. The rate of each loop
                   in that time is compared with the one just before, in the same service, without faults, for as long
  --burst N        N culprits that fault at once; each must get an error and be blamed
Afterwards each loop runs natively, without the service and without faults, as far as its longest run got. A run ends as
  exact   the checksums of all iterations are those of the fault-free run, and so is the state it leaves: weights,
          moments, caches, counters
  told    a call failed; the checksums up to there are those of the fault-free run
  WRONG   some checksum, or the state, is another one
  HANG    it said nothing any more
The pause is the longest time between two ends of WINDOW iterations, less the ordinary one, from before the fault until
three further windows are done; with --every it is the longest of all that time.

--keep writes the log of each life's service into a folder that exists, and what everybody waited for each time that no loop
went on for some seconds (stacks.py).

How long it takes, about: the start, the native errors of the culprits and the end 1 minute; each life 20 s for its
start and 2 s a fault, or twice --for, or 10 s for a burst; the native runs of the loops as long as all lives, and
longer where there are several loops, because natively they share the device in turns.

Exit status: 1 if a loop was WRONG or hung, if it was told beside a fault that can be contained, if somebody else than
the culprit was blamed, with --every and --burst also if a culprit got no error or was not blamed, or if a loop that
does one iteration twice is not noticed (--strict: also if the rate of a loop was below LEAST_RATIO of the one without
faults, or if a culprit got another error than natively); 77 without a GPU or without PyTorch.
"""

import argparse
import collections
import contextlib
import importlib.util
import itertools
import pathlib
import statistics
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "bench" / "lib"), str(HERE)]
import matrix  # noqa: E402
from matrix_systems import Broken, System  # noqa: E402
from program import Program  # noqa: E402
from stacks import Stall  # noqa: E402
from stage import Stage, Survivor, main, make_parser, save, until, words  # noqa: E402

LOOPS = ("graph", "graph-state", "train", "eager")
ROWS = tuple(row for row in matrix.FAULTS if row != "none")
# With --every and --burst, unless --rows says otherwise: what faults at once, and leaves nothing on the device.
QUICK_ROWS = tuple(row for row in ROWS if row not in ("near-write", "near-read", "endless", "jump"))
UNCONTAINED = ("stack", "jump")  # by an executor that leaves exceptions to the driver
WINDOW = 8  # of framework_survivor
PATIENCE = 120  # seconds that anything at all may take
AHEAD = 3  # culprits that are ready with --every
LEAST_SECONDS = 20  # of a rate
LEAST_RATIO = 0.90
HEAD = f"{'programs':10}{'fault':12}" + "".join(f"{loop:>13}" for loop in LOOPS) + \
       "   culprit told             blamed"


class Loop(Survivor):
    """One run of a loop, from its start to its end. @faults: those it lived through, with the pause it saw at each"""

    def __init__(self, system, loop, work):
        self.loop = loop
        self.log = pathlib.Path(tempfile.mkstemp(prefix=loop + "-", dir=work)[1])
        super().__init__(Program(command(loop, self.log), system.environment("fail")), 3, PATIENCE)
        self.faults = []
        self.ending = None
        self.ended_by = None  # beside which fault it was told

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
                "result": self.program.result, "errors": self.errors() if self.ending == "HANG" else ""}


def command(loop, log, *more):
    return [sys.executable, "-B", str(HERE / "framework_survivor.py"), loop, str(log), *more]


class Ahead:
    """Culprits whose processes are started before it is their turn. @waiting, @faulted: (row, program) of each"""

    def __init__(self, life, rows):
        self.life, self.rows = life, iter(rows)
        self.waiting, self.faulted = collections.deque(), []

    def start(self):
        for row in itertools.islice(self.rows, 1):
            self.waiting.append((row, self.life.start(row)))

    def begin(self):
        """Returns when the first ones are ready."""
        for _ in range(AHEAD):
            self.start()
        self.life.expect_ready([culprit for _, culprit in self.waiting])

    def play(self, begin, every, seconds):
        """A fault in the middle of each stretch of so many seconds."""
        while self.waiting:
            if len(self.faulted) >= AHEAD:
                self.life.expect_ready([self.waiting[0][1]])
            wait_until(begin + (len(self.faulted) + 0.5) * every)
            self.waiting[0][1].say("go")
            self.faulted.append(self.waiting.popleft())
            self.start()
        wait_until(begin + seconds)

    def close(self):
        for _, culprit in [*self.waiting, *self.faulted]:
            culprit.close()


class Life(Stage):
    """Of one service."""

    def __init__(self, options, kernels, programs, work, number):
        super().__init__(matrix.service(options, kernels), PATIENCE)
        self.options, self.programs, self.work, self.number = options, programs, work, number
        self.loops = options.loops[:programs]
        if options.keep:
            self.system.log_path = str(options.keep / f"log-{number}")
        self.ended, self.events, self.bad = [], [], []

    def gather(self):
        """Starts the loops that are not there."""
        self.enter({loop: Loop(self.system, loop, self.work) for loop in self.loops if loop not in self.survivors})
        self.quiet()

    def start(self, row):
        return self.system.start(["culprit", row], "fail")

    def fault(self, row):
        """One alone."""
        self.gather()
        position = self.system.log.position()
        with self.culprits([self.start(row)]) as [culprit]:
            self.watch()
            culprit.say("go")
            code, = self.codes([culprit])
        event = {"kind": "alone", "row": row, "code": code, "pauses_ms": self.survived(row, "alone", position)}
        self.quiet()
        blamed = self.blamed(row, position, {culprit.pid})
        event["blamed"] = "culprit" if culprit.pid in blamed else "nobody"
        self.events.append(event)
        self.expect_native(row, code)
        self.tell(event)

    def survived(self, what, kind, position):
        """Waits until the loops have gone on. @position: of the log, before the fault. Return: their pauses."""
        pauses = {loop: measured[0] if measured else None for loop, measured in self.measured().items()}
        for loop, pause in pauses.items():
            self.survivors[loop].faults.append({"kind": kind, "row": what, "pause_ms": pause})
            if pause is None:
                self.lost(loop, what, position)
        return pauses

    def lost(self, loop, what, position):
        survivor = self.survivors.pop(loop)
        survivor.end()
        survivor.ended_by = what
        self.ended.append(survivor)
        print(f"  {loop}: {survivor.program.result or survivor.errors()}", flush=True)
        if self.must_go_on(what):
            for line in self.system.log.since(position):
                print("  | " + line)

    def must_go_on(self, what):
        """Whether a loop has to live through that."""
        return what not in UNCONTAINED or \
            not any("exceptions are left to the driver" in line for line in self.system.log.since(0))

    def blamed(self, what, position, culprits):
        """Return: the processes that the log blames since a position. Innocent ones among them are noted."""
        lines = self.system.log.since(position)
        blamed = self.system.blamed(lines)
        if blamed - culprits:
            self.bad.append(f"{what}: blamed, and innocent: {blamed - culprits}")
            self.bad += [line.rstrip() for line in lines if self.system.blamed([line]) - culprits]
        return blamed

    def expect_native(self, row, code):
        if self.options.strict and code != self.options.native[row]:
            self.bad.append(f"{row}: the culprit got {code}, natively {self.options.native[row]}")

    def tell(self, event):
        cells = [pause_text(event, loop) for loop in LOOPS]
        native = self.options.native[event["row"]]
        told = f"{event['code']}" + ("" if event["code"] == native else f" (natively {native})")
        print(f"{self.programs:<10}{event['row']:12}" + "".join(f"{cell:>13}" for cell in cells) +
              f"   {told:25}{event['blamed']}", flush=True)

    def settle(self, kind, culprits, position):
        """After several faults. @culprits: (row, program) of each. Return: what became of all."""
        codes = list(zip([row for row, _ in culprits], self.codes([culprit for _, culprit in culprits])))
        pauses = self.survived(kind, kind, position)
        self.quiet()
        pids = {culprit.pid for _, culprit in culprits}
        blamed = self.blamed(kind, position, pids)
        for row, culprit in culprits:
            if culprit.pid not in blamed:
                self.bad.append(f"{kind}: {row} of process {culprit.pid} was blamed on nobody")
        for row, code in codes:
            if not code:
                self.bad.append(f"{kind}: {row}: the culprit got no error")
            self.expect_native(row, code)
        return {"kind": kind, "faults": codes, "blamed": len(blamed & pids), "pauses_ms": pauses}

    def iterations(self):
        return {loop: survivor.iterations() for loop, survivor in self.survivors.items()}

    def rates(self, happen):
        """Iterations of each loop in a second, from the beginning of happen() to its end."""
        first, begin = self.iterations(), time.monotonic()
        happen(begin)
        last, took = self.iterations(), time.monotonic() - begin
        return {loop: (last[loop] - first[loop]) / took for loop in first}

    def every(self):
        """Faults at regular times, and what they leave of the loops' rates."""
        seconds, every = self.options.seconds, self.options.every
        rows = itertools.islice(itertools.cycle(self.options.rows), max(1, int(seconds / every)))
        ahead = Ahead(self, rows)
        self.gather()
        try:
            ahead.begin()
            self.quiet(len(ahead.waiting))
            before = self.rates(lambda begin: wait_until(begin + seconds))
            position = self.system.log.position()
            self.watch()
            during = self.rates(lambda begin: ahead.play(begin, every, seconds))
            event = self.settle("every", ahead.faulted, position)
        finally:
            ahead.close()
        event |= {"every": every, "seconds": seconds, "rates": during, "rates_before": before,
                  "ratios": {loop: during[loop] / before[loop] if before[loop] else 0.0 for loop in before}}
        self.events.append(event)
        self.tell_every(event)

    def tell_every(self, event):
        print(f"{self.programs} programs, {len(event['faults'])} faults in {event['seconds']:g} s, "
              f"{event['blamed']} blamed")
        for loop, ratio in event["ratios"].items():
            print(f"  {loop:12}{event['rates'][loop]:9.1f} iterations/s, without faults "
                  f"{event['rates_before'][loop]:9.1f}: {ratio:.3f}; longest pause {pause_text(event, loop)}",
                  flush=True)
            if self.options.strict and ratio < LEAST_RATIO:
                self.bad.append(f"{self.programs} programs: {loop} kept {ratio:.3f} of its rate, not {LEAST_RATIO}")

    def burst(self):
        """Faults that happen at once."""
        self.gather()
        rows = list(itertools.islice(itertools.cycle(self.options.rows), self.options.burst))
        with self.culprits([self.start(row) for row in rows]) as culprits:
            self.quiet(len(culprits))
            position = self.system.log.position()
            self.watch()
            begin = time.monotonic()
            for culprit in culprits:
                culprit.say("go")
            took = time.monotonic() - begin
            event = self.settle("burst", list(zip(rows, culprits)), position)
        if took > 1:
            raise Broken(f"a burst that takes {took:.1f} s is none")
        self.events.append(event)
        codes = collections.Counter(f"{row} {code}" for row, code in event["faults"])
        print(f"{self.programs} programs, a burst of {len(culprits)}, {event['blamed']} blamed; pauses " +
              ", ".join(f"{loop} {pause_text(event, loop)}" for loop in event["pauses_ms"]) +
              "\n  errors of the culprits: " + ", ".join(f"{count} x {text}" for text, count in codes.items()),
              flush=True)

    def stall(self):
        """A watch over loops that all stand still, where what it finds is kept."""
        if not self.options.keep:
            return contextlib.nullcontext()

        def report(lines):
            with open(self.options.keep / f"stacks-{self.number}", "a") as kept:
                kept.write("\n".join(lines) + "\n")

        def pids():
            return [self.system.server.pid, *(survivor.program.pid for survivor in list(self.survivors.values()))]

        return Stall(lambda: sum(survivor.iterations() for survivor in list(self.survivors.values())), pids, report)

    def happen(self):
        if self.options.every:
            self.every()
        if self.options.burst:
            self.burst()
        if not self.options.every and not self.options.burst:
            for row in self.options.rows:
                self.fault(row)

    def play(self):
        self.system.up()
        try:
            with self.stall():
                self.happen()
        except Broken as problem:
            self.bad += [str(problem), *self.system.log.since(0)[-40:]]
        finally:
            self.ended += self.survivors.values()
            self.leave()
            self.bad += [self.system.crash()] if self.system.crash() else []
            self.system.down()

    def judge(self, references):
        for survivor in self.ended:
            survivor.judge(*references[survivor.loop])
        self.bad += [f"{survivor.loop} is {survivor.ending}: {survivor.program.result or survivor.found()['errors']}"
                     for survivor in self.ended if self.is_bad(survivor)]

    def is_bad(self, survivor):
        if survivor.ending == "told":
            return self.must_go_on(survivor.ended_by)
        return survivor.ending in ("WRONG", "HANG")

    def found(self):
        return {"programs": self.programs, "events": self.events, "bad": self.bad,
                "runs": [survivor.found() for survivor in self.ended]}


def wait_until(moment):
    time.sleep(max(0.0, moment - time.monotonic()))


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
            if not program.end(until(10 * PATIENCE)):
                bad.append(f"{loop} does not run natively: {''.join(program.errors)[-2000:]}")
            program.close()
        found[loop] = running[loop][0].read_bytes(), (running[loop][1].result or {}).get("states", {})
        spoiled = twice[loop][0].read_bytes()
        common = 8 * 2 * WINDOW
        if spoiled[:common] != found[loop][0][:common] or spoiled[common:] == found[loop][0][common:len(spoiled)]:
            bad.append(f"{loop}: an iteration that is done twice is not noticed")
    system.down()
    return found, bad


def pause_text(event, loop):
    if loop not in event["pauses_ms"]:
        return "-"
    pause = event["pauses_ms"][loop]
    return "ended" if pause is None else f"{pause:.0f} ms"


def pauses_text(faults):
    pauses = [fault["pause_ms"] for fault in faults if fault["pause_ms"] is not None]
    return f"{statistics.median(pauses):.0f} ms, at most {max(pauses):.0f}" if pauses else "-"


def summary(lives):
    """By number of programs: how the runs ended, and the pauses by kind of fault."""
    for programs in dict.fromkeys(life.programs for life in lives):
        runs = [survivor for life in lives if life.programs == programs for survivor in life.ended]
        faults = [{"loop": survivor.loop, **fault} for survivor in runs for fault in survivor.faults]
        for loop in dict.fromkeys(survivor.loop for survivor in runs):
            chosen = [survivor for survivor in runs if survivor.loop == loop]
            endings = collections.Counter(survivor.ending for survivor in chosen)
            iterations = sum(survivor.iterations() for survivor in chosen if survivor.ending in ("exact", "told"))
            print(f"{programs} programs, {loop}: {iterations} iterations as natively; runs: " +
                  ", ".join(f"{count} {ending}" for ending, count in endings.items()))
        for kind in dict.fromkeys(fault["kind"] for fault in faults):
            chosen = [fault for fault in faults if fault["kind"] == kind]
            ended = sum(1 for fault in chosen if fault["pause_ms"] is None)
            loops = [f"{loop} {pauses_text([fault for fault in chosen if fault['loop'] == loop])}"
                     for loop in dict.fromkeys(fault["loop"] for fault in chosen)]
            print(f"{programs} programs, faults {kind}: pause, median: {pauses_text(chosen)}; {'; '.join(loops)}; "
                  f"{ended} of {len(chosen)} ended a loop")


def arguments():
    parser = make_parser(__doc__)

    def count(text):
        if int(text) < 1:
            raise argparse.ArgumentTypeError("at least 1")
        return int(text)

    parser.add_argument("--rows", type=words(ROWS), metavar="ROW,...",
                        help=f"all; with --every and --burst {', '.join(QUICK_ROWS)}")
    parser.add_argument("--loops", type=words(LOOPS), default=list(LOOPS), metavar="LOOP,...", help=", ".join(LOOPS))
    parser.add_argument("--programs", type=lambda text: [count(word) for word in text.split(",")], metavar="N,...",
                        help="how many of the loops run at once, the first ones; a life for each number (all)")
    parser.add_argument("--lives", type=count, default=1, help="for each number of programs")
    parser.add_argument("--every", type=float, metavar="SECONDS")
    parser.add_argument("--for", type=float, dest="seconds", metavar="SECONDS", help=f"at least {LEAST_SECONDS}")
    parser.add_argument("--burst", type=count, metavar="N")
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--keep", type=pathlib.Path, metavar="FOLDER")
    options = parser.parse_args()
    options.backend = "cuda"
    options.programs = options.programs or [len(options.loops)]
    if max(options.programs) > len(options.loops):
        parser.error(f"there are {len(options.loops)} loops")
    if bool(options.every) != bool(options.seconds) or options.every and options.every <= 0:
        parser.error("--every and --for belong together")
    if options.seconds and options.seconds < LEAST_SECONDS:
        parser.error(f"--for is at least {LEAST_SECONDS}")
    options.loops = options.loops[:max(options.programs)]
    options.rows = options.rows or list(QUICK_ROWS if options.every or options.burst else ROWS)
    return options


def run(options, work):
    kernels = matrix.device_kernels(work)
    options.native = matrix.native_codes(options, kernels)
    lives = []
    if not options.every and not options.burst:
        print(HEAD)
    for programs in options.programs:
        for _ in range(options.lives):
            lives.append(Life(options, kernels, programs, work, len(lives) + 1))
            lives[-1].play()
    known, bad = references(options, kernels, [survivor for life in lives for survivor in life.ended], work)
    for life in lives:
        if not bad:
            life.judge(known)
    bad += [line for life in lives for line in life.bad]
    summary(lives)
    for line in bad:
        print("BAD: " + line)
    save(options.out, {"native_codes": options.native, "lives": [life.found() for life in lives]})
    return not bad


def play(options):
    """Return: exit status"""
    if not importlib.util.find_spec("torchvision"):
        print("no PyTorch with torchvision")
        return 77
    return main(lambda work: run(options, work))


if __name__ == "__main__":
    sys.exit(play(arguments()))
