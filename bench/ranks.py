#!/usr/bin/env python3
"""A rank of a PyTorch program on several GPUs, one each, over NCCL, for bench/run.

usage: ranks.py RANK COUNT PORT all_reduce MIB... | ranks.py RANK COUNT PORT training

all_reduce: sums so many MiB of all ranks, again and again, for each MIB. training: data parallel, with one model. Prints a
JSON line for each: what a step took, in us, and for the training a checksum of the weights. Exit status 1 if a sum is wrong.
"""

import json
import os
import sys
import time
import zlib

import torch
import torch.distributed as dist

BEFORE = 5


class Reduction:
    def __init__(self, rank, mib):
        self.values = torch.full((mib << 18,), float(rank + 1), device="cuda")
        self.sum = self.values.clone()

    def step(self):
        self.sum.copy_(self.values)
        dist.all_reduce(self.sum)

    def outcome(self):
        count = dist.get_world_size()
        if not bool((self.sum == count * (count + 1) / 2).all()):
            sys.exit("the sum is wrong")
        return {"name": f"{self.values.numel() >> 18} MiB"}


class Training:
    def __init__(self, rank):
        torch.manual_seed(1)
        layers = [torch.nn.Linear(2048, 2048), torch.nn.GELU()] * 4
        self.model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers).cuda(), device_ids=[rank])
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.batches = [torch.randn(256, 2048, device="cuda", generator=torch.Generator("cuda").manual_seed(8 * rank + i)) for i in range(8)]
        self.count = 0

    def step(self):
        self.optimizer.zero_grad()
        self.model(self.batches[self.count % 8]).square().mean().backward()
        self.optimizer.step()
        self.count += 1

    def outcome(self):
        weights = torch.cat([one.detach().flatten() for one in self.model.parameters()]).cpu().numpy().tobytes()
        return {"name": "training", "checksum": f"{zlib.crc32(weights):08x}"}


def measure(work, steps):
    for _ in range(BEFORE):
        work.step()
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.synchronize()
    begin = time.monotonic()
    for _ in range(steps):
        work.step()
    torch.cuda.synchronize()
    took = (time.monotonic() - begin) / steps
    print(json.dumps({**work.outcome(), "us": 1e6 * took}), flush=True)


def main():
    rank, count, port, what, *sizes = sys.argv[1:]
    os.environ.update(RANK=rank, WORLD_SIZE=count, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    torch.cuda.set_device(int(rank))
    dist.init_process_group("nccl")
    if what == "training":
        measure(Training(int(rank)), 100)
    for mib in map(int, sizes):
        measure(Reduction(int(rank), mib), 50)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
