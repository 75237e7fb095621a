#!/usr/bin/env python3
"""What is compared with what (bench/lib/rounds.py)."""

import contextlib
import io
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "bench" / "lib"))
import rounds  # noqa: E402


class Scripted:
    """A system whose measurements come out as it says: a number, or None for one that fails."""

    def __init__(self, name, values):
        self.name = name
        self.values = values

    def measure(self):
        value = self.values.pop(0)
        if value is None:
            raise RuntimeError("it fails")
        return {"number": value}


def played(native, frmps):
    systems = [Scripted("native", native), Scripted("frmps", frmps)]
    results = {}
    with contextlib.redirect_stderr(io.StringIO()):
        rounds.take_turns(systems, {"number": Scripted.measure}, len(native), True, results)
    return results


class Ratio(unittest.TestCase):
    def test_rounds_are_compared_one_by_one(self):
        results = played([1, 2, 100], [3, 4, 100])
        self.assertEqual(rounds.ratio(results, "number", "native"), 2)

    def test_a_round_that_one_of_them_lost_is_not_compared(self):
        results = played([1, 2, None, 4], [1, None, 9, 8])
        self.assertEqual(results["native"]["number"], [1, 2, None, 4])
        self.assertEqual(rounds.ratio(results, "number", "native"), 1.5)

    def test_nothing_to_compare(self):
        self.assertIsNone(rounds.ratio(played([None, 1], [1, None]), "number", "native"))
        self.assertIsNone(rounds.ratio(played([0], [1]), "number", "native"))
        self.assertIsNone(rounds.ratio({}, "number", "native"))

    def test_the_table_leaves_out_what_failed(self):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            rounds.table(played([None, 4, 8], [None, None, None]), ["native", "frmps"])
        self.assertIn("6 [     4-     8]", printed.getvalue())


if __name__ == "__main__":
    unittest.main()
