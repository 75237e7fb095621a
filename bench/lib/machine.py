"""What a result was measured on. A number without it is not worth keeping."""

import contextlib
import os
import platform
import subprocess
import time


def machine():
    block = {"kernel": platform.release(), "cpus": os.cpu_count(), "date": time.strftime("%Y-%m-%d")}
    with contextlib.suppress(OSError):
        for line in open("/proc/cpuinfo"):
            if line.startswith("model name"):
                block["cpu"] = line.split(":", 1)[1].strip()
                break
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        query = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"],
                               capture_output=True, text=True, check=True)
        block["gpu"] = query.stdout.strip()
    return block
