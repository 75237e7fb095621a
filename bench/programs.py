#!/usr/bin/env python3
"""Measures PyTorch programs natively, under stock MPS and through frmps, in one run, and prints one table.

usage: bench/programs.py [--build DIR] [--rounds N] [--seconds S] [--only WORD,...] [--together | --alternate]
                         [--out FILE.json]

  alone   inference with ResNet-50 (batches of 1, 8, 64), training of a transformer, decoding with and without CUDA
          graphs, one program at a time: items a second (images, steps, tokens), and processor time of program and
          service per step
  two     the same for two such programs at once
  first   from the start of a process to its first finished kernel, and the part of it after `import torch`

With --alternate one program of each system stays up and they take turns at each workload: a round then takes seconds, and a
machine that drifts does so for all of them. For `alone`.

Networks have random weights, the same ones everywhere, and what their first steps compute must be the same to the bit
under all systems. Results below the aims (AIMS) are named at the end. Exit status: 1 if a checksum differs or if
something could not be measured, 77 without a GPU or without PyTorch.
"""

import argparse
import contextlib
import importlib.util
import json
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench" / "lib"))
import rounds  # noqa: E402
import systems  # noqa: E402
from program import Program  # noqa: E402

PATIENCE = 120  # seconds that a program may take to prepare anything
ALONE = ("resnet50_batch1", "resnet50_batch8", "resnet50_batch64", "training", "decoding", "decoding_graph")
TWO = ("resnet50_batch8", "training", "decoding", "decoding_graph")
# (ending of a number's name, prefix of it, compared with, at least, at most)
AIMS = (("_per_s", "alone", "native", 0.97, None),
        ("_per_s", "two", "MPS", 1.0, None),
        ("first_kernel_ms", "", "native", None, 1.1))
WORKLOAD = [sys.executable, "-B", str(ROOT / "bench" / "workload.py")]


def dismiss(programs):
    for program in programs:
        program.say_no_more()
    until = time.monotonic() + PATIENCE
    for program in programs:
        program.end(until)
        program.close()


class Measurements:
    """@checksums: what the first steps of each workload computed, by system: filled in as they run"""

    def __init__(self, seconds):
        self.seconds = seconds
        self.checksums = {}

    def prepared(self, system, programs, name):
        for program in programs:
            program.say(f"prepare {name}")
        for program in programs:
            line = program.hear("ready", time.monotonic() + PATIENCE)
            if not line:
                raise RuntimeError(f"no {name}: {''.join(program.errors)[-2000:]}")
            found = self.checksums.setdefault(name, {}).setdefault(system.name, [])
            if line.split()[2] not in found:
                found.append(line.split()[2])

    def measured(self, system, programs, prefix):
        cpu = system.service_cpu()
        for program in programs:
            program.say(f"run {self.seconds}")
        answers = [program.hear("ran", time.monotonic() + PATIENCE) for program in programs]
        cpu = system.service_cpu() - cpu
        if not all(answers):
            raise RuntimeError(f"{prefix}: {''.join(programs[answers.index(None)].errors)[-2000:]}")
        found = [json.loads(answer[3:]) for answer in answers]
        cpu += sum(one["cpu_seconds"] for one in found)
        return {f"{prefix}_per_s": sum(one["items"] / one["seconds"] for one in found),
                f"{prefix}_cpu_ms": cpu / sum(one["steps"] for one in found) * 1000}

    def programs(self, count, prefix, names):
        """`count` programs at a time do one workload after the other."""

        def measure(system):
            values = {}
            programs = [Program(WORKLOAD, system.environment()) for _ in range(count)]
            try:
                for name in names:
                    self.prepared(system, programs, name)
                    values.update(self.measured(system, programs, f"{prefix}_{name}"))
            finally:
                dismiss(programs)
            return values

        return measure

    def alternating(self, tested, names, count):
        """One program of each system, all there at once, in `count` rounds of each workload.

        Return: as rounds.play()."""
        results, programs = {}, {}
        with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as background:
            for system in tested:
                background.enter_context(system.up())
            background.callback(lambda: dismiss(programs.values()))
            for system in tested:
                programs[system.name] = Program(WORKLOAD, system.environment())
            for name in names:
                try:
                    for system in tested:
                        self.prepared(system, [programs[system.name]], name)
                except RuntimeError as problem:
                    print(f"{name}: {problem}", file=sys.stderr)
                    continue

                def measure(system, name=name):
                    return self.measured(system, [programs[system.name]], f"alone_{name}")

                rounds.take_turns(tested, {name: measure}, count, True, results)
        return results

    @staticmethod
    def first(system):
        environment = {**system.environment(), "FRMPS_BENCH_START_NS": str(time.monotonic_ns())}
        answer = subprocess.run([*WORKLOAD, "--first"], env=environment, capture_output=True, text=True,
                                timeout=PATIENCE)
        if answer.returncode:
            raise RuntimeError(answer.stderr[-2000:])
        value = json.loads(answer.stdout.splitlines()[-1])
        return {"first_kernel_ms": value["ms"], "first_kernel_after_import_ms": value["after_import_ms"]}


def differing(checksums):
    """The workloads that did not compute the same everywhere."""
    return {name: found for name, found in checksums.items()
            if len({checksum for those in found.values() for checksum in those}) > 1}


def missed(results):
    """A line for each number that is not what it should be."""
    for ending, prefix, base, least, most in AIMS:
        for name in results.get("frmps", {}):
            relative = rounds.ratio(results, name, base)
            if not (name.startswith(prefix) and name.endswith(ending)) or relative is None:
                continue
            if (least and relative < least) or (most and relative > most):
                yield f"{name}: {relative:.3f} of {base}, aim: {f'at least {least}' if least else f'at most {most}'}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--only", default="", help="alone, two, first; or names of workloads")
    order = parser.add_mutually_exclusive_group()
    order.add_argument("--together", action="store_true",
                       help="all systems are up all the time, so that rounds follow each other within seconds")
    order.add_argument("--alternate", action="store_true", help="so are their programs")
    parser.add_argument("--out", default="")
    options = parser.parse_args()
    if not systems.is_gpu_here() or not importlib.util.find_spec("torchvision"):
        print("no GPU, or no PyTorch with torchvision")
        return 77
    only = set(options.only.split(",")) - {""}
    if options.alternate and only & {"two", "first"}:
        parser.error("programs that take turns are alone")
    kinds = only & {"alone", "two", "first"} or {"alone", "two", "first"}
    names = only & set(ALONE) or set(ALONE)
    found = Measurements(options.seconds)
    wanted = {"first": found.first,
              "alone": found.programs(1, "alone", [name for name in ALONE if name in names]),
              "two": found.programs(2, "two", [name for name in TWO if name in names])}
    tested = systems.all_here(options.build.resolve())
    found.first(tested[0])  # brings what programs load into the page cache
    if options.alternate:
        results = found.alternating(tested, [name for name in ALONE if name in names], options.rounds)
    else:
        results = rounds.play(tested, {name: wanted[name] for name in wanted if name in kinds}, options.rounds,
                              options.together)
    rounds.report(tested, results, options.out, checksums=found.checksums)
    for line in missed(results):
        print("missed:", line)
    for name, checksums in differing(found.checksums).items():
        print(f"DIFFERENT RESULTS: {name}: {checksums}")
    complete = len({frozenset(results.get(system.name, {})) for system in tested}) == 1
    return 0 if complete and not differing(found.checksums) else 1


if __name__ == "__main__":
    sys.exit(main())
