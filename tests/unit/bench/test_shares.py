#!/usr/bin/env python3
"""What is made of what programs say that share a device (bench/lib/shares.py), and how a service knows them."""

import contextlib
import fnmatch
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "bench" / "lib"))
import scenarios  # noqa: E402
import shares  # noqa: E402
import summary  # noqa: E402
import systems  # noqa: E402
from measure import Failed  # noqa: E402

SECOND = 1_000_000_000


class Child:
    """@says: JSON lines by name; or why it does not start"""

    def __init__(self, says):
        self.says = says

    def expect_ready(self, _):
        if isinstance(self.says, str):
            raise Failed(self.says)

    def finish(self):
        return self.says


class System:
    backend = "host"

    def __init__(self, has_weights):
        self.has_weights = has_weights


class Session:
    """@says: of each program that is started, what it says: a function of its arguments, its name and its settings"""

    def __init__(self, says, has_weights=True):
        self.says, self.system = says, System(has_weights)

    def start(self, _, *arguments, called=None, settings=None, **variables):
        return Child(self.says(arguments, called, settings, variables))

    @staticmethod
    def together(_, __=None):
        return 0


def greedy(rate, seconds=4):
    """@rate: kernels in each 10 ms"""
    return {"greedy": {"exact": True, "begin_ns": 0, "bin_ns": SECOND // 100, "ended": [rate] * (100 * seconds)}}


LENGTH = {"length": {"blocks": 264, "rounds": 6000, "ms": 0.5}}


class Case(unittest.TestCase):
    def setUp(self):
        shares.KNOWN.clear()


class Distributions(Case):
    def test_quantiles(self):
        found = shares.quantiles((value, 1) for value in range(1000, -1, -1))
        self.assertEqual((found["n"], found["min"], found["median"], found["p99"], found["max"]),
                         (1001, 0, 500, 990, 1000))
        self.assertEqual(shares.quantiles([(7, 1)])["p99"], 7)

    def test_programs_that_waited_more_often_count_more(self):
        found = shares.merged([{"n": 9000, "ranks": [1.0] * 1000}, {"n": 1000, "ranks": [2.0] * 999 + [50.0]}])
        self.assertEqual((found["n"], found["p90"], found["p99"], found["max"]), (10000, 1, 2, 50))


class Weights(Case):
    @staticmethod
    def says(arguments, called, _, __):
        """Those with weights do as much as is due, but together 90 % of what they do without."""
        if arguments[0] == "length":
            return LENGTH
        return greedy(int(called.split("_")[1]) * 0.06 if called else 10)

    def measure(self, has_weights=True, says=None):
        (_, values), = shares.weights(2)(Session(says or self.says, has_weights), (None,))
        return values

    def test_shares_that_are_due(self):
        values = self.measure()
        self.assertAlmostEqual(values["deviation"], 0)
        self.assertAlmostEqual(values["kept"], 90)
        self.assertAlmostEqual(values["rate"], 2000)
        self.assertEqual(values["alone"], 0.5)
        self.assertEqual(values["detail"]["due"], [100 / 3, 200 / 3])

    def test_the_largest_deviation_of_a_window_counts(self):
        self.assertAlmostEqual(shares.deviation([[10, 20], [10, 30], [12, 20]], [1, 2]), 100 / 3 - 25)

    def test_who_has_no_weights_is_measured_without(self):
        values = self.measure(has_weights=False)
        self.assertEqual(set(values), {"alone", "rate", "uneven", "detail"})

    def test_a_window_is_counted_to_the_fraction_of_a_bin(self):
        found = greedy(10)["greedy"]
        self.assertAlmostEqual(shares.ended_between(found, SECOND, 2 * SECOND), 1000)
        self.assertAlmostEqual(shares.ended_between(found, 5_000_000, 25_000_000), 20)
        self.assertAlmostEqual(shares.ended_between(found, 5 * SECOND, 6 * SECOND), 0)

    def test_nothing_that_ends_is_a_failure(self):
        values = self.measure(says=lambda arguments, *_: LENGTH if arguments[0] == "length" else greedy(0))
        self.assertIsInstance(values, Failed)

    def test_kernels_are_the_same_for_all(self):
        session = Session(self.says)
        self.assertEqual(shares.kernels(session, 20), {"BLOCKS": 264, "ROUNDS": 240_000})
        other = Session(lambda *_: {"length": {"blocks": 1, "rounds": 1, "ms": 1.0}})
        self.assertEqual(shares.kernels(other, 20), {"BLOCKS": 264, "ROUNDS": 240_000})

    def test_what_each_got_is_said(self):
        run = {"scenario": "weights_2", "point": None, "round": 0}
        made = {"systems": ["MPS", "frmps"], "runs": [
            {**run, "system": "frmps",
             "detail": {"due": [25, 75], "even": [[50, 50]], "weighted": [[20, 80], [24, 76]]}},
            {**run, "system": "MPS", "detail": {"even": [[49, 51]]}}]}
        self.assertEqual(list(summary.share_lines(made, scenarios.BY_NAME["weights_2"])),
                         ["due: 25.0, 75.0 %", "MPS, without weights: 49.0, 51.0 %",
                          "frmps, with weights: 22.0, 78.0 %", "frmps, without weights: 50.0, 50.0 %"])


class Portions(Case):
    """On a device of 132 multiprocessors, which end 100 kernels a second."""

    def says(self, arguments, _, settings, variables):
        if arguments[0] == "length":
            return LENGTH
        self.assertEqual((variables["BLOCKS"], variables["ROUNDS"]), (26400, 1200))
        self.assertEqual(set(settings) - {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_SM_PARTITION"}, set())
        sms = 33 if settings.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") == "25" else 132
        sms = 32 if settings.get("CUDA_MPS_SM_PARTITION") == "GPU-1/p4" else sms
        # What has a partition gets 1 % less than is its due, by this.
        rate = {132: 100, 33: 25, 32: 0.99 * 100 * 32 / 132}[sms]
        said = greedy(rate / 100)
        said["greedy"]["multiprocessors"] = sms
        return said

    def test_kernels_are_compared_with_what_is_granted(self):
        session = Session(self.says)
        session.system.partition = lambda chunks: contextlib.nullcontext(f"GPU-1/p{chunks}")
        points = dict(shares.portions(session, ("alone", "cap_25", "partition_4")))
        self.assertEqual(points["alone"], {"granted": 132, "rate": 100})
        self.assertAlmostEqual(points["cap_25"]["used"], 100)
        self.assertNotIn("used_beside", points["cap_25"])
        self.assertAlmostEqual(points["partition_4"]["used"], 99)
        self.assertAlmostEqual(points["partition_4"]["used_beside"], 100)

    def test_what_cannot_be_had_is_a_failure_of_its_point(self):
        def refuse(_):
            raise OSError("no chunk is free")

        session = Session(self.says)
        session.system.partition = refuse
        points = dict(shares.portions(session, ("alone", "partition_4", "cap_25")))
        self.assertIsInstance(points["partition_4"], Failed)
        self.assertAlmostEqual(points["cap_25"]["used"], 100)


class Online(Case):
    def setUp(self):
        super().setUp()
        self.settings = []

    def says(self, arguments, called, settings, variables):
        if arguments[0] == "length":
            return LENGTH
        if arguments[0] == "serve":
            beside = 2.0 if self.settings else 1.0
            return {"request": {"median": beside, "p99": 3 * beside, "max": 9 * beside},
                    "served": {"begin_ns": SECOND, "end_ns": 3 * SECOND}}
        self.settings.append((called, settings, variables.get("ROUNDS")))
        return greedy(5)

    def test_requests_beside_are_compared_with_those_alone(self):
        found = dict(shares.online_beside("work", 20)(Session(self.says), ("alone", "beside", "beside_half", "beside_priority")))
        self.assertNotIn("offline_rate", found["alone"])
        for name in ("request_ratio", "request_p99_ratio", "request_max_ratio"):
            self.assertEqual(found["beside"][name], 2, name)
        self.assertAlmostEqual(found["beside"]["offline_rate"], 500)
        self.assertEqual(self.settings, [("offline", None, 240_000), ("half", None, 240_000),
                                         ("offline", {"CUDA_MPS_CLIENT_PRIORITY": "1"}, 240_000)])

    def test_a_wrong_product_is_a_failure(self):
        def says(arguments, *rest):
            found = self.says(arguments, *rest)
            if arguments[0] == "greedy":
                found["greedy"]["exact"] = False
            return found
        found = dict(shares.online_beside("product")(Session(says), ("alone", "beside")))
        self.assertNotIsInstance(found["alone"], Failed)
        self.assertIsInstance(found["beside"], Failed)

    def test_variants_of_stock_mps_are_its_own(self):
        one = scenarios.BY_NAME["online_beside_matrix"]
        wanted = scenarios.points(one, "full", "cuda")
        self.assertEqual(scenarios.points_of(one, "MPS", wanted), ("alone", "beside", *shares.MPS_SETTINGS))
        self.assertEqual(scenarios.points_of(one, "frmps", wanted), ("alone", "beside", "beside_half"))
        self.assertEqual(scenarios.points_of(one, "a variant", wanted), ("alone", "beside"))


class Crowd(Case):
    def measure(self, *says):
        said = iter(says)
        (_, values), = shares.crowd(Session(lambda *_: next(said)), (len(says),))
        return values

    def test_all_are_exact(self):
        one = {"crowd": {"exact": True}, "wait": {"n": 2, "ranks": [1.0, 2.0]}}
        values = self.measure(one, {**one, "wait": {"n": 1, "ranks": [9.0]}})
        self.assertEqual((values["wait"]["n"], values["wait"]["median"], values["wait_max"]), (3, 2, 9))
        self.assertAlmostEqual(values["rate_k"], 3 / shares.CROWD_S / 1000)

    def test_who_is_refused_is_counted(self):
        one = {"crowd": {"exact": True}, "wait": {"n": 1, "ranks": [1.0]}}
        values = self.measure(one, "cuInit failed with 807", one)
        self.assertIn("1 of 3 programs did not start\ncuInit failed with 807", str(values))

    def test_who_is_not_exact_fails_it(self):
        values = self.measure({"crowd": {"exact": False}, "wait": {"n": 1, "ranks": [1.0]}})
        self.assertIsInstance(values, Failed)


class Names(unittest.TestCase):
    def test_a_copy_is_what_a_section_means(self):
        with tempfile.TemporaryDirectory() as folder:
            build = pathlib.Path(folder)
            (build / "bench").mkdir()
            (build / "bench" / "shares").write_text("a program")
            system = systems.Frmps(build, "host")
            sections = [line[len("[program "):-1] for line in systems.SECTIONS.splitlines() if line.startswith("[")]
            names = [f"weight_{weight}" for weight in systems.WEIGHTS] + ["offline", "half"]
            self.assertEqual(len(sections), len(names))
            for name in names:
                path = system.executable("shares", name)
                self.assertEqual(path.read_text(), "a program")
                self.assertEqual(sum(fnmatch.fnmatch(str(path), section) for section in sections), 1, name)
            plain = system.executable("shares")
            self.assertFalse([section for section in sections if fnmatch.fnmatch(str(plain), section)])

    def test_there_is_a_weight_for_each_program(self):
        counts = [int(name.split("_")[1]) for name in scenarios.BY_NAME if name.startswith("weights_")]
        self.assertEqual(sorted(counts), [2, 4, 8])
        self.assertEqual([weight // systems.WEIGHTS[0] for weight in systems.WEIGHTS], list(range(1, max(counts) + 1)))

    def test_what_is_not_offered_is_said(self):
        number = scenarios.BY_NAME["weights_2"].numbers[0]
        row = summary.Row(scenarios.BY_NAME["weights_2"], None, number, {"frmps": {0: 1}})
        self.assertEqual([summary.absent_text(row, name) for name in ("native", "MPS", "frmps")],
                         ["not offered", "not offered", "-"])


if __name__ == "__main__":
    unittest.main()
