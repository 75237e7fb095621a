#!/usr/bin/env python3
"""What the numbers of a result say together (bench/lib/summary.py, table.py)."""

import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[2] / "bench" / "lib"), str(HERE)]
import invented  # noqa: E402
import play  # noqa: E402
import scenarios  # noqa: E402
import summary  # noqa: E402
import table  # noqa: E402


def result(values, name="wait", number="launch_and_wait", systems=("native", "MPS", "frmps")):
    """@values: of each system, that of each round; None: it failed"""
    rounds = max(len(those) for those in values.values())
    made = play.new_result("bench/run", "cuda", "quick", rounds, [name], list(systems), [])
    made["machines"] = [{"kernel": "k", "cpus": 1, "date": "d"}]
    for system, those in values.items():
        for i, value in enumerate(those):
            run = {"scenario": name, "point": None, "system": system, "round": i, "machine": 0, "seconds": 1}
            found = {"failed": f"{system} fails"} if value is None else {"values": {number: value}}
            made["runs"].append({**run, **found})
    return made


def row(values, **more):
    return summary.rows(result(values, **more))[0]


class Ratio(unittest.TestCase):
    def test_rounds_are_compared_one_by_one(self):
        self.assertEqual(row({"native": [1, 2, 100], "frmps": [3, 4, 100]}).ratio("native").median, 2)

    def test_a_round_that_one_of_them_lost_is_not_compared(self):
        found = row({"native": [1, 2, None, 4], "frmps": [1, None, 9, 8]})
        self.assertEqual(found.ratio("native"), summary.Spread(1.5, 1, 2, 2))
        self.assertEqual(found.spread("native"), summary.Spread(2, 1, 4, 3))

    def test_nothing_to_compare(self):
        self.assertIsNone(row({"native": [None, 1], "frmps": [1, None]}).ratio("native"))
        self.assertIsNone(row({"native": [0], "frmps": [1]}).ratio("native"))
        self.assertIsNone(row({"frmps": [1]}).ratio("MPS"))

    def test_the_median_of_a_distribution_counts(self):
        self.assertEqual(row({"frmps": [{"median": 7, "p99": 90}]}).spread("frmps").median, 7)

    def test_numbers_that_are_not_known_any_more_are_left_out(self):
        self.assertEqual(summary.rows(result({"frmps": [1]}, number="of_old")), [])


class Behind(unittest.TestCase):
    def test_less_is_better(self):
        found = summary.behind(result({"native": [10, 10], "MPS": [12, 12], "frmps": [11, 11.2]}))
        self.assertEqual([(one.base, one.is_sure) for one in found], [("native", True)])
        self.assertAlmostEqual(found[0].factor, 1.11)
        found = summary.ahead(result({"native": [10], "MPS": [12], "frmps": [11]}))
        self.assertEqual([one.base for one in found], ["MPS"])

    def test_more_is_better(self):
        found = summary.behind(result({"native": [100], "MPS": [50], "frmps": [80]}, "rate", "launch_rate"))
        self.assertEqual([(one.base, one.factor) for one in found], [("native", 1.25)])

    def test_stock_mps_comes_first_and_then_the_worst(self):
        made = result({"native": [1], "MPS": [5], "frmps": [10]})
        self.assertEqual([one.base for one in summary.behind(made)], ["MPS", "native"])

    def test_rounds_that_differ_are_not_sure(self):
        found = summary.behind(result({"native": [10, 10, 10], "frmps": [9, 11, 12]}))
        self.assertFalse(found[0].is_sure)
        self.assertIn("differ", found[0].rounds_text)

    def test_next_to_nothing_is_no_difference(self):
        self.assertEqual(summary.behind(result({"native": [1000], "frmps": [1005]})), [])

    def test_nothing_on_one_side(self):
        def named(ours, theirs, number):
            made = result({"MPS": [theirs], "frmps": [ours]}, "fault_trap_4", number)
            return [len(summary.behind(made)), len(summary.ahead(made))]
        self.assertEqual(named(0, 100, "survived"), [1, 0])
        self.assertEqual(named(100, 0, "survived"), [0, 1])
        self.assertEqual(named(9, 0, "pause"), [1, 0])
        self.assertEqual(named(0, 9, "pause"), [0, 1])
        self.assertEqual(named(0, 0, "pause"), [0, 0])
        made = result({"MPS": [0], "frmps": [100]}, "fault_trap_4", "survived")
        self.assertEqual(summary.ahead(made)[0].factor_text, "MPS has 0")

    def test_further_points_are_counted(self):
        made = invented.result(names=["copies"])
        for run in made["runs"]:
            if run["system"] == "frmps":
                run["values"]["pinned_htod"] = 1e-3 * run["point"]**-0.1
        found = [one for one in summary.behind(made) if one.row.number.name == "pinned_htod"]
        self.assertEqual([(one.base, one.more) for one in found], [("MPS", 4), ("native", 4)])
        self.assertEqual(found[0].row.point, 256 << 20)

    def test_what_is_neither_better_nor_worse_is_not_compared(self):
        self.assertEqual(summary.behind(result({"native": [1], "frmps": [9]}, "fault_trap_4", "told")), [])


class Troubles(unittest.TestCase):
    def test_failures_have_their_rounds_and_frmps_comes_first(self):
        found = summary.failures(result({"native": [None, 1], "frmps": [None, None]}))
        self.assertEqual([(one.system, one.rounds, one.text) for one in found],
                         [("frmps", [0, 1], "frmps fails"), ("native", [0], "native fails")])

    def test_points_that_fail_for_the_same_reason_are_one_failure(self):
        found = summary.failures(invented.result(names=["streams"]))
        self.assertEqual([(one.system, one.points) for one in found],
                         [("frmps", [4096, 16384, 65536]), ("MPS", [4096, 16384, 65536])])

    def test_results_that_differ(self):
        made = invented.result(names=["torch_alone"])
        self.assertEqual(summary.differing(made), [])
        made["runs"][-1]["detail"]["checksums"] = ["deadbeef"]
        self.assertEqual(len(summary.differing(made)), 1)

    def test_what_was_not_measured(self):
        made = result({"frmps": [1]})
        made["names"] += ["rate", "loading"]
        made["missing"]["loading"] = "there is no nvcc"
        self.assertEqual([(one.name, why) for one, why in summary.unmeasured(made)],
                         [("rate", "there was no time"), ("loading", "there is no nvcc")])


class Texts(unittest.TestCase):
    def test_numbers(self):
        texts = [summary.number_text(value) for value in (0, 0.05234, 1.234, 12.34, 123.4, 12345.6)]
        self.assertEqual(texts, ["0", "0.0523", "1.23", "12.3", "123", "12\u202f346"])

    def test_factors(self):
        self.assertEqual([summary.factor_text(value) for value in (1.08, 0.9, 4, 0.25)],
                         ["8 %", "10 %", "4.00\u202f×", "4.00\u202f×"])

    def test_points(self):
        copies, clients = scenarios.BY_NAME["copies"], scenarios.BY_NAME["launching"]
        texts = [summary.point_text(copies, size) for size in (100, 4096, 16 << 20)]
        self.assertEqual(texts, ["100 B", "4 KiB", "16 MiB"])
        self.assertEqual([summary.point_text(clients, count) for count in (1, 2)], ["1 program", "2 programs"])


class Table(unittest.TestCase):
    def test_where_frmps_is_behind_comes_first(self):
        text = "\n".join(table.lines(invented.result()))
        self.assertLess(text.index("is better than frmps"), text.index("Medians over"))

    def test_it_has_every_scenario_and_every_failure(self):
        text = "\n".join(table.lines(invented.result()))
        for scenario in scenarios.SCENARIOS:
            self.assertIn(scenario.title, text)
        self.assertIn("refused behind 1024 streams", text)

    def test_medians_without_what_failed(self):
        text = "\n".join(table.lines(result({"native": [None, 4, 8], "frmps": [None, None, None]})))
        self.assertIn("6.00 [4.00–8.00]", text)

    def test_the_host_backend_says_so(self):
        made = result({"frmps": [1]}, systems=("frmps",))
        made["backend"] = "host"
        self.assertIn("no statement about a GPU", "\n".join(table.lines(made)))


if __name__ == "__main__":
    unittest.main()
