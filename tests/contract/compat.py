#!/usr/bin/env python3
"""Does client/README.md say what the library implements? Makes that section from client/api.def.

usage: compat.py [--write]      without --write: exit status 1 and the difference if the document is behind
"""

import re
import sys

import sections

ROW = re.compile(r'^API\((\w+), "(\w+)", (\d+), (LEGACY|PTSZ), (FULL|LOCAL|REFUSED), "([^"]*)"\)$')

# First match wins; the rest of a name is shown without the part that is the group's.
GROUPS = [
    ("Start, versions, errors", r"cu(Init|DriverGetVersion|Get(Error|ProcAddress|ExportTable)|Profiler)"),
    ("Devices and primary contexts", r"cuDevice|cuFlushGPU"),
    ("Contexts", r"cuCtx"),
    ("Streams and stream memory operations", r"cuStream"),
    ("Events", r"cuEvent"),
    ("Copies and fills", r"cuMem(cpy|set)"),
    ("Memory", r"cuMem|cuPointer"),
    ("Modules, libraries, kernels, functions", r"cu(Module|Library|Kernel|Func|Param)"),
    ("Launches and occupancy", r"cu(Launch|Occupancy)"),
    ("Graphs", r"cu(Graph(?!ics)|UserObject)"),
]


def rows():
    for number, line in enumerate((sections.ROOT / "client" / "api.def").read_text().splitlines(), 1):
        if not line.startswith("API("):
            continue
        match = ROW.match(line)
        if not match:
            sys.exit(f"compat.py: client/api.def:{number} is not a row: {line}")
        yield match.groups()


def bases(calls):
    """Base names in order, once each: variants of a call are one call to its user."""
    return list(dict.fromkeys(base for _, base, *_ in calls))


def group_of(base):
    return next((name for name, pattern in GROUPS if re.match(pattern, base)), "Others")


def wrapped(names, width=150):
    lines, line = [], ""
    for name in names:
        piece = f"`{name}`"
        if line and len(line) + len(piece) > width:
            lines.append(line)
            line = ""
        line += (" " if line else "") + piece
    return lines + [line]


def section():
    table = list(rows())
    made = [row for row in table if row[4] != "REFUSED"]
    local = sum(row[4] == "LOCAL" for row in made)
    refused = [row for row in table if row[4] == "REFUSED"]
    groups, reasons = {}, {}
    for base in bases(made):
        groups.setdefault(group_of(base), []).append(base)
    for row in refused:
        reasons.setdefault(row[5], []).append(row[0])
    out = [
        "## What the library implements",
        "",
        f"`libcuda.so.1` exports all {len(table)} names of the CUDA 13.0 driver library. {len(made)} are implemented "
        f"({local} of them without asking the service), {len(bases(made))} calls when",
        f"their versions and per-thread forms are counted once. The other {len(refused)} return "
        "`CUDA_ERROR_NOT_SUPPORTED`, and say so on standard error the first time.",
        "",
        "<details><summary>Implemented</summary>",
        "",
    ]
    for name in [*(name for name, _ in GROUPS), "Others"]:
        if name in groups:
            out += [f"**{name}** ({len(groups[name])})", *wrapped(groups[name]), ""]
    out += ["</details>", "", "<details><summary>Refused, by what is missing</summary>", "",
            "| missing | names | for example |", "|---|---|---|"]
    for reason, names in sorted(reasons.items(), key=lambda item: (-len(item[1]), item[0])):
        out.append(f"| {reason} | {len(names)} | {', '.join(f'`{name}`' for name in names[:3])} |")
    return out + ["", "</details>"]


if __name__ == "__main__":
    sections.main("compat", {"compatibility": section}, ["client/README.md"])
