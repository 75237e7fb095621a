#!/usr/bin/env python3
"""Traces of faults: what the daemon heard, what it did and whom it blamed, out of runs of the fault matrix.

usage: matrix_traces.py RESULTS.json... > traces    results of matrix.py --backend host --keep-log --out RESULTS.json

A trace is what the log of one run says about the domain: the steps of its incident, faults that were contained, evidence
at each judgement, verdicts. Sessions are numbered from 1 in the order in which they were opened; process numbers and
times are left out. Runs that say the same are one trace, under the name of the first. tests/unit/server/fault/test_traces.c
plays them.
"""

import json
import pathlib
import re
import sys

# What is taken from a line of the daemon, as it is.
TAKEN = re.compile(
    r"frmps\[\d+\] \w+: (?:domain \d+: (?P<of_domain>.*)|(?P<verdict>verdict: .*)|executor \d+ shows a (?P<sign>sign) of a "
    r"fault: (?P<what>.*)|(?P<alone>no standby is ready): .*|(?P<back>the daemon is back) .*|session (?P<closed>closed: \d+) .*)")


def simple(text):
    """A verdict without processes and times."""
    text = re.sub(r"process \d+ \([^)]*\)", "process P", re.sub(r" \(process \d+, [^)]*\)", "", text))
    return re.sub(r"; (took|contained in|ended in) [\d.]+ ms( \(.*\))?$", "", text)


def lines_of(log):
    for line in log:
        match = TAKEN.search(line)
        if not match:
            continue
        if match["of_domain"]:
            yield match["of_domain"]
        elif match["verdict"]:
            yield simple(match["verdict"])
        elif match["sign"]:
            yield "says: " + match["what"]
        elif match["alone"]:
            yield "alone"
        elif match["back"]:
            yield "back"
        else:
            yield "session " + match["closed"].replace("closed: ", "") + ": closed"


def drop_known_returns(lines):
    """Where the incident takes a step because of it, that says that the daemon is back."""
    return [line for i, line in enumerate(lines)
            if line != "back" or not any(", resumed" in step for step in lines[:i])]


def trim(lines):
    """Without ends of programs behind the last of everything else."""
    while lines and lines[-1].endswith(": closed"):
        lines.pop()
    return lines


def renumber(lines):
    numbers = sorted({int(number) for line in lines for number in re.findall(r"session (\d+)", line)} - {0})
    new = {number: i + 1 for i, number in enumerate(numbers)}
    return [re.sub(r"session (\d+)", lambda match: f"session {new.get(int(match[1]), 0)}", line) for line in lines]


def name_of(cell):
    return " ".join([cell["policy"], cell["row"], cell["column"], cell.get("second", "")]).strip()


def main():
    known = set()
    for path in sys.argv[1:]:
        for cell in json.loads(pathlib.Path(path).read_text())["cells"]:
            for run in cell["runs"]:
                lines = tuple(renumber(trim(drop_known_returns(list(lines_of(run.get("log", [])))))))
                # Where nothing is in doubt the policy says nothing.
                policy = cell["policy"] if any("in doubt 1" in line for line in lines) else ""
                if not any(line.startswith("verdict") for line in lines) or (policy, *lines) in known:
                    continue
                known.add((policy, *lines))
                print("= " + name_of(cell), *lines, sep="\n")


if __name__ == "__main__":
    main()
