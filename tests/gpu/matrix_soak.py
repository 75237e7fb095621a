"""The soak of the fault matrix (matrix.py --soak)."""

import json
import time

from matrix_systems import Broken
from stage import Stage, Survivor, until

# Faults beside which survivors go on exactly.
ROWS = ("trap", "far-write", "misaligned", "shared", "assert", "illegal")
SURVIVORS = {"busy": ["--kernel-us", "100"], "idle": ["--idle"]}
SETTLE_SECONDS = 60  # what is held in passing is gone by then, also on a busy machine


class Soak:
    """Faults in a row beside the same survivors."""

    def __init__(self, system, options):
        self.system, self.stage = system, Stage(system)
        self.rows = [row for row in options.rows if row in ROWS] or list(ROWS)
        self.count, self.policy = options.soak, options.policy[0]
        self.end = time.monotonic() + options.seconds if options.seconds else float("inf")
        self.bad = []

    def expect(self, answers):
        for name, answer in answers.items():
            if not answer:
                survivor = self.stage.survivors[name]
                raise Broken(f"survivor {name} ends: {survivor.program.result or survivor.errors()}")

    def fault(self, row):
        culprit = self.system.start(["culprit", row], self.policy)
        try:
            culprit.say("go")
            found = culprit.end(until())
        finally:
            culprit.close()
        if not found or not found["code"]:
            self.bad.append(f"{row}: the culprit was not told: {found or ''.join(culprit.errors)}")
        return culprit.pid

    def faults(self):
        """Return: (number of faults, what was held after the first ones and at the end)."""
        warm = max(2 * len(self.rows), self.count // 10)
        before, culprits, i = None, set(), 0
        while i < self.count and time.monotonic() < self.end:
            culprits.add(self.fault(self.rows[i % len(self.rows)]))
            self.expect(self.stage.measured())
            self.stage.quiet()
            i += 1
            if i % 20 == 0:
                self.expect(self.stage.ask("check", "checked"))
            if i == warm:
                before = self.system.holdings()
        blamed = self.system.blamed(self.system.log.since(0))
        if blamed != culprits:
            self.bad.append(f"blamed, and innocent: {blamed - culprits}; not blamed: {culprits - blamed}")
        return i, before, self.holdings_at_rest(before)

    def holdings_at_rest(self, before):
        """What is held in passing, a connection or a child that ends, is not held a moment later."""
        end = time.monotonic() + SETTLE_SECONDS
        held = self.system.holdings()
        while self.grown(before, held) and time.monotonic() < end:
            time.sleep(0.1)
            held = self.system.holdings()
        return held

    def grown(self, before, after):
        """Counts stay as they are; memory may settle by what an allocator keeps. Sanitizers keep freed memory."""
        found = []
        slack = {"device MiB": 8 if self.system.backend == "cuda" else 0}
        # Rings of a MiB are used from one end to the other, however slowly, and journals beside them.
        slack["KiB shared"] = 2048 * (len(SURVIVORS) + 1)
        for name, value in after.items():
            if name.startswith("KiB of"):
                slack[name] = float("inf") if self.system.is_sanitized() else 1024
            if before and value > before[name] + slack.get(name, 0):
                found.append(f"{name} grew from {before[name]} to {value}")
        return found

    def play(self):
        repeatable = ["--repeatable"] if self.policy == "replay" else []
        self.stage.enter({name: Survivor(self.system.start(["survivor", *arguments, *repeatable], self.policy), 3)
                          for name, arguments in SURVIVORS.items()})
        self.stage.quiet()
        begin = time.monotonic()
        done, before, after = self.faults()
        took = time.monotonic() - begin
        self.bad += self.grown(before, after)
        self.bad += [f"{name} ends: {result}" for name, result in self.stage.leave().items() if result["outcome"] != "exact"]
        if self.system.crash():
            self.bad.append(self.system.crash())
        print(f"soak: {done} faults in {took:.1f} s; held after the first ones, and now:")
        for name, value in after.items():
            print(f"  {name:22}{before[name] if before else '-':>10}{value:>10}")
        return {"faults": done, "seconds": took, "before": before, "after": after}

    def run(self):
        self.system.up()
        found = {}
        try:
            found = self.play()
        except Broken as problem:
            self.bad.append(str(problem))
            self.bad.append(json.dumps(self.system.domain(self.system.status())))
            self.bad += self.system.log.since(0)[-40:]
        finally:
            self.stage.close()
            self.system.down()
        for line in self.bad:
            print("soak: " + line)
        return found
