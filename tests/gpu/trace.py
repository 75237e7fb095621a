#!/usr/bin/env python3
"""What `frmps-run --trace` is worth on a GPU: the test of the host backend on it, a PyTorch program, and figures.

usage: trace.py [--build BUILD] [--backend cuda|host] [--out FILE.json]

Figures: what a launch costs its caller, a launch and its wait, and launches a second, without a trace and with one; by how much
an interval is longer than its kernel of 100 us, and the gap between two such kernels, in the trace; bytes of the file for a command.
FRMPS_TEST_KERNELS is the module of test kernels; without it nvcc makes one.

Exit status: 1 if something is not as it should be; 77 without a GPU. Without PyTorch its part is left out.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPINS, SPIN_NS = 300, 100000
TORCH = r'''
import torch
a = torch.randn(512, 512, device="cuda")
with torch.autograd.profiler.emit_nvtx(), torch.cuda.nvtx.range("step"):
    for _ in range(10):
        a = torch.relu(a @ a) / 512
print(float(a.sum().cpu()) is not None)
'''


class Service:
    def __init__(self, build, backend):
        self.build, self.backend = build, backend
        self.folder = tempfile.TemporaryDirectory()
        os.environ["FRMPS_SOCKET"] = os.path.join(self.folder.name, "frmps.sock")
        self.path = os.path.join(self.folder.name, "trace.json")

    def __enter__(self):
        with open(os.path.join(self.folder.name, "log"), "w", encoding="utf-8") as log:
            self.server = subprocess.Popen([self.build / "server/frmps-server", "--config", "/dev/null", "--devices", "0", "--backend",
                                            self.backend], stderr=log)
        while subprocess.run([self.build / "server/frmpsctl", "ping"], capture_output=True).returncode:
            if self.server.poll() is not None:
                sys.exit("the service has ended")
        return self

    def __exit__(self, *_):
        self.server.terminate()
        self.server.wait()
        self.folder.cleanup()

    def run(self, *words, trace):
        """Return: what the program prints."""
        done = subprocess.run([self.build / "server/frmps-run", *(["--trace", self.path] if trace else []), *words],
                              capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{words}: {done.stderr}")
        return done.stdout

    def events(self):
        return json.loads(pathlib.Path(self.path).read_text(encoding="utf-8"))


def device_slices(events):
    return sorted((event for event in events if event.get("cat") in ("kernel", "copy", "fill", "graph")), key=lambda event: event["ts"])


def measure_launches(service):
    figures = {}
    for what in "issue", "wait", "rate":
        for trace in False, True:
            printed = json.loads(service.run(service.build / "bench/driver_path", what, trace=trace).splitlines()[0])
            figures[f"{what}, {'traced' if trace else 'plain'}, {printed.get('unit', '')}"] = printed.get("median", printed.get("value"))
    return figures


def measure_intervals(service):
    service.run(service.build / "tests/traced", "spin", str(SPINS), str(SPIN_NS), trace=True)
    spins = [event for event in device_slices(service.events()) if event["name"] == "spin_ns"]
    if len(spins) != SPINS:
        sys.exit(f"{len(spins)} of {SPINS} kernels are in the trace")
    return {
        "longer than the kernel, us": statistics.median(event["dur"] for event in spins) - SPIN_NS / 1000,
        "gap between two, us": statistics.median(two["ts"] - one["ts"] - one["dur"] for one, two in zip(spins, spins[1:])),
        "bytes of the file for a command": os.stat(service.path).st_size / SPINS,
    }


def try_torch(service):
    if service.backend != "cuda" or subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode:
        return {}
    service.run(sys.executable, "-c", TORCH, trace=True)
    events = service.events()
    kernels = [event for event in device_slices(events) if event["cat"] == "kernel"]
    ranges = {event["name"] for event in events if event["ph"] == "B"}
    figures = {"PyTorch: kernels": len(kernels), "PyTorch: ranges": len(ranges)}
    if len(kernels) < 20:
        sys.exit(f"PyTorch's kernels are missing: {figures}")
    if "step" not in ranges:
        print("PyTorch's ranges are missing: its NVTX is not version 3?", file=sys.stderr)
    return figures


def kernels(folder):
    """Where the test kernels are."""
    path = os.environ.get("FRMPS_TEST_KERNELS")
    if not path:
        path = os.path.join(folder, "kernels.cubin")
        subprocess.run(["nvcc", "-std=c++17", "-arch=native", "-cubin", "-o", path, ROOT / "tests/lib/kernels.cu"], check=True)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default="build")
    parser.add_argument("--backend", choices=("cuda", "host"), default="cuda")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    build = options.build.resolve()
    if options.backend == "cuda" and not os.path.exists("/dev/nvidiactl"):
        print("no GPU")
        sys.exit(77)
    if options.backend == "host":
        os.environ["FRMPS_TEST_KERNELS"] = str(build / "tests/host_kernels.so")
        os.environ["FRMPS_BENCH_MODULE"] = str(build / "bench/host_kernels.so")
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(FRMPS_TEST_KERNELS=kernels(folder), FRMPS_TEST_BACKEND=options.backend)
        wrong = subprocess.run([sys.executable, "-B", ROOT / "tests/system/trace.py", build]).returncode
        with Service(build, options.backend) as service:
            figures = {**measure_launches(service), **measure_intervals(service), **try_torch(service)}
    for name, figure in figures.items():
        print(f"{name}: {figure:.4g}")
    if options.out:
        options.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    sys.exit(wrong)


if __name__ == "__main__":
    main()
