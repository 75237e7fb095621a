"""The report as a single page: no network, no script, no other file. The comparisons that frmps loses come first."""

import html as escaping
import statistics

import measure
import plots
import scenarios as known
import summary
import table
from plots import tag
from summary import number_text

SHOWN = 10  # comparisons of a list that are not folded away

STYLE = """
:root{color-scheme:light dark;--paper:#fcfcfb;--ink:#1c1e22;--soft:#5e677e;--rule:#dfe1e5;--grid:#eceef0;--warn:#a3341f;
--c0:#7b828d;--c1:#c46a00;--c2:#0067b3;--c3:#7a4fb5;--c4:#2b8256}
@media(prefers-color-scheme:dark){:root{--paper:#15171a;--ink:#e8e9eb;--soft:#9da4ae;--rule:#33373d;--grid:#24272c;
--warn:#f0907c;--c0:#a3aab4;--c1:#f0a23f;--c2:#5db4f2;--c3:#bc9bf0;--c4:#6fcf9c}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,"Segoe UI",Roboto,"Liberation Sans",sans-serif}
main{max-width:1100px;margin:0 auto;padding:40px 28px 80px}
h1{font-size:28px;line-height:1.2;font-weight:650;letter-spacing:-.015em;margin:0 0 8px}
h2{font-size:20px;font-weight:650;letter-spacing:-.01em;margin:56px 0 4px;
padding-top:18px;border-top:1px solid var(--rule)}
h3{font-size:15.5px;font-weight:650;margin:28px 0 0}
p{margin:4px 0 10px;max-width:74ch}
.soft,figcaption{color:var(--soft)}
figcaption{font-size:13.5px;max-width:80ch;margin:2px 0 10px}
figure{margin:0;overflow-x:auto}
svg{display:block;max-width:none;height:auto}
.plots{display:flex;flex-wrap:wrap;gap:10px 44px}
.plots>div>h4{font-size:13.5px;font-weight:600;margin:12px 0 4px}
.group{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:0 44px}
.group>.full{grid-column:1/-1}
@media(max-width:600px){main{padding:24px 12px 48px}}
@media(max-width:1040px){.group{grid-template-columns:minmax(0,1fr)}}
nav{margin:18px 0 0;font-size:14px}
nav a{color:var(--ink);text-decoration-color:var(--rule);text-underline-offset:3px;margin-right:16px}
.banner{border-left:4px solid var(--warn);padding:10px 14px;margin:20px 0;background:var(--grid);font-weight:600}
.key{display:flex;gap:22px;margin:14px 0 0;font-size:14px;align-items:center}
.key svg{display:inline-block;vertical-align:-1px;margin-right:6px}
table{border-collapse:collapse;font-size:14px;margin:8px 0 4px;font-variant-numeric:tabular-nums}
th{font-weight:600;text-align:left;color:var(--soft);font-size:13px}
th,td{padding:5px 18px 5px 0;border-bottom:1px solid var(--rule);vertical-align:top}
td.n,th.n{text-align:right;white-space:nowrap}
.nowrap{white-space:nowrap}
.scroll{overflow-x:auto}
.worse{color:var(--warn);font-weight:600;white-space:nowrap}
.better{white-space:nowrap;font-weight:600}
details>summary{cursor:pointer;color:var(--soft);margin:8px 0}
pre{font-size:12.5px;white-space:pre-wrap;margin:0;color:var(--soft)}
text{font:12.5px system-ui,"Segoe UI",Roboto,"Liberation Sans",sans-serif;fill:var(--ink)}
.tick{font-size:11.5px;fill:var(--soft)}.heading{font-weight:600}.value{font-variant-numeric:tabular-nums}
.system{font-weight:600}.t0{fill:var(--c0)}.t1{fill:var(--c1)}.t2{fill:var(--c2)}.t3{fill:var(--c3)}.t4{fill:var(--c4)}
.s0{--c:var(--c0)}.s1{--c:var(--c1)}.s2{--c:var(--c2)}.s3{--c:var(--c3)}.s4{--c:var(--c4)}
.mark{fill:var(--c);stroke:var(--paper);stroke-width:1}.bar{fill:var(--c)}.area{fill:var(--c);opacity:.85}
.line{fill:none;stroke:var(--c);stroke-width:2}.thin{stroke:var(--c);stroke-width:1.3}
.thick{stroke:var(--c);stroke-width:7;stroke-linecap:round;opacity:.38}
.lead{stroke:var(--c);stroke-width:1;stroke-dasharray:1 3}
.failed{stroke:var(--c);stroke-width:2}.whisker{stroke:var(--ink);stroke-width:1.2}
.axis{stroke:var(--soft);stroke-width:1}.grid{stroke:var(--rule);stroke-width:1}
.fault{stroke:var(--warn);stroke-width:1.5;stroke-dasharray:3 3}
"""


def escape(value):
    return escaping.escape(str(value))


def colour(result, system):
    """Native, MPS and frmps have the same class everywhere."""
    first = ["native", "MPS", "frmps"]
    return (first + [name for name in result["systems"] if name not in first]).index(system) % 5


def systems_of(result):
    return [(colour(result, system), system) for system in result["systems"]]


def with_unit(title, unit):
    return f"{title}, {unit}" if unit else title


def spread_text(spread, unit=""):
    words = f"{number_text(spread.median)} {unit}".strip()
    if spread.rounds > 1:
        words += f" [{number_text(spread.low)}–{number_text(spread.high)}]"
    return words


# First.


def title(result):
    return "frmps on the host backend" if result["backend"] == "host" else "frmps beside native and stock MPS"


def head(result):
    fewest, most = summary.rounds_done(result)
    parts = [tag("h1", title(result))]
    parts += [tag("p", escape(summary.machine_text(block)), class_="soft") for block in result["machines"]]
    if result["backend"] == "host":
        text = f"{table.HOST_NOTE} The service, the rings and the faults are real; kernels are C functions."
        parts.append(tag("div", text, class_="banner"))
    parts += [tag("p", escape(note), class_="soft") for note in result["notes"]]
    key = "".join(tag("span", plots.svg(14, 14, system, [plots.system_marker(index, 7, 7, 5)]) + escape(system))
                  for index, system in systems_of(result))
    text = f"Medians over {summary.rounds_text(result)}, systems in alternating order; in brackets the lowest and " \
        "the highest round."
    if fewest == most == 1:
        text += " One round says nothing of what rounds differ by."
    parts += [tag("div", key, class_="key"), tag("p", text, class_="soft"),
              tag("nav", "".join(tag("a", escape(group.title), href=f"#{group.name}") for group in groups_of(result)))]
    return "".join(parts)


def comparison_rows(found):
    rows = []
    for one in found:
        ours, theirs, unit = one.row.spread(summary.OURS), one.row.spread(one.base), one.row.number.unit
        more = tag("span", f" and at {one.more} more", class_="soft") if one.more else ""
        how = "worse" if one.factor > 1 else "better"
        rows.append(tag("tr", tag("td", escape(one.row.title) + more) +
                        tag("td", escape(spread_text(ours, unit)), class_="n") +
                        tag("td", escape(f"{one.base}: {spread_text(theirs, unit)}"), class_="n") +
                        tag("td", escape(one.factor_text), class_=f"n {how}") +
                        tag("td", escape(one.rounds_text), class_="soft nowrap")))
    return rows


def comparison_table(found, how):
    top = tag("tr", tag("th", "number") + tag("th", "frmps", class_="n") + tag("th", "beside", class_="n") +
              tag("th", f"frmps is {how} by", class_="n") + tag("th", "rounds"))
    rows = comparison_rows(found)
    parts = tag("div", tag("table", top + "".join(rows[:SHOWN])), class_="scroll")
    if len(rows) > SHOWN:
        parts += tag("details", tag("summary", f"{len(rows) - SHOWN} more") +
                     tag("div", tag("table", top + "".join(rows[SHOWN:])), class_="scroll"))
    return parts


def outcome_words(result, system):
    """Of all survivors of faults under a system."""
    ends = [how for scenario in summary.scenarios_of(result) if scenario.group == "faults"
            for how in summary.outcomes(result, scenario, system).elements()]
    return f"{ends.count('exact')} of {len(ends)} programs beside a fault went on, exact" if ends else ""


def conclusion(result):
    """A paragraph: how often frmps is ahead and behind, where most, and who survives."""
    sentences = []
    for base in summary.BASES:
        found = [one for one in summary.findings(result) if one.base == base]
        if not found:
            continue
        worse = [one for one in found if one.factor > 1 + summary.MARGIN]
        better = [one for one in found if one.factor < 1 - summary.MARGIN]
        words = f"Beside {'stock MPS' if base == 'MPS' else 'native programs'} frmps is better in {len(better)} of " \
            f"{len(found)} numbers and worse in {len(worse)}."
        worse, better = ([one for one in some if 0 < one.factor < float("inf")] for some in (worse, better))
        if worse:
            most = max(worse, key=lambda one: one.factor)
            words += f" It loses most in \u201c{most.row.title}\u201d ({most.factor_text} worse)."
        if better:
            most = min(better, key=lambda one: one.factor)
            words += f" It wins most in \u201c{most.row.title}\u201d ({most.factor_text} better)."
        sentences.append(words)
    ends = [f"under {'stock MPS' if system == 'MPS' else system} {words}"
            for system in ("MPS", summary.OURS) if system in result["systems"]
            for words in [outcome_words(result, system)] if words]
    if ends:
        ends = "; ".join(ends)
        sentences.append(ends[0].upper() + ends[1:] + ".")
    return tag("p", escape(" ".join(sentences)), id="conclusion") if sentences else ""


def verdict(result):
    if not summary.findings(result):
        return tag("p", "There is nothing here that frmps could be compared with.", class_="soft")
    behind, ahead = summary.behind(result), summary.ahead(result)
    parts = [tag("h2", "Where frmps is behind", id="behind")]
    if behind:
        count = sum(1 + one.more for one in behind)
        text = f"{count} numbers in which stock MPS or native is better by more than {summary.MARGIN:.0%}."
        parts += [tag("p", text, class_="soft"), comparison_table(behind, "worse")]
    else:
        parts.append(tag("p", f"Nowhere by more than {summary.MARGIN:.0%}."))
    if ahead:
        parts += [tag("h2", "Where frmps is ahead", id="ahead"), comparison_table(ahead, "better")]
    return "".join(parts)


def failed(result):
    parts = []
    for scenario, point, sums in summary.differing(result):
        parts.append(tag("tr", tag("td", escape(f"{scenario.title}, {point}")) + tag("td", "all") +
                         tag("td", escape(f"different results: {sums}"))))
    for one in summary.failures(result):
        rounds = ", ".join(str(number + 1) for number in one.rounds)
        parts.append(tag("tr", tag("td", escape(one.title)) + tag("td", escape(f"{one.system}, round {rounds}")) +
                         tag("td", tag("pre", escape(one.text)))))
    text = tag("h2", "What failed", id="failed") if parts else ""
    text += tag("div", tag("table", "".join(parts)), class_="scroll") if parts else ""
    missing = summary.unmeasured(result)
    if missing:
        rows = [tag("tr", tag("td", escape(scenario.title)) + tag("td", escape(why), class_="soft"),
                    id=f"scenario-{scenario.name}") for scenario, why in missing]
        text += tag("h2", "What was not measured", id="missing") + tag("div", tag("table", "".join(rows)), class_="scroll")
    return text


# Plots.


def merged(result, scenario, point, system, number):
    """The quantiles of a number, the median of each over the rounds; None where there is none."""
    values = [run["values"][number.name] for run in summary.runs_of(result, scenario, point, system)
              if number.name in run.get("values", {})]
    if not values:
        return None
    if isinstance(values[0], dict):
        names = ("p10", "median", "p90", "p999", "max")
        return {name: statistics.median(value[name] for value in values) for name in names if name in values[0]}
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def plot_strips(result, scenario):
    rows = {(row.point, row.number.name): row for row in summary.rows_of(result, scenario)}
    charts = []
    for unit in dict.fromkeys(number.unit for number in scenario.numbers):
        blocks = []
        for number in (number for number in scenario.numbers if number.unit == unit):
            for point in summary.points_of(result, scenario):
                row = rows.get((point, number.name))
                drawn = [(index, system, merged(result, scenario, point, system, number),
                          spread_text(row.spread(system)))
                         for index, system in systems_of(result) if row and row.spread(system)]
                if drawn:
                    blocks.append((number.title, drawn))
        if blocks:
            charts.append(tag("div", plots.strips(with_unit(scenario.title, unit), unit, blocks)))
    return tag("div", "".join(charts), class_="plots")


def plot_bars(result, scenario):
    rows = summary.rows_of(result, scenario)
    charts = []
    for number in scenario.numbers:
        blocks = []
        for row in (row for row in rows if row.number is number):
            drawn = [(index, system, spread.median, spread.low, spread.high, spread_text(spread))
                     for index, system in systems_of(result) for spread in [row.spread(system)] if spread]
            heading = "" if row.point is None else summary.point_text(scenario, row.point).replace("_", " ")
            blocks.append((heading, drawn))
        if blocks:
            words = with_unit(number.title, number.unit)
            chart = plots.bars(f"{scenario.title}: {words}", number.unit, blocks)
            charts.append(tag("div", tag("h4", escape(words)) + chart))
    return tag("div", "".join(charts), class_="plots")


def plot_lines(result, scenario):
    rows = summary.rows_of(result, scenario)
    points = summary.points_of(result, scenario)
    crosses = [(colour(result, one.system), point, f"{one.system}, {one.title}: {one.text}")
               for one in summary.failures(result) if one.scenario is scenario for point in one.points]
    charts = []
    for number in scenario.numbers:
        of_number = [row for row in rows if row.number is number]
        series = []
        for index, system in systems_of(result):
            drawn = [(row.point, spread.median, spread.low, spread.high) for row in of_number
                     for spread in [row.spread(system)] if spread]
            if drawn:
                series.append((index, system, drawn))
        if series:
            tick = summary.bytes_text if scenario.axis == "bytes" else str
            axis = "size" if scenario.axis == "bytes" else scenario.axis
            chart = plots.lines(f"{scenario.title}: {number.title}", number.unit, axis, series, points, crosses, tick)
            charts.append(tag("div", tag("h4", escape(number.title)) + chart))
    return tag("div", "".join(charts), class_="plots")


def lane_text(survivor):
    if survivor["outcome"] == "exact":
        return f"exact, pause {number_text(survivor['pause_ms'])} ms"
    if survivor["outcome"] == "error":
        return f"error {survivor['code']}, {survivor['call']}"
    return survivor["outcome"]


def plot_timeline(result, scenario):
    blocks = []
    for index, system in systems_of(result):
        runs = [run for run in summary.runs_of(result, scenario, system=system) if "detail" in run]
        lanes = [(one.get("from_ms", 0), one["ended_per_ms"], lane_text(one))
                 for one in (runs[0]["detail"]["survivors"] if runs else []) if "ended_per_ms" in one]
        if lanes:
            blocks.append((index, system, lanes))
    what = "kill" if scenario.name.startswith("fault_killed") else "fault"
    return plots.timelines(scenario.title, what, -measure.WINDOW_MS[0], measure.WINDOW_MS[1], blocks) if blocks else ""


PLOTS = {"strips": plot_strips, "bars": plot_bars, "lines": plot_lines, "timeline": plot_timeline}


def fault_table(result, chosen):
    """The results of all programs, at a glance."""
    top = tag("tr", tag("th", "") + "".join(tag("th", escape(system)) for system in result["systems"]))
    rows = []
    for scenario in chosen:
        cells, of_pause = "", [row for row in summary.rows_of(result, scenario) if row.number.name == "pause"]
        for system in result["systems"]:
            found = summary.outcomes(result, scenario, system)
            pause = next((row.spread(system) for row in of_pause), None)
            words = ", ".join(f"{count} {how}" for how, count in found.items()) or "-"
            cells += tag("td", escape(words) + (tag("div", escape(f"pause {spread_text(pause, 'ms')}"), class_="soft")
                                                if pause else ""))
        rows.append(tag("tr", tag("td", escape(scenario.title)) + cells))
    return tag("div", tag("table", top + "".join(rows)), class_="scroll")


FAULT_TEXT = "How many survivors ended how, in all rounds: exact means that no call failed and that every kernel ran " \
    "once and in order. The pause is the longest of any survivor, beyond its kernel's own time; where a survivor is " \
    "not exact there is none. Natively each program has a context of its own."
STRIP_TEXT = "Mark: median. Thick: from the 10th to the 90th percentile; thin: to the 99.9th; tick: the longest."


def groups_of(result):
    measured = {scenario.group for scenario in summary.scenarios_of(result) if summary.runs_of(result, scenario)}
    return [group for group in known.GROUPS if group.name in measured]


def figure(result, scenario):
    caption = escape(scenario.text)
    if scenario.plot == "timeline":
        caption += " The first round is drawn."
    plot = PLOTS[scenario.plot](result, scenario)
    failures = [one for one in summary.failures(result) if one.scenario is scenario]
    lines = "".join(tag("figcaption", escape(f"× {one.system}: {one.title}: {one.text.splitlines()[-1]}"))
                    for one in failures)
    lines += "".join(tag("figcaption", escape(words)) for words in summary.share_lines(result, scenario))
    is_wide = scenario.plot == "timeline" or plot.count("<svg") > 1
    return tag("section", tag("h3", escape(scenario.title)) + tag("figure", tag("figcaption", caption) + plot) + lines,
               id=f"scenario-{scenario.name}", class_="full" if is_wide else None)


def group_section(result, group):
    chosen = [one for one in summary.scenarios_of(result) if one.group == group.name and summary.runs_of(result, one)]
    parts = [tag("h2", escape(group.title), id=group.name)]
    if any(one.plot == "strips" for one in chosen):
        parts.append(tag("p", STRIP_TEXT, class_="soft"))
    if group.name == "faults":
        parts += [tag("p", FAULT_TEXT, class_="soft"), fault_table(result, chosen)]
    return "".join(parts) + tag("div", "".join(figure(result, one) for one in chosen), class_="group")


# All numbers.


def numbers(result):
    systems = result["systems"]
    pairs = [(base, summary.OURS) for base in ("native", "MPS") if base in systems]
    pairs += [(summary.OURS, system) for system in systems if system not in ("native", "MPS", summary.OURS)]
    top = tag("tr", tag("th", "number") + tag("th", "unit") +
              "".join(tag("th", escape(name), class_="n") for name in systems) +
              "".join(tag("th", escape(f"{system}/{base}"), class_="n") for base, system in pairs) +
              tag("th", "better"))
    rows = []
    for row in summary.rows(result):
        cells = "".join(tag("td", escape(spread_text(spread) if spread else summary.absent_text(row, system)), class_="n")
                        for system in systems for spread in [row.spread(system)])
        ratios = "".join(tag("td", f"{ratio.median:.3f}" if ratio else "-", class_="n")
                         for base, system in pairs for ratio in [row.ratio(base, system)])
        rows.append(tag("tr", tag("td", escape(row.title)) + tag("td", escape(row.number.unit)) + cells + ratios +
                        tag("td", escape(row.number.better), class_="soft")))
    return tag("h2", "All numbers", id="numbers") + \
        tag("p", "Ratios are the median of what they were in each round. bench/README.md says what each number means.",
            class_="soft") + tag("div", tag("table", top + "".join(rows)), class_="scroll")


def html(result):
    """The whole page."""
    body = head(result) + conclusion(result) + verdict(result) + failed(result) + \
        "".join(group_section(result, group) for group in groups_of(result)) + numbers(result) + \
        tag("p", f"Made by <code>{escape(result['command'])}</code>.", class_="soft")
    return "<!DOCTYPE html>\n" + tag("html", tag("head", '<meta charset="utf-8"/><meta name="viewport" '
                                                 'content="width=device-width,initial-scale=1"/>' +
                                                 tag("title", title(result)) + tag("style", STYLE)) +
                                     tag("body", tag("main", body)), lang="en") + "\n"
