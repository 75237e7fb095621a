#!/usr/bin/env python3
"""Whether stacks.py says what a process, and one that it has started, wait for, and when it looks."""

import pathlib
import subprocess
import sys
import threading
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "gpu"))
import stacks  # noqa: E402


class Stacks(unittest.TestCase):
    def setUp(self):
        # The shell waits for its child, which waits for a line.
        self.shell = subprocess.Popen(["sh", "-c", "sh -c 'echo ready; read line'; true"], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True)
        self.assertEqual(self.shell.stdout.readline(), "ready\n")

    def tearDown(self):
        self.shell.communicate("\n")

    def test_children_are_found_and_calls_are_named(self):
        if not stacks.text_of(f"/proc/{self.shell.pid}/syscall"):
            self.skipTest("this kernel does not say in which call a process is")
        pids = stacks.with_children([self.shell.pid])
        self.assertEqual((len(pids), pids[0]), (2, self.shell.pid))
        for pid, call in zip(pids, ("wait4 from", "read from")):  # ready is said before that
            while call not in "".join(stacks.threads_of(pid)):
                self.assertIsNone(self.shell.poll())
        lines = stacks.stacks([self.shell.pid])
        self.assertIn("wait4 from", "".join(lines))
        for pid in pids:
            self.assertTrue(any(line.startswith(f"process {pid}: sh -c") for line in lines), lines)

    def test_a_process_that_is_gone_has_no_threads(self):
        gone = subprocess.Popen(["true"])
        gone.wait()
        self.assertEqual(list(stacks.threads_of(gone.pid)), [])

    def test_who_stands_still_is_looked_at_once(self):
        reports, seen, count = [], threading.Event(), 0
        stacks.STALL_SECONDS = 0.3

        def number():
            nonlocal count
            count += not reports and count < 3
            return count

        def report(lines):
            reports.append((count, lines))
            seen.set()

        with stacks.Stall(number, lambda: [self.shell.pid], report):
            self.assertTrue(seen.wait(120))
        self.assertEqual([moved for moved, _ in reports], [3])
        self.assertIn(f"process {self.shell.pid}: sh", "\n".join(reports[0][1]))


if __name__ == "__main__":
    unittest.main()
