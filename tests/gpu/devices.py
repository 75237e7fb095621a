"""A service with several devices on real GPUs: all that there are, or one of them twice as logical devices.

usage: devices.py [--build BUILD] [--devices LIST]

--devices: the service's key `devices` (default: all of several GPUs, 0,0 where there is one).

Programs see every device; each rank works on its own, exactly, beside a rank on another device whose kernel traps and a daemon that is
killed. With PyTorch: ranks of torch.cuda.set_device(), a second device in one process, DDP over gloo, and all_reduce over NCCL, which
refuses logical devices of one GPU: that is only reported.

Exit status: 1 if something is not as it should be; 77 without a GPU. Without PyTorch its parts are left out.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

PTX = r'''
.version 7.0
.target sm_80
.address_size 64
.visible .entry count_up(.param .u64 at) {
  .reg .u64 %a; .reg .u32 %v;
  ld.param.u64 %a, [at]; ld.global.u32 %v, [%a]; add.u32 %v, %v, 1; st.global.u32 [%a], %v; ret;
}
.visible .entry boom() { trap; ret; }
'''
# A rank: counts by kernels until its input ends, and compares; or runs a kernel that traps.
RANK = r'''
import ctypes, sys
ptx, rank, what = sys.argv[1].encode(), int(sys.argv[2]), sys.argv[3]
cuda = ctypes.CDLL("libcuda.so.1")
def do(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        sys.exit(f"{name} is {code}")
context, module, function, memory = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
do("cuInit", 0)
do("cuDevicePrimaryCtxRetain", ctypes.byref(context), rank)
do("cuCtxSetCurrent", context)
do("cuModuleLoadData", ctypes.byref(module), ptx)
do("cuModuleGetFunction", ctypes.byref(function), module, what.encode())
do("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(4))
do("cuMemsetD32_v2", memory, 0, ctypes.c_size_t(1))
parameters = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(memory), ctypes.c_void_p))
if what == "boom":
    do("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, None, None)
    print(cuda.cuCtxSynchronize())
    sys.exit()
import select
seen, count = ctypes.c_uint32(), 0
print("works", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(100):
        do("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, parameters, None)
    count += 100
    do("cuMemcpyDtoH_v2", ctypes.byref(seen), memory, ctypes.c_size_t(4))
    if seen.value != count:
        sys.exit(f"{seen.value} and not {count}")
print(count)
'''
SEE = r'''
import ctypes, json
cuda, count, rows = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), []
assert not cuda.cuInit(0) and not cuda.cuDeviceGetCount(ctypes.byref(count))
for i in range(count.value):
    uuid, size, can, name = (ctypes.c_ubyte * 16)(), ctypes.c_size_t(), ctypes.c_int(-1), ctypes.create_string_buffer(96)
    assert not cuda.cuDeviceGetUuid_v2(uuid, i) and not cuda.cuDeviceTotalMem_v2(ctypes.byref(size), i)
    assert not cuda.cuDeviceCanAccessPeer(ctypes.byref(can), i, 0) and not cuda.cuDeviceGetName(name, 96, i)
    rows.append([bytes(uuid).hex(), size.value, can.value, name.value.decode()])
print(json.dumps(rows))
'''
TORCH_RANK = r'''
import sys, torch
rank, count = int(sys.argv[1]), int(sys.argv[2])
assert torch.cuda.device_count() == count, torch.cuda.device_count()
names = [torch.cuda.get_device_properties(i).name for i in range(count)]
torch.cuda.set_device(rank)
a = torch.arange(256 * 256, dtype=torch.float64).reshape(256, 256) % 7
assert torch.equal((a.cuda() @ a.cuda()).cpu(), a @ a) and torch.cuda.current_device() == rank
try:
    torch.zeros(1, device=f"cuda:{(rank + 1) % count}")
    sys.exit("a second device was not refused")
except RuntimeError as error:
    print(str(error).splitlines()[0])
'''
TORCH_DDP = r'''
import os, sys, torch, torch.distributed as dist
backend, rank = sys.argv[1], int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group(backend)
if backend == "nccl":
    x = torch.full((1 << 20,), float(rank + 1), device="cuda")
    dist.all_reduce(x)
    torch.cuda.synchronize()
    print("sum", x.unique().tolist())
else:
    torch.manual_seed(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).cuda(), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(5):
        optimizer.zero_grad()
        model(torch.full((8, 64), float(rank + step), device="cuda")).square().mean().backward()
        optimizer.step()
    print("weights", float(model.module.weight.double().sum()))
dist.destroy_process_group()
'''


class Bed:
    def __init__(self, build, devices, folder):
        self.server, self.folder, self.failed = build / "server", folder, False
        self.environment = {**os.environ, "FRMPS_SOCKET": os.path.join(folder, "frmps.sock"),
                            "FRMPS_SHIM_DIR": str(build / "client")}
        self.log = open(os.path.join(folder, "log"), "w+", encoding="utf-8")
        self.service = subprocess.Popen([self.server / "frmps-server", "--config", "/dev/null", "--devices", devices],
                                        env=self.environment, stderr=self.log)
        begin = time.monotonic()
        while self.ctl("ping").returncode:
            if self.service.poll() is not None or time.monotonic() - begin > 300:
                sys.exit("the service does not start: " + self.said())
            time.sleep(0.1)
        self.say("start of the service", True, f"{time.monotonic() - begin:.1f} s")

    def said(self):
        self.log.seek(0)
        return self.log.read()

    def say(self, what, good, more=""):
        self.failed |= not good
        print(f"{'ok' if good else 'FAILED':7} {what}{': ' if more else ''}{more}", flush=True)

    def ctl(self, *words):
        return subprocess.run([self.server / "frmpsctl", *words], env=self.environment, capture_output=True, text=True, check=False)

    def python(self, program, *words, **environment):
        return subprocess.Popen([self.server / "frmps-run", sys.executable, "-c", program, *words], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**self.environment, **environment})

    def run(self, program, *words, timeout=300, **environment):
        process = self.python(program, *words, **environment)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            return None, "", "it does not end"
        return process.returncode, out, err


def look(bed):
    """What a program sees. Return: how many devices"""
    code, out, err = bed.run(SEE)
    rows = json.loads(out) if not code else []
    bed.say("a program sees devices", not code and len({row[0] for row in rows}) == len(rows) and not any(row[2] for row in rows),
            err or ", ".join(f"{row[3]} {row[0][:8]} {row[1] >> 30} GiB" for row in rows))
    return len(rows)


def work(bed, count):
    """Ranks beside a trap, and beside a daemon that is killed."""
    begin = time.monotonic()
    ranks = [bed.python(RANK, PTX, str(i), "count_up") for i in range(count)]
    began = [rank.stdout.readline() == "works\n" for rank in ranks]
    bed.say("each rank works on its device", all(began), f"after {time.monotonic() - begin:.1f} s")
    code, out, err = bed.run(RANK, PTX, str(count - 1), "boom")
    bed.say("a trap is its own program's error", (code, out) == (0, "719\n"), f"{out}{err}".strip())
    statuses = json.loads(bed.ctl("status", "--json").stdout)
    bed.say("the fault is one device's", [one["counters"]["faults"] for one in statuses] == [0] * (count - 1) + [1])
    os.kill(statuses[-1]["pid"], signal.SIGKILL)
    while bed.ctl("--device", str(count - 1), "ping").returncode:
        time.sleep(0.01)
    for i, rank in enumerate(ranks):
        out, err = rank.communicate("\n", timeout=120)
        bed.say(f"rank {i} is exact", not rank.returncode, f"{out}{err}".strip())


def distributed(bed, backend):
    ranks = [bed.python(TORCH_DDP, backend, RANK=str(i), WORLD_SIZE="2", LOCAL_RANK=str(i), MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
             for i in range(2)]
    done = []
    for rank in ranks:
        try:
            done.append((*rank.communicate(timeout=180), rank.returncode))
        except subprocess.TimeoutExpired:
            rank.kill()
            done.append(("", "it does not end", None))
    return done


def torch(bed, count, are_logical):
    if subprocess.run([sys.executable, "-c", "import torch"], capture_output=True, check=False).returncode:
        print("-       there is no PyTorch")
        return
    for i in range(count):
        code, out, err = bed.run(TORCH_RANK, str(i), str(count))
        bed.say(f"PyTorch on device {i}", not code, out.strip() or err[-300:])
    done = distributed(bed, "gloo")
    bed.say("DDP over gloo", all(not code for *_, code in done) and len({out for out, *_ in done}) == 1,
            "; ".join(out.strip() or err[-300:] for out, err, _ in done))
    done = distributed(bed, "nccl")
    good = all(not code and out == "sum [3.0]\n" for out, _, code in done)
    text = "; ".join(out.strip() or err.strip()[-200:] for out, err, _ in done)
    bed.say("all_reduce over NCCL" + (" (logical devices: reported only)" if are_logical else ""), good or are_logical, text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default="build")
    parser.add_argument("--devices")
    options = parser.parse_args()
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False) if os.path.exists("/dev/nvidiactl") else None
    if not listed or listed.returncode:
        print("no GPU")
        sys.exit(77)
    gpus = len(listed.stdout.splitlines())
    devices = options.devices or ("all" if gpus > 1 else "0,0")
    with tempfile.TemporaryDirectory() as folder:
        bed = Bed(options.build.resolve(), devices, folder)
        try:
            count = look(bed)
            if count > 1:
                work(bed, count)
                torch(bed, count, are_logical=devices != "all")
        finally:
            bed.ctl("quit", "-t", "5")
            code = bed.service.wait()
        bed.say("the service ends whole", not code and not [name for name in os.listdir(folder) if "sock" in name])
        if bed.failed:
            print(bed.said()[-4000:])
    sys.exit(bed.failed)


if __name__ == "__main__":
    main()
