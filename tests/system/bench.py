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


class Run(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name, "result.json")
        cls.ended = cls.command("--host", "--only", "first,idle_clients,fault_write_4", "--rounds", "1",
                                "--build", BUILD, "--out", cls.path)

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
                                      ("fault_write_4", None)})
        self.assertGreater(found["first", None]["first_kernel_ms"], 0)
        self.assertGreater(found["idle_clients", 8]["launch_and_wait"]["median"], 0)

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
        for name in ("first", "idle_clients", "fault_write_4"):
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
