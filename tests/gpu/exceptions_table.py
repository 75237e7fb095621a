"""Results of exceptions.py: a line of a cell, several results as one, and tables in Markdown."""

import statistics


def pauses(cell, which="pauses", column=0):
    """Of all survivors in all events of a cell, ms. @column: 0: between kernels; 1: of what is done between them"""
    return [one[column] for event in cell.get("events", []) for one in event.get(which, []) if one]


def span(values):
    return f"{statistics.median(values):.1f}, at most {max(values):.1f}" if values else "-"


def line(cell):
    """One for the terminal; what is wrong comes behind it."""
    text = f"{cell['name']:34}{cell['seconds']:6.0f} s  "
    if "skipped" in cell:
        return text + "skipped: " + cell["skipped"]
    if "events" in cell:
        text += f"{len(cell['events']):3} events, pause {span(pauses(cell))} ms (usually {span(pauses(cell, 'usual'))})"
        if any(pauses(cell, column=1)):
            text += f"; between kernels {span(pauses(cell, column=1))} ms (usually {span(pauses(cell, 'usual', 1))})"
    return "\n    ".join([text + ("  FAILED" if cell["bad"] else ""), *cell["bad"]])


def kind_of_machine(block):
    return {name: value for name, value in block.items() if name != "date"}


def merge(results):
    """Raises SystemExit unless all are of one kind of machine. Cells that were run twice have the events of both."""
    first, cells = results[0], {}
    for result in results:
        for what in ("machine", "native_codes"):
            one, other = (kind_of_machine(result[what]), kind_of_machine(first[what]))
            if one != other:
                raise SystemExit(f"exceptions.py: results differ in {what}, and are not merged: {one} and {other}")
        for cell in result["cells"]:
            known = cells.setdefault(cell["name"], {**cell, "events": [], "survivors": [], "bad": [], "seconds": 0})
            for name in ("events", "survivors", "bad", "seconds"):
                known[name] = known[name] + cell.get(name, type(known[name])())
    return {"machine": first["machine"], "commands": [result["command"] for result in results],
            "native_codes": first["native_codes"], "cells": list(cells.values())}


def short(cell):
    """For a place in a table: events, median and longest pause, ms."""
    if not cell:
        return ""
    values = pauses(cell)
    text = f"{len(cell.get('events', []))}: {statistics.median(values):.1f}, {max(values):.1f}" if values else "-"
    return f"**{text}: failed**" if cell["bad"] else text


def grid(title, rows, columns, find):
    """A table with a row and a column for each name; find(row, column): its cell, or None"""
    lines = [f"| {title} | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    return lines + [f"| {row} | " + " | ".join(short(find(row, column)) for column in columns) + " |" for row in rows]


def names(cells, key):
    return list(dict.fromkeys(cell[key] for cell in cells))


def tables(once):
    """Of one fault at a time: all sizes beside the first kind of program, and each size that was beside others as well."""
    by_place = {(cell["classes"][0], cell["grid"], cell["beside"]): cell for cell in once}
    classes, first = list(dict.fromkeys(cell["classes"][0] for cell in once)), once[0]["beside"]
    yield [f"Culprits of each size beside {first}:", "", *grid(
        "fault", classes, names(once, "grid"), lambda row, column: by_place.get((row, column, first)))]
    for size in names(once, "grid"):
        beside = names([cell for cell in once if cell["grid"] == size and cell["beside"] != first], "beside")
        rows = [name for name in classes if any((name, size, one) in by_place for one in beside)]
        if rows:
            yield [f"Culprits of size {size} beside other programs:", "", *grid(
                "fault", rows, beside, lambda row, column, size=size: by_place.get((row, size, column)))]


def table(result):
    """Return: Markdown of a result."""
    once = [cell for cell in result["cells"] if cell["how"] == "once"]
    parts = [["machine: " + ", ".join(f"{name} {value}" for name, value in result["machine"].items()), "",
              "A place says: events: median and longest pause of a survivor, ms."], *(tables(once) if once else ())]
    others = [cell for cell in result["cells"] if cell["how"] != "once"]
    if others:
        parts.append(["| other cells | faults | pause, ms | outcome |", "|---|---|---|---|", *(
            f"| {cell['name']} | {sum(len(event['classes']) for event in cell.get('events', [])) or '-'} | "
            f"{span(pauses(cell))} | {cell.get('skipped') or ('failed' if cell['bad'] else 'as it must be')} |"
            for cell in others)])
    failed = [f"- {cell['name']}: {'; '.join(dict.fromkeys(text.splitlines()[0] for text in cell['bad'] if text))[:200]}"
              for cell in result["cells"] if cell["bad"]]
    parts.append(["Failed:", "", *failed] if failed else ["Nothing failed."])
    return "\n\n".join("\n".join(lines) for lines in parts)
