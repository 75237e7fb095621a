"""What NVML shows a program of each GPU, with NVIDIA's library alone and with ours before it (frmps-run --nvml): by pynvml and
PyTorch.

usage: nvml.py [--build BUILD]

Exit status: 1 if something is not as it should be; 77 without a GPU or pynvml. Without PyTorch its part is left out.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

# Without a session; then, with PyTorch, with one.
PROGRAM = r'''
import json, os, sys
import pynvml
pynvml.nvmlInit()
def text(value):
    return value.decode() if isinstance(value, bytes) else value
def look(device):
    memory = pynvml.nvmlDeviceGetMemoryInfo(device)
    return {"uuid": text(pynvml.nvmlDeviceGetUUID(device)), "name": text(pynvml.nvmlDeviceGetName(device)),
            "bus": text(pynvml.nvmlDeviceGetPciInfo(device).busId).lower(), "total": memory.total, "used": memory.used,
            "celsius": pynvml.nvmlDeviceGetTemperature(device, pynvml.NVML_TEMPERATURE_GPU),
            "busy": pynvml.nvmlDeviceGetUtilizationRates(device).gpu}
devices = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
said = {"pid": os.getpid(), "driver": text(pynvml.nvmlSystemGetDriverVersion()), "devices": [look(device) for device in devices],
        "nvlink": [[pynvml.nvmlDeviceGetP2PStatus(one, other, 2) for other in devices if other is not one] for one in devices]}
try:
    import torch
    said["count"] = torch.cuda.device_count()
    block = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    said["listed"] = torch.cuda.list_gpu_processes()
    memory = pynvml.nvmlDeviceGetMemoryInfo(devices[0])
    said["total with torch"], said["used with torch"] = memory.total, memory.used
    said["torch total"] = torch.cuda.mem_get_info()[1]
except ImportError:
    pass
print(json.dumps(said))
'''
GIB = 1 << 30


def play(*words, **environment):
    done = subprocess.run([*words, sys.executable, "-c", PROGRAM], env={**os.environ, **environment}, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{words}: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def device_differences(native, ours):
    for key in "uuid", "name", "bus":
        if native[key] != ours[key]:
            yield f"{key}: natively {native[key]}, here {ours[key]}"
    if ours["total"] != 8 * GIB or ours["used"]:
        yield f"a process without a session sees {ours['used']} of {ours['total']} bytes, and its limit is 8 GiB"
    if not 0 < ours["celsius"] < 120 or not 0 <= ours["busy"] <= 100:
        yield f"NVIDIA's library does not answer: {ours['celsius']} degrees, {ours['busy']} %"


def differences(native, ours):
    """What is wrong, in words."""
    for key in "driver", "nvlink":
        if native[key] != ours[key]:
            yield f"{key}: natively {native[key]}, here {ours[key]}"
    if len(native["devices"]) != len(ours["devices"]):
        yield f"natively {len(native['devices'])} devices, here {len(ours['devices'])}"
    for one, other in zip(native["devices"], ours["devices"]):
        yield from device_differences(one, other)
    if "listed" in ours:
        if str(ours["pid"]) not in ours["listed"]:
            yield f"torch.cuda.list_gpu_processes() does not list process {ours['pid']}: {ours['listed']}"
        if not GIB <= ours["used with torch"] < 2 * GIB or ours["total with torch"] != ours["torch total"]:
            yield f"PyTorch has a GiB of {ours['torch total']}, NVML says {ours['used with torch']} of {ours['total with torch']}"
        if ours["count"] != len(ours["devices"]):
            yield f"torch.cuda.device_count() is {ours['count']} of {len(ours['devices'])} devices"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default="build")
    server = parser.parse_args().build.resolve() / "server"
    if subprocess.run(["nvidia-smi", "-L"], capture_output=True).returncode if os.path.exists("/dev/nvidiactl") else True:
        print("no GPU")
        sys.exit(77)
    if subprocess.run([sys.executable, "-c", "import pynvml"], capture_output=True).returncode:
        print("no pynvml")
        sys.exit(77)
    native = play()
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder, "FRMPS_SOCKET": ""}
        control = [server / "nvidia-cuda-mps-control"]
        subprocess.run([*control, "-d"], env=environment, check=True)
        try:
            for number in range(len(native["devices"])):
                subprocess.run([*control, "set_default_device_pinned_mem_limit", str(number), "8G"], env=environment, check=True)
            ours = play(server / "frmps-run", "--nvml", CUDA_MPS_PIPE_DIRECTORY=folder, FRMPS_SOCKET="")
        finally:
            subprocess.run([*control, "quit", "-t", "5"], env=environment, check=True)
    wrong = list(differences(native, ours))
    print(*wrong, f"native: {native}", f"ours: {ours}", sep="\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
