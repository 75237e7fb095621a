"""Summary of a result's runs: medians and spread of each number, ratios of systems, and the numbers in which frmps is
behind.

The median of a distribution counts, as printed by the program. A ratio is the median of the ratios of all rounds that
have both numbers, since machines drift from round to round.
"""

import collections
import dataclasses
import statistics
import typing

import scenarios as known

OURS = "frmps"
BASES = ("MPS", "native")
MARGIN = 0.01  # of a ratio, below which two numbers are the same


@dataclasses.dataclass(frozen=True)
class Spread:
    """Of the values of all rounds."""

    median: float
    low: float
    high: float
    rounds: int


def spread(values):
    return Spread(statistics.median(values), min(values), max(values), len(values)) if values else None


@dataclasses.dataclass
class Row:
    """A number of a scenario at a point. @values: by system, the value of each round, by its number"""

    scenario: known.Scenario
    point: typing.Any
    number: known.Number
    values: dict

    def spread(self, system):
        return spread(list(self.values.get(system, {}).values()))

    def ratio(self, base, system=OURS):
        """Of the system's number to that of `base`."""
        ours, theirs = self.values.get(system, {}), self.values.get(base, {})
        return spread([ours[i] / theirs[i] for i in ours if theirs.get(i)])

    @property
    def title(self):
        at = "" if self.point is None else f", {point_text(self.scenario, self.point)}"
        return f"{self.scenario.title}: {self.number.title}{at}"


def point_text(scenario, point):
    if scenario.axis == "bytes":
        return bytes_text(point)
    axis = scenario.axis.removesuffix("s") if point == 1 else scenario.axis
    return f"{point} {axis}".strip()


def bytes_text(count):
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count // size} {unit}"
    return f"{count} B"


def absent_text(row, system):
    """The text for a missing value of a system."""
    return "not offered" if row.number.ours and system in BASES else "-"


def central(value):
    return value["median"] if isinstance(value, dict) else value


def scenarios_of(result):
    """The requested systems that are known, in their order."""
    return [scenario for scenario in known.SCENARIOS if scenario.name in result["names"]]


def runs_of(result, scenario, point="any", system=None):
    return [run for run in result["runs"] if run["scenario"] == scenario.name and
            (point == "any" or run["point"] == point) and (system is None or run["system"] == system)]


def points_of(result, scenario):
    """In the scenario's order, else in order of appearance."""
    found = list(dict.fromkeys(run["point"] for run in runs_of(result, scenario)))
    return sorted(found) if all(isinstance(point, (int, float)) for point in found) else found


def rows_of(result, scenario):
    """Its numbers, point after point."""
    values = {(point, number.name): collections.defaultdict(dict)
              for point in points_of(result, scenario) for number in scenario.numbers}
    for run in runs_of(result, scenario):
        for name, value in run.get("values", {}).items():
            if (run["point"], name) in values:  # a file may be older than the table of scenarios
                values[run["point"], name][run["system"]][run["round"]] = central(value)
    numbers = {number.name: number for number in scenario.numbers}
    return [Row(scenario, point, numbers[name], dict(those)) for (point, name), those in values.items() if those]


def rows(result):
    return [row for scenario in scenarios_of(result) for row in rows_of(result, scenario)]


@dataclasses.dataclass(frozen=True)
class Finding:
    """A comparison of frmps. @factor: so many times worse (above 1) or better (below 1)"""

    row: Row
    base: str
    ratio: Spread
    factor: float
    is_sure: bool  # every round says the same
    more: int = 0  # further points of the same number of which the same is true, and less so

    @property
    def rounds_text(self):
        if self.ratio.rounds == 1:
            return "one round"
        count = self.ratio.rounds
        return f"all {count} rounds" if self.is_sure else f"median of {count} rounds that differ"

    @property
    def factor_text(self):
        """How many times worse or better, in words."""
        if self.factor in (0, float("inf")):
            return f"{OURS if not self.row.spread(OURS).median else self.base} has 0"
        return factor_text(self.factor)


def finding(row, base):
    ratio = row.ratio(base)
    if not ratio and row.spread(base) and row.spread(OURS) and row.spread(OURS).median > 0:
        infinite = [float("inf")] * min(row.spread(base).rounds, row.spread(OURS).rounds)  # the value is 0 there
        ratio = spread(infinite)
    if not ratio or row.number.better == known.NEITHER:
        return None
    is_less = row.number.better == known.LESS
    factor = ratio.median if is_less else 1 / ratio.median if ratio.median else float("inf")
    same = (ratio.low > 1 and ratio.high > 1) or (ratio.low < 1 and ratio.high < 1)
    return Finding(row, base, ratio, factor, same)


def findings(result):
    return [one for row in rows(result) for base in BASES for one in [finding(row, base)] if one]


def of_each(found):
    """A finding for each number and base: the first, with the number of further points to which it applies."""
    kept = {}
    for one in found:
        key = (one.row.scenario.name, one.row.number.name, one.base)
        kept[key] = dataclasses.replace(kept[key], more=kept[key].more + 1) if key in kept else one
    return sorted(kept.values(), key=lambda one: BASES.index(one.base))


def behind(result):
    """Where stock MPS or native is better than frmps: stock MPS before native, the worst first."""
    found = [one for one in findings(result) if one.factor > 1 + MARGIN]
    return of_each(sorted(found, key=lambda one: -one.factor))


def ahead(result):
    """Where frmps is better, the best first."""
    found = [one for one in findings(result) if one.factor < 1 - MARGIN]
    return of_each(sorted(found, key=lambda one: one.factor))


@dataclasses.dataclass
class Failure:
    """Of a scenario under a system, at a point or at several for the same reason."""

    scenario: known.Scenario
    points: list
    system: str
    rounds: list
    text: str

    @property
    def title(self):
        points = ", ".join(str(point) for point in self.points if point is not None)
        return f"{self.scenario.title}, {points} {self.scenario.axis}".strip() if points else self.scenario.title


def failures(result):
    """frmps' own first."""
    found = {}
    for scenario in scenarios_of(result):
        for run in (run for run in runs_of(result, scenario) if "failed" in run):
            key = scenario.name, run["system"], run["failed"]
            one = found.setdefault(key, Failure(scenario, [], run["system"], [], run["failed"]))
            one.points += [] if run["point"] in one.points else [run["point"]]
            one.rounds += [] if run["round"] in one.rounds else [run["round"]]
    return sorted(found.values(), key=lambda one: one.system in ("native", "MPS"))


def outcomes(result, scenario, system, point="any"):
    """Of all survivors of a fault scenario: how many ended how."""
    return collections.Counter(survivor["outcome"] for run in runs_of(result, scenario, point, system)
                               for survivor in run.get("detail", {}).get("survivors", []))


def share_lines(result, scenario):
    """The share of each program in a scenario of weights, percent: the median over the windows of all rounds."""
    details = {system: [run.get("detail", {}) for run in runs_of(result, scenario, system=system)]
               for system in result["systems"]}
    due = [detail["due"] for those in details.values() for detail in those if "due" in detail]
    if due:
        yield "due: " + percents(due[0])
    for system, those in details.items():
        for key, how in (("weighted", "with weights"), ("even", "without weights")):
            windows = [window for detail in those for window in detail.get(key, [])]
            if windows:
                yield f"{system}, {how}: " + percents(map(statistics.median, zip(*windows)))


def percents(values):
    return ", ".join(map(number_text, values)) + " %"


def differing(result):
    """Workloads that did not compute the same under all systems: (scenario, point, checksums by system)."""
    found = []
    for scenario in scenarios_of(result):
        for point in points_of(result, scenario):
            sums = collections.defaultdict(set)
            for run in runs_of(result, scenario, point):
                sums[run["system"]].update(run.get("detail", {}).get("checksums", []))
            if len(set().union(*sums.values())) > 1:
                found.append((scenario, point, {system: sorted(those) for system, those in sums.items()}))
    return found


def unmeasured(result):
    """Scenarios without any run: (scenario, why)."""
    return [(scenario, result["missing"].get(scenario.name, "there was no time"))
            for scenario in scenarios_of(result) if not runs_of(result, scenario)]


def rounds_done(result):
    """(fewest, most) rounds of a scenario that was measured."""
    counts = [len({run["round"] for run in runs_of(result, scenario)}) for scenario in scenarios_of(result)]
    counts = [count for count in counts if count]
    return (min(counts), max(counts)) if counts else (0, 0)


def rounds_text(result):
    fewest, most = rounds_done(result)
    return f"{most} round{'s' * (most != 1)}" if fewest == most else f"{fewest} to {most} rounds"


def machine_text(block):
    cpu = f"{block.get('cpu', 'processor unknown')}, {block['cpus']} processors"
    frameworks = f"; {block['frameworks']}" if "frameworks" in block else ""
    return f"{block.get('gpu', 'no GPU')}; {cpu}; Linux {block['kernel']}{frameworks}; {block['date']}"


def number_text(value):
    """Three digits that count; groups of three in front of the point."""
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}".replace(",", "\u202f")
    digits = 0 if size >= 100 else 1 if size >= 10 else 2
    return f"{value:.{digits}f}" if size >= 1 else f"{value:.3g}"


def factor_text(factor):
    if 0.5 < factor < 2:
        return f"{abs(factor - 1) * 100:.0f} %"
    return f"{number_text(factor if factor > 1 else 1 / factor)}\u202f×"
