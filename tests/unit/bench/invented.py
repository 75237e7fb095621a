"""A result of bench/run with invented numbers, for tests of what is made of results. Nothing here was measured."""

import math
import random

import play
import scenarios as known

SYSTEMS = ["native", "MPS", "frmps"]
FACTORS = {"native": 1.0, "MPS": 0.97, "frmps": 0.8}


def distribution(median, chance):
    spread = 1 + 0.05 * chance.random()
    return {"n": 1000, "min": median * 0.9, "p10": median * 0.95, "median": median * spread, "p90": median * 1.2,
            "p99": median * 1.8, "p999": median * 4, "max": median * 30}


def survivor(system, chance):
    """Native ones go on, those of stock MPS end with an error, those of frmps pause."""
    pause = 9.5 + chance.random() if system == "frmps" else 0.2
    counts = [9 + chance.randrange(2) for _ in range(300)]
    if system == "frmps":
        counts[51:51 + int(pause)] = [0] * int(pause)
    if system == "MPS":
        counts[53:] = [0] * (len(counts) - 53)
        return {"outcome": "error", "code": 719, "call": "cuEventSynchronize", "kernels": 5000, "pause_ms": None,
                "before_ms": 0.1, "from_ms": -50, "ended_per_ms": counts}
    return {"outcome": "exact", "code": 0, "call": "", "kernels": 14000, "pause_ms": pause, "before_ms": 0.1,
            "from_ms": -50, "ended_per_ms": counts}


def fault_values(scenario, system, point, chance):
    count = 1 if scenario.name.endswith("1") or scenario.group == "code" else 4
    found = [survivor(system, chance) for _ in range(count)]
    values = {"survived": 0 if system == "MPS" else 100, "quiet": 0.1, "told": 12.5}
    if system != "MPS":
        values["pause"] = max(one["pause_ms"] for one in found) * (1 + (point or 0) / 500)
    return values, {"culprit": {"code": 719, "launched_ms": 500, "after_ms": 12.5}, "survivors": found}


def values_of(scenario, system, point, chance):
    if scenario.group in ("faults", "code"):
        return fault_values(scenario, system, point, chance)
    values = {}
    for i, number in enumerate(scenario.numbers):
        base = 3.0 * (i + 1) * (1 + math.log2(1 + point) / 4 if isinstance(point, int) else 1)
        base *= FACTORS.get(system, 1) * (1 + 0.04 * chance.random())
        base = base if number.better != known.MORE else 100 / base
        is_distribution = scenario.plot == "strips" and number.better == known.LESS
        values[number.name] = distribution(base, chance) if is_distribution else base
    detail = {"checksums": ["0badcafe"]} if scenario.group == "programs" else None
    return values, detail


def result(rounds=3, scale="full", names=None, systems=tuple(SYSTEMS)):
    """Of every scenario, under all systems; stock MPS refuses the largest number of streams, frmps beyond 1024."""
    chance = random.Random(1)
    names = names or [scenario.name for scenario in known.SCENARIOS]
    notes = ["These numbers are invented."]
    made = play.new_result("bench/run --full", "cuda", scale, rounds, names, list(systems), notes)
    made["machines"].append({"kernel": "6.1", "cpus": 16, "date": "2000-01-01", "cpu": "invented", "gpu": "invented"})
    for number, group in play.parts(made):
        for scenario in known.SCENARIOS:
            if scenario.group != group or scenario.name not in names:
                continue
            for system in play.in_turn(made["systems"], number):
                wanted = known.points(scenario, scale, "cuda")
                for point in known.points_of(scenario, system, wanted):
                    run = {"scenario": scenario.name, "point": point, "system": system, "round": number, "machine": 0,
                           "seconds": 1.0}
                    if scenario.name == "streams" and system != "native" and point > 1024:
                        made["runs"].append({**run, "failed": f"refused behind 1024 {scenario.name} (error 2)"})
                        continue
                    values, detail = values_of(scenario, system, point, chance)
                    made["runs"].append({**run, "values": values, **({"detail": detail} if detail else {})})
        made["done"].append([number, group])
    return made
