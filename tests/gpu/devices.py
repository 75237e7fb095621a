"""A service with several devices on real GPUs: all that there are, or one of them twice as logical devices.

usage: devices.py [--build BUILD] [--devices LIST]

--devices: the service's key `devices` (default: all of several GPUs, 0,0 where there is one).

Programs see every device; each rank works on its own, exactly, beside a rank on another device whose kernel traps and a daemon that is
killed. One process works on two devices: kernels in both, copies and waits from one to the other, and a trap on one leaves the other
exact. With PyTorch: ranks of torch.cuda.set_device(), tensors, threads and a model on two devices of one process, DDP over gloo, and
all_reduce over NCCL, which refuses logical devices of one GPU: that is only reported.

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
'''
# One process on devices 0 and 1: counts by kernels in both, and carries the counter to and fro.
BOTH = r'''
import ctypes, sys
ptx, rounds = sys.argv[1].encode(), 200
cuda = ctypes.CDLL("libcuda.so.1")
def do(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        sys.exit(f"{name} is {code}")
class Side:
    pass
sides = []
do("cuInit", 0)
for i in range(2):
    side = Side()
    side.context, side.module, side.count_up, side.boom, side.stream, side.event = (ctypes.c_void_p() for _ in range(6))
    side.memory = ctypes.c_uint64()
    do("cuDevicePrimaryCtxRetain", ctypes.byref(side.context), i)
    do("cuCtxSetCurrent", side.context)
    do("cuModuleLoadData", ctypes.byref(side.module), ptx)
    do("cuModuleGetFunction", ctypes.byref(side.count_up), side.module, b"count_up")
    do("cuModuleGetFunction", ctypes.byref(side.boom), side.module, b"boom")
    do("cuStreamCreate", ctypes.byref(side.stream), 1)
    do("cuEventCreate", ctypes.byref(side.event), 2)
    do("cuMemAlloc_v2", ctypes.byref(side.memory), ctypes.c_size_t(64 << 20))
    do("cuMemsetD32_v2", side.memory, 0, ctypes.c_size_t(16 << 20))
    sides.append(side)
seen = ctypes.c_uint32()
def count(side):
    do("cuCtxSetCurrent", side.context)
    parameters = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(side.memory), ctypes.c_void_p))
    do("cuLaunchKernel", side.count_up, 1, 1, 1, 1, 1, 1, 0, side.stream, parameters, None)
for i in range(rounds):
    here, there = sides[i % 2], sides[1 - i % 2]
    count(here)
    # Alternately in the stream of the source and in that of the destination, which waits for the source.
    size = ctypes.c_size_t((64 << 20) if i % 10 == 0 else 4)
    if i % 4 < 2:
        do("cuMemcpyPeerAsync", there.memory, there.context, here.memory, here.context, size, here.stream)
    do("cuEventRecord", here.event, here.stream)
    do("cuStreamWaitEvent", there.stream, here.event, 0)
    if i % 4 >= 2:
        do("cuCtxSetCurrent", there.context)
        do("cuMemcpyPeerAsync", there.memory, there.context, here.memory, here.context, size, there.stream)
do("cuCtxSetCurrent", there.context)
do("cuStreamSynchronize", there.stream)
do("cuMemcpyDtoH_v2", ctypes.byref(seen), there.memory, ctypes.c_size_t(4))
if seen.value != rounds:
    sys.exit(f"{seen.value} and not {rounds}")
pinned = ctypes.c_void_p()
do("cuCtxSetCurrent", sides[0].context)
do("cuMemHostAlloc", ctypes.byref(pinned), ctypes.c_size_t(4), 0)
do("cuCtxSetCurrent", sides[1].context)
do("cuMemcpyDtoHAsync_v2", pinned, sides[1].memory, ctypes.c_size_t(4), sides[1].stream)
do("cuStreamSynchronize", sides[1].stream)
ctypes.memmove(ctypes.byref(seen), pinned, 4)
if abs(seen.value - rounds) > 1:
    sys.exit(f"pinned memory of the other device has {seen.value}")
do("cuLaunchKernel", sides[1].boom, 1, 1, 1, 1, 1, 1, 0, None, None, None)
if cuda.cuCtxSynchronize() != 719:
    sys.exit("the trap is no error")
do("cuCtxSetCurrent", sides[0].context)
do("cuMemcpyDtoH_v2", ctypes.byref(seen), sides[0].memory, ctypes.c_size_t(4))
before = seen.value
for _ in range(100):
    count(sides[0])
do("cuCtxSynchronize")
do("cuMemcpyDtoH_v2", ctypes.byref(seen), sides[0].memory, ctypes.c_size_t(4))
if seen.value != before + 100:
    sys.exit(f"device 0 counts {seen.value} and not {before + 100}")
code = cuda.cuMemcpyPeer(sides[0].memory, sides[0].context, sides[1].memory, sides[1].context, ctypes.c_size_t(4))
if code != 719:
    sys.exit(f"a copy from the faulted device is {code}")
print("exact")
'''
TORCH_BOTH = r'''
import threading, time, torch
assert torch.cuda.device_count() >= 2
a = torch.arange(1 << 22, dtype=torch.float32)
x = a.to("cuda:0")
y = x.to("cuda:1", non_blocking=True) * 2
assert y.device.index == 1 and torch.equal(y.cpu(), a * 2)
z = y.to("cuda:0", non_blocking=True) + x
assert torch.equal(z.cpu(), a * 3)
pinned = torch.empty(1 << 22, pin_memory=True)
for i in range(2):
    pinned.copy_((z if i == 0 else y), non_blocking=True)
    torch.cuda.synchronize(i)
    assert torch.equal(pinned, a * (3 - i))
    assert torch.equal(pinned.to(f"cuda:{i}", non_blocking=True).cpu(), a * (3 - i))
# Events and streams of both.
streams = [torch.cuda.Stream(device=i) for i in range(2)]
events = [torch.cuda.Event() for _ in range(2)]
total = torch.zeros(1 << 16, device="cuda:0")
torch.cuda.synchronize(0)
for step in range(20):
    with torch.cuda.stream(streams[0]):
        total += 1
        events[0].record(streams[0])
    with torch.cuda.stream(streams[1]):
        streams[1].wait_event(events[0])
        other = total.to("cuda:1", non_blocking=True) + 1
        events[1].record(streams[1])
    with torch.cuda.stream(streams[0]):
        streams[0].wait_event(events[1])
        total = other.to("cuda:0", non_blocking=True)
torch.cuda.synchronize(0)
torch.cuda.synchronize(1)
assert torch.equal(total.cpu(), torch.full((1 << 16,), 40.0))
# A thread for each.
failed = []
def work(device):
    try:
        torch.cuda.set_device(device)
        w = (torch.arange(128 * 128, dtype=torch.float64).reshape(128, 128) % 5 + device)
        for _ in range(50):
            assert torch.equal((w.cuda() @ w.cuda()).cpu(), w @ w)
    except Exception as error:
        failed.append(error)
threads = [threading.Thread(target=work, args=(i % 2,)) for i in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failed, failed
# A model whose halves are on two devices, beside the same on one.
def train(devices):
    torch.manual_seed(3)
    first, second = torch.nn.Linear(64, 64).to(devices[0]), torch.nn.Linear(64, 8).to(devices[1])
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.05)
    data = (torch.arange(32 * 64, dtype=torch.float32).reshape(32, 64) % 9) / 9
    for _ in range(10):
        optimizer.zero_grad()
        loss = second(torch.relu(first(data.to(devices[0]))).to(devices[1])).square().mean()
        loss.backward()
        optimizer.step()
    return loss.item(), first.weight.double().sum().item()
assert train(["cuda:0", "cuda:1"]) == train(["cuda:0", "cuda:0"]), "a split model differs"
# A batch in two parts, with the same weights on each.
model = torch.nn.Linear(64, 64).to("cuda:0")
batch = torch.randn(64, 64)
halves = [torch.nn.functional.linear(part.to(f"cuda:{i}"), model.weight.to(f"cuda:{i}"), model.bias.to(f"cuda:{i}")).to("cuda:0")
          for i, part in enumerate(batch.chunk(2))]
assert torch.allclose(torch.cat(halves), model(batch.to("cuda:0")), atol=1e-5)
big = torch.empty(256 << 18, device="cuda:0")
torch.cuda.synchronize(0)
begin = time.monotonic()
big.to("cuda:1")
torch.cuda.synchronize(1)
print(f"256 MiB from one device to the other in {1e3 * (time.monotonic() - begin):.0f} ms")
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
        # PyTorch counts devices by NVML, and NVIDIA's knows no logical ones.
        return subprocess.Popen([self.server / "frmps-run", "--nvml", sys.executable, "-c", program, *words], stdin=subprocess.PIPE,
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


def both(bed):
    """One process on two devices."""
    code, out, err = bed.run(BOTH, PTX)
    bed.say("one process works on two devices", (code, out) == (0, "exact\n"), f"{out}{err}".strip()[-300:])


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
    code, out, err = bed.run(TORCH_BOTH)
    bed.say("PyTorch on two devices of one process", not code, out.strip() or err[-500:])
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
                both(bed)
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
