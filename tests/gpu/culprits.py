#!/usr/bin/env python3
"""The programs of real_culprits.py in Python: mistakes that people make with PyTorch, Triton and CuPy.

    culprits.py CASE

Each case first does the same thing without the mistake, so that its kernels are loaded. It says "ready" and waits for a
line. Then it makes the mistake, waits for the device, and prints what it caught: an object in JSON, and "done".
"""

import ctypes
import json
import sys

CASES = {}
MANY = 1 << 20  # indices
ROWS = 1000  # of the table that they point into
GRID = 4096
BLOCK = 256
# An address at which nobody has memory, natively or through the service: a pointer into another program's memory would
# not fault in a context that programs share.
WILD = 6 << 40


def case(frameworks):
    """A case is a generator: the mistake is what comes behind its only `yield`."""
    def register(function):
        CASES[function.__name__.replace("_", "-")] = frameworks, function
        return function

    return register


def use_then_misuse(torch, use, good, bad):
    """A first use that is right, and behind the caller's order the one that is not."""
    use(good)
    torch.cuda.synchronize()
    yield
    use(bad)
    torch.cuda.synchronize()


def use_indices(torch, use):
    """Indices of rows, and then as many that are all out of range."""
    indices = torch.arange(MANY, device="cuda") % ROWS
    return use_then_misuse(torch, use, indices, indices + ROWS)


@case("torch")
def torch_embedding():
    import torch

    table = torch.randn(ROWS, 64, device="cuda")
    yield from use_indices(torch, lambda indices: torch.nn.functional.embedding(indices, table))


@case("torch")
def torch_index_select():
    import torch

    table = torch.randn(ROWS, 64, device="cuda")
    yield from use_indices(torch, lambda indices: table.index_select(0, indices))


@case("torch")
def torch_gather():
    import torch

    values = torch.randn(ROWS, device="cuda")
    yield from use_indices(torch, lambda indices: values.gather(0, indices))


@case("torch")
def torch_cross_entropy():
    """A label that is no class: with 100 classes, 100."""
    import torch

    scores = torch.randn(1 << 16, 100, device="cuda")
    labels = torch.arange(1 << 16, device="cuda") % 100
    yield from use_then_misuse(
        torch, lambda labels: torch.nn.functional.cross_entropy(scores, labels), labels, labels + 1)


def triton_store(programs):
    """A kernel that stores through a pointer plus a distance; the distance is wrong."""
    import torch
    import triton
    from triton import language as tl

    @triton.jit
    def store(out, distance, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + tl.load(distance) + at, at)

    out = torch.zeros(GRID * BLOCK, dtype=torch.int32, device="cuda")
    distance = torch.tensor([0, (WILD - out.data_ptr()) // out.element_size()], device="cuda")
    near, far = distance[:1].clone(), distance[1:].clone()
    store[(programs,)](out, near, BLOCK=BLOCK)
    torch.cuda.synchronize()
    yield
    store[(programs,)](out, far, BLOCK=BLOCK)
    torch.cuda.synchronize()


@case("torch triton")
def triton_many():
    return triton_store(GRID)


@case("torch triton")
def triton_one():
    return triton_store(1)


def cupy_store(blocks):
    """A kernel of one's own that gets an address that is none."""
    import cupy
    import numpy

    store = cupy.RawKernel(
        'extern "C" __global__ void store(int *out) {'
        " int i = blockIdx.x * blockDim.x + threadIdx.x; out[i] = i; }", "store")
    out = cupy.zeros(GRID * BLOCK, dtype=cupy.int32)
    store((blocks,), (BLOCK,), (out,))
    cupy.cuda.Stream.null.synchronize()
    yield
    store((blocks,), (BLOCK,), (numpy.uint64(WILD),))
    cupy.cuda.Stream.null.synchronize()


@case("cupy")
def cupy_many():
    return cupy_store(GRID)


@case("cupy")
def cupy_one():
    return cupy_store(1)


def driver_code():
    """What the driver answers from now on."""
    return ctypes.CDLL("libcuda.so.1").cuCtxSynchronize()


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in CASES:
        print(__doc__ + "\ncases: " + ", ".join(CASES), file=sys.stderr)
        return 2
    steps, text = CASES[sys.argv[1]][1](), ""
    next(steps)
    print("ready", flush=True)
    if not sys.stdin.readline():
        return 1
    try:
        next(steps, None)
    except Exception as error:  # of a type that the framework chooses
        text = f"{type(error).__name__}: {error}"
    print(json.dumps({"code": driver_code(), "text": text}))
    print("done", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
