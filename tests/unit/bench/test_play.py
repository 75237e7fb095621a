#!/usr/bin/env python3
"""Which scenario runs when, and what becomes of those that fail (bench/lib/play.py)."""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "bench" / "lib"))
import play  # noqa: E402
import scenarios  # noqa: E402
from measure import Failed, point_by_point  # noqa: E402


class System:
    """It notes what happens to it. @happened: (what, system); refuses: it does not start"""

    def __init__(self, name, happened, refuses=False):
        self.name, self.happened, self.refuses = name, happened, refuses

    @contextlib.contextmanager
    def up(self, devices):
        if self.refuses:
            raise RuntimeError("it does not start\nfor a reason")
        self.happened.append(("up", self.name))
        yield self
        self.happened.append(("down", self.name))


def scenario(name, group, measure, **more):
    return scenarios.Scenario(name, group, name, "", measure, (scenarios.Number("n", "n", "s"),), "bars", **more)


class Case(unittest.TestCase):
    """With scenarios of its own."""

    def setUp(self):
        self.happened, self.broken, self.saved = [], set(), scenarios.BY_NAME
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name, "result.json")
        made = [scenario("one", "calls", self.measure("one")), scenario("two", "calls", self.measure("two")),
                scenario("points", "scale", self.measure("points"), points=(1, 2, 3), quick=(1, 2), most={"native": 1}),
                scenario("trap", "faults", self.measure("trap")), scenario("write", "faults", self.measure("write"))]
        scenarios.BY_NAME = {each.name: each for each in made}

    def tearDown(self):
        scenarios.BY_NAME = self.saved
        self.folder.cleanup()

    def measure(self, name):
        @point_by_point
        def measured(session, point):
            self.happened.append((name, session.system.name))
            if (name, point) in self.broken:
                raise Failed("last line")
            if (name, "interrupt") in self.broken:
                raise KeyboardInterrupt
            return {"n": 1.0}
        return measured

    def result(self, names=("one", "two"), rounds=2, systems=("native", "MPS", "frmps"), scale="quick"):
        return play.new_result("bench/run", "cuda", scale, rounds, list(names), list(systems), [])

    def play(self, result, limit=None, refuses=()):
        systems = [System(name, self.happened, name in refuses) for name in result["systems"]]
        player = play.Player(result, systems, self.path, limit, progress=play.Progress(1, io.StringIO()))
        return player, player.play()

    def order(self, what):
        return [system for name, system in self.happened if name == what]


class Order(Case):
    def test_systems_take_turns(self):
        self.play(self.result(["one"], rounds=3))
        there = ["native", "MPS", "frmps"]
        self.assertEqual(self.order("one"), [*there, *reversed(there), *there])

    def test_one_service_serves_the_scenarios_of_a_group(self):
        self.play(self.result(rounds=1, systems=["frmps"]))
        self.assertEqual([what for what, _ in self.happened], ["up", "one", "two", "down"])

    def test_each_fault_has_a_service_of_its_own(self):
        self.play(self.result(["trap", "write"], rounds=1, systems=["frmps"]))
        self.assertEqual([what for what, _ in self.happened], ["up", "trap", "down", "up", "write", "down"])

    def test_so_has_each_point_of_it(self):
        scenarios.BY_NAME["code"] = scenario("code", "code", self.measure("code"), points=(1, 2), quick=(1, 2))
        result = self.result(["code"], rounds=1, systems=["frmps"])
        player, _ = self.play(result)
        self.assertEqual([what for what, _ in self.happened], ["up", "code", "down", "up", "code", "down"])
        self.assertEqual([run["point"] for run in result["runs"]], [1, 2])
        self.assertEqual(player.steps("code"), player.progress.done)

    def test_points(self):
        result = self.result(["points"], rounds=1)
        self.play(result)
        self.assertEqual([(run["system"], run["point"]) for run in result["runs"]],
                         [("native", 1), ("MPS", 1), ("MPS", 2), ("frmps", 1), ("frmps", 2)])

    def test_all_points_of_a_full_run(self):
        result = self.result(["points"], rounds=1, systems=["frmps"], scale="full")
        self.play(result)
        self.assertEqual([run["point"] for run in result["runs"]], [1, 2, 3])

    def test_what_cannot_run_here_does_not(self):
        result = self.result(rounds=1)
        result["missing"]["one"] = "there is no reason"
        self.play(result)
        self.assertEqual(self.order("one"), [])


class Failures(Case):
    def test_the_others_go_on(self):
        self.broken.add(("points", 1))
        result = self.result(["points", "one"], rounds=1, systems=["frmps"])
        self.play(result)
        self.assertEqual([(run["scenario"], run["point"], run.get("failed")) for run in result["runs"]],
                         [("one", None, None), ("points", 1, "last line"), ("points", 2, None)])

    def test_what_comes_behind_a_failure_has_a_new_service(self):
        self.broken.add(("one", None))
        self.play(self.result(rounds=1, systems=["frmps"]))
        self.assertEqual([what for what, _ in self.happened], ["up", "one", "down", "up", "two", "down"])

    def test_a_system_that_does_not_start(self):
        result = self.result(rounds=1)
        self.play(result, refuses=["MPS"])
        failed = [(run["scenario"], run["failed"]) for run in result["runs"] if run["system"] == "MPS"]
        text = "MPS: it does not start\nfor a reason"
        self.assertEqual(failed, [("one", text), ("two", text)])
        self.assertEqual(self.order("two"), ["native", "frmps"])

    def test_a_measurement_that_is_itself_broken(self):
        def measure(session, points):
            yield points[0], {"n": 1.0}
            raise AssertionError("not expected")
        scenarios.BY_NAME["points"] = scenario("points", "scale", measure, points=(1, 2), quick=(1, 2))
        result = self.result(["points"], rounds=1, systems=["frmps"])
        self.play(result)
        self.assertEqual([run.get("failed") for run in result["runs"]], [None, "AssertionError: not expected"])


class Resuming(Case):
    def test_a_part_that_was_interrupted_is_measured_again(self):
        self.broken.add(("points", "interrupt"))
        result = self.result(["one", "points"], rounds=1)
        _, complete = self.play(result)
        self.assertFalse(complete)
        self.assertEqual({run["scenario"] for run in result["runs"]}, {"one"})
        self.broken.clear()
        self.happened.clear()
        again = json.loads(self.path.read_text())
        self.assertEqual(play.left(again), [(0, "scale")])
        _, complete = self.play(again)
        self.assertTrue(complete)
        self.assertEqual(self.order("one"), [])
        self.assertEqual(self.order("points"), ["native", "MPS", "MPS", "frmps", "frmps"])

    def test_no_part_begins_without_time(self):
        result = self.result(["one", "points"])
        _, complete = self.play(result, limit=0)
        self.assertFalse(complete)
        self.assertEqual(result["runs"], [])
        self.assertEqual(len(play.left(result)), 4)

    def test_a_smaller_part_takes_the_time_that_is_left(self):
        result = self.result(["one", "trap"], rounds=1)
        sizes = {group.name: group.seconds for group in scenarios.GROUPS}
        self.assertLess(sizes["calls"], sizes["faults"])
        self.play(result, limit=sizes["calls"] + 5)
        self.assertEqual(result["done"], [[0, "calls"]])

    def test_a_full_part_is_expected_to_take_as_long_as_it_measures_more(self):
        group = next(group for group in scenarios.GROUPS if group.name == "scale")
        for scale, points, times in (("quick", 2, 1), ("full", 3, 1.5)):
            result = self.result(["points"], rounds=1, systems=["frmps"], scale=scale)
            player, complete = self.play(result, limit=group.seconds * times - 1)
            self.assertEqual((complete, player.expected(group)), (False, group.seconds * times))
            _, complete = self.play(result, limit=group.seconds * times + 5)
            self.assertEqual((complete, len(result["runs"])), (True, points))

    def test_each_machine_is_noted_once(self):
        result = self.result(["one"])
        self.play(result)
        self.play(result)
        self.assertEqual(len(result["machines"]), 1)
        result["machines"][0]["kernel"] = "another"
        self.play({**result, "done": []})
        self.assertEqual([run["machine"] for run in result["runs"]][-1], 1)


class Table(unittest.TestCase):
    """The scenarios themselves."""

    def test_names_are_unique_and_groups_known(self):
        self.assertEqual(len(scenarios.BY_NAME), len(scenarios.SCENARIOS))
        groups = [group.name for group in scenarios.GROUPS]
        self.assertFalse(set(groups) & set(scenarios.BY_NAME))
        self.assertEqual({each.group for each in scenarios.SCENARIOS}, set(groups))

    def test_quick_points_are_of_their_scenario_or_numbers(self):
        for each in scenarios.SCENARIOS:
            self.assertTrue(each.points and each.numbers and each.text and each.title, each.name)
            self.assertEqual(len({number.name for number in each.numbers}), len(each.numbers), each.name)
            self.assertEqual({point is None for point in (*each.points, *(each.quick or ()), *(each.host or ()))},
                             {each.points[0] is None}, each.name)

    def test_a_quick_round_fits_into_a_quick_run(self):
        quick = {each.group for each in scenarios.SCENARIOS if each.quick}
        self.assertLess(sum(group.seconds for group in scenarios.GROUPS if group.name in quick), 285)


if __name__ == "__main__":
    unittest.main()
