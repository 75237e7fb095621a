"""Sharing of a device: weights, partitions, online beside offline programs, and crowds (bench/shares.c)."""

import bisect
import contextlib
import itertools
import json
import time

from measure import (PATIENCE, WORKLOAD, Failed, ask_all, dismiss, has_torch, last_lines, now_ns, point_by_point)
from program import Program
from systems import WEIGHTS

SETTLE_S, WINDOWS = 1, 3  # seconds before the first window, and windows of a second
LEAD_S, SERVED_S, TRAIL_S = 0.3, 2.5, 0.5  # of offline work: alone, beside requests, and a rest of requests
PERIOD_MS = 4
SECOND_NS = 1_000_000_000
LONG_MS = 20
CROWD_S = 2
PORTION_MS, WAVES, PORTION_S = 10, 100, 2  # a kernel of so many blocks for each place of the device
ONLINE_WORKLOAD = "resnet50_graph"

ALONE, BESIDE = "alone", "beside"
CALLED = {"beside_half": "half"}  # else the offline program is called so
CAPS, PARTITIONS = ("cap_25", "cap_50", "cap_75"), ("partition_4", "partition_8")  # percent; chunks
MPS_SETTINGS = {"beside_percentage": {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"},
                "beside_priority": {"CUDA_MPS_CLIENT_PRIORITY": "1"}}


# Distributions.


def quantiles(values):
    """The summary of a distribution, in the programs' form. @values: (value, its number)"""
    ordered = sorted(values)
    below = list(itertools.accumulate(count for _, count in ordered))
    parts = {"min": 0, "p10": .1, "median": .5, "p90": .9, "p99": .99, "p999": .999, "max": 1}
    found = {name: ordered[bisect.bisect_left(below, part * below[-1])][0] for name, part in parts.items()}
    return {"n": round(below[-1]), **found}


def merged(found):
    """The waits of many programs. Each printed the longest and some others, at equal distances in sorted order:
    each of these stands for the waits between two."""
    return quantiles((rank, one["n"] / len(one["ranks"])) for one in found for rank in one["ranks"])


# Kernels of known length.

KNOWN = {}  # output of `shares length`: once, so that kernels are the same under all systems


def kernels(session, ms):
    """Variables of a greedy program for kernels that fill the device and take so long."""
    if not KNOWN:
        KNOWN.update(session.start("shares", "length").finish()["length"])
    return {"BLOCKS": KNOWN["blocks"], "ROUNDS": max(1, round(KNOWN["rounds"] / KNOWN["ms"] * ms))}


def ended_between(found, begin_ns, end_ns):
    """Number of a greedy program's kernels that ended between two times. @found: the program's output"""
    first, last = ((moment - found["begin_ns"]) / found["bin_ns"] for moment in (begin_ns, end_ns))
    return sum(count * max(0.0, min(last, i + 1) - max(first, i)) for i, count in enumerate(found["ended"]))


# Weights.


def shares_of(counts):
    """Percent."""
    return [100 * count / sum(counts) for count in counts]


def deviation(windows, weights):
    """The largest in percent points. @windows: of each, the kernels of each program"""
    wanted = shares_of(weights)
    return max(abs(share - due) for window in windows for share, due in zip(shares_of(window), wanted))


def greedy_results(session, children):
    """Runs greedy programs to their end. Return: time of a steady state, ns, and the output of each"""
    settled = session.together(children) + SETTLE_S * SECOND_NS
    return settled, [child.finish()["greedy"] for child in children]


def greedy_windows(session, names):
    """Kernels of each program in each window. @names: of the programs; None: their own"""
    children = [session.start("shares", "greedy", "work", called=name, SECONDS=SETTLE_S + WINDOWS,
                              **kernels(session, 1)) for name in names]
    begin, found = greedy_results(session, children)
    moments = [begin + i * SECOND_NS for i in range(WINDOWS + 1)]
    windows = [[ended_between(one, *window) for one in found] for window in zip(moments, moments[1:])]
    windows = [window for window in windows if sum(window)]
    if not windows:
        raise Failed(f"no kernel ended within {WINDOWS} s")
    return windows


def weights(count):
    """So many greedy programs, first without weights, then, where there are some, with weights of 1 to `count`."""

    @point_by_point
    def measure(session, _):
        alone = session.start("shares", "length", **kernels(session, 1)).finish()["length"]["ms"]
        even = greedy_windows(session, [None] * count)
        rate = sum(map(sum, even)) / WINDOWS
        values = {"alone": alone, "rate": rate, "uneven": deviation(even, [1] * count), "detail": {"even": [*map(shares_of, even)]}}
        if session.system.has_weights:
            given = WEIGHTS[:count]
            weighted = greedy_windows(session, [f"weight_{weight}" for weight in given])
            values["deviation"] = deviation(weighted, given)
            values["kept"] = 100 * sum(map(sum, weighted)) / WINDOWS / rate
            values["detail"].update({"due": shares_of(given), "weighted": [*map(shares_of, weighted)]})
        return values

    return measure


# Parts of the device.


def portion_rates(session, settings):
    """Greedy programs with kernels of 10 ms, of blocks of 0.1 ms: all multiprocessors of a part have the same to do.
    @settings: the environment of each. Return: the output of each, and its kernels a second"""
    fine = kernels(session, PORTION_MS / WAVES)
    children = [session.start("shares", "greedy", "work", settings=one, SECONDS=SETTLE_S + PORTION_S,
                              BLOCKS=fine["BLOCKS"] * WAVES, ROUNDS=fine["ROUNDS"]) for one in settings]
    begin, found = greedy_results(session, children)
    return [(one, ended_between(one, begin, begin + PORTION_S * SECOND_NS) / PORTION_S) for one in found]


def portion(session, point, whole):
    """@whole: multiprocessors of the device, and kernels a second on all of them; None: measures that"""
    what, _, number = point.partition("_")
    with contextlib.ExitStack() as stack:
        programs = [{}]
        if what == "cap":
            programs = [{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": number}]
        elif what == "partition":
            name = stack.enter_context(session.system.partition(int(number)))
            programs = [{"CUDA_MPS_SM_PARTITION": name}, {}]
        found = portion_rates(session, programs)
    values = {"granted": found[0][0]["multiprocessors"], "rate": found[0][1]}
    for name, (one, rate) in zip(("used", "used_beside"), found):
        if whole:
            values[name] = 100 * rate / whole[1] * whole[0] / one["multiprocessors"]
    return values


def portions(session, points):
    """A program on the whole device, then with a part; with a partition of its own beside another program."""
    whole = None
    for point in points:
        try:
            values = portion(session, point, whole)
        except (Failed, OSError, ValueError, KeyError) as problem:
            yield point, Failed(str(problem))
            continue
        if point == ALONE:
            whole = values["granted"], values["rate"]
        yield point, values


# Online beside offline.


def serve_kernels(session, offline):
    """Small kernels. Return: the latencies of requests, and the first and last time of issue, ns"""
    child = session.start("shares", "serve", SECONDS=SERVED_S, PERIOD_MS=PERIOD_MS)
    session.together([child, *offline], {child: int(LEAD_S * 1e9)})
    found = child.finish()
    return found["request"], found["served"]["begin_ns"], found["served"]["end_ns"]


class Torch:
    """The same of a network in a PyTorch program that goes on from point to point."""

    def __init__(self, session):
        self.program = Program(WORKLOAD, session.system.environment())
        try:
            answer, = ask_all([self.program], f"prepare {ONLINE_WORKLOAD}", "ready")
        except Failed:
            self.close()
            raise
        self.detail = {"checksums": [answer.split()[2]]}

    def __call__(self, session, offline):
        begin = session.together(offline) + int(LEAD_S * 1e9)
        time.sleep(max(0, begin - now_ns()) / 1e9)
        answer, = ask_all([self.program], f"serve {SERVED_S} {PERIOD_MS}", "served")
        found = json.loads(answer.split(" ", 1)[1])
        return quantiles((ms, 1) for ms in found["ms"]), found["begin_ns"], found["end_ns"]

    def close(self):
        dismiss([self.program])


@contextlib.contextmanager
def online(session):
    """The online program of a session: serves when called with the session and with offline programs that start."""
    if session.system.backend == "host" or not has_torch():
        yield serve_kernels
        return
    with contextlib.closing(Torch(session)) as torch:
        yield torch


def serve_at(session, serve, point, work, ms):
    """@work: of the offline program; ms: length of its kernels, if fixed"""
    offline = [] if point == ALONE else [
        session.start("shares", "greedy", work, called=CALLED.get(point, "offline"), settings=MPS_SETTINGS.get(point),
                      SECONDS=LEAD_S + SERVED_S + TRAIL_S, **(kernels(session, ms) if ms else {}))]
    latency, begin, end = serve(session, offline)
    values = {"request": latency, "request_p99": latency["p99"], "request_max": latency["max"]}
    for found in (child.finish()["greedy"] for child in offline):
        if not found["exact"]:
            raise Failed("the offline program computed something else")
        values["offline_rate"] = ended_between(found, begin, end) / (end - begin) * 1e9
    return values


def online_beside(work, ms=None):
    """Requests alone and beside an offline program; points are the ways to start the latter."""

    def measure(session, points):
        alone = None
        with online(session) as serve:
            for point in points:
                try:
                    values = serve_at(session, serve, point, work, ms)
                except Failed as problem:
                    yield point, problem
                    continue
                if point == ALONE:
                    alone = values
                    values["detail"] = getattr(serve, "detail", {})
                elif alone:
                    values.update({f"{name}_ratio": values[name] / alone[name]
                                   for name in ("request_p99", "request_max")})
                    values["request_ratio"] = values["request"]["median"] / alone["request"]["median"]
                yield point, values

    return measure


# Very many.


@point_by_point
def crowd(session, count):
    """So many programs start, launch and wait."""
    begin = time.monotonic()
    children = [session.start("shares", "crowd", SECONDS=CROWD_S) for _ in range(count)]
    refused = []
    for child in children:
        try:
            child.expect_ready(begin + PATIENCE)
        except Failed as problem:
            refused.append(str(problem))
    started = time.monotonic() - begin
    if refused:
        raise Failed(last_lines(f"{len(refused)} of {count} programs did not start\n{refused[0]}"))
    session.together(children)
    found = [child.finish() for child in children]
    wrong = sum(not one["crowd"]["exact"] for one in found)
    if wrong:
        raise Failed(f"{wrong} of {count} programs are not exact")
    waits = merged([one["wait"] for one in found])
    return {"wait": waits, "wait_p99": waits["p99"], "wait_max": waits["max"], "started": started,
            "rate_k": waits["n"] / CROWD_S / 1000}
