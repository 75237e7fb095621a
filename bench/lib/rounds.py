"""Measuring the same thing under several systems: interleaved rounds, one table, one file with the raw values.

A measurement is a function of a system that returns numbers by name. Rounds are interleaved (native, MPS, frmps, frmps,
MPS, native, …), so that a machine that drifts does so for all, and systems are compared round by round.
"""

import contextlib
import json
import pathlib
import statistics
import subprocess
import sys

from machine import machine


def play(systems, measurements, rounds, together=False):
    """@together: all systems are up all the time; otherwise each one for its own part of a round only.
    Return: of each system by name, the values of each number, by round. A measurement that fails leaves a None there, or
    nothing behind the last one, and says so. What was measured is said on standard error as it comes; an interrupt ends the
    rounds, and what there is by then counts."""
    results = {}
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as background:
        if together:
            for system in systems:
                background.enter_context(system.up())
        take_turns(systems, measurements, rounds, together, results)
    return results


def take_turns(systems, measurements, rounds, together, results):
    """@together: the systems are up
    @results: of play(), filled in"""
    for number in range(rounds):
        for system in systems[::-1] if number % 2 else systems:
            with contextlib.nullcontext() if together else system.up():
                for name, measure in measurements.items():
                    try:
                        values = measure(system)
                    except (RuntimeError, KeyError, OSError, subprocess.SubprocessError) as problem:
                        print(f"{system.name} {name}: {problem}", file=sys.stderr)
                        continue
                    for key, value in values.items():
                        those = results.setdefault(system.name, {}).setdefault(key, [])
                        those += [None] * (number - len(those)) + [value]
                    print(f"{system.name} {name}:", *(f"{key} {value:.4g}" for key, value in values.items()),
                          file=sys.stderr)


def ratio(results, name, base, system="frmps"):
    """Of the system's number to that of `base`: the median of the ratios of all rounds that have both; None where none
    has."""
    ours, theirs = (results.get(which, {}).get(name, []) for which in (system, base))
    ratios = [one / other for one, other in zip(ours, theirs) if one is not None and other]
    return statistics.median(ratios) if ratios else None


def table(results, order):
    names = list(dict.fromkeys(name for system in order for name in results.get(system, {})))
    variants = [system for system in order if system not in ("native", "MPS", "frmps")]
    print(f"{'':34}" + "".join(f"{system:>26}" for system in order) + f"{'frmps/native':>14}{'frmps/MPS':>12}" +
          "".join(f"{variant + '/frmps':>20}" for variant in variants))
    for name in names:
        row = f"{name:34}"
        for system in order:
            values = [value for value in results.get(system, {}).get(name, []) if value is not None]
            row += f"{statistics.median(values):>10.4g} [{min(values):>6.4g}-{max(values):>6.4g}]" if values \
                else f"{'-':>26}"
        columns = [("frmps", "native", 14), ("frmps", "MPS", 12)] + [(variant, "frmps", 20) for variant in variants]
        for system, base, width in columns:
            relative = ratio(results, name, base, system)
            row += f"{'-':>{width}}" if relative is None else f"{relative:>{width}.3f}"
        print(row)


def report(systems, results, out, **more):
    """Prints the table; @out: the file for the raw values and `more`, if any."""
    block, command = machine(), " ".join([pathlib.Path(sys.argv[0]).name, *sys.argv[1:]])
    print("machine:", json.dumps(block))
    rounds = max((len(values) for numbers in results.values() for values in numbers.values()), default=0)
    print("command:", command, f"(medians of {rounds} rounds [lowest-highest])")
    table(results, [system.name for system in systems])
    if out:
        content = {"machine": block, "command": command, "results": results, **more}
        pathlib.Path(out).write_text(json.dumps(content, indent=1) + "\n")
