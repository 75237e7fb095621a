#!/usr/bin/env python3
"""Three PyTorch trainings that have more device memory together than there is (memory_policy = swap) compute what one computes alone,
to the bit.

usage: swapped_training.py [--build BUILD] [--percent N] [--steps N]

Each has N percent (40) of the device's memory as ballast beside its model. They start one after the other, each while those before it
rest, then train at the same time and take turns. Each looks at every word of its ballast at its end. Exit status: 1 if a checksum
differs, ballast is not what it was, a program fails or nobody was displaced; 77 without a GPU or without PyTorch. The host needs that
much memory for one of them.
"""

import argparse
import importlib.util
import json
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "bench" / "lib"), str(HERE)]
from matrix_systems import Frmps  # noqa: E402
from program import Program  # noqa: E402
from suspended_training import PATIENCE, Failed, checksum, clients_of, go, result, wait_for_go  # noqa: E402
from systems import is_gpu_here  # noqa: E402

COUNT = 3
PIECE = 1 << 30  # bytes of ballast in one tensor


def ballast_of(percent):
    import torch

    pieces = torch.cuda.get_device_properties(0).total_memory * percent // 100 // PIECE
    return [torch.full((PIECE // 4,), number, dtype=torch.int32, device="cuda") for number in range(pieces)]


def train(percent, steps):
    import torch

    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048), torch.nn.GELU()] * 6).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ballast = ballast_of(percent)
    torch.cuda.synchronize()
    wait_for_go()
    for step in range(steps):
        batch = torch.randn(256, 2048, device="cuda", generator=torch.Generator("cuda").manual_seed(step))
        loss = (model(batch) - batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
    if not all(bool((piece == number).all()) for number, piece in enumerate(ballast)):
        return 2
    checksum(model.parameters())
    return 0


def start(system, options):
    environment = {**system.environment("fail"), "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    words = ["--percent", str(options.percent), "--steps", str(options.steps), "--train"]
    program = Program([sys.executable, "-B", __file__, *words], environment)
    if not program.hear("ready", time.monotonic() + PATIENCE):
        raise Failed(f"a training does not start: {''.join(program.errors)[-2000:]}")
    return program


def displaced(system):
    return system.status()["counters"]["sessions_displaced"]


def play(system, options):
    expected = result("one alone", start(system, options))
    programs = {f"training {number}": start(system, options) for number in range(COUNT)}
    states = [clients_of(system, program)[0]["state"] for program in programs.values()]
    print(f"      they are {', '.join(states)}; {displaced(system)} were displaced", flush=True)
    since = time.monotonic()
    go(programs)
    for name, program in programs.items():
        if result(name, program) != expected:
            raise Failed(f"{name} has computed something else than alone")
    if not displaced(system):
        raise Failed("nobody was displaced: there was room for all")
    print(f"ok    {COUNT} trainings in {time.monotonic() - since:.1f} s, {displaced(system)} displacements")
    said = subprocess.run([str(system.build / "server" / "frmpsctl"), "--socket", system.socket, "events", "--json"],
                          capture_output=True, text=True, check=True).stdout
    for event in json.loads(said)["events"]:
        if event["kind"] == "memory":
            print("     ", event["text"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent.parent / "build")
    parser.add_argument("--percent", type=int, default=40)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        return train(options.percent, options.steps)
    if not is_gpu_here() or not importlib.util.find_spec("torch"):
        print("no GPU, or no PyTorch")
        return 77
    system = Frmps(options.build.resolve(), {}, "cuda", "memory_policy = swap\n")
    system.up()
    try:
        play(system, options)
    except Failed as problem:
        print(f"FAIL  {problem}")
        return 1
    finally:
        system.down()
    return 0


if __name__ == "__main__":
    sys.exit(main())
