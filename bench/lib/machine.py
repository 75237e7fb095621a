"""Description of the machine of a result. A number without its machine is worthless."""

import contextlib
import importlib.metadata
import os
import pathlib
import platform
import subprocess
import time

FRAMEWORKS = ("torch", "triton", "transformers", "jax", "cupy-cuda12x", "cupy-cuda13x")


def frameworks():
    """The installed packages, with their versions."""
    found = []
    for name in FRAMEWORKS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{name} {importlib.metadata.version(name)}")
    return ", ".join(found)


def machine():
    block = {"kernel": platform.release(), "cpus": os.cpu_count(), "date": time.strftime("%Y-%m-%d")}
    with contextlib.suppress(OSError):
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
        block |= {"cpu": models[0]} if models else {}
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        query = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"],
                               capture_output=True, text=True, check=True)
        block["gpu"] = query.stdout.strip()
    block |= {"frameworks": frameworks()} if frameworks() else {}
    return block
