#!/usr/bin/env python3
"""Whether tests/lib/run.py says all the time what it does, ends what does not end, later on a busy machine, and counts."""

import io
import json
import os
import pathlib
import sys
import tempfile
import threading
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / 'lib'))
import run  # noqa: E402


class Bed(unittest.TestCase):
    """A build folder whose tests are lines of shell, and a meson that lists them."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.out = io.StringIO()
        self.load = 0.0
        self.clock = run.Clock(lambda: self.load)
        self.display = run.Display(self.out)
        self.runner = run.Runner(self.display, self.clock)
        self.path = os.environ['PATH']
        os.environ['PATH'] = self.folder.name + ':' + self.path

    def tearDown(self):
        os.environ['PATH'] = self.path
        self.folder.cleanup()

    def run_lines(self, limit=60, **lines):
        entries = [{'name': name, 'cmd': ['sh', '-c', line], 'workdir': None, 'env': {'WORD': 'set'}, 'timeout': limit,
            'suite': ['frmps:plain'], 'priority': 1 if name == 'long' else 0} for name, line in lines.items()]
        meson = os.path.join(self.folder.name, 'meson')
        with open(meson, 'w', encoding='utf-8') as file:
            file.write("#!/bin/sh\ncat <<'END'\n" + json.dumps(entries) + '\nEND\n')
        os.chmod(meson, 0o755)
        self.runner.run('plain', self.folder.name, lambda suites: 'plain' in suites)
        return self.summary()

    def summary(self):
        status = self.runner.summary()
        lines = self.out.getvalue().splitlines()
        return status, lines

    def test_all_is_counted(self):
        status, lines = self.run_lines(good='test $WORD = set', left='exit 77', more='exit 0')
        self.assertEqual((status, lines[-1]), (0, '2 passed, 0 failed, 1 skipped'))
        self.assertTrue(any('plain 3 of 3' in line for line in lines), lines)
        self.assertFalse(any('== failed' in line for line in lines), lines)

    def test_long_ones_begin_first(self):
        self.runner.at_once = 1
        _, lines = self.run_lines(a='exit 0', long='exit 0', z='exit 0')
        self.assertIn('long', next(line for line in lines if '1 of 3' in line))

    def test_what_fails_is_said_at_once_and_first_in_the_summary(self):
        status, lines = self.run_lines(bad='echo nothing of note; echo a.c:3:F:case:name:0: it is wrong; exit 1', good='sleep 0.3')
        self.assertEqual((status, lines[-1]), (1, '1 passed, 1 failed, 0 skipped'))
        at_once = next(i for i, line in enumerate(lines) if 'FAILED' in line and 'bad, exit status 1' in line)
        self.assertIn('it is wrong', lines[at_once + 1])
        self.assertIn('2 of 2: ok', lines[at_once + 2])
        summary = lines.index('== failed')
        self.assertIn('bad', lines[summary + 1])
        self.assertIn('it is wrong', lines[summary + 2])
        self.assertFalse(any('nothing of note' in line for line in lines), lines)
        self.assertLess(summary, lines.index('== the longest tests'))

    def test_a_build_without_tests_is_a_failure(self):
        self.runner.skipped.append(('build-tsan', 'it does not run here'))
        status, lines = self.run_lines()
        self.assertEqual((status, lines[-1]), (1, '0 passed, 1 failed, 1 skipped'))

    def follow(self, until):
        """The clock and the display, with seconds that pass quickly."""
        while not until.wait(0.05):
            self.clock.tick(1)

    def end_of_endless(self, load):
        self.load = load
        over = threading.Event()
        follower = threading.Thread(target=self.follow, args=(over,))
        follower.start()
        try:
            return self.run_lines(limit=20, endless='sleep 1000 & sleep 1000')
        finally:
            over.set()
            follower.join()

    def test_what_does_not_end_is_ended(self):
        status, lines = self.end_of_endless(0)
        self.assertEqual((status, lines[-1]), (1, '0 passed, 1 failed, 0 skipped'))
        self.assertTrue(any('ended at its limit of 20 s' in line for line in lines), lines)

    def test_a_limit_is_longer_on_a_busy_machine(self):
        self.assertEqual(self.clock.rate(), 1)
        self.load = 4 * run.PROCESSORS
        self.assertEqual(self.clock.rate(), 0.25)
        self.clock.tick(1)
        self.assertEqual(self.clock.now, 0.25)
        # While this process stood still, so did the tests.
        self.clock.tick(1000)
        self.assertEqual(self.clock.now, 0.5)

    def test_what_runs_is_said_where_nothing_else_is(self):
        self.display.begin('plain slow')
        self.display.tick()
        self.assertEqual(self.out.getvalue(), '')
        self.display.last = time.monotonic() - run.QUIET_S
        self.display.tick()
        self.assertIn('... plain slow (0 s)', self.out.getvalue())


if __name__ == '__main__':
    unittest.main()
