#!/usr/bin/env python3
"""The page that is made of a result (bench/lib/page.py, plots.py), and what bench/run says to wrong arguments."""

import contextlib
import html.parser
import importlib.machinery
import importlib.util
import io
import pathlib
import re
import sys
import tempfile
import unittest
import xml.etree.ElementTree

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "bench" / "lib"), str(pathlib.Path(__file__).resolve().parent)]
import invented  # noqa: E402
import page  # noqa: E402
import play  # noqa: E402
import plots  # noqa: E402
import scenarios  # noqa: E402


def command():
    loader = importlib.machinery.SourceFileLoader("bench_run", str(ROOT / "bench" / "run"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


class Elements(html.parser.HTMLParser):
    """Every element is closed, in order. @found: (name, attributes) of all"""

    def __init__(self, text):
        super().__init__()
        self.open, self.found, self.wrong = [], [], []
        self.feed(text)
        self.close()
        self.wrong += self.open

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.text = page.html(invented.result())
        cls.elements = Elements(cls.text)

    def test_it_is_well_formed(self):
        self.assertEqual(self.elements.wrong, [])
        drawings = re.findall(r"<svg.*?</svg>", self.text, re.DOTALL)
        self.assertGreater(len(drawings), len(scenarios.SCENARIOS))
        for drawing in drawings:
            xml.etree.ElementTree.fromstring(drawing)

    def test_it_has_every_scenario(self):
        ids = [attributes.get("id") for _, attributes in self.elements.found]
        for scenario in scenarios.SCENARIOS:
            self.assertEqual(ids.count(f"scenario-{scenario.name}"), 1, scenario.name)

    def test_every_coordinate_is_a_number(self):
        for name in ("nan", "inf", "None"):
            self.assertFalse(re.search(rf'="[^"]*\b{name}\b', self.text), name)

    def test_nothing_comes_from_the_network(self):
        names = {name for name, _ in self.elements.found}
        self.assertFalse(names & {"script", "link", "img", "iframe", "object"})
        for _, attributes in self.elements.found:
            for key, value in attributes.items():
                if key != "xmlns":
                    self.assertNotIn("://", value or "", key)
            self.assertTrue(attributes.get("href", "#").startswith("#"))
        self.assertNotIn("@import", self.text)

    def test_where_frmps_is_behind_comes_first(self):
        places = [self.text.index(f'id="{name}"') for name in ("behind", "ahead", "failed", "transport", "numbers")]
        self.assertEqual(places, sorted(places))

    def test_a_paragraph_concludes(self):
        words = re.search(r'<p id="conclusion">(.*?)</p>', self.text, re.DOTALL)[1]
        self.assertLess(self.text.index('id="conclusion"'), self.text.index('id="behind"'))
        self.assertRegex(words, r"Beside stock MPS frmps is better in \d+ of \d+ numbers and worse in \d+\.")
        self.assertRegex(words, r"It loses most in")
        self.assertRegex(words, r"under frmps \d+ of \d+ programs beside a fault went on, exact")

    def test_no_title_ends_with_a_comma(self):
        self.assertFalse(re.search(r", *</(h4|title|text)>", self.text))

    def test_the_unit_stands_above_the_ticks(self):
        found = 0
        for drawing in re.findall(r"<svg.*?</svg>", self.text, re.DOTALL):
            ends = [(float(y), words) for y, words in
                    re.findall(r'<text x="45.00" y="([\d.]+)" class="tick" text-anchor="end">([^<]*)', drawing)]
            unit = re.search(r'<text x="0.00" y="([\d.]+)" class="tick">', drawing)
            if ends and unit:
                found += 1
                self.assertGreaterEqual(min(y for y, _ in ends) - float(unit[1]), 14, drawing[:200])
        self.assertGreater(found, 3)

    def test_each_table_scrolls(self):
        self.assertEqual(self.text.count("<table>"), self.text.count('class="scroll"><table>'))

    def test_texts_of_failures_are_texts(self):
        made = invented.result(names=["wait"])
        made["runs"][0] = {**made["runs"][0], "failed": "<b>&\"'"}
        text = page.html(made)
        self.assertEqual(Elements(text).wrong, [])
        self.assertIn("&lt;b&gt;&amp;", text)
        self.assertNotIn("<b>", text)

    def test_the_host_backend_says_so(self):
        made = invented.result(names=["wait"], systems=("frmps",))
        self.assertNotIn("no statement about a GPU", page.html(made))
        made["backend"] = "host"
        self.assertIn("no statement about a GPU", page.html(made))

    def test_a_result_without_runs(self):
        made = {**invented.result(), "runs": []}
        text = page.html(made)
        self.assertEqual(Elements(text).wrong, [])
        self.assertIn("there was no time", text)

    def test_variants_have_colours_of_their_own(self):
        made = invented.result(names=["wait"], systems=("native", "MPS", "frmps", "four"))
        self.assertEqual([index for index, _ in page.systems_of(made)], [0, 1, 2, 3])
        self.assertIn("four/frmps", page.html(made))


class Scales(unittest.TestCase):
    def test_numbers_that_are_far_apart_are_drawn_logarithmically(self):
        self.assertIsInstance(plots.scale([1, 100], 0, 10), plots.Log)
        self.assertIsInstance(plots.scale([90, 100], 0, 10), plots.Linear)

    def test_a_linear_scale_begins_at_nothing_and_holds_all(self):
        for top in (0.03, 1, 7, 345, 1e6):
            axis = plots.Linear([top], 0, 100)
            self.assertEqual(axis.at(0), 0)
            self.assertLessEqual(axis.at(top), 100)
            self.assertTrue(2 <= len(axis.ticks) <= 7, (top, axis.ticks))

    def test_a_logarithmic_scale_holds_all(self):
        axis = plots.Log([0.5, 65536], 0, 100)
        self.assertTrue(0 < axis.at(0.5) < axis.at(1) < axis.at(65536) < 100)
        self.assertGreaterEqual(len(axis.ticks), 3)

    def test_labels_do_not_meet(self):
        placed = plots.spread_labels({"a": 50, "b": 51, "c": 52}, 14, 0, 60)
        self.assertEqual(sorted(placed.values()), [32, 46, 60])


class Command(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name, "result.json")

    @staticmethod
    def run_with(*words):
        """Return: exit status, standard output, standard error"""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = command().main(list(map(str, words)))
        return status, out.getvalue(), err.getvalue()

    def refused(self, *words):
        status, out, err = self.run_with(*words)
        self.assertEqual((status, out), (64, ""))
        self.assertRegex(err, r"\Abench/run: [^\n]+\n\Z")
        return err

    def test_wrong_arguments_are_one_line_each(self):
        self.assertIn("bogus", self.refused("--only", "wait,bogus"))
        self.assertIn("--bogus", self.refused("--bogus"))
        self.assertIn("0", self.refused("--rounds", "0"))
        self.assertIn("many", self.refused("--rounds", "many"))
        self.assertIn("frmps:a=b", self.refused("--variant", "frmps:a=b"))
        self.assertIn("No such file", self.refused("--report", self.path))
        self.assertIn("No such file", self.refused("--resume", self.path))
        self.assertIn(".json", self.refused("--host", "--only", "ring", "--out", "x.html"))
        nowhere = self.path.parent / "none" / "x.json"
        self.assertIn("no folder", self.refused("--host", "--only", "ring", "--out", nowhere))
        self.path.write_text("{")
        self.assertIn("not JSON", self.refused("--report", self.path))
        self.path.write_text('{"results": {}}')
        self.assertIn("no result", self.refused("--report", self.path))

    def test_a_build_folder_without_programs(self):
        status, _, err = self.run_with("--host", "--only", "ring", "--build", self.folder.name, "--out", self.path)
        self.assertEqual(status, 69)
        self.assertRegex(err, r"\Abench/run: [^\n]+ninja[^\n]+\n\Z")

    def test_groups_can_be_chosen_as_well(self):
        self.assertEqual(command().chosen("faults,wait")[0], "wait")
        self.assertEqual(len(command().chosen("")), len(scenarios.SCENARIOS))

    def test_the_list_has_all(self):
        status, out, _ = self.run_with("--list")
        self.assertEqual(status, 0)
        for scenario in scenarios.SCENARIOS:
            self.assertIn(f"  {scenario.name} ", out)

    def test_a_report_is_made_again(self):
        play.save(self.path, invented.result())
        status, out, _ = self.run_with("--report", self.path)
        self.assertEqual(status, 0)
        self.assertIn("Launch and wait", out)
        self.assertEqual(self.path.with_suffix(".html").read_text(), page.html(invented.result()))


if __name__ == "__main__":
    unittest.main()
