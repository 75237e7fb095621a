#!/usr/bin/env python3
"""Measures native, stock MPS and frmps in one run and prints one table.

usage: bench/run.py [--build DIR] [--rounds N] [--only WORD,...] [--variant NAME:KEY=VALUE,...]... [--together]
                    [--out FILE.json]

Each measurement runs a program of the build folder unchanged under three systems, rounds interleaved so that a drift of
the machine hits all alike. Without a GPU only frmps on the host backend is measured, which says something about the
path and nothing about a GPU. Results are medians over all rounds with the spread (lowest and highest round); raw values
go to the JSON file together with the machine block. Standard library only.
"""

import argparse
import json
import pathlib
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench" / "lib"))
import rounds  # noqa: E402
import systems  # noqa: E402

PROCESSES = 8


def lines(text):
    """The JSON lines of a program's output, by name."""
    found = {}
    for line in text.splitlines():
        if line.startswith("{"):
            value = json.loads(line)
            found.setdefault(value["name"], []).append(value)
    return found


def spawn(system, *arguments, **extra):
    env = system.environment()
    env.update({key: str(value) for key, value in extra.items()})
    return subprocess.Popen([str(system.build / "bench" / "driver_path"), *arguments], env=env, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def finish(process):
    out, err = process.communicate(timeout=180)
    if process.returncode != 0:
        raise RuntimeError(f"{process.args} ended with {process.returncode}: {err.strip()}")
    return lines(out)


def start_in(seconds):
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) + int(seconds * 1e9)


def single(what):
    """A program that prints summaries: the median of each."""

    def measure(system):
        return {name: value[0]["median"] for name, value in finish(spawn(system, what)).items()}

    return measure


def first(system):
    process = spawn(system, "first", FRMPS_BENCH_START_NS=time.clock_gettime_ns(time.CLOCK_MONOTONIC))
    value = finish(process)["first_kernel"][0]
    return {"first_kernel_ms": value["ms"]}


def many(count):
    """`count` processes launch for the same two seconds: total rate, and CPU time per launch of everybody involved."""

    def measure(system):
        start = start_in(2.0 + count * 0.3)
        processes = [spawn(system, "rate-for", FRMPS_BENCH_START_NS=start, FRMPS_BENCH_SECONDS=2)
                     for _ in range(count)]
        while time.clock_gettime_ns(time.CLOCK_MONOTONIC) < start:
            time.sleep(0.01)
        cpu = system.service_cpu()
        values = [finish(process)["rate_for"][0] for process in processes]
        late = max(value["late_seconds"] for value in values)
        if late > 0.02:
            raise RuntimeError(f"a program was {late:.2f} s late: they did not all launch at the same time")
        cpu = system.service_cpu() - cpu
        launches = sum(value["launches"] for value in values)
        return {
            f"rate_{count}_processes_k": sum(v["launches"] / v["seconds"] for v in values) / 1000,
            f"cpu_us_per_launch_{count}": (sum(v["cpu_seconds"] for v in values) + cpu) / launches * 1e6,
        }

    return measure


def load_gap(image):
    """Longest gap of a program with 1 ms kernels while another loads `image` and launches a kernel of it, ten times."""

    def measure(system):
        start = start_in(3)
        busy = spawn(system, "gap", FRMPS_BENCH_START_NS=start, FRMPS_BENCH_SECONDS=3)
        loader = spawn(system, "loads", FRMPS_BENCH_START_NS=start + int(1e9), FRMPS_BENCH_IMAGE=image,
                       FRMPS_BENCH_KERNEL="k7")
        loads = finish(loader)
        gap = finish(busy)["gap"][0]
        return {"gap_max_ms": gap["max"], "gap_median_ms": gap["median"],
                "load_median_ms": loads["load"][0]["median"], "use_median_ms": loads["use"][0]["median"]}

    return measure


def idle_cpu(system):
    """Server CPU over two seconds with 16 connected clients that do nothing."""
    if not isinstance(system, systems.Frmps):
        return {}
    start = start_in(9)
    processes = [spawn(system, "rate-for", FRMPS_BENCH_START_NS=start, FRMPS_BENCH_SECONDS=0) for _ in range(16)]
    for process in processes:
        # The programs spin for their start; stopped they are idle clients.
        time.sleep(0.3)
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    before = system.service_cpu()
    time.sleep(2)
    used = system.service_cpu() - before
    for process in processes:
        process.send_signal(signal.SIGCONT)
        finish(process)
    return {"idle_cpu_percent": used / 2 * 100}


def variant(text):
    """fast:on_fault=fast,FRMPS_EXECUTOR_THREADS=4"""
    name, _, settings = text.partition(":")
    if not name or name in ("native", "MPS", "frmps") or not all("=" in setting for setting in settings.split(",")):
        raise argparse.ArgumentTypeError(f"{text} is not NAME:KEY=VALUE,...")
    return name, dict(setting.split("=", 1) for setting in settings.split(","))


def big_image(work):
    """A module of the size of a library's: 400 kernels. None where nvcc is missing."""
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if not nvcc:
        return None
    source = pathlib.Path(work, "big.cu")
    body = "".join(f"x = x * {i % 7 + 2}.5f + p[{i}];" for i in range(60))
    source.write_text("\n".join(f"extern \"C\" __global__ void k{n}(float *p) {{ float x = {n}; {body} p[0] = x; }}"
                                for n in range(400)))
    out = pathlib.Path(work, "big.cubin")
    subprocess.run([nvcc, "-arch=sm_90", "-cubin", "-o", str(out), str(source)], check=True)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(ROOT / "build"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--variant", type=variant, action="append", default=[], metavar="NAME:KEY=VALUE,...",
                        help="frmps once more, with other configuration keys; in capitals: environment variables of the "
                             "service, and BUILD, a build folder that service and library are taken from")
    parser.add_argument("--together", action="store_true",
                        help="all systems are up all the time, so that rounds follow each other within seconds")
    parser.add_argument("--out", default="")
    options = parser.parse_args()
    build = pathlib.Path(options.build).resolve()
    tested = systems.all_here(build, options.variant)
    measurements = {"issue": single("issue"), "wait": single("wait"), "elapsed": single("elapsed"),
                    "rate": single("rate"), "first": first, "many": many(PROCESSES), "one": many(1), "copies": single("copies")}
    image = big_image(tested[0].work) if tested[0].name == "native" else None
    if image:
        measurements["load"] = load_gap(image)
    measurements["idle"] = idle_cpu
    if options.only:
        measurements = {name: measurements[name] for name in options.only.split(",")}
    results = rounds.play(tested, measurements, options.rounds, options.together)
    rounds.report(tested, results, options.out)


if __name__ == "__main__":
    main()
