#!/usr/bin/env python3
"""The fault matrix: every way to go wrong, beside every kind of survivor.

usage: matrix.py [--build BUILD] [--backend cuda|host] [--repeat N] [--rows ROW,...] [--columns COLUMN,...]
                 [--systems frmps,mps] [--policy fail,replay] [--seconds LIMIT]
                 [--second PHASE-EVENT,...|all] [--culprit-blocks N] [--warm-ms N] [--short] [--strict] [--soak FAULTS] [--out FILE.json]

A row is what happens to the culprit, or to a process of the service; a column is who shares the device meanwhile. Each
run has fresh programs; a service is kept for all cells of its configuration. Survivors' kernels are black boxes that
change all their cells in place and count themselves (with --policy replay: kernels that only overwrite, which is what a
program vouches for), so that a kernel that was lost, repeated or cut shows. A run ends, for each survivor, as
  exact   every word of its memory is what it must be, and no call failed
  told    a call failed; nothing was wrong before
  WRONG   a word is not what it must be
  HANG    it said nothing any more
and the culprit's error is compared with what the driver says natively. Blame is what the service's log says. The pause
is the longest time between two ends of kernels of one survivor, less the kernel's own time, from before the fault until
the service is quiet again.

--second: while the service deals with the fault of the row something else happens, at a moment of which the phase is
certain (matrix_second.py). Survivors must be exact wherever the first fault
would leave them so and the second cuts nothing, both culprits must be told, and nobody else blamed.

--soak: that many faults in a row beside the same survivors (one busy, one idle), which must be exact throughout, while
nothing that the service holds may grow.

Exit status: 1 if a survivor was WRONG or hung, if somebody else was blamed, or if the service crashed (--strict: also
if the culprit was told something else than natively; soak: if a survivor was told, or something grew); 77 without a GPU
(--backend cuda).
"""

import json
import os
import pathlib
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "bench" / "lib"), str(pathlib.Path(__file__).resolve().parent)]
from matrix_second import FAULT_MS, SECONDS, Second, is_reached, must_be_exact  # noqa: E402
from matrix_soak import Soak  # noqa: E402
from matrix_systems import PATIENCE, Broken, Frmps, StockMps, System  # noqa: E402
from stage import Stage, Survivor, main, make_parser, save, until, words  # noqa: E402

# Row: (fault of matrix_worker, what the host backend says natively). 0: nothing is told.
FAULTS = {
    "none": 0,
    "trap": 719,
    "far-write": 700,
    "far-read": 700,
    "null": 700,
    "misaligned": 716,
    "shared": 700,
    "assert": 719,
    "illegal": 715,
    "stack": 714,
    "jump": 700,
    "near-write": 700,
    "near-read": 700,
    "endless": 702,
    "same": 700,  # the survivors' own kernel, of the same module, with a wild pointer
}
KILLS = ("kill-culprit", "kill-active", "kill-standby", "kill-daemon", "kill-keeper")
ROWS = (*FAULTS, *KILLS)
COLUMNS = {
    "idle": (1, ["--idle"]),
    "busy-100us": (1, ["--kernel-us", "100"]),
    "busy-50ms": (1, ["--kernel-us", "50000"]),
    "seven-100us": (7, ["--kernel-us", "100"]),
    "kept-100us": (1, ["--kernel-us", "100", "--kept"]),  # counts in variables that only kernels know
    "constant-100us": (1, ["--kernel-us", "100", "--constant"]),  # writes a constant in front of each kernel
    "capped-100us": (2, ["--kernel-us", "100"]),  # on other multiprocessors than the culprit, as far as there are others
    # Kernels of 120 ms, of many short blocks: a fault finds the device full, and such a kernel half done, for blocks that
    # have not begun wait for its end.
    "flood-20us": (1, ["--kernel-us", "20", "--blocks", "10000000"]),
    "held-64gib": (32, ["--kernel-us", "100", "--held", "128"]),  # 4096 allocations that all move
}
# Percent of the multiprocessors that each survivor, and the culprit, may use.
CAPS = {"capped-100us": (50, 25)}
USUAL_COLUMNS = [name for name in COLUMNS if name not in ("flood-20us", "held-64gib")]
KERNEL_LIMIT = 1  # max_kernel_seconds
ATTEMPTS = 5  # at a second fault in time
UNTOLD_MS = 700  # how long a culprit without a fault waits for an error


class Run:
    """One run of one cell: who took part, and what became of them."""

    def __init__(self, system, row, column, policy, black_boxes=False, second=None, blocks=1, warm_ms=0):
        """@black_boxes: with policy replay, that survivors vouch for what they should not; blocks: of the culprit"""
        self.blocks, self.warm_ms = blocks, warm_ms
        self.system, self.row, self.policy = system, row, policy
        self.second = Second(second) if second else None
        self.count, self.arguments = COLUMNS[column]
        self.cap, self.culprit_cap = CAPS.get(column, (None, None))
        self.repeatable = ["--repeatable"] if policy == "replay" and not black_boxes else []
        self.more = 4 if column == "busy-50ms" else 20
        self.stage, self.culprit = Stage(system), None
        self.found = {"trouble": ""}

    def gather(self):
        arguments = ["survivor", *self.arguments, *self.repeatable]
        self.stage.enter({f"survivor {i}": Survivor(self.system.start(arguments, self.policy, self.cap), self.more)
                          for i in range(self.count)})
        self.stage.quiet()

    def start_culprit(self, fault, *more):
        culprit = self.system.start(["culprit", fault, "--blocks", str(self.blocks), *more], self.policy, self.culprit_cap)
        try:
            self.stage.expect_ready([culprit])
        except Broken:
            culprit.close()
            raise
        return culprit

    def invite(self, fault, *more):
        self.culprit = self.start_culprit(fault, *more)
        if self.second:
            self.second.prepare(self)

    def interrupt(self):
        """Return: the process of the service that was killed."""
        if not self.second:
            return None
        self.found["missed"] = not self.second.strike()
        return self.second.gone

    def fault(self):
        self.invite(self.row, "--wait-ms", str(UNTOLD_MS if self.row == "none" else PATIENCE * 500),
                    "--warm-ms", str(self.warm_ms))
        self.stage.watch()
        self.culprit.say("go")
        gone = self.interrupt()
        self.found["culprit"] = self.culprit.end(until())
        if self.second and self.second.culprit:
            self.found["second"] = self.second.culprit.end(until())
        return gone

    def kill_culprit(self):
        self.invite("busy", "--kernel-us", "1000")
        self.stage.watch()
        self.culprit.say("go")
        if not self.culprit.hear("launched", until()):
            raise Broken("the culprit did not launch")
        self.culprit.kill()
        return None

    def kill_other(self):
        if self.second:
            self.second.prepare(self)
        victim = self.system.victim(self.row.removeprefix("kill-"))
        self.stage.watch()
        os.kill(victim, signal.SIGKILL)
        gone = self.interrupt()
        if self.second and self.second.culprit:
            self.found["second"] = self.second.culprit.end(until())
        return gone or victim

    def happen(self):
        """Return: the process of the service that was killed."""
        if self.row == "kill-culprit":
            return self.kill_culprit()
        return self.kill_other() if self.row in KILLS else self.fault()

    def read_log(self, lines):
        blamed = self.system.blamed(lines)
        culprits = {self.culprit.pid} if self.culprit and self.row not in KILLS else set()
        if self.second and self.second.culprit:
            culprits.add(self.second.culprit.pid)
        self.found["blamed"] = "nobody" if not blamed else "WRONG" if blamed - culprits else \
            "culprit" if len(blamed) == 1 else "both"
        self.found["phases"] = self.system.phases(lines)
        self.found["log"] = lines

    def play(self):
        position = 0
        self.gather()
        if self.system.name == "frmps":
            position = self.system.log.position()
        gone = self.happen()
        first = [measured[0] for measured in self.stage.measured().values() if measured]
        self.found["first_pause_ms"] = first if self.arguments[0] != "--idle" else []
        self.stage.quiet(gone=gone)
        self.found["survivors"] = list(self.stage.leave().values())
        if self.system.name == "frmps":
            self.read_log(self.system.log.since(position))
            self.found["trouble"] = self.system.crash()

    def go(self):
        """Return: what was found, with "trouble" set where it is not worth anything."""
        try:
            self.play()
        except Broken as problem:
            self.found["trouble"] = str(problem)
        finally:
            if self.second:
                self.second.close()
            self.stage.close()
            if self.culprit:
                self.culprit.close()
        return self.found


# What the runs of a cell say together.


def outcomes(runs):
    return [survivor["outcome"] for run in runs for survivor in run.get("survivors", [])]


def pauses(runs):
    """Of survivors that went on: those who were told have none."""
    return [survivor["pause_ms"] for run in runs for survivor in run.get("survivors", [])
            if survivor["outcome"] == "exact" and survivor.get("kernel_us")]


def is_bad(run):
    return bool(run["trouble"]) or run.get("blamed") == "WRONG" or \
        any(survivor["outcome"] not in ("exact", "told") for survivor in run["survivors"])


def is_worse_than_it_must_be(run, second, row):
    """With a second fault."""
    told = [run[name] for name in ("culprit", "second") if name in run]
    if any(not culprit or not culprit["code"] for culprit in told):
        return True
    return must_be_exact(second, row) and \
        any(survivor["outcome"] != "exact" for survivor in run["survivors"])


def is_told_otherwise(run, row, expected):
    """Whether a culprit is told something else than natively."""
    if row not in FAULTS:
        return False
    code = run["culprit"]["code"] if run.get("culprit") else None
    return code != expected


def counted(values):
    return " ".join(f"{values.count(value)} {value}" for value in dict.fromkeys(values))


def codes_text(cell, native):
    if cell["row"] in KILLS:
        return "-"
    texts = []
    for run in cell["runs"]:
        culprit = run.get("culprit")
        expected = native.get(cell["row"], 0)
        if not culprit:
            texts.append("no answer")
        elif not culprit["code"] and expected:
            texts.append("not told")
        else:
            texts.append(f"{culprit['code']}" + ("" if culprit["code"] == expected else f" (natively {expected})"))
    return counted(texts)


def phases_text(runs):
    every = [phase for run in runs for phase in run.get("phases", [])]
    names = dict.fromkeys(name for phase in every for name in phase)
    medians = {name: statistics.median(phase[name] for phase in every if name in phase) for name in names}
    return ", ".join(f"{name} {median:.1f}" for name, median in medians.items())


def cell_line(cell, native):
    runs = cell["runs"]
    gaps = pauses(runs)
    pause = f"{statistics.median(gaps):8.1f} {max(gaps):8.1f}" if gaps else f"{'-':>8} {'-':>8}"
    blamed = counted([run["blamed"] for run in runs if "blamed" in run])
    text = f"{cell['row']:13}{cell['column']:13}{len(runs):>4}  {counted(outcomes(runs)):22}{pause}  " \
           f"{blamed:18}{codes_text(cell, native):24}{cell.get('second', ''):20}{phases_text(runs)}"
    trouble = [run["trouble"].splitlines()[0] for run in runs if run["trouble"]]
    return text + (f"  TROUBLE: {trouble[0]}" if trouble else "")


HEAD = f"{'row':13}{'column':13}{'runs':>4}  {'survivors':22}{'pause':>8} {'worst':>8}  " \
       f"{'blamed':18}{'culprit told':24}{'second':20}phases of the verdict (medians), ms"


class Matrix:
    def __init__(self, options, kernels, native):
        self.options, self.kernels, self.native = options, kernels, native
        self.end = time.monotonic() + options.seconds if options.seconds else float("inf")
        self.system = None
        self.cells = []
        self.bad = 0

    def systems(self):
        """(what makes the system, policies) of each; a service serves all policies."""
        for name in self.options.systems:
            if name == "mps":
                yield lambda: StockMps(self.options.build, self.kernels), ["-"]
                continue
            # No row with a second fault needs the limit, and the kernel of a survivor that waits for a processor does
            # not end either.
            yield lambda: service(self.options, self.kernels, limited=not self.options.second), self.options.policy

    def wanted(self, system):
        """Cells in the order in which they are run: all columns of a row, row after row; with second faults, all that
        of each of them."""
        if self.options.second:
            for i, second in enumerate(self.options.second):
                rows = [row for row in self.options.rows if is_reached(second, row)]
                for row in rows[i % len(rows):][:1] if self.options.short and rows else rows:
                    for column in self.columns(i):
                        yield row, column, second
            return
        for i, row in enumerate(self.options.rows):
            if system.name == "mps" and (row in ("endless", "kill-standby", "kill-daemon", "kill-keeper")):
                continue  # nobody ends it; there is none
            for column in self.columns(i):
                yield row, column, None

    def columns(self, i):
        """In the short form one after the other. On the host backend variables that only kernels know are in the
        executor, and lost where a second fault ends it."""
        lost = self.options.second and self.options.backend == "host"
        columns = [column for column in self.options.columns if not (lost and "--kept" in COLUMNS[column][1])]
        return [columns[i % len(columns)]] if self.options.short and columns else columns

    def is_failure(self, run, row, second):
        if is_bad(run):
            return True
        if second:
            return is_worse_than_it_must_be(run, second, row)
        return self.options.strict and is_told_otherwise(run, row, self.native.get(row, 0))

    def play(self, system, policy, row, column, second):
        """A run whose second fault came too late is one of the row alone, and made again."""
        for _ in range(ATTEMPTS):
            run = Run(system, row, column, policy, second=second,
                      blocks=self.options.culprit_blocks, warm_ms=self.options.warm_ms).go()
            if run["trouble"] or not run.get("missed"):
                return run
        return {**run, "trouble": "the second fault came too late each time"}

    def run_cell(self, system, policy, row, column, second):
        cell = {"system": system.name, "policy": policy, "row": row, "column": column, "runs": []}
        if second:
            cell["second"] = second
        while len(cell["runs"]) < self.options.repeat and time.monotonic() < self.end:
            run = self.play(system, policy, row, column, second)
            cell["runs"].append(run)
            if self.is_failure(run, row, second):
                self.bad += 1
                self.explain(run)
            elif not self.options.keep_log:
                run.pop("log", None)
            if run["trouble"]:
                break
        if cell["runs"]:
            self.cells.append(cell)
            print(cell_line(cell, self.native), flush=True)
        self.save()
        return not cell["runs"] or not cell["runs"][-1]["trouble"]

    def explain(self, run):
        print("  " + (run["trouble"] or json.dumps(run.get("survivors"))).replace("\n", "\n  "))
        for line in run.get("log", []):
            print("  | " + line)

    def run_system(self, make, policies):
        self.system = make()
        self.system.up()
        for policy in policies:
            system = self.system
            print(f"\n{system.name}, policy {policy}\n{HEAD}", flush=True)
            for row, column, second in self.wanted(system):
                if time.monotonic() >= self.end:
                    print(f"not run for want of time: from {row}, {column}, {second} on")
                    return
                if not self.run_cell(self.system, policy, row, column, second):
                    self.system.down()
                    self.system = make()
                    self.system.up()

    def run(self):
        for make, policies in self.systems():
            try:
                self.run_system(make, policies)
            finally:
                self.system.down()
        self.save()
        return self.bad == 0

    def save(self):
        save(self.options.out, {"native_codes": self.native, "cells": self.cells})


def self_check(options, kernels):
    """Whether it is noticed that a black box was repeated: survivors that vouch for kernels of which half is done."""
    system = service(options, kernels)
    system.up()
    try:
        found = Run(system, "kill-active", "busy-50ms", "replay", black_boxes=True).go()
    finally:
        system.down()
    noticed = not found["trouble"] and outcomes([found]) == ["wrong"] and is_bad(found)
    print("self-check: a repeated black box " + ("is noticed" if noticed else f"is NOT noticed: {found}"))
    return noticed


def service(options, kernels, limited=True):
    """A service whose settings suit the backend: the processors of the host backend are its device, and may be busy."""
    limit = KERNEL_LIMIT if options.backend == "cuda" else 2 * KERNEL_LIMIT
    if not limited:
        limit = 0
    more = f"max_kernel_seconds = {limit}\n"
    if options.backend == "host":
        more += "spin_us = 0\nfault_stall_ms = 1000\nfault_patience_ms = 20000\n"
    return Frmps(options.build, kernels, options.backend, more)


def spoil(image):
    """Makes the instruction with the constant of fault_illegal an illegal one: the constant is its second word, the
    operation the low 12 bits of the first."""
    at = image.find(struct.pack("<I", 0x5EEDFACE))
    if at < 4:
        raise SystemExit("matrix.py: the kernels have no instruction to make illegal")
    return image[:at - 4] + bytes([0xFF, image[at - 3] | 0x0F]) + image[at - 2:]


def host_kernels(build):
    return dict.fromkeys(("survivor", "culprit"), build / "tests" / "matrix_host_kernels.so")


def device_kernels(work):
    """Two modules: what faults need (recursion, assertions) must not decide what becomes of survivors."""
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if not nvcc:
        raise SystemExit("matrix.py: no nvcc")
    paths = {role: pathlib.Path(work, role + ".cubin") for role in ("survivor", "culprit")}
    for role, path in paths.items():
        subprocess.run([nvcc, "-arch=sm_90", "-cubin", f"-D{role.upper()}", "-o", str(path),
                        str(ROOT / "tests/gpu/matrix_kernels.cu")], check=True)
    paths["culprit"].write_bytes(spoil(paths["culprit"].read_bytes()))
    return paths


def native_codes(options, kernels):
    """What the driver itself tells each culprit."""
    if options.backend == "host":
        return {row: FAULTS[row] for row in options.rows if row in FAULTS}
    system = System(options.build, kernels)
    programs = {row: system.start(["culprit", row, "--wait-ms", "5000" if row != "none" else "0"])
                for row in options.rows if row in FAULTS and row != "endless"}
    codes = {"endless": FAULTS["endless"]}
    for row, program in programs.items():
        program.say("go")
        found = program.end(until())
        program.close()
        if not found:
            raise SystemExit(f"matrix.py: {row} does not run natively: {''.join(program.errors)}")
        codes[row] = found["code"]
    system.down()
    print("natively told: " + ", ".join(f"{row} {code}" for row, code in codes.items()))
    return codes


def arguments():
    parser = make_parser(__doc__)
    parser.add_argument("--backend", choices=("cuda", "host"), default="cuda")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--rows", type=words(ROWS), default=list(ROWS))
    parser.add_argument("--columns", type=words(COLUMNS), default=USUAL_COLUMNS)
    parser.add_argument("--systems", type=words(("frmps", "mps")), default=["frmps"])
    parser.add_argument("--policy", type=words(("fail", "replay")), default=["fail"])
    parser.add_argument("--second", type=lambda text: list(SECONDS) if text == "all" else words(SECONDS)(text),
                        default=[], help="all, or some of " + ", ".join(SECONDS))
    parser.add_argument("--seconds", type=float, default=0, help="begins no further run after that time")
    parser.add_argument("--culprit-blocks", type=int, default=1, help="blocks of the culprit's kernel; all of them fault")
    parser.add_argument("--warm-ms", type=int, default=0, help="how long the culprit is there before it faults")
    parser.add_argument("--short", action="store_true",
                        help="one column of each row, in turn; shows first that it notices a wrong result")
    parser.add_argument("--strict", action="store_true", help="culprits must be told what they are told natively")
    parser.add_argument("--soak", type=int, nargs="?", const=-1, default=0, help="default: 1000 on host, 200 on cuda")
    parser.add_argument("--keep-log", action="store_true",
                        help="the log of every run goes to --out, not of bad ones alone")
    return parser.parse_args()


def run(options, work):
    kernels = host_kernels(options.build) if options.backend == "host" else device_kernels(work)
    if options.soak:
        soak = Soak(service(options, kernels), options)
        found = soak.run()
        save(options.out, {"soak": found, "bad": soak.bad})
        return not soak.bad
    if options.short and not self_check(options, kernels):
        return False
    return Matrix(options, kernels, native_codes(options, kernels)).run()


if __name__ == "__main__":
    asked = arguments()
    if asked.second and asked.systems != ["frmps"]:
        raise SystemExit("matrix.py: second faults are for frmps alone")
    os.environ.setdefault("FRMPS_HOST_FAULT_MS", str(FAULT_MS if asked.second else 10))
    if asked.soak < 0:
        asked.soak = 1000 if asked.backend == "host" else 200
    sys.exit(main(lambda work: run(asked, work), asked.backend == "cuda"))
