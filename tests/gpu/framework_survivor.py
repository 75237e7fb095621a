#!/usr/bin/env python3
"""A program of framework_faults.py: a loop of a framework that must compute what it computes without any fault.

    framework_survivor.py LOOP LOG                    until it is told to stop
    framework_survivor.py LOOP LOG --check N,...      without orders, to the largest N: the fault-free run
                                   [--twice N]        does the iteration after the Nth twice

Each iteration's result depends on all iterations before it: one that was lost, repeated, cut or out of order changes
all later ones. A checksum of each, made on the device, goes to the file LOG (8 bytes each) as soon as the program has
read it, WINDOW at a time: that many iterations are under way together.

Orders come on standard input, in lines; its end means "stop". The program says "ready" when all its kernels are loaded.
    watch    forgets its longest gap; answers "watching"
    more N   answers "more GAP" when N further windows are finished; the longest gap so far, ms
    stop     prints what it found as JSON and ends; as well, unasked, when it is told an error
"""

import argparse
import json
import os
import select
import statistics
import sys
import time
import zlib

WINDOW = 8
WARM = 3  # windows until "ready"


def checksum(tensors):
    """Of every bit and its place, on the device: sums of whole numbers do not depend on their order."""
    import torch

    total = 0
    for tensor in tensors:
        bits = tensor.detach().contiguous().view(-1).view(torch.uint8).to(torch.int64)
        total = total * 31 + (bits * torch.arange(1, 2 * len(bits), 2, device="cuda")).sum()
    return total


class Loop:
    """A loop of inference or training. The results of a window lie in `log` until they are read."""

    def __init__(self):
        import torch

        self.log = torch.zeros(WINDOW, dtype=torch.int64, device="cuda")

    def iterate(self, position):
        """One iteration, the `position`th of its window."""
        raise NotImplementedError

    def state(self):
        """All that iterations leave."""
        raise NotImplementedError


class Eager(Loop):
    """ResNet-50, kernel by kernel; the scores and a counter make the next batch."""

    def __init__(self):
        import networks
        import torch

        super().__init__()
        self.net = networks.resnet50()
        self.images = networks.images(4).cuda()
        self.count = torch.zeros(1, device="cuda")

    def iterate(self, position):
        import torch

        with torch.inference_mode():
            self.feed()
            self.log[position] = checksum(self.state())

    def feed(self):
        scores = self.net(self.images).float()
        self.count += 1
        self.images.mul_(0.75).add_((scores[:, :3] * 1000 + self.count).sin().half().view(-1, 3, 1, 1))

    def state(self):
        return [self.images, self.count]


class Graph(Eager):
    """The same network as a graph; the result is fetched by a kernel outside of it."""

    def __init__(self):
        import networks
        import torch

        super().__init__()
        with torch.inference_mode():
            self.graph = networks.graph_of(self.feed)

    def iterate(self, position):
        import torch

        with torch.inference_mode():
            self.graph.replay()
            self.log[position] = checksum(self.state())


class Counting(Loop):
    """A decoder as a graph that keeps everything on the device: the token, the caches that are updated in place, the
    counter that says where, and the place in the log."""

    def __init__(self):
        import networks

        super().__init__()
        self.decoder = networks.Decoder.made(layers=4, width=256, heads=4, context=128, words=1000)
        self.graph = networks.graph_of(self.count)
        self.launched = 0

    def count(self):
        import torch

        self.decoder.step()
        with torch.no_grad():
            here = torch.arange(WINDOW, device="cuda") == self.decoder.count % WINDOW
            self.log.copy_(torch.where(here, checksum(self.state()), self.log))

    def iterate(self, position):
        self.graph.replay()

    def state(self):
        return [tensor for name, tensor in self.decoder.named_buffers() if name != "columns"]


class Train(Loop):
    """Mixed precision and fused AdamW; the checksum is that of all weights and moments."""

    def __init__(self):
        import networks

        super().__init__()
        self.training = networks.Training(layers=2, width=256, heads=4, batch=4, length=64)

    def iterate(self, position):
        self.training.step()
        self.log[position] = checksum(self.state())

    def state(self):
        moments = [moment[name] for moment in self.training.optimizer.state.values()
                   for name in ("exp_avg", "exp_avg_sq")]
        return [*self.training.net.parameters(), *moments]


LOOPS = {"eager": Eager, "graph": Graph, "graph-state": Counting, "train": Train}


class Survivor:
    def __init__(self, options):
        self.loop = LOOPS[options.loop]()
        self.log = open(options.log, "wb", buffering=0)
        self.twice = options.twice
        self.finished = 0  # iterations whose results were read
        self.gaps, self.last, self.more_at = [], None, None

    def window(self):
        for position in range(WINDOW):
            self.loop.iterate(position)
            if self.finished + position == self.twice:
                self.loop.iterate(position)
        results = self.loop.log.cpu()
        self.log.write(results.numpy().tobytes())
        self.finished += WINDOW
        now = time.monotonic()
        if self.last:
            self.gaps.append((now - self.last) * 1000)
        self.last = now

    def gap(self):
        """The longest time between two ends of windows, less that of an ordinary one."""
        return max(self.gaps) - statistics.median(self.gaps) if self.gaps else 0.0

    def fingerprint(self):
        """Of the state as the host sees it."""
        import torch

        sums = [zlib.crc32(tensor.detach().contiguous().view(-1).view(torch.uint8).cpu().numpy().tobytes())
                for tensor in self.loop.state()]
        return f"{zlib.crc32(json.dumps(sums).encode()):08x}"

    def obey(self, order):
        """Return: whether it goes on."""
        if order == "watch":
            self.gaps = []
            print("watching", flush=True)
        elif order.startswith("more "):
            self.more_at = self.finished + WINDOW * int(order[5:])
        else:
            return False
        return True

    def orders(self):
        """Takes what orders there are. Return: whether it goes on."""
        while select.select([0], [], [], 0)[0]:
            data = os.read(0, 4096).decode()
            if not data or not all(self.obey(order) for order in data.splitlines()):
                return False
        if self.more_at and self.finished >= self.more_at:
            self.more_at = None
            print(f"more {self.gap():.3f}", flush=True)
        return True

    def run(self):
        try:
            for _ in range(WARM):
                self.window()
            print("ready", flush=True)
            while self.orders():
                self.window()
            end = {"outcome": "done", "state": self.fingerprint()}
        except RuntimeError as told:  # torch.AcceleratorError among them
            end = {"outcome": "told", "error": str(told).splitlines()[0]}
        print(json.dumps({**end, "iterations": self.finished, "pause_ms": self.gap()}), flush=True)

    def check(self, points):
        found = {}
        while self.finished < max(points):
            self.window()
            if self.finished in points:
                found[str(self.finished)] = self.fingerprint()
        print(json.dumps({"states": found}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loop", choices=LOOPS)
    parser.add_argument("log")
    parser.add_argument("--check", type=lambda text: [int(point) for point in text.split(",")])
    parser.add_argument("--twice", type=int)
    options = parser.parse_args()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch

    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    survivor = Survivor(options)
    if options.check:
        survivor.check(options.check)
    else:
        survivor.run()


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, os.path.join(here, "..", "..", "bench", "lib"))
    main()
