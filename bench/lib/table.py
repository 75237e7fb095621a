"""The report on a terminal: first where frmps is behind, then every number."""

import summary

HOST_NOTE = "Host backend: no statement about a GPU."
WIDTH = 24


def cell(row, system):
    spread = row.spread(system)
    if not spread:
        return f"{summary.absent_text(row, system):>{WIDTH}}"
    text = summary.number_text(spread.median)
    if spread.rounds > 1:
        text += f" [{summary.number_text(spread.low)}–{summary.number_text(spread.high)}]"
    return f"{text:>{WIDTH}}"


def ratio(row, base, system):
    found = row.ratio(base, system)
    return f"{found.median:.3f}" if found else "-"


def finding_line(one):
    ours, theirs = one.row.spread(summary.OURS).median, one.row.spread(one.base).median
    return f"  {one.base}, {one.factor_text}: {one.row.title}: {summary.number_text(ours)} against {summary.number_text(theirs)} " \
           f"{one.row.number.unit} ({one.rounds_text}{f', and at {one.more} more' if one.more else ''})"


def lines(result):
    """Of the report."""
    machines = result["machines"]
    yield f"frmps beside native and stock MPS: {result['command']}"
    for block in machines:
        yield f"machine: {summary.machine_text(block)}"
    if result["backend"] == "host":
        yield HOST_NOTE
    yield from result["notes"]
    yield ""
    yield from verdict_lines(result)
    yield from number_lines(result)


def verdict_lines(result):
    behind = summary.behind(result)
    if behind:
        yield f"Where stock MPS or native is better than frmps ({sum(1 + one.more for one in behind)} numbers):"
        yield from (finding_line(one) for one in behind)
        yield ""
    elif summary.findings(result):
        yield "Stock MPS and native are nowhere better than frmps."
        yield ""
    else:
        yield "There is nothing here that frmps could be compared with."
        yield ""
    for scenario, point, sums in summary.differing(result):
        yield f"DIFFERENT RESULTS: {scenario.title}, {point}: {sums}"
    failures = summary.failures(result)
    if failures:
        yield f"Failed ({len(failures)}):"
    for one in failures:
        yield f"  {one.system}: {one.title}"
        yield from (f"    | {line}" for line in one.text.splitlines())
    unmeasured = summary.unmeasured(result)
    if unmeasured:
        yield "Not measured:"
    for scenario, why in unmeasured:
        yield f"  {scenario.title}: {why}"
    if failures or unmeasured:
        yield ""


def number_lines(result):
    systems = result["systems"]
    yield f"Medians over {summary.rounds_text(result)} [lowest–highest round]"
    pairs = [(base, summary.OURS) for base in ("native", "MPS") if base in systems]
    pairs += [(summary.OURS, system) for system in systems if system not in ("native", "MPS", summary.OURS)]
    heads = [f"{system}/{base}" for base, system in pairs]
    yield f"{'':54}" + "".join(f"{system:>{WIDTH}}" for system in systems) + "".join(f"{head:>14}" for head in heads)
    last = None
    for row in summary.rows(result):
        if row.scenario is not last:
            last = row.scenario
            yield last.title
            yield from (f"  {words}" for words in summary.share_lines(result, last))
            if last.group in ("faults", "code"):
                yield from (f"  {system}: survivors " + ", ".join(f"{count} {how}" for how, count in found.items())
                            for system in systems for found in [summary.outcomes(result, last, system)] if found)
        at = "" if row.point is None else f"{summary.point_text(last, row.point)}: "
        yield f"  {at + row.number.title:44}{row.number.unit:>8}" + "".join(cell(row, system) for system in systems) + \
            "".join(f"{ratio(row, base, system):>14}" for base, system in pairs)
