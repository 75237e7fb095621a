#!/usr/bin/env python3
"""A PyTorch program of those that bench/run measures: it does what it is told on standard input, and answers in lines.

    prepare NAME    makes that workload and does its first steps; answers "ready NAME CHECKSUM", of what they computed
    run SECONDS     does steps for that long, each of them waited for; answers "ran JSON"
    serve SECONDS PERIOD_MS
                    the same with a step each so many ms, but none before the last one is done; answers "served JSON",
                    with how long each took
Its end is that of its input. Started with --first it only finishes one kernel and says how long that took, from
FRMPS_BENCH_START_NS (CLOCK_MONOTONIC) on.
"""

import json
import os
import sys
import time
import zlib

STEPS_BEFORE = 8


def first_kernel():
    start = int(os.environ["FRMPS_BENCH_START_NS"])
    import torch

    imported = time.monotonic_ns()
    torch.ones(1, device="cuda").item()
    end = time.monotonic_ns()
    print(json.dumps({"name": "first_kernel", "ms": (end - start) / 1e6, "after_import_ms": (end - imported) / 1e6}))


class Inference:
    """Batches of images go in from the host, scores come back."""

    def __init__(self, count):
        import networks

        self.items, self.net = count, networks.resnet50()
        self.images, self.scores = networks.images(count), None

    def step(self):
        import torch

        with torch.inference_mode():
            self.scores = self.net(self.images.to("cuda", non_blocking=True)).cpu()

    def result(self):
        return self.scores


class InferenceGraph:
    """The same as a CUDA graph."""

    items = 1

    def __init__(self):
        import networks
        import torch

        self.net, self.images = networks.resnet50(), networks.images(1)
        self.input, self.scores = self.images.to("cuda"), None
        self.graph = networks.graph_of(self.infer)
        self.output = torch.empty(self.scores.shape, dtype=self.scores.dtype, pin_memory=True)

    def infer(self):
        import torch

        with torch.inference_mode():
            self.scores = self.net(self.input)

    def step(self):
        import torch

        with torch.inference_mode():
            self.input.copy_(self.images, non_blocking=True)
            self.graph.replay()
            self.output.copy_(self.scores, non_blocking=True)
        torch.cuda.synchronize()

    def result(self):
        return self.output


class Decoding:
    """Tokens, each read back, as a program that prints them does."""

    items = 1

    def __init__(self, graph):
        import networks

        self.decoder = networks.Decoder.made()
        self.do = networks.graph_of(self.decoder.step).replay if graph else self.decoder.step
        for _ in range(0 if graph else 3):
            self.do()
        self.text = []

    def step(self):
        self.do()
        self.text.append(self.decoder.token.item())

    def result(self):
        return self.decoder.scores.cpu()


class Training:
    """Training steps; the loss is read back each time."""

    items = 1

    def __init__(self):
        import networks

        self.training = networks.Training()

    def step(self):
        self.training.step()
        self.training.loss.item()

    def result(self):
        import torch

        return torch.cat([weights.detach().flatten() for weights in self.training.net.parameters()]).cpu()


WORKLOADS = {
    "resnet50_batch1": lambda: Inference(1),
    "resnet50_batch8": lambda: Inference(8),
    "resnet50_batch64": lambda: Inference(64),
    "resnet50_graph": InferenceGraph,
    "training": Training,
    "decoding": lambda: Decoding(False),
    "decoding_graph": lambda: Decoding(True),
}


def prepare(name):
    import torch

    torch.cuda.empty_cache()
    workload = WORKLOADS[name]()
    for _ in range(STEPS_BEFORE):
        workload.step()
    checksum = zlib.crc32(workload.result().contiguous().numpy().tobytes())
    print(f"ready {name} {checksum:08x}", flush=True)
    return workload


def run(workload, seconds):
    steps, cpu, begin = 0, time.process_time(), time.monotonic()
    while time.monotonic() < begin + seconds:
        workload.step()
        steps += 1
    took = time.monotonic() - begin
    found = {"items": steps * workload.items, "steps": steps, "seconds": took, "cpu_seconds": time.process_time() - cpu}
    print("ran", json.dumps(found), flush=True)


def serve(workload, seconds, period):
    """@period: s"""
    begin, took = time.monotonic_ns(), []
    now = following = begin / 1e9
    while now < begin / 1e9 + seconds:
        time.sleep(max(0.0, following - now))
        issued = time.monotonic()
        workload.step()
        now = time.monotonic()
        took.append(round((now - issued) * 1000, 4))
        following = max(now, following + period)
    print("served", json.dumps({"ms": took, "begin_ns": begin, "end_ns": time.monotonic_ns()}), flush=True)


def main():
    if sys.argv[1:] == ["--first"]:
        return first_kernel()
    workload = None
    for line in sys.stdin:
        order, *words = line.split()
        if order == "prepare":
            workload = None  # its memory, before the next one's
            workload = prepare(*words)
        elif order == "serve":
            serve(workload, float(words[0]), float(words[1]) / 1000)
        else:
            run(workload, float(words[0]))
    return None


if __name__ == "__main__":
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
    main()
