#!/usr/bin/env python3
"""PyTorch programs that run out of memory, crash, or end with work under way: what becomes of them and of the service.

usage: framework_processes.py [--build BUILD] [CASE...]

One service with a memory limit for each program. Its accounts must be empty after each case, and it may hold nothing
more than after the first one: descriptors, processes, device memory. Exit status: 1 if a case failed, 77
without a GPU or without PyTorch.
"""

import argparse
import collections
import contextlib
import ctypes
import importlib.util
import os
import pathlib
import re
import signal
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "bench" / "lib"), str(HERE)]
from matrix_systems import Frmps  # noqa: E402
from program import Program  # noqa: E402
from systems import is_gpu_here  # noqa: E402

PATIENCE = 90
LIMIT = 4 << 30  # of each program
PIECE = 256 << 20
HELD = 1 << 30
ALLOCATORS = {"caching": "", "expandable": "expandable_segments:True", "malloc-async": "backend:cudaMallocAsync"}


# The programs.


def fill():
    """Takes memory until there is no more, twice, and works in between. Says how many pieces it got each time."""
    import torch

    for _ in range(2):
        pieces = []
        try:
            while len(pieces) < 2 * LIMIT // PIECE:
                pieces.append(torch.full((PIECE,), len(pieces), dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            pass
        count = len(pieces)
        del pieces[-2:]  # room to look at the others
        intact = all(bool((piece == i).all()) for i, piece in enumerate(pieces))
        print(f"pieces {count} {intact}", flush=True)
        del pieces
        torch.cuda.empty_cache()
    print("works", float((torch.ones(1000, device="cuda") * 2).sum()), flush=True)


def hold():
    """Has memory of every kind, and work for some seconds; then ends in the way that it is told."""
    import torch

    device = torch.ones(HELD, dtype=torch.uint8, device="cuda")
    pinned = torch.ones(64 << 20, dtype=torch.uint8).pin_memory()
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph):
        device.add_(1)
    torch.cuda.synchronize()
    print("holding", flush=True)
    how = sys.stdin.readline().strip()
    for _ in range(10):
        graph.replay()
        with torch.cuda.stream(side):
            torch.cuda._sleep(200_000_000)  # cycles
            pinned.copy_(device[:len(pinned)], non_blocking=True)
    if how == "exception":
        raise ValueError("as told")
    {"abort": os.abort, "kill": lambda: os.kill(os.getpid(), signal.SIGKILL), "segfault": lambda: ctypes.string_at(0),
     "exit": lambda: sys.exit(0), "exit-at-once": lambda: os._exit(0)}[how]()


ENDS = {"abort": -signal.SIGABRT, "kill": -signal.SIGKILL, "segfault": -signal.SIGSEGV, "exit": 0, "exit-at-once": 0,
        "exception": 1}


# What is asked of them.


class Failed(Exception):
    pass


def expect(holds, text):
    if not holds:
        raise Failed(text)


def start(system, program, allocator=""):
    environment = system.environment("fail")
    environment["PYTORCH_CUDA_ALLOC_CONF"] = environment["PYTORCH_ALLOC_CONF"] = ALLOCATORS.get(allocator, "")
    return Program([sys.executable, "-B", __file__, "--program", program], environment)


def heard(program, word):
    line = program.hear(word, time.monotonic() + PATIENCE)
    expect(line, f"no '{word}': {''.join(program.errors)[-2000:]}")
    return line.split()


def limit(count, allocator):
    """`count` programs at a time, each up to its own limit."""

    def play(system):
        programs = [start(system, "fill", allocator) for _ in range(count)]
        try:
            for program in programs:
                for _ in range(2):
                    _, got, intact = heard(program, "pieces")
                    expect(intact == "True", "its memory has something else in it")
                    expect(0.75 * LIMIT <= int(got) * PIECE <= LIMIT, f"got {got} pieces of {PIECE >> 20} MiB")
                expect(heard(program, "works")[1] == "2000.0", "does not work afterwards")
                program.end(time.monotonic() + PATIENCE)
                expect(program.process.returncode == 0, f"ends with {program.process.returncode}")
        finally:
            for program in programs:
                program.close()

    return play


def held(system, pid):
    """Device memory that the service counts for a process."""
    clients = [client for domain in system.status()["domains"] for client in domain["clients"]]
    return next((client["memory_bytes"] for client in clients if client["pid"] == pid), 0)


def end(how):
    def play(system):
        program = start(system, "hold")
        try:
            heard(program, "holding")
            expect(HELD <= held(system, program.pid) <= LIMIT, f"{held(system, program.pid)} bytes are counted")
            program.say(how)
            program.end(time.monotonic() + PATIENCE)
            expect(program.process.returncode == ENDS[how],
                   f"ends with {program.process.returncode}: {''.join(program.errors)[-1000:]}")
        finally:
            program.close()

    return play


CASES = {**{f"limit, {name}": limit(1, name) for name in ALLOCATORS}, "limit, two programs": limit(2, "caching"),
         **{f"end: {how}": end(how) for how in ENDS}}


def account(system, before):
    """Everything must be given back, sooner or later. Return: what the service's processes hold then."""
    held = {}

    def is_settled():
        if not system.is_quiet(0, None) or any(domain["unpinning_bytes"] for domain in system.status()["domains"]):
            return False
        held["now"] = system.holdings(), descriptors(system)
        return not before or not grown(before, held["now"])

    if not system.log.wait(is_settled, time.monotonic() + PATIENCE):
        raise Failed(f"grew: {'; '.join(grown(before, held['now']))}" if "now" in held else
                     f"the service does not become quiet: {system.status()}")
    expect(not system.crash(), system.crash())
    return held["now"]


def descriptors(system):
    """What kinds of them the processes that stay have, and how many of each."""
    found = collections.Counter()
    for role, pids in system.processes().items():
        for path in pathlib.Path(f"/proc/{pids[0]}/fd").iterdir() if role != "executors" else []:
            with contextlib.suppress(OSError):
                found[f"{role}: {re.sub('[0-9]+', '', os.readlink(path))}"] += 1
    return found


def grown(before, after):
    slack = {"device MiB": 8}
    grew = [f"{name} from {before[0][name]} to {value}" for name, value in after[0].items()
            if not name.startswith("KiB") and value > before[0][name] + slack.get(name, 0)]
    return grew + [f"{kind} +{count}" for kind, count in (after[1] - before[1]).items()] if grew else []


def run(system, names):
    """Return: the number of cases that failed."""
    failed, before = 0, None
    for name in names:
        begin, problem = time.monotonic(), ""
        try:
            CASES[name](system)
            after = account(system, before)
            before = before or after
        except Failed as reason:
            problem, failed = str(reason), failed + 1
        took = time.monotonic() - begin
        print(f"FAIL  {name} ({took:.1f} s): {problem}" if problem else f"ok    {name} ({took:.1f} s)", flush=True)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent.parent / "build")
    parser.add_argument("--program", choices=("fill", "hold"), help=argparse.SUPPRESS)
    parser.add_argument("case", nargs="*", metavar="CASE", help=", ".join(CASES))
    options = parser.parse_args()
    if options.program:
        return globals()[options.program]()
    if set(options.case) - set(CASES):
        parser.error(f"the cases are: {', '.join(CASES)}")
    if not is_gpu_here() or not importlib.util.find_spec("torch"):
        print("no GPU, or no PyTorch")
        return 77
    system = Frmps(options.build.resolve(), {}, "cuda", f"memory_limit = {LIMIT}\n")
    system.up()
    try:
        return 1 if run(system, options.case or list(CASES)) else 0
    finally:
        system.down()


if __name__ == "__main__":
    sys.exit(main())
