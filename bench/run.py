#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The frmps authors
"""Measures native, stock MPS and frmps in one run and prints one table.

usage: bench/run.py [--build DIR] [--rounds N] [--only WORD,...] [--out FILE.json]

Each measurement runs a program of the build folder unchanged under three systems, rounds interleaved so that a drift of
the machine hits all alike. Without a GPU only frmps on the host backend is measured, which says something about the
path and nothing about a GPU. Results are medians over all rounds with the spread (lowest and highest round); raw values
go to the JSON file together with the machine block. Standard library only.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench" / "lib"))
from machine import machine  # noqa: E402
PROCESSES = 8


def lines(text):
    """The JSON lines of a program's output, by name."""
    found = {}
    for line in text.splitlines():
        if line.startswith("{"):
            value = json.loads(line)
            found.setdefault(value["name"], []).append(value)
    return found


class System:
    """One way to reach the GPU: environment for programs, and what runs in the background meanwhile."""

    name = "native"

    def __init__(self, build):
        self.build = build
        self.work = tempfile.mkdtemp(prefix="frmps-bench-")

    def environment(self):
        env = dict(os.environ)
        env.pop("FRMPS_SOCKET", None)
        return env

    def service_cpu(self):
        """CPU seconds used so far by processes that work on behalf of the programs."""
        return 0.0

    @contextlib.contextmanager
    def up(self):
        yield self

    def command(self, *arguments):
        return [str(self.build / "bench" / "driver_path"), *arguments]

    def spawn(self, arguments, **extra):
        env = self.environment()
        env.update({key: str(value) for key, value in extra.items()})
        return subprocess.Popen(self.command(*arguments), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True)

    def finish(self, process):
        out, err = process.communicate(timeout=180)
        if process.returncode != 0:
            raise RuntimeError(f"{self.name}: {process.args} ended with {process.returncode}: {err.strip()}")
        return lines(out)


class StockMps(System):
    name = "MPS"

    def environment(self):
        env = super().environment()
        env["CUDA_MPS_PIPE_DIRECTORY"] = self.work + "/pipe"
        env["CUDA_MPS_LOG_DIRECTORY"] = self.work + "/log"
        return env

    @contextlib.contextmanager
    def up(self):
        os.makedirs(self.work + "/pipe", exist_ok=True)
        os.makedirs(self.work + "/log", exist_ok=True)
        subprocess.run(["nvidia-cuda-mps-control", "-d"], env=self.environment(), check=True)
        try:
            yield self
        finally:
            subprocess.run(["nvidia-cuda-mps-control"], env=self.environment(), input="quit\n", text=True)


class Frmps(System):
    name = "frmps"

    def __init__(self, build, backend):
        super().__init__(build)
        self.backend = backend
        self.socket = self.work + "/frmps.sock"
        self.server = None

    def environment(self):
        env = super().environment()
        env["FRMPS_SOCKET"] = self.socket
        env["LD_LIBRARY_PATH"] = f"{self.build / 'client'}:{env.get('LD_LIBRARY_PATH', '')}"
        if self.backend == "host":
            env["FRMPS_BENCH_MODULE"] = str(self.build / "bench" / "host_kernels.so")
        return env

    def processes(self):
        """The service's own and all that it has started, at any depth."""
        found = [self.server.pid]
        for pid in found:
            with contextlib.suppress(OSError):
                for path in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
                    found += [int(child) for child in path.read_text().split()]
        return found

    def service_cpu(self):
        total = 0
        for pid in self.processes():
            with contextlib.suppress(OSError):
                fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
                total += int(fields[11]) + int(fields[12])
        return total / os.sysconf("SC_CLK_TCK")

    @contextlib.contextmanager
    def up(self):
        log = open(self.work + "/server.log", "w")
        self.server = subprocess.Popen([str(self.build / "server" / "frmps-server"), "--socket", self.socket,
                                        "--backend", self.backend], stderr=log)
        status = [str(self.build / "server" / "frmpsctl"), "status", "--socket", self.socket]
        until = time.monotonic() + 60
        while subprocess.run(status, capture_output=True).returncode != 0:
            if self.server.poll() is not None or time.monotonic() > until:
                raise RuntimeError("frmps-server did not come up:\n" + open(log.name).read())
            time.sleep(0.05)
        try:
            yield self
        finally:
            self.server.send_signal(signal.SIGTERM)
            self.server.wait(timeout=30)


def start_in(seconds):
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) + int(seconds * 1e9)


def single(what):
    """A program that prints summaries: the median of each."""

    def measure(system):
        return {name: value[0]["median"] for name, value in system.finish(system.spawn([what])).items()}

    return measure


def first(system):
    process = system.spawn(["first"], FRMPS_BENCH_START_NS=time.clock_gettime_ns(time.CLOCK_MONOTONIC))
    value = system.finish(process)["first_kernel"][0]
    return {"first_kernel_ms": value["ms"]}


def many(count):
    """`count` processes launch for the same two seconds: total rate, and CPU time per launch of everybody involved."""

    def measure(system):
        start = start_in(2.0 + count * 0.3)
        processes = [system.spawn(["rate-for"], FRMPS_BENCH_START_NS=start, FRMPS_BENCH_SECONDS=2)
                     for _ in range(count)]
        while time.clock_gettime_ns(time.CLOCK_MONOTONIC) < start:
            time.sleep(0.01)
        cpu = system.service_cpu()
        values = [system.finish(process)["rate_for"][0] for process in processes]
        cpu = system.service_cpu() - cpu
        launches = sum(value["launches"] for value in values)
        return {
            f"rate_{count}_processes_k": sum(v["launches"] / v["seconds"] for v in values) / 1000,
            f"cpu_us_per_launch_{count}": (sum(v["cpu_seconds"] for v in values) + cpu) / launches * 1e6,
        }

    return measure


def load_gap(image):
    """Longest gap of a program with 1 ms kernels while another loads `image` ten times."""

    def measure(system):
        start = start_in(3)
        busy = system.spawn(["gap"], FRMPS_BENCH_START_NS=start, FRMPS_BENCH_SECONDS=3)
        loader = system.spawn(["loads"], FRMPS_BENCH_START_NS=start + int(1e9), FRMPS_BENCH_IMAGE=image)
        load = system.finish(loader)["load"][0]
        gap = system.finish(busy)["gap"][0]
        return {"gap_max_ms": gap["max"], "gap_median_ms": gap["median"], "load_median_ms": load["median"]}

    return measure


def idle_cpu(system):
    """Server CPU over two seconds with 16 connected clients that do nothing."""
    start = start_in(9)
    processes = [system.spawn(["rate-for"], FRMPS_BENCH_START_NS=start, FRMPS_BENCH_SECONDS=0) for _ in range(16)]
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
        system.finish(process)
    return {"idle_cpu_percent": used / 2 * 100}


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


def table(results, order):
    names = []
    for system in order:
        for name in results.get(system, {}):
            if name not in names:
                names.append(name)
    print(f"{'':34}" + "".join(f"{system:>26}" for system in order) + f"{'frmps/native':>14}{'frmps/MPS':>12}")
    for name in names:
        row, medians = f"{name:34}", {}
        for system in order:
            values = results.get(system, {}).get(name)
            if values:
                medians[system] = statistics.median(values)
                row += f"{medians[system]:>10.4g} [{min(values):>6.4g}-{max(values):>6.4g}]"
            else:
                row += f"{'-':>26}"
        for base, width in (("native", 14), ("MPS", 12)):
            both = base in medians and "frmps" in medians and medians[base]
            row += f"{medians['frmps'] / medians[base]:>{width}.3f}" if both else f"{'-':>{width}}"
        print(row)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(ROOT / "build"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", default="")
    options = parser.parse_args()
    build = pathlib.Path(options.build).resolve()
    gpu = subprocess.run(["nvidia-smi", "-L"], capture_output=True).returncode == 0 if shutil.which("nvidia-smi") \
        else False
    systems = [Frmps(build, "cuda" if gpu else "host")]
    if gpu:
        systems = [System(build), StockMps(build), *systems]
    measurements = {"issue": single("issue"), "wait": single("wait"), "rate": single("rate"), "first": first,
                    "many": many(PROCESSES), "one": many(1), "copies": single("copies")}
    image = big_image(systems[0].work) if gpu else None
    if image:
        measurements["load"] = load_gap(image)
    measurements["idle"] = idle_cpu
    if options.only:
        measurements = {name: measurements[name] for name in options.only.split(",")}
    results = {}
    for _ in range(options.rounds):
        for system in systems:
            with system.up():
                for name, measure in measurements.items():
                    if name == "idle" and system.name != "frmps":
                        continue
                    try:
                        values = measure(system)
                    except (RuntimeError, KeyError, OSError, subprocess.SubprocessError) as problem:
                        print(f"{system.name} {name}: {problem}", file=sys.stderr)
                        continue
                    for key, value in values.items():
                        results.setdefault(system.name, {}).setdefault(key, []).append(value)
    block = machine()
    print("machine:", json.dumps(block))
    print("command: bench/run.py", " ".join(sys.argv[1:]), f"(medians of {options.rounds} rounds [lowest-highest])")
    table(results, [system.name for system in systems])
    if options.out:
        pathlib.Path(options.out).write_text(json.dumps({"machine": block, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
