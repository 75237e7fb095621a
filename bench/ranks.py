#!/usr/bin/env python3
"""A rank of a PyTorch program on several GPUs, one each, over NCCL, for bench/run.

usage: ranks.py RANK COUNT PORT all_reduce MIB | ranks.py RANK COUNT PORT training

all_reduce: sums MIB MiB of all ranks, again and again. training: data parallel, with one model. Prints a JSON line: what a
step took, in us, and for the training a checksum of the weights. Exit status 1 if a sum is wrong.
"""

import json
import os
import sys
import time
import zlib

import torch
import torch.distributed as dist

BEFORE = 5
STEPS = {"all_reduce": 50, "training": 100}


class Reduction:
    def __init__(self, rank, mib):
        self.values = torch.full((mib << 18,), float(rank + 1), device="cuda")
        self.sum = self.values.clone()

    def step(self):
        self.sum.copy_(self.values)
        dist.all_reduce(self.sum)

    def checksum(self):
        count = dist.get_world_size()
        if not bool((self.sum == count * (count + 1) / 2).all()):
            sys.exit("the sum is wrong")
        return 0


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

    def checksum(self):
        return zlib.crc32(torch.cat([one.detach().flatten() for one in self.model.parameters()]).cpu().numpy().tobytes())


def main():
    rank, count, port, what, *words = sys.argv[1:]
    os.environ.update(RANK=rank, WORLD_SIZE=count, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    torch.cuda.set_device(int(rank))
    dist.init_process_group("nccl")
    work = Reduction(int(rank), int(words[0])) if what == "all_reduce" else Training(int(rank))
    for _ in range(BEFORE):
        work.step()
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.synchronize()
    begin = time.monotonic()
    for _ in range(STEPS[what]):
        work.step()
    torch.cuda.synchronize()
    took = (time.monotonic() - begin) / STEPS[what]
    print(json.dumps({"name": "rank", "us": 1e6 * took, "checksum": f"{work.checksum():08x}"}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
