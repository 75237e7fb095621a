"""A PyTorch program of server/demo.sh: an ordinary one that knows nothing of frmps.

Each step multiplies matrices and changes integers in place, so that a step that was lost, cut or done twice shows at the
end. It ends when its standard input does. What it prints, board.h says. Exit status: 0 if all data is exact.
"""

import select
import sys
import time

import torch

GAP_NS = 1_000_000  # shorter ones are not worth a line
QUIET_NS = 50_000_000  # but there is one now and then


def change(state, step):
    state.mul_(6364136223846793005).add_(step)


def main():
    torch.manual_seed(1)
    matrix = torch.randn(512, 512, device="cuda")
    first = matrix @ matrix
    state = torch.arange(4096, device="cuda")
    expected = state.cpu()
    steps, last, said = 0, time.monotonic_ns(), 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        product = matrix @ matrix
        change(state, steps)
        torch.cuda.synchronize()
        now = time.monotonic_ns()
        change(expected, steps)
        steps += 1
        if now - last >= GAP_NS or now - said >= QUIET_NS:
            print("did", 3 * steps, last, now, flush=True)  # kernels
            said = now
        last = now
    exact = torch.equal(state.cpu(), expected) and torch.equal(product, first)
    print("end", "exact" if exact else "wrong")
    return 0 if exact else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RuntimeError as problem:
        known = "illegal memory access" in str(problem)
        print("error", time.monotonic_ns(), *((700, "CUDA_ERROR_ILLEGAL_ADDRESS") if known else (999, "RuntimeError")))
        print(problem, file=sys.stderr)
        sys.exit(1)
