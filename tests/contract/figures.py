#!/usr/bin/env python3
"""Do the tables of figures say what the result files say? Makes them from bench/results/*.json.

usage: figures.py [--write]      without --write: exit status 1 and the difference if a document is behind
"""

import functools
import json
import statistics
import sys

import sections

sys.path.insert(0, str(sections.ROOT / "tests" / "gpu"))
sys.path.insert(0, str(sections.ROOT / "bench" / "lib"))
import exceptions_table  # noqa: E402
import summary  # noqa: E402

DOCUMENTS = ["README.md", "bench/results/README.md"]
RESULTS = sections.ROOT / "bench" / "results"
SYSTEMS = ["native", "MPS", "frmps"]
NAMES = ["native", "stock MPS", "frmps"]


@functools.cache
def load(name):
    return json.loads((RESULTS / name).read_text())


def run(name, command):
    """The one run of a result file whose command begins so."""
    (found,) = [one for one in load(name)["runs"] if one["command"].startswith(command)]
    return found["results"]


def digits(value):
    """Three figures that count, and all of those before the point."""
    if value >= 1000:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.0f}" if value >= 100 or value == 0 else f"{value:#.3g}"


def cells(results, key, show=digits):
    """A figure of every system: the median of its rounds."""
    values = [results[system].get(key) for system in SYSTEMS]
    return ["" if value is None else show(statistics.median(value) if isinstance(value, list) else value) for value in values]


def join(*parts):
    """The same figure from several runs in one cell."""
    return [", ".join(values) for values in zip(*parts)]


def table(head, rows):
    return ["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]]


# What programs are worth to each other: speed.

RATES = "run.py --build build --rounds 6 --together --only one,many"
CALLS = "run.py --build build --rounds 1"
ALTERNATE = "programs.py --build build --alternate"
ALONE = "programs.py --build build --rounds 2"
FIRST = "programs.py --build build --rounds 1"


def speed():
    """Of three files: what later builds reached, and PyTorch programs of the report's."""
    found = {(row.scenario.name, row.point, row.number.name): row
             for name in ("h200_full.json", "h200_speed.json", "h200_first.json") for row in summary.rows(load(name))}
    rounds = {}

    def line(text, scenario, point, number):
        row = found[scenario, point, number]
        spreads = [row.spread(system) for system in SYSTEMS]
        rounds.setdefault(scenario.startswith("torch"), set()).update(one.rounds for one in spreads if one)
        return [text, *("" if one is None else digits(one.median) for one in spreads)]

    lines = table(["", *NAMES], [
        line("start of a process to its first finished kernel, ms", "first", None, "first_kernel_ms"),
        line("`cuLaunchKernel`, cost to the caller, µs", "issue", None, "issue"),
        line("launch and wait, µs", "wait", None, "launch_and_wait"),
        line("launches a second, thousands: one program", "launching", 1, "rate_k"),
        line("… four programs together", "launching", 4, "rate_k"),
        line("… eight", "launching", 8, "rate_k"),
        line("launch and wait in 48 programs, 99th percentile, ms", "crowd", 48, "wait_p99"),
        line("… all together, thousands a second", "crowd", 48, "rate_k"),
        line("first launch of a loaded module, ms", "loading", None, "use"),
        line("longest gap of 1 ms kernels beside loads, ms", "loading", None, "gap_max"),
        line("PyTorch: start to its first finished kernel, ms", "torch_first", None, "torch_first_ms"),
        line("ResNet-50 inference, batches of 64, images/s", "torch_alone", "resnet50_batch64", "per_s"),
        line("… batches of 1", "torch_alone", "resnet50_batch1", "per_s"),
        line("transformer training, steps/s", "torch_alone", "training", "per_s"),
        line("… processor time of a step, ms", "torch_alone", "training", "cpu_ms"),
    ])
    assert rounds[True] == {1} and rounds[False] == {1, 2}
    return [*lines, "", "One round (the calls: two). PyTorch's are of an earlier build's "
            "[report with plots](bench/results/h200_full.html)."]


def source(name, command):
    """Where the figures of a table come from."""
    (found,) = {one["command"] for one in load(name).get("runs", [load(name)]) if one["command"].startswith(command)}
    machine = load(name)["machine"]
    return f"`{found}`, `{name}`: {machine['gpu']}, {machine['cpus']} processors, Linux {machine['kernel'].split('-')[0]}."


def calls():
    one, rates = run("h200.json", CALLS), run("h200.json", RATES)
    copies = [(f"{kind} copies of {size}, {way} the device, GB/s", f"copy_{kind}_{key}_{count}")
              for kind, size, count in (("pinned", "256 MiB", 1 << 28), ("pageable", "16 MiB", 1 << 24),
                                        ("pageable", "64 KiB", 1 << 16), ("pageable", "4 KiB", 1 << 12))
              for way, key in (("to", "htod"), ("from", "dtoh"))]
    return [source("h200.json", CALLS), "", *table(["", *NAMES], [
        ["`cuLaunchKernel`, cost to the caller, µs", *cells(one, "issue")],
        ["launches a second, thousands, one wait per 100 000", *cells(one, "launch_rate")],
        ["start of a process to its first finished kernel, ms", *cells(one, "first_kernel_ms")],
        *([text, *cells(one, key)] for text, key in copies),
        ["longest gap of a program with 1 ms kernels while another loads modules of 400 kernels, ms", *cells(one, "gap_max_ms")],
        ["such a load, ms", *cells(one, "load_median_ms")],
        ["from its end to the end of one of its kernels, ms", *cells(one, "use_median_ms")],
        ["processor time of the service with 16 idle programs, %", *cells(one, "idle_cpu_percent")],
    ]), "", source("h200.json", RATES), "", *table(["", *NAMES], [
        ["launch and wait, µs", *cells(rates, "launch_and_wait")],
        ["launches a second, thousands, one program", *cells(rates, "rate_1_processes_k")],
        ["… eight programs", *cells(rates, "rate_8_processes_k")],
        ["processor time per launch, programs and service, µs, one program", *cells(rates, "cpu_us_per_launch_1")],
        ["… eight programs", *cells(rates, "cpu_us_per_launch_8")],
    ])]


def ratios():
    """frmps relative to another system: the median over rounds of what it was in each, and the range."""
    rates = run("h200.json", RATES)

    def line(text, key, system):
        values = [ours / theirs for ours, theirs in zip(rates["frmps"][key], rates[system][key])]
        return [text, f"{statistics.median(values):.2f}", f"{min(values):.2f} to {max(values):.2f}"]

    return table(["frmps relative to", "median of six rounds", "range"], [
        line("native: rate of one program", "rate_1_processes_k", "native"),
        line("stock MPS: rate of one program", "rate_1_processes_k", "MPS"),
        line("stock MPS: rate of eight programs", "rate_8_processes_k", "MPS"),
        line("native: time of launch and wait", "launch_and_wait", "native"),
        line("stock MPS: time of launch and wait", "launch_and_wait", "MPS"),
    ])


def launch():
    (counted,) = [one["cycles_of_200000_launches_each"] for one in load("h200.json")["runs"]
                  if "cycles_of_200000_launches_each" in one]

    def line(text, key):
        times = [cycles / counted["counter_mhz"] for cycles in counted[key]]
        return [text, *(f"{value:.3f}" for value in (statistics.median(times), min(times), max(times)))]

    return table(["of one launch, µs", "median", "least", "most"], [
        line("in the driver's `cuLaunchKernel`", "inside_the_driver"),
        line("in the service, from one to the next", "from_one_to_the_next"),
    ])


def eight():
    data = load("h200_eight.json")
    return [data["command"].replace("driver_path", "build/bench/driver_path") + ".", "", *table(
        ["eight programs", "launches a second, thousands"],
        [[name, digits(statistics.median(values))] for name, values in data["results"].items()])]


def programs():
    both = {system: {**run("h200_programs.json", ALONE)[system], **{
        key: value for key, value in run("h200_programs.json", FIRST)[system].items() if key.startswith("first_")}}
        for system in SYSTEMS}
    alternate = run("h200_programs.json", ALTERNATE)
    names = {
        "resnet50_batch1": "ResNet-50 inference, images/s, batches of 1",
        "resnet50_batch8": "… of 8",
        "resnet50_batch64": "… of 64",
        "training": "transformer training, steps/s",
        "decoding": "decoder of GPT-2's size, tokens/s, kernel by kernel",
        "decoding_graph": "… as a CUDA graph",
    }

    def line(results, name):
        spent = join(*([digits(statistics.median(results[system][f"alone_{name}_cpu_ms"]))] for system in SYSTEMS))
        return [names[name].replace("… of 64", "ResNet-50 inference, images/s, batches of 64") if results is alternate
                else names[name], *cells(results, f"alone_{name}_per_s"), *spent]

    head = ["", *NAMES, "processor time of a step in the same order, ms"]
    return [source("h200_programs.json", ALONE), source("h200_programs.json", FIRST) + " (the last two rows)", "", *table(head, [
        *(line(both, name) for name in names),
        ["start of Python to the first finished kernel, ms", *cells(both, "first_kernel_ms"), ""],
        ["… the part after `import torch`, ms", *cells(both, "first_kernel_after_import_ms"), ""],
    ]), "", source("h200_programs.json", ALTERNATE), "", *table(head, [
        line(alternate, name) for name in ("resnet50_batch64", "training")])]


# What a fault costs the others.

ROWS = {
    "trap": "trap",
    "assert": "`assert()` that fails",
    "null": "null pointer",
    "far-write": "write to an unmapped address",
    "far-read": "read of an unmapped address",
    "misaligned": "misaligned access",
    "illegal": "illegal instruction",
    "shared": "access beyond shared memory",
    "stack": "stack overflow",
    "jump": "jump to a bad address",
}


# Faults for which the firmware writes no lines into the kernel log.
NO_LINES = ("trap", "assert", "same")


def matrix(name, wanted=lambda command: True):
    """(system, row, column) -> runs, of all runs of the fault matrix in a file whose command is wanted."""
    found = {}
    for one in load(name)["runs"]:
        for cell in one.get("cells", []):
            if wanted(one["command"]):
                found.setdefault((cell["system"], cell["row"], cell["column"]), []).extend(cell["runs"])
    return found


def pauses(runs):
    """Of each run the longest pause of a survivor, ms."""
    return [max(survivor["pause_ms"] for survivor in one["survivors"]) for one in runs]


def outcomes(runs):
    return {survivor["outcome"] for one in runs for survivor in one["survivors"]}


def span(values, unit=" ms"):
    low, high = f"{min(values):.0f}", f"{max(values):.0f}"
    return (low if low == high else f"{low} to {high}") + unit


def all_exact(runs, blamed="culprit"):
    """A table says of these runs that nobody else was hurt, and who was blamed: is it so?"""
    assert outcomes(runs) == {"exact"} and all(one["blamed"] == blamed for one in runs), runs
    return runs


def under_mps(row):
    """What stock MPS did to survivors with 100 µs kernels, one and seven."""
    runs = [one for column in ("busy-100us", "seven-100us") for one in
            matrix("h200_faults.json")["mps", row, column]]
    return {"told": "all get an error", "exact": "exact"}.get("/".join(sorted(outcomes(runs))))


def plan(grid, wanted=lambda cell: True):
    """The cells of exceptions.py with one fault at a time of culprits of that size that were as they must be. A survivor
    with long kernels measures them itself, and sees no pause."""
    found = [cell for cell in load("h200_classes.json")["cells"] if cell["how"] == "once" and cell["grid"] == grid and
             cell["beside"] != "long" and wanted(cell)]
    assert found and not any(cell["bad"] for cell in found)
    return found


def medians(cells):
    return span([statistics.median(exceptions_table.pauses(cell)) for cell in cells])


def fault():
    one = plan("warp")
    quick = plan("1000", lambda cell: cell["classes"][0] in NO_LINES)
    slow = plan("1000", lambda cell: cell["classes"][0] not in NO_LINES)
    cases = {case["case"]: case for case in load("h200_real_culprits.json")["cases"]}
    assert {end for case in cases.values() for end in case["survivors"].values()} == {"exact"}
    assert not any(case["differs"] for case in cases.values())
    torch = [pause for name, case in cases.items() if name.startswith("torch-") for pause in case["pauses_ms"].values()]
    endless = list(cases["cuda-endless"]["pauses_ms"].values())
    hurt = {row for row in ROWS if under_mps(row) == "all get an error"}
    assert hurt == set(ROWS) - {"assert"}
    before = matrix("h200_faults.json", lambda command: "--on-fault fast" not in command)
    near = pauses(before["frmps", "near-write", "busy-100us"])
    daemon = pauses(before["frmps", "kill-daemon", "busy-100us"])
    dead = before["frmps", "kill-active", "busy-100us"]
    return table(["what goes wrong", "its program", "every other program", "their pause", "stock MPS"], [
        ["a kernel faults: trap, wild or null pointer, misaligned access, illegal instruction, overflow of stack or shared "
         "memory, `assert`", "the driver's error", "continues, exact",
         f"{medians(one)}, longest {max(pause for cell in one for pause in exceptions_table.pauses(cell)):.0f} ms",
         "all get the error, except for `assert`"],
        ["… in 1000 blocks", "the same", "continues, exact", f"trap, `assert`: {medians(quick)}; others: {medians(slow)}", ""],
        ["… writes to nowhere, 100 000 blocks of one warp", "the same", "gets an error", "", ""],
        ["… ten programs at once, 2 of 9 times", "the same", "gets an error", "", ""],
        ["… PyTorch index out of range", "the same", "continues, exact", span(torch), ""],
        ["a kernel does not end (`max_kernel_seconds`)", "`CUDA_ERROR_LAUNCH_TIMEOUT`", "continues, exact", span(endless), ""],
        ["a kernel writes up to 2 MiB beside its memory", "an error (a read there: NaNs and no error)",
         "continues, exact", f"at most {max(near):.1f} ms", "all get the error"],
        ["the executor is killed (MPS: its server)", "",
         "continues if its work is done or can be repeated, else an error", span(pauses(all_exact(dead, "nobody"))),
         "all get an error"],
        ["the daemon is killed", "", "continues, exact", f"at most {max(daemon):.2f} ms", ""],
    ])


def faults():
    data = load("h200_classes.json")
    return [*(f"`{command}`, `h200_classes.json`." for command in data["commands"]), "", *exceptions_table.table(data).split("\n")]


def culprits():
    data = load("h200_real_culprits.json")
    texts = {
        "torch-embedding": "PyTorch embedding, index out of range in many blocks",
        "torch-index-select": "PyTorch index_select, index out of range in thousands of blocks",
        "torch-gather": "PyTorch gather, index out of range in thousands of blocks",
        "torch-cross-entropy": "PyTorch cross entropy, label out of range",
        "triton-one": "Triton kernel with a wild pointer, one block",
        "triton-many": "Triton kernel with a wild pointer, large grid",
        "cupy-one": "CuPy kernel with a wild pointer, one small grid",
        "cupy-many": "CuPy kernel with a wild pointer, large grid",
        "cuda-recursion-one": "CUDA C++, recursion too deep, one block",
        "cuda-recursion-many": "CUDA C++, recursion too deep, many blocks",
        "cuda-null": "CUDA C++, null pointer, 4096 blocks",
        "cuda-misaligned": "CUDA C++, misaligned access, 4096 blocks",
        "cuda-endless": "CUDA C++, kernel without end, ended by `max_kernel_seconds`",
    }
    cases = {case["case"]: case for case in data["cases"]}
    assert set(cases) == set(texts)
    return [source("h200_real_culprits.json", "real_culprits.py"), "", *table(
        ["culprit", "pause of 100 µs kernels, ms", "of a PyTorch graph, ms", "survivors", "differs from native"],
        [[text, *(digits(cases[name]["pauses_ms"][survivor]) if cases[name]["pauses_ms"].get(survivor) else "-"
                  for survivor in ("100us", "graph")),
          ", ".join(sorted(set(cases[name]["survivors"].values()))), ", ".join(cases[name]["differs"]) or "nothing"]
         for name, text in texts.items()])]


def frameworks():
    """One life for each number of programs in which each fault happens once, and one of a fault a second."""
    single, every, *rehearsed = load("h200_frameworks.json")["runs"]
    (busy,) = every["lives"]
    (steady,) = busy["events"]
    lives = {life["programs"]: life for life in single["lives"]}
    later = [life for run in rehearsed for life in run["lives"]]
    assert {one["ending"] for life in [*lives.values(), busy, *later] for one in life["runs"]} == {"exact"}
    assert all(event["blamed"] == "culprit" for life in lives.values() for event in life["events"])
    assert steady["blamed"] == len(steady["faults"])
    rows = [event["row"] for event in lives[1]["events"]]
    longest = {count: {event["row"]: max(event["pauses_ms"].values()) for event in life["events"]}
               for count, life in lives.items()}
    return [f"`{single['command']}` and `{every['command']}`, `h200_frameworks.json`. Every program was exact.", "",
            *table(["longest pause of a program, ms", *(f"beside {count}" for count in lives)],
                   [[ROWS[row], *(digits(longest[count][row]) for count in lives)] for row in rows]), "",
            f"`{rehearsed[0]['command']}`: {len(later)} lives. The first fault, a trap, paused the programs for",
            "; ".join(", ".join(f"{digits(pause)} ({loop})" for loop, pause in life["events"][0]["pauses_ms"].items())
                      for life in later) + " ms.", "",
            f"{len(steady['faults'])} faults in {steady['seconds']:.0f} s, one a second, beside three of them, "
            f"{steady['blamed']} of them blamed on their program:", "",
            *table(["program", "iterations a second", "without faults", "ratio", "longest pause, ms"],
                   [[loop, digits(steady["rates"][loop]), digits(steady["rates_before"][loop]),
                     f"{steady['ratios'][loop]:.3f}", digits(steady["pauses_ms"][loop])] for loop in steady["rates"]])]


def troubles():
    found = matrix("h200_faults.json", lambda command: "--on-fault fast" not in command)
    texts = {
        "none": "no fault at all",
        "near-write": "write beside its memory, in a guard that reached 4 GiB then",
        "near-read": "read beside its memory, in that guard",
        "endless": "kernel without end, `max_kernel_seconds = 1` (a build that replaced the executor)",
        "kill-active": "`kill -9` of the active executor (MPS: its server)",
        "kill-culprit": "`kill -9` of a program",
        "kill-standby": "… of the standby",
        "kill-daemon": "… of the daemon",
        "kill-keeper": "… of the keeper",
    }

    def cell(system, row, column):
        runs = found.get((system, row, column))
        if not runs:
            return ""
        ends = [survivor["outcome"] for one in runs for survivor in one["survivors"]]
        if ends.count("exact") < len(ends):
            return f"{ends.count('exact')} of {len(ends)} exact"
        longest = max(pauses(runs))
        return "exact" if column == "idle" else f"exact, {longest:.1f}" if longest >= 0.05 else "exact, below 0.1"

    columns = {"idle": "idle", "busy-100us": "100 µs kernels", "kept-100us": "with variables", "seven-100us": "seven programs",
               "busy-50ms": "50 ms kernels"}
    return table(["what happens", *columns.values(), "stock MPS, 100 µs kernels"],
                 [[text, *(cell("frmps", row, column) for column in columns), cell("mps", row, "busy-100us")]
                  for row, text in texts.items()])


def takeover():
    (command,) = [one["command"] for one in load("h200_faults.json")["runs"]
                  if "held-64gib" in one["command"] and "half a second after" in one["command"]]
    steps = [one["phases"][-1]["in all"] for runs in matrix("h200_faults.json", command.__eq__).values() for one in runs]
    return [f"A standby takes 32 programs with 64 GiB in 4096 allocations over in {min(steps):.1f} to {max(steps):.1f} ms "
            f"({len(steps)} faults; `{command}`)."]


# Results of bench/run itself.


def value_of(name, scenario, point, system, key):
    """The median over rounds of a number, of its median where a round has many of it."""
    rounds = [one["values"][key] for one in load(name)["runs"] if (one["scenario"], one["point"], one["system"]) == (scenario, point, system)]
    return statistics.median(one["median"] if isinstance(one, dict) else one for one in rounds)


def code():
    def row(text, name, scenario, point, key):
        return [text, *(f"{value_of(name, scenario, point, system, key):.3g}" for system in ("native", "MPS", "frmps"))]

    beside = {0: "beside nobody", 20: "beside kernels of 20 ms", 200: "beside kernels of 200 ms", 3000: "beside kernels of 3 s",
              600000: "beside kernels without end"}
    what = {"beside_load": "a load of a module of 400 kernels", "beside_use": "the first launch of one", "beside_release": "the release"}
    commands = ", ".join(f"`{load(name)['command']}`" for name in ("h200_beside.json", "h200_modules.json", "h200_mix.json"))
    return [f"{commands}; one round each, with builds of that day.", "", *table(
        ["", "native", "stock MPS", "frmps"],
        [row(f"{of_module}, {text}, ms", "h200_beside.json", "loading_beside", point, key)
         for key, of_module in what.items() for point, text in beside.items()] +
        [row("a module with one kernel, its text compiled before: making it, µs", "h200_modules.json", "modules", 1, "make"),
         row("its first launch, µs", "h200_modules.json", "modules", 1, "first_use"),
         row("its release, µs", "h200_modules.json", "modules", 1, "release"),
         row("eight heavy programs at a time until all have ended, s", "h200_mix.json", "mix", 8, "mix_all"),
         row("device memory of eight PyTorch programs, GiB", "h200_beside.json", "torch_memory", 8, "memory_gib")])]


def suspending():
    def found(key):
        return value_of("h200_suspending.json", "suspending", 16384, "frmps", key)

    def saved(mib, key):
        return value_of("h200_checkpoint.json", "checkpoint", mib, "frmps", key)

    def restored(key):
        return value_of("h200_checkpoint.json", "restoring", 16384, "frmps", key)

    return [f"`{load('h200_suspending.json')['command']}`: 16 GiB of an idle program go out at {found('out_gbps'):.3g} GB/s and come back at "
            f"{found('in_gbps'):.3g} GB/s. The longest gap of a neighbour with 1 ms kernels is {found('beside_gap'):.3g} ms, "
            f"{found('alone_gap'):.3g} ms without that. One round.", "",
            f"`{load('h200_checkpoint.json')['command']}`, with the files in memory, and a file system in memory at `/run`, where CRIU stores what it "
            f"knows of the kernel: a program of 16 GiB that is saved in files while it works stands still for {saved(16384, 'stood'):.0f} ms, one of "
            f"40 GiB for {saved(40960, 'stood'):.0f} ms. All is in files after {saved(16384, 'saved_s'):.2g} and {saved(40960, 'saved_s'):.2g} s. A "
            f"program of 16 GiB comes back from files in {restored('restored_s'):.2g} s, and a first copy from its memory is there after "
            f"{restored('answered_s'):.2g} s. One round."]


def gpus():
    def row(text, scenario, point, key):
        return [text, *(digits(value_of("h200_gpus.json", scenario, point, system, key)) for system in ("native", "MPS", "frmps"))]

    return [f"`{load('h200_gpus.json')['command']}`; one round.", "", *table(
        ["", "native", "stock MPS", "frmps"],
        [row(f"a sum of {mib} MiB with NCCL, µs", "all_reduce", mib, "reduce_us") for mib in (1, 16, 64, 512)] +
        [row("data parallel training, steps a second", "data_parallel", None, "steps")])]


# Which file says what. A new result file needs a row here.

FILES = {
    "h200.json": ("run.py (bench/run now)", "what launches, copies, loads and many programs cost, beside native and stock MPS"),
    "h200_programs.json": ("programs.py (bench/run now)", "the same for PyTorch programs"),
    "h200_eight.json": ("run.py (bench/run now)", "where the time of eight programs' launches goes"),
    "h200_full.json": ("bench/run", "[the report](h200_full.html): frmps beside native and stock MPS, one round"),
    "h200_speed.json": ("bench/run", "calls, many programs, and loads with a later build"),
    "h200_first.json": ("bench/run", "start of a process, calls, with a later build than that"),
    "h200_beside.json": ("bench/run", "the same, also beside kernels without end, with the release; device memory of eight PyTorch programs"),
    "h200_modules.json": ("bench/run", "modules with a kernel each, up to 1024"),
    "h200_mix.json": ("bench/run", "eight heavy programs at a time"),
    "h200_suspending.json": ("bench/run", "a program's memory that goes to host memory and comes back"),
    "h200_checkpoint.json": ("bench/run", "how long a program stands still that is saved in files, and its way back"),
    "h200_gpus.json": ("bench/run", "two GPUs: sums with NCCL, data parallel training"),
    "h200_classes.json": ("tests/gpu/exceptions.py", "what a contained fault costs the others"),
    "h200_frameworks.json": ("tests/gpu/framework_faults.py", "the same beside PyTorch programs"),
    "h200_real_culprits.json": ("tests/gpu/real_culprits.py", "what faults as people write them cost the others"),
    "h200_faults.json": ("tests/gpu/matrix.py", "stock MPS, killed processes, and faults in builds that left them to the driver"),
}


def machine_of(name):
    """bench/run lists the machines that its parts ran on."""
    return load(name).get("machine") or load(name)["machines"][0]


def files():
    there = {path.name for path in RESULTS.glob("*.json")}
    if there != set(FILES):
        raise SystemExit(f"figures.py: the table FILES does not name the result files: {', '.join(sorted(there ^ set(FILES)))}")
    return table(["file", "made by", "machine", "date", "question"], [
        [f"[{name}]({name})", script, machine_of(name).get("gpu", "none").replace("\n", ", "), machine_of(name)["date"], question]
        for name, (script, question) in FILES.items()])


SECTIONS = {function.__name__: function for function in (
    speed, fault, files, code, suspending, gpus, calls, ratios, launch, eight, programs, faults, frameworks, culprits, troubles, takeover)}

if __name__ == "__main__":
    sections.main("figures", SECTIONS, DOCUMENTS)
