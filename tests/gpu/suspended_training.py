#!/usr/bin/env python3
"""PyTorch programs that are suspended at random moments compute what they compute undisturbed, to the bit.

usage: suspended_training.py [--build BUILD] [--times N] [--seed SEED]

A training, a decoder in a CUDA graph, and two processes that share tensors (torch.multiprocessing) run once undisturbed.
Then they run side by side, each paused, suspended and resumed N times (20) at random moments, of the two processes one
with the other one behind it; beside some of them a program faults. Exit status: 1 if a checksum differs or a program or an order fails, 77 without a
GPU or without PyTorch.
"""

import argparse
import contextlib
import importlib.util
import itertools
import json
import pathlib
import random
import select
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "bench" / "lib"), str(HERE)]
from matrix_systems import Frmps  # noqa: E402
from processes import with_children  # noqa: E402
from program import Program  # noqa: E402
from systems import is_gpu_here  # noqa: E402

PATIENCE = 240
STEPS = {"train": 1500, "decode": 30000, "share": 2500}


# The programs. Each ends with a checksum of all that it has computed.


def wait_for_go():
    """Until all others are started, too. Return: words of the order"""
    print("ready", flush=True)
    return sys.stdin.readline().split()[1:]


def steps(name):
    """Numbers of steps: as many as usual ("go"), as the order says ("go 100"), or until another order comes ("go on")."""
    words = wait_for_go()
    is_until_told = words == ["on"]
    for step in itertools.count() if is_until_told else range(int(words[0]) if words else STEPS[name]):
        if is_until_told and select.select([sys.stdin], [], [], 0)[0]:
            return
        yield step


def checksum(tensors, count=0):
    """@count: of steps"""
    import hashlib

    import torch

    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.detach().contiguous().view(torch.uint8).cpu().numpy().tobytes())
    print(json.dumps({"checksum": digest.hexdigest(), "steps": count}), flush=True)


def train():
    import torch

    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    layers = [torch.nn.Linear(2048, 2048), torch.nn.GELU()] * 6
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ballast = torch.arange(1 << 29, dtype=torch.int32, device="cuda")  # 2 GiB that nothing touches
    step = -1
    for step in steps("train"):
        batch = torch.randn(256, 2048, device="cuda", generator=torch.Generator("cuda").manual_seed(step))
        loss = (model(batch) - batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
    checksum([*model.parameters(), ballast], step + 1)


def decode():
    import torch

    torch.manual_seed(2)
    weights = [torch.randn(2048, 2048, device="cuda") / 45 for _ in range(24)]
    state = torch.ones(1, 2048, device="cuda")
    graph = torch.cuda.CUDAGraph()

    def step():
        value = state
        for weight in weights:
            value = torch.tanh(value @ weight)
        state.copy_(value)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        step()
    seen, number = [], -1
    for number in steps("decode"):
        graph.replay()
        if number % 1000 == 0:
            seen.append(state.clone())
    torch.cuda.synchronize()
    checksum([*weights, state, *seen], number + 1)


def change(tensors, weight):
    import torch

    for tensor in tensors:
        tensor.copy_(torch.tanh(tensor @ weight))
    torch.cuda.synchronize()


def sharer(connection):
    """The other process: changes the first one's tensors in its turn."""
    import torch

    torch.manual_seed(4)
    weight = torch.randn(1024, 1024, device="cuda") / 32
    shared = connection.recv()
    while connection.recv() == "go on":
        change(shared, weight)
        connection.send("done")


def share():
    import torch

    torch.manual_seed(3)
    weight = torch.randn(1024, 1024, device="cuda") / 32
    shared = [torch.randn(1024, 1024, device="cuda") for _ in range(16)]
    context = torch.multiprocessing.get_context("spawn")
    connection, other_end = context.Pipe()
    other = context.Process(target=sharer, args=(other_end,))
    other.start()
    torch.cuda.synchronize()
    connection.send(shared)
    for step in itertools.chain([-1], steps("share")):
        connection.send("go on")
        connection.recv()
        change(shared, weight)
    connection.send("end")
    other.join()
    if other.exitcode:
        return 3
    checksum([weight, *shared], step + 1)


def fault():
    import torch

    print("ready", flush=True)
    try:
        torch.zeros(8, device="cuda")[torch.tensor([1 << 20], device="cuda")]
        torch.cuda.synchronize()
    except RuntimeError:
        return 0
    return 2


# What is done to them.


class Failed(Exception):
    pass


def start(system, name):
    environment = {**system.environment("fail"), "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    program = Program([sys.executable, "-B", __file__, "--program", name], environment)
    if not program.hear("ready", time.monotonic() + PATIENCE):
        raise Failed(f"{name} does not start: {''.join(program.errors)[-2000:]}")
    return program


def go(programs):
    for program in programs.values():
        program.say("go")


def result(name, program):
    program.say("go")  # whoever has gone reads no more
    found = program.end(time.monotonic() + PATIENCE)
    program.close()
    if program.process.returncode or not found:
        raise Failed(f"{name} ends with {program.process.returncode}: {''.join(program.errors)[-2000:]}")
    return found["checksum"]


def clients_of(system, program):
    """The program's own first, then those of its children."""
    pids = with_children([program.pid])
    clients = [client for domain in system.status()["domains"] for client in domain["clients"] if client["pid"] in pids]
    return sorted(clients, key=lambda client: client["pid"] != program.pid)


class Over(Exception):
    """The program has ended meanwhile."""


def order(system, verb, clients):
    for client in clients:
        done = subprocess.run([str(system.build / "server" / "frmpsctl"), "--socket", system.socket, verb, str(client["session"])],
                              capture_output=True, text=True)
        if "ends already" in done.stderr or "there is no session" in done.stderr:
            raise Over
        if done.returncode:
            raise Failed(f"{verb}: {done.stderr.strip()}")


def disturb(system, name, program):
    """Return: whether it was there to be disturbed"""
    clients = clients_of(system, program)
    if not clients or clients[0]["pid"] != program.pid:
        return False
    begin = time.monotonic()
    order(system, "pause", clients)
    order(system, "suspend", clients[:1])  # those who share with it go, too
    for away in clients_of(system, program):
        if away["state"] != "suspended" or away["memory_bytes"]:
            raise Failed(f"{name} is {away['state']} with {away['memory_bytes']} bytes on the device")
    gone = time.monotonic()
    swapped = sum(away["swapped_bytes"] for away in clients_of(system, program))
    if random.random() < 0.2:
        culprit = start(system, "fault")
        culprit.end(time.monotonic() + PATIENCE)
        culprit.close()
    back = time.monotonic()
    order(system, "resume", clients)
    print(f"      {name}: {swapped >> 20} MiB, out {gone - begin:.3f} s, in {time.monotonic() - back:.3f} s",
          flush=True)
    return True


def play(system, times):
    expected = {name: result(name, start(system, name)) for name in STEPS}
    programs = {name: start(system, name) for name in STEPS}
    go(programs)
    done = dict.fromkeys(STEPS, 0)
    for _ in range(times):
        for name, program in programs.items():
            time.sleep(random.random() * 0.3)
            with contextlib.suppress(Over):
                done[name] += disturb(system, name, program)
    for name, program in programs.items():
        if result(name, program) != expected[name]:
            raise Failed(f"{name} has computed something else than undisturbed")
        if not done[name]:
            raise Failed(f"{name} was over before anything happened")
        print(f"ok    {name}: suspended {done[name]} times")


def parser_of(text, times, seed):
    """The options of a script that disturbs these programs."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent.parent / "build")
    parser.add_argument("--times", type=int, default=times)
    parser.add_argument("--seed", type=int, default=seed)
    return parser


def disturbed(options, disturbance):
    """Plays it with a service. Return: exit status"""
    if not is_gpu_here() or not importlib.util.find_spec("torch"):
        print("no GPU, or no PyTorch")
        return 77
    random.seed(options.seed)
    system = Frmps(options.build.resolve(), {}, "cuda")
    system.up()
    try:
        disturbance(system, options.times)
    except Failed as problem:
        print(f"FAIL  {problem}")
        print("\n".join(system.log.since(0)[-20:]))
        return 1
    finally:
        system.down()
    return 0


def main():
    parser = parser_of(__doc__, 20, 5)
    parser.add_argument("--program", choices=(*STEPS, "fault"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    return globals()[options.program]() if options.program else disturbed(options, play)


if __name__ == "__main__":
    sys.exit(main())
