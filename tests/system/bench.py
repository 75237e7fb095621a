#!/usr/bin/env python3
"""bench/run on the host backend, as small as it can be: it measures, reports, and makes the same report again.

usage: bench.py BUILD
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = sys.argv.pop(1)
NAMES = ("first", "idle_clients", "fault_write_4", "weights_2", "online_beside_kernels20ms", "crowd")


class Run(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name, "result.json")
        cls.ended = cls.command("--host", "--only", ",".join(NAMES), "--rounds", "1", "--build", BUILD, "--out",
                                cls.path)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @staticmethod
    def command(*words):
        return subprocess.run([ROOT / "bench" / "run", *words], capture_output=True, text=True, timeout=200)

    def test_it_ends_well_and_says_what_it_is(self):
        self.assertEqual(self.ended.returncode, 0, self.ended.stdout + self.ended.stderr)
        self.assertIn("no statement about a GPU", self.ended.stdout)
        self.assertNotIn("Traceback", self.ended.stderr)

    def test_the_file_has_everything(self):
        result = json.loads(self.path.read_text())
        self.assertEqual((result["backend"], result["systems"], len(result["machines"])), ("host", ["frmps"], 1))
        found = {(run["scenario"], run["point"]): run["values"] for run in result["runs"]}
        self.assertEqual(set(found), {("first", None), ("idle_clients", 1), ("idle_clients", 8),
                                      ("fault_write_4", None), ("weights_2", None), ("crowd", 1), ("crowd", 32),
                                      ("online_beside_kernels20ms", "alone"),
                                      ("online_beside_kernels20ms", "beside")})
        self.assertGreater(found["first", None]["first_kernel_ms"], 0)
        self.assertGreater(found["idle_clients", 8]["launch_and_wait"]["median"], 0)

    def test_shares_are_measured_with_weights_and_without(self):
        result = json.loads(self.path.read_text())
        run = next(run for run in result["runs"] if run["scenario"] == "weights_2")
        self.assertEqual(set(run["values"]), {"deviation", "kept", "uneven", "rate", "alone"})
        self.assertGreater(run["values"]["rate"], 0)
        for window in run["detail"]["even"] + run["detail"]["weighted"]:
            self.assertEqual(len(window), 2)
            self.assertAlmostEqual(sum(window), 100)

    def test_requests_and_offline_work_are_measured(self):
        result = json.loads(self.path.read_text())
        runs = [run for run in result["runs"] if run["scenario"] == "online_beside_kernels20ms"]
        found = {run["point"]: run["values"] for run in runs}
        self.assertEqual(set(found["beside"]) - set(found["alone"]),
                         {"request_ratio", "request_p99_ratio", "request_max_ratio", "offline_rate"})
        self.assertGreater(found["beside"]["request"]["n"], 0)
        self.assertGreater(found["beside"]["offline_rate"], 0)

    def test_all_of_a_crowd_are_ready_and_wait(self):
        result = json.loads(self.path.read_text())
        for values in (run["values"] for run in result["runs"] if run["scenario"] == "crowd"):
            self.assertGreater(values["started"], 0)
            self.assertLessEqual(values["wait"]["median"], values["wait_max"])

    def test_survivors_of_the_fault_are_exact(self):
        result = json.loads(self.path.read_text())
        detail = next(run["detail"] for run in result["runs"] if run["scenario"] == "fault_write_4")
        self.assertEqual([one["outcome"] for one in detail["survivors"]], ["exact"] * 4)
        self.assertEqual(detail["culprit"]["code"], 700)
        for one in detail["survivors"]:
            self.assertGreater(one["kernels"], 0)
            self.assertGreater(sum(one["ended_per_ms"]), 0)

    def test_the_page_is_there_and_can_be_made_again(self):
        page = self.path.with_suffix(".html")
        text = page.read_text()
        for name in NAMES:
            self.assertIn(f'id="scenario-{name}"', text)
        page.unlink()
        again = self.command("--report", self.path)
        self.assertEqual((again.returncode, page.read_text()), (0, text))

    def test_nothing_is_left_to_resume(self):
        before = json.loads(self.path.read_text())["runs"]
        again = self.command("--resume", self.path, "--build", BUILD)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(json.loads(self.path.read_text())["runs"], before)


if __name__ == "__main__":
    unittest.main()
