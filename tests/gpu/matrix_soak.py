"""The soak of the fault matrix (matrix.py --soak)."""

import json
import time

from matrix_systems import PATIENCE, Broken

# Faults beside which survivors go on exactly.
ROWS = ("trap", "far-write", "misaligned", "shared", "assert", "illegal")
SETTLE_SECONDS = 60  # what is held in passing is gone by then, also on a busy machine


class Soak:
    """Faults in a row beside the same survivors."""

    def __init__(self, system, options):
        self.system = system
        self.rows = [row for row in options.rows if row in ROWS] or list(ROWS)
        self.count, self.policy = options.soak, options.policy[0]
        self.end = time.monotonic() + options.seconds if options.seconds else float("inf")
        self.survivors, self.bad = [], []

    def say_all(self, text, answer):
        until = time.monotonic() + PATIENCE
        for survivor in self.survivors:
            survivor.say(text)
        for survivor in self.survivors:
            if not survivor.hear(answer, until):
                raise Broken(f"a survivor ends: {survivor.result or ''.join(survivor.errors) or 'no answer'}")

    def fault(self, row):
        culprit = self.system.start(["culprit", row], self.policy)
        try:
            culprit.say("go")
            found = culprit.end(time.monotonic() + PATIENCE)
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
            self.say_all("more 3", "more")
            self.system.quiet(len(self.survivors), time.monotonic() + PATIENCE)
            i += 1
            if i % 20 == 0:
                self.say_all("check", "checked")
            if i == warm:
                before = self.system.holdings()
        blamed = self.system.blamed(self.system.log.since(0))
        if blamed != culprits:
            self.bad.append(f"blamed, and innocent: {blamed - culprits}; not blamed: {culprits - blamed}")
        return i, before, self.holdings_at_rest(before)

    def holdings_at_rest(self, before):
        """What is held in passing, a connection or a child that ends, is not held a moment later."""
        until = time.monotonic() + SETTLE_SECONDS
        held = self.system.holdings()
        while self.grown(before, held) and time.monotonic() < until:
            time.sleep(0.1)
            held = self.system.holdings()
        return held

    def grown(self, before, after):
        """Counts stay as they are; memory may settle by what an allocator keeps. Sanitizers keep freed memory."""
        found = []
        slack = {"device MiB": 8 if self.system.backend == "cuda" else 0}
        # Rings of a MiB are used from one end to the other, however slowly, and journals beside them.
        slack["KiB shared"] = 2048 * (len(self.survivors) + 1)
        for name, value in after.items():
            if name.startswith("KiB of"):
                slack[name] = float("inf") if self.system.is_sanitized() else 1024
            if before and value > before[name] + slack.get(name, 0):
                found.append(f"{name} grew from {before[name]} to {value}")
        return found

    def play(self):
        repeatable = ["--repeatable"] if self.policy == "replay" else []
        for arguments in (["--kernel-us", "100"], ["--idle"]):
            self.survivors.append(self.system.start(["survivor", *arguments, *repeatable], self.policy))
        for survivor in self.survivors:
            if not survivor.hear("ready", time.monotonic() + PATIENCE):
                raise Broken("survivors did not start")
        self.system.quiet(len(self.survivors), time.monotonic() + PATIENCE)
        begin = time.monotonic()
        done, before, after = self.faults()
        took = time.monotonic() - begin
        self.bad += self.grown(before, after)
        for survivor in self.survivors:
            survivor.say("stop")
            result = survivor.end(time.monotonic() + PATIENCE)
            if not result or result["outcome"] != "exact":
                self.bad.append(f"a survivor ends: {result}")
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
            for survivor in self.survivors:
                survivor.close()
            self.system.down()
        for line in self.bad:
            print("soak: " + line)
        return found
