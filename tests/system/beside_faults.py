#!/usr/bin/env python3
"""Whether framework_faults.py and real_culprits.py do what they should, on the host backend: a loop of numbers stands for
those of PyTorch, and the fault matrix's culprits for those that people write.

usage: beside_faults.py BUILD
       beside_faults.py loop NAME LOG [--check N,...] [--twice N]      the loop
"""

import contextlib
import io
import json
import os
import pathlib
import select
import struct
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[2] / "bench" / "lib"), str(HERE.parents[1] / "gpu")]
sys.dont_write_bytecode = True
import framework_faults  # noqa: E402
import matrix  # noqa: E402
import real_culprits  # noqa: E402
from framework_faults import WINDOW  # noqa: E402
from stage import until  # noqa: E402


class Loop:
    """As framework_survivor.py has it: each iteration leaves a word in the log. One whose name is `wrong` leaves another
    word after it has been watched."""

    def __init__(self, name, log):
        self.name, self.log, self.count, self.is_watched = name, open(log, "ab", buffering=0), 0, False

    def step(self, twice=None):
        number = self.count + (twice is not None and self.count >= twice) + (self.is_watched and self.name == "wrong")
        self.log.write(struct.pack("<Q", number))
        self.count += 1

    def check(self, points, twice):
        while self.count < max(points):
            self.step(twice)
        return {"outcome": "done", "states": {str(point): point for point in points}}

    def serve(self):
        """Until it is told to stop. Return: the last words."""
        orders, goal = [], None
        while "stop" not in orders:
            if select.select([sys.stdin], [], [], 0.001)[0]:
                orders.append(sys.stdin.readline().strip())
                if orders[-1] == "watch":
                    self.is_watched = True
                    print("watching", flush=True)
                elif orders[-1].startswith("more "):
                    goal = self.count + WINDOW * int(orders[-1][5:])
            self.step()
            if goal and self.count >= goal:
                print("more 1.5", flush=True)
                goal = None
        while self.count % WINDOW:
            self.step()
        return {"outcome": "done", "state": self.count}


def loop(name, log, *more):
    words = dict(zip(more[::2], more[1::2]))
    print("ready", flush=True)
    if "--check" in words:
        points, twice = [int(word) for word in words["--check"].split(",")], words.get("--twice")
        print(json.dumps(Loop(name, log).check(points, twice and int(twice))))
    else:
        print(json.dumps(Loop(name, log).serve()), flush=True)


class Host(unittest.TestCase):
    def setUp(self):
        self.work = self.enterContext(tempfile.TemporaryDirectory())
        framework_faults.command = lambda *words: [sys.executable, "-B", str(HERE), "loop", *map(str, words)]
        matrix.device_kernels = lambda work: matrix.host_kernels(BUILD)

    def options(self, module, *words):
        sys.argv = [module.__file__, "--build", str(BUILD), *words]
        options = module.arguments()
        options.backend = "host"
        return options

    def said(self, run, *arguments):
        """Return: what a function returned, and printed."""
        with contextlib.redirect_stdout(io.StringIO()) as out:
            found = run(*arguments)
        return found, out.getvalue()


class FrameworkFaults(Host):
    def setUp(self):
        super().setUp()
        # Loops here are no programs of the service.
        framework_faults.Life.quiet = lambda self, culprits=0, gone=None: self.system.quiet(culprits, until(), gone) \
            if culprits else None

    def test_faults_one_after_another(self):
        good, said = self.said(framework_faults.run, self.options(
            framework_faults, "--rows", "trap,null", "--programs", "2", "--strict"), self.work)
        self.assertTrue(good, said)
        self.assertRegex(said, r"2 +trap +2 ms +2 ms .* 719 +culprit")
        self.assertRegex(said, r"2 +null +2 ms +2 ms .* 700 +culprit")
        self.assertIn("2 programs, graph-state: ", said)

    def test_a_burst(self):
        good, said = self.said(framework_faults.run, self.options(
            framework_faults, "--rows", "trap,null", "--programs", "1", "--burst", "3", "--strict"), self.work)
        self.assertTrue(good, said)
        self.assertIn("a burst of 3, 3 blamed", said)
        self.assertIn("2 x trap 719, 1 x null 700", said)

    def test_a_wrong_loop_is_noticed(self):
        options = self.options(framework_faults, "--rows", "trap")
        options.loops, options.programs = ["wrong"], [1]
        good, said = self.said(framework_faults.run, options, self.work)
        self.assertFalse(good)
        self.assertIn("BAD: wrong is WRONG", said)


class RealCulprits(Host):
    ROWS = {"cuda-null": "null", "cuda-misaligned": "misaligned"}

    def play(self, natively):
        """Return: what was found of the cases, what else is wrong, and what was printed."""
        options = self.options(real_culprits, "--only", ",".join(self.ROWS))
        options.programs = None
        real_culprits.start = lambda system, name, programs: system.start(
            ["culprit", self.ROWS[name], "--wait-ms", "30000"])
        real_culprits.answer = lambda program: {**program.result, "text": "", "assertions": {}, "status": 0}
        real_culprits.Life.quiet = lambda life, culprits=0, gone=None: life.system.quiet(culprits + 1, until(), gone)
        kernels = matrix.host_kernels(BUILD)
        answers = {name: [{"code": code, "text": "", "assertions": {}, "status": 0}] for name, code in natively.items()}
        (found, loops, bad), said = self.said(real_culprits.play_all, options, kernels, answers, self.work)
        return found, bad + real_culprits.judge_loops(options, kernels, found, loops, self.work), said

    def test_culprits_one_after_another(self):
        found, bad, said = self.play({"cuda-null": 700, "cuda-misaligned": 716})
        self.assertEqual((bad, [one["bad"] for one in found]), ([], [[], []]), said)
        self.assertEqual([one["survivors"] for one in found], 2 * [{"100us": "exact", "graph": "exact"}])

    def test_another_error_than_natively_is_noticed(self):
        found, _, _ = self.play({"cuda-null": 719, "cuda-misaligned": 716})
        self.assertEqual([one["bad"] for one in found], [["not as natively: code"], []])


if __name__ == "__main__":
    if sys.argv[1] == "loop":
        loop(*sys.argv[2:])
    else:
        BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
        os.environ["FRMPS_HOST_FAULT_MS"] = "10"
        unittest.main()
