"""What a result was measured on. A number without it is not worth keeping."""

import contextlib
import os
import pathlib
import platform
import subprocess
import time


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
    return block
