"""The plan of exceptions.py: which faults happen beside whom, one line for each lot of cells."""

import dataclasses

CLASSES = ("trap", "far-write", "far-read", "null", "misaligned", "shared", "stack", "jump", "illegal", "assert", "same")
# Survivors: the arguments of each one's matrix_worker.
SMALL = ["--kernel-us", "100"]
BESIDE = {
    "small": [SMALL],
    "seven": [SMALL] * 7,
    "full": [[*SMALL, "--blocks", "1000"]],  # fills the device
    "long": [["--kernel-us", "50000"]],
    "cooperative": [[*SMALL, "--launch", "cooperative", "--blocks", "64"]],
    "clusters": [[*SMALL, "--launch", "clusters", "--blocks", "64"]],
    "graphs": [[*SMALL, "--launch", "graph"]],
    "copies": [[*SMALL, "--also", "copies"]],
    "modules": [[*SMALL, "--also", "modules"]],
    "memory": [[*SMALL, "--also", "memory"]],
}
BESIDE["mixed"] = [BESIDE[kind][0] for kind in ("small", "graphs", "copies", "modules", "memory")]
# Culprits: the size of the kernel. Every warp faults, in one of its threads or in all.
GRIDS = {
    "warp": ["--blocks", "1"],
    "1000": ["--blocks", "1000"],
    "1000x256": ["--blocks", "1000", "--threads", "256"],
    "1000x256-all": ["--blocks", "1000", "--threads", "256", "--all-threads"],
    "100000": ["--blocks", "100000"],
}
PYTORCH_FAULTS = ("trap", "far-write", "misaligned", "stack", "assert")
# Cases of real_culprits.py that share a run.
REAL = {
    "torch": "torch-embedding,torch-index-select,torch-gather,torch-cross-entropy",
    "triton-cupy": "triton-many,triton-one,cupy-many,cupy-one",
    "cuda": "cuda-recursion-many,cuda-recursion-one,cuda-null,cuda-misaligned,cuda-endless",
}


@dataclasses.dataclass(frozen=True)
class Cell:
    """@how: once, row, pairs, ten, burst: faults of the plan's own; pytorch, real: a script of this folder runs"""

    how: str
    classes: tuple
    grid: str = "warp"
    beside: str = "small"
    times: int = 3  # events
    together: int = 1  # culprits of one event
    apart_ms: int = 0  # between their kernels
    script: tuple = ()

    @property
    def name(self):
        what = self.classes[0] if len(self.classes) == 1 else "all"
        return "/".join([self.how, what] if self.script else [self.how, what, self.grid, self.beside])

    def event(self, number):
        """Return: the classes of the culprits of an event; of two at a time all pairs come in turn."""
        count = len(self.classes)
        step = 1 + number // count
        return [self.classes[(number + i * step) % count] for i in range(self.together)]

    @property
    def seconds(self):
        """About how long it takes on a GPU: what a part is made up by."""
        if self.script:
            return 180
        fault = 0.3 if self.grid == "warp" else 5 if self.grid == "100000" else 1
        kernels = 3 if self.beside == "long" else 0  # of the survivor, that are measured
        return 1 + self.times * (fault + kernels + 0.1 * self.together + self.apart_ms * self.together / 1000)


def pytorch(name, *script):
    return Cell("pytorch", (name,), script=("framework_faults.py", "--strict", *script))


def plan():
    rows = ",".join(PYTORCH_FAULTS)
    return [
        *(Cell("once", (fault,), "warp", beside) for fault in CLASSES for beside in BESIDE),
        *(Cell("once", (fault,), grid) for fault in CLASSES for grid in GRIDS if grid != "warp"),
        *(Cell("once", (fault,), "1000", beside) for fault in ("far-write", "assert") for beside in BESIDE
          if beside != "small"),
        # One after another: what the hundredth fault of a context costs.
        Cell("row", CLASSES, beside="small", times=100),
        Cell("row", CLASSES, beside="mixed", times=100),
        # At the same moment: two of all kinds, then ten.
        *(Cell("pairs", CLASSES, beside=beside, times=55, together=2) for beside in ("small", "mixed")),
        *(Cell("ten", CLASSES, grid, "mixed", together=10) for grid in ("warp", "1000")),
        # Ten within a second.
        *(Cell("burst", CLASSES, beside=beside, together=10, apart_ms=100) for beside in ("small", "seven", "mixed")),
        *(pytorch(f"beside-{count}", "--programs", str(count), "--rows", rows) for count in (1, 3, 4)),
        pytorch("every-second", "--programs", "3", "--every", "1", "--for", "60"),
        pytorch("burst", "--programs", "3", "--burst", "10"),
        *(Cell("real", (name,), script=("real_culprits.py", "--only", cases)) for name, cases in REAL.items()),
    ]


def host_plan():
    """What the host backend can do, in less than a minute. Its grids fault in their first block."""
    return [
        *(Cell("once", (fault,), "warp", beside, times=1) for fault, beside in zip(
            ("trap", "far-write", "null", "misaligned", "illegal", "assert", "same"),
            ("small", "graphs", "copies", "modules", "memory", "mixed", "small"))),
        Cell("row", ("far-write", "trap", "misaligned"), beside="mixed", times=6),
        Cell("pairs", ("far-write", "null"), times=2, together=2),
    ]


def part(cells, number, count):
    """Return: the cells of a part; parts take about the same time."""
    whole, before, chosen = sum(cell.seconds for cell in cells), 0.0, []
    for cell in cells:
        middle = before + cell.seconds / 2
        if min(int(middle * count / whole), count - 1) == number - 1:
            chosen.append(cell)
        before += cell.seconds
    return chosen
