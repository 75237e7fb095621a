#!/usr/bin/env python3
"""What exceptions.py plans, notices, merges and shows."""

import copy
import pathlib
import sys
import types
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "gpu"))
import exceptions  # noqa: E402
import exceptions_plan  # noqa: E402
import exceptions_table  # noqa: E402
from exceptions_plan import Cell  # noqa: E402

NATIVE = {"trap": 719, "null": 700, "jump": 700}
VERDICT = "frmps[1] info: verdict: culprit is process {pid} (matrix_worker), session 3, kernel fault_trap, code {code} NAME, by"


class System:
    """A service whose log and findings are given."""

    def __init__(self, innocent=()):
        self.innocent = set(innocent)
        self.log = types.SimpleNamespace(since=lambda position: [])

    def blamed(self, lines):
        return self.innocent

    def pid_of(self, session):
        return {"3": 33}.get(session, 0)


def judged(classes, codes, lines, replaced=False, innocent=()):
    """What is found bad about an event whose culprits are processes 11, 12, …"""
    life = types.SimpleNamespace(system=System(innocent), options=types.SimpleNamespace(native=NATIVE))
    event = exceptions.Event(life, Cell("once", tuple(classes), together=len(classes)), 0)
    event.found["codes"] = codes
    event.judge_culprits(range(11, 11 + len(classes)), lines)
    event.judge_executors(replaced)
    return event.found["bad"]


class Plan(unittest.TestCase):
    def test_parts_are_the_plan(self):
        plan = exceptions_plan.plan()
        for count in (1, 3, 10, 400):
            parts = [exceptions_plan.part(plan, i + 1, count) for i in range(count)]
            self.assertEqual([cell for part in parts for cell in part], plan)

    def test_names_are_different(self):
        for plan in (exceptions_plan.plan(), exceptions_plan.host_plan()):
            self.assertEqual(len({cell.name for cell in plan}), len(plan))

    def test_no_tenth_is_longer_than_eight_minutes(self):
        plan = exceptions_plan.plan()
        for i in range(10):
            self.assertLess(sum(cell.seconds for cell in exceptions_plan.part(plan, i + 1, 10)), exceptions.SECONDS)

    def test_pairs_are_all_pairs(self):
        cell = next(cell for cell in exceptions_plan.plan() if cell.how == "pairs")
        pairs = {frozenset(cell.event(i)) for i in range(cell.times)}
        count = len(cell.classes)
        self.assertEqual(len(pairs), count * (count - 1) // 2)

    def test_rows_have_every_class(self):
        cell = next(cell for cell in exceptions_plan.plan() if cell.how == "row")
        self.assertEqual({cell.event(i)[0] for i in range(cell.times)}, set(exceptions_plan.CLASSES))


class Judging(unittest.TestCase):
    def test_what_must_be_is_not_bad(self):
        self.assertEqual(judged(["trap"], [719], [VERDICT.format(pid=11, code=719)]), [])

    def test_another_error_is_noticed(self):
        self.assertIn("got 700, natively 719", judged(["trap"], [700], [VERDICT.format(pid=11, code=719)])[0])
        self.assertIn("got None", judged(["trap"], [None], [VERDICT.format(pid=11, code=719)])[0])

    def test_a_verdict_of_another_class_is_noticed(self):
        self.assertIn("names 700", judged(["trap"], [719], [VERDICT.format(pid=11, code=700)])[0])

    def test_a_missing_verdict_is_noticed(self):
        self.assertIn("nobody", judged(["trap"], [719], [])[0])

    def test_each_of_several_is_looked_for(self):
        bad = judged(["trap", "null"], [719, 700], [VERDICT.format(pid=11, code=719)])
        self.assertEqual(len(bad), 1)
        self.assertIn("null", bad[0])

    def test_the_innocent_are_noticed(self):
        lines = [VERDICT.format(pid=11, code=719)]
        self.assertIn("innocent", judged(["trap"], [719], lines, innocent=[99])[0])
        self.assertIn("innocent", judged(["trap"], [719], [*lines, VERDICT.format(pid=99, code=719)])[0])

    def test_executors_are_compared(self):
        lines = [VERDICT.format(pid=11, code=719)]
        self.assertIn("replaced", judged(["trap"], [719], lines, replaced=True)[0])

    def test_a_verdict_may_have_the_session_alone(self):
        lines = ["verdict: culprit is session 3, kernel k, code 719 NAME, by"]
        self.assertEqual(exceptions.named(lines, System().pid_of), {33: 719})

    def test_one_verdict_may_name_two(self):
        lines = ["verdict: culprit is process 11 (a), session 1 and at the same time session 2 (process 12, b), kernel k, "
                 "code 719 NAME, by"]
        self.assertEqual(exceptions.named(lines, System().pid_of), {11: 719, 12: 719})


def result(names=("once/trap/warp/small",), bad=(), gpu="a"):
    cells = [{"name": name, "how": name.split("/")[0], "classes": ["trap"], "grid": "warp", "beside": "small",
              "seconds": 1, "bad": list(bad), "survivors": [{"outcome": "exact"}],
              "events": [{"classes": ["trap"], "bad": [], "pauses": [[3.0, 0.0]], "usual": [[1.0, 0.0]]}]}
             for name in names]
    return {"machine": {"gpu": gpu, "date": "today"}, "command": "it", "native_codes": NATIVE, "cells": cells}


class Scripts(unittest.TestCase):
    def test_results_of_other_scripts_are_events(self):
        faults = {"lives": [{"events": [{"row": "trap", "pauses_ms": {"graph": 4.0, "train": None}},
                                        {"faults": [["null", 700], ["trap", 719]], "pauses_ms": {"graph": 9.0}}]}]}
        self.assertEqual(exceptions.events_of(faults), [
            {"classes": ["trap"], "bad": [], "pauses": [[4.0, 0.0], None]},
            {"classes": ["null", "trap"], "bad": [], "pauses": [[9.0, 0.0]]}])
        culprits = {"cases": [{"case": "cuda-null", "bad": ["it does not start"]}]}
        self.assertEqual(exceptions.events_of(culprits), [{"classes": ["cuda-null"], "bad": [], "pauses": []}])


class Tables(unittest.TestCase):
    def test_cells_that_were_run_twice_are_one(self):
        other = copy.deepcopy(result(bad=["it failed"]))
        other["machine"]["date"] = "tomorrow"
        merged = exceptions_table.merge([result(), other])
        self.assertEqual(len(merged["cells"]), 1)
        self.assertEqual(len(merged["cells"][0]["events"]), 2)
        self.assertEqual(merged["cells"][0]["bad"], ["it failed"])

    def test_other_machines_are_refused(self):
        with self.assertRaises(SystemExit):
            exceptions_table.merge([result(), result(gpu="b")])

    def test_a_table_shows_what_failed(self):
        good = exceptions_table.table(result(["once/trap/warp/small", "row/all/warp/small"]))
        self.assertIn("| trap | 1: 3.0, 3.0 |", good)
        self.assertIn("| row/all/warp/small | 1 | 3.0, at most 3.0 | as it must be |", good)
        self.assertIn("Nothing failed.", good)
        bad = exceptions_table.table(result(bad=["it is WRONG"]))
        self.assertIn("**1: 3.0, 3.0: failed**", bad)
        self.assertIn("- once/trap/warp/small: it is WRONG", bad)

    def test_survivors_that_ended_have_no_pause(self):
        cell = result()["cells"][0]
        cell["events"][0]["pauses"] = [None]
        self.assertEqual(exceptions_table.pauses(cell), [])
        self.assertIn("pause -", exceptions_table.line(cell))


if __name__ == "__main__":
    unittest.main()
