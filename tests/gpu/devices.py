"""A service with several devices on real GPUs: all that there are, or one of them twice as logical devices.

usage: devices.py [--build BUILD] [--devices LIST]

--devices: the service's key `devices` (default: all of several GPUs, 0,0 where there is one).

Programs see every device; each rank works on its own, exactly, beside a rank on another device whose kernel traps and a daemon that is
killed. One process works on two devices: kernels in both, copies and waits from one to the other, and a trap on one leaves the other
exact. Kernels, stream memory operations and copies of both reach pinned memory. Peers: what the driver says of them, kernels and
copies that reach the other device's memory, memory of other programs on other devices, and what is left after a fault and the loss
of an executor. With PyTorch: ranks of torch.cuda.set_device(), tensors, threads, a model and DataParallel on two devices of one
process, DDP over gloo, and sums over NCCL, alone and in a graph; NCCL refuses to use one GPU twice, so logical devices pose as those of two
hosts, and that is only reported. Then, where there are several GPUs, a service that has the last one alone, and PyTorch with NVIDIA's NVML, which shows all.

Exit status: 1 if something is not as it should be; 77 without a GPU. Without PyTorch its parts are left out.
"""

import argparse
import json
import os
import pathlib
import re
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
    uuid, size, value, name = (ctypes.c_ubyte * 16)(), ctypes.c_size_t(), ctypes.c_int(-1), ctypes.create_string_buffer(96)
    assert not cuda.cuDeviceGetUuid_v2(uuid, i) and not cuda.cuDeviceTotalMem_v2(ctypes.byref(size), i)
    assert not cuda.cuDeviceGetName(name, 96, i)
    peers = []
    for k in range(count.value):
        assert not cuda.cuDeviceCanAccessPeer(ctypes.byref(value), i, k)
        link = [value.value]
        for attribute in (1, 2, 3):  # performance rank, access, native atomic operations
            assert i == k or not cuda.cuDeviceGetP2PAttribute(ctypes.byref(value), attribute, i, k)
            link.append(0 if i == k else value.value)
        peers.append(link)
    rows.append([bytes(uuid).hex(), size.value, peers, name.value.decode()])
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
# What programs on two devices begin with: argv[2] is the check. Each is a process of its own, so that one that fails is alone.
DEVICES = r'''
import ctypes, sys
ptx, what = sys.argv[1].encode(), sys.argv[2]
cuda = ctypes.CDLL("libcuda.so.1")
def do(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        sys.exit(f"{name} is {code}")
class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]
class Properties(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", Location), ("win32", ctypes.c_void_p),
                ("flags", ctypes.c_ubyte * 8)]
class Access(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", ctypes.c_int)]
BIG = 256 << 20
contexts, functions = [ctypes.c_void_p() for _ in range(2)], [{} for _ in range(2)]
def use(i):
    do("cuCtxSetCurrent", contexts[i])
def open_device(i):
    module = ctypes.c_void_p()
    do("cuDevicePrimaryCtxRetain", ctypes.byref(contexts[i]), i)
    use(i)
    do("cuModuleLoadData", ctypes.byref(module), ptx)
    for name in ("count_up", "boom"):
        functions[i][name] = ctypes.c_void_p()
        do("cuModuleGetFunction", ctypes.byref(functions[i][name]), module, name.encode())
def alloc(i, size=4):
    use(i)
    memory = ctypes.c_uint64()
    do("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
    do("cuMemsetD32_v2", memory, 0, ctypes.c_size_t(1))
    do("cuCtxSynchronize")
    return memory
def launch(i, memory, times=1):
    use(i)
    parameters = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(memory), ctypes.c_void_p))
    for _ in range(times):
        do("cuLaunchKernel", functions[i]["count_up"], 1, 1, 1, 1, 1, 1, 0, None, parameters, None)
    do("cuCtxSynchronize")
def read(i, memory):
    use(i)
    seen = ctypes.c_uint32()
    do("cuMemcpyDtoH_v2", ctypes.byref(seen), memory, ctypes.c_size_t(4))
    return seen.value
def expect(value, wanted):
    if value != wanted:
        sys.exit(f"{value} and not {wanted}")
def enable(i, other):
    use(i)
    do("cuCtxEnablePeerAccess", contexts[other], 0)
do("cuInit", 0)
'''
# Peers in one process, and in two.
PEERS = DEVICES + r'''
if what in ("exports", "imports"):
    # Two programs, a device each: the handle goes over a pipe.
    own = 0 if what == "exports" else 1
    open_device(own)
    handle = (ctypes.c_ubyte * 64)()
    if what == "exports":
        memory = alloc(0)
        do("cuIpcGetMemHandle", handle, memory)
        print(bytes(handle).hex(), flush=True)
        sys.stdin.readline()
        expect(read(0, memory), 100)
    else:
        class Handle(ctypes.Structure):
            _fields_ = [("bytes", ctypes.c_ubyte * 64)]
        given, memory = Handle(), ctypes.c_uint64()
        ctypes.memmove(given.bytes, bytes.fromhex(sys.argv[3]), 64)
        do("cuIpcOpenMemHandle_v2", ctypes.byref(memory), given, 1)
        launch(1, memory, 100)
        expect(read(1, memory), 100)
        do("cuIpcCloseMemHandle", memory)
    print("exact")
    sys.exit()
for i in range(2):
    open_device(i)
if what == "enable":
    before = alloc(0)
    enable(1, 0)
    expect(cuda.cuCtxEnablePeerAccess(contexts[0], 0), 704)
    for memory in (before, alloc(0), alloc(0, BIG)):
        launch(1, memory, 10)
        launch(0, memory, 5)
        launch(1, memory, 10)
        expect(read(0, memory), 25)
        use(0)
        do("cuMemFree_v2", memory)
    enable(0, 1)
    memory = alloc(1)
    launch(0, memory, 7)
    expect(read(1, memory), 7)
elif what == "copies":
    import time
    enable(1, 0)
    enable(0, 1)
    memory = [alloc(i, BIG) for i in range(2)]
    for i in range(2):
        use(i)
        do("cuMemsetD32_v2", memory[i], 17 + i, ctypes.c_size_t(BIG // 4))
        do("cuCtxSynchronize")
    best = 1e9
    for i in range(6):
        use(1)
        begin = time.monotonic()
        do("cuMemcpyDtoDAsync_v2", memory[i % 2], memory[1 - i % 2], ctypes.c_size_t(BIG), None)
        do("cuCtxSynchronize")
        best = min(best, time.monotonic() - begin)
        expect(read(i % 2, ctypes.c_uint64(memory[i % 2].value + BIG - 4)), 18)
    print(f"{BIG / best / 1e9:.0f} GB/s", end=" ")
elif what == "map":
    # Memory of device 0 at addresses of either context, with access for both.
    for where in range(2):
        use(where)
        handle, address = ctypes.c_uint64(), ctypes.c_uint64()
        properties = Properties(type=1, handles=1, location=Location(1, 0))
        do("cuMemAddressReserve", ctypes.byref(address), ctypes.c_size_t(4 << 20), ctypes.c_size_t(0), ctypes.c_uint64(0), ctypes.c_uint64(0))
        do("cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(4 << 20), ctypes.byref(properties), ctypes.c_uint64(0))
        do("cuMemMap", address, ctypes.c_size_t(4 << 20), ctypes.c_size_t(0), handle, ctypes.c_uint64(0))
        access = (Access * 2)(Access(Location(1, 0), 3), Access(Location(1, 1), 3))
        do("cuMemSetAccess", address, ctypes.c_size_t(4 << 20), access, ctypes.c_size_t(2))
        for i in (0, 1, 0):
            launch(i, address, 9)
        expect(read(0, address), 27)
        do("cuMemUnmap", address, ctypes.c_size_t(4 << 20))
        do("cuMemRelease", handle)
elif what == "pool":
    pool, memory, access = ctypes.c_void_p(), ctypes.c_uint64(), Access(Location(1, 1), 3)
    do("cuDeviceGetDefaultMemPool", ctypes.byref(pool), 0)
    do("cuMemPoolSetAccess", pool, ctypes.byref(access), ctypes.c_size_t(1))
    use(0)
    do("cuMemAllocAsync", ctypes.byref(memory), ctypes.c_size_t(3 << 20), None)
    do("cuMemsetD32_v2", memory, 0, ctypes.c_size_t(1))
    do("cuCtxSynchronize")
    launch(1, memory, 12)
    expect(read(0, memory), 12)
elif what == "fault":
    # A trap on either device is not the other one's, whose kernels go on in the faulted one's memory.
    faulty = int(sys.argv[3])
    enable(1, 0)
    memory = alloc(0)
    own = alloc(1)
    launch(1, memory, 10)
    use(faulty)
    do("cuLaunchKernel", functions[faulty]["boom"], 1, 1, 1, 1, 1, 1, 0, None, None, None)
    expect(cuda.cuCtxSynchronize(), 719)
    if faulty == 0:
        launch(1, memory, 10)
        expect(read(1, own), 0)
    else:
        launch(0, memory, 10)
        expect(read(0, memory), 20)
elif what == "outlive":
    # The parent kills an executor of each device in turn.
    enable(1, 0)
    memory, count = alloc(0), 0
    for _ in range(3):
        launch(1, memory, 10)
        launch(0, memory, 10)
        count += 20
        expect(read(0, memory), count)
        print("works", flush=True)
        sys.stdin.readline()
print("exact")
'''
# Pinned memory: kernels of both devices count in it, whichever it was pinned for; and NCCL's way with memory of cuMemCreate.
PINNED = DEVICES + r'''
import mmap, os, socket, threading
SIZE = 4 << 20
def word(address):
    return ctypes.c_uint32.from_address(address)
def count_in(address, where=None):
    """Kernels of both devices, alternately. @where: pointers of each device"""
    word(address).value = 0
    for i in (0, 1, 0, 1):
        launch(i, ctypes.c_uint64(where[i] if where else address), 25)
    expect(word(address).value, 100)
def pointer(i, address):
    use(i)
    found = ctypes.c_uint64()
    do("cuMemHostGetDevicePointer_v2", ctypes.byref(found), ctypes.c_void_p(address), 0)
    return found.value
def pin(i, size=SIZE):
    use(i)
    memory = ctypes.c_void_p()
    do("cuMemHostAlloc", ctypes.byref(memory), ctypes.c_size_t(size), 0)
    return memory.value
def map_host(i, handle=None):
    """As NCCL maps host memory, new or imported."""
    node = ctypes.c_int()
    do("cuDeviceGetAttribute", ctypes.byref(node), 134, i)
    properties = Properties(type=1, handles=1, location=Location(3, max(node.value, 0)))
    granularity, address = ctypes.c_size_t(), ctypes.c_uint64()
    do("cuMemGetAllocationGranularity", ctypes.byref(granularity), ctypes.byref(properties), 0)
    if not handle:
        handle = ctypes.c_uint64()
        do("cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(SIZE), ctypes.byref(properties), ctypes.c_uint64(0))
    do("cuMemAddressReserve", ctypes.byref(address), ctypes.c_size_t(SIZE), ctypes.c_size_t(0), ctypes.c_uint64(0), ctypes.c_uint64(0))
    do("cuMemMap", address, ctypes.c_size_t(SIZE), ctypes.c_size_t(0), handle, ctypes.c_uint64(0))
    do("cuMemSetAccess", address, ctypes.c_size_t(SIZE), ctypes.byref(Access(Location(1, i), 3)), ctypes.c_size_t(1))
    do("cuMemSetAccess", address, ctypes.c_size_t(SIZE), ctypes.byref(Access(properties.location, 3)), ctypes.c_size_t(1))
    return handle, address.value
if what == "pinned":
    open_device(0)
    before = pin(0)
    launch(0, ctypes.c_uint64(before))
    open_device(1)
    for memory in (before, pin(0), pin(1), pin(1, 256 << 20)):
        expect([pointer(i, memory) for i in range(2)], [memory] * 2)
        count_in(memory)
        do("cuMemFreeHost", ctypes.c_void_p(memory))
    # Streams of both wait for each other by its words.
    memory = pin(0)
    word(memory).value = 0
    for step in range(1, 101):
        use(step % 2)
        do("cuStreamWaitValue32_v2", None, ctypes.c_uint64(memory), step, 0)
        do("cuStreamWriteValue32_v2", None, ctypes.c_uint64(memory), step + 1, 0)
    word(memory).value = 1
    for i in range(2):
        use(i)
        do("cuCtxSynchronize")
    expect(word(memory).value, 101)
elif what == "registered":
    for i in range(2):
        open_device(i)
    shared = os.memfd_create("registered")
    os.truncate(shared, SIZE)
    for owner, file in ((owner, file) for owner in range(2) for file in (-1, shared)):
        area = mmap.mmap(file, SIZE, flags=mmap.MAP_SHARED if file >= 0 else mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        address = ctypes.addressof(ctypes.c_char.from_buffer(area))
        use(owner)
        do("cuMemHostRegister_v2", ctypes.c_void_p(address), ctypes.c_size_t(SIZE), 2)
        count_in(address, [pointer(i, address) for i in range(2)])
        use(owner)
        do("cuMemHostUnregister", ctypes.c_void_p(address))
elif what == "managed":
    for i in range(2):
        open_device(i)
    for owner in range(2):
        use(owner)
        memory = ctypes.c_uint64()
        do("cuMemAllocManaged", ctypes.byref(memory), ctypes.c_size_t(SIZE), 1)
        count_in(memory.value)
        do("cuMemFree_v2", memory)
elif what == "copies":
    import time
    for i in range(2):
        open_device(i)
    memory, far = pin(0, BIG), alloc(1, BIG)
    best = [1e9] * 2
    for i in range(6):
        begin = time.monotonic()
        if i % 2:
            do("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(memory), far, ctypes.c_size_t(BIG), None)
        else:
            do("cuMemcpyHtoDAsync_v2", far, ctypes.c_void_p(memory), ctypes.c_size_t(BIG), None)
        do("cuCtxSynchronize")
        best[i % 2] = min(best[i % 2], time.monotonic() - begin)
    print(f"{BIG / best[0] / 1e9:.0f} GB/s to the device, {BIG / best[1] / 1e9:.0f} back", end=" ")
elif what == "fault":
    # A trap on either device leaves the memory of both to the other one.
    faulty = int(sys.argv[3])
    for i in range(2):
        open_device(i)
    memory, other = [pin(i) for i in range(2)], 1 - faulty
    for i in range(2):
        word(memory[i]).value = 0
        launch(other, ctypes.c_uint64(memory[i]), 10)
    use(faulty)
    do("cuLaunchKernel", functions[faulty]["boom"], 1, 1, 1, 1, 1, 1, 0, None, None, None)
    expect(cuda.cuCtxSynchronize(), 719)
    for i in range(2):
        launch(other, ctypes.c_uint64(memory[i]), 10)
        expect(word(memory[i]).value, 20)
    more = pin(other)
    word(more).value = 0
    launch(other, ctypes.c_uint64(more), 7)
    expect(word(more).value, 7)
elif what == "exports":
    # A thread without a context exports it, as NCCL's does.
    open_device(0)
    handle, address = map_host(0)
    word(address).value = 0
    launch(0, ctypes.c_uint64(address), 10)
    door = socket.socket(socket.AF_UNIX)
    door.bind(sys.argv[3])
    door.listen()
    print("works", flush=True)
    line, _ = door.accept()
    def send():
        fd = ctypes.c_int()
        do("cuMemExportToShareableHandle", ctypes.byref(fd), handle, 1, ctypes.c_uint64(0))
        socket.send_fds(line, [b"h"], [fd.value])
    thread = threading.Thread(target=send)
    thread.start()
    thread.join()
    expect(line.recv(1), b"d")
    expect(word(address).value, 20)
elif what == "imports":
    open_device(1)
    line = socket.socket(socket.AF_UNIX)
    line.connect(sys.argv[3])
    _, fds, _, _ = socket.recv_fds(line, 1, 1)
    handle = ctypes.c_uint64()
    do("cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(fds[0]), 1)
    _, address = map_host(1, handle)
    expect(word(address).value, 10)
    launch(1, ctypes.c_uint64(address), 10)
    expect(word(address).value, 20)
    line.send(b"d")
print("exact")
'''
TORCH_PEERS = r'''
import sys, torch
what = sys.argv[1]
if what == "can":
    print(torch.cuda.can_device_access_peer(0, 1), torch.cuda.can_device_access_peer(1, 0), end=" ")
    assert torch.cuda.can_device_access_peer(0, 1) and torch.cuda.can_device_access_peer(1, 0)
elif what == "comm":
    # With NCCL where PyTorch uses it, one process for both.
    import torch.cuda.comm
    parts = torch.cuda.comm.broadcast(torch.arange(1 << 20, dtype=torch.float32, device="cuda:0"), [0, 1])
    assert all(torch.equal(part.cpu(), torch.arange(1 << 20, dtype=torch.float32)) for part in parts)
    total = torch.cuda.comm.reduce_add(parts, 0)
    assert torch.equal(total.cpu(), 2 * torch.arange(1 << 20, dtype=torch.float32))
elif what == "parallel":
    torch.manual_seed(2)
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 16)).to("cuda:0")
    parallel, batch = torch.nn.DataParallel(model, [0, 1]), torch.randn(64, 256, device="cuda:0")
    for _ in range(5):
        model.zero_grad()
        one = parallel(batch)
        assert torch.allclose(one, model(batch), atol=1e-4)
        one.square().mean().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())
elif what == "copies":
    a = torch.arange(64 << 20, dtype=torch.int32, device="cuda:0")
    for _ in range(5):
        b = a.to("cuda:1", non_blocking=True) + 1
        a = b.to("cuda:0", non_blocking=True)
    torch.cuda.synchronize(0)
    assert torch.equal(a.cpu(), torch.arange(64 << 20, dtype=torch.int32) + 5)
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
    # A captured one, ten times, and one that both devices hand on.
    y, graph = torch.full((1 << 16,), float(rank + 1), device="cuda"), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        dist.all_reduce(y)
        y.add_(1)
    for _ in range(10):
        graph.replay()
    z = torch.full((1 << 16,), float(rank + 7), device="cuda")
    (dist.recv if rank else dist.send)(z, 1 - rank)
    torch.cuda.synchronize()
    print("sum", [values.unique().tolist() for values in (x, y, z)])
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
    # PyTorch counts devices by NVML, and NVIDIA's knows no logical ones.
    def __init__(self, build, devices, folder, options=("--nvml",)):
        self.server, self.folder, self.options, self.failed = build / "server", folder, options, False
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
        return subprocess.Popen([self.server / "frmps-run", *self.options, sys.executable, "-c", program, *words], stdin=subprocess.PIPE,
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
    bed.say("a program sees devices", not code and len({row[0] for row in rows}) == len(rows),
            err or ", ".join(f"{row[3]} {row[0][:8]} {row[1] >> 30} GiB" for row in rows))
    return rows


def compare_peers(bed, rows):
    """Peers as the driver has them; logical devices of one GPU are peers. Return: whether devices 0 and 1 are"""
    try:
        native = subprocess.run([sys.executable, "-c", SEE], capture_output=True, text=True, check=False, timeout=120)
        links = {(a[0], b[0]): a[2][k] for a in json.loads(native.stdout) for k, b in enumerate(json.loads(native.stdout))}
    except (subprocess.TimeoutExpired, ValueError) as error:
        bed.say("the driver says what peers there are", False, str(error))
        links = {}
    wrong = []
    for i, row in enumerate(rows):
        for k, other in enumerate(rows):
            wanted = links.get((row[0], other[0])) if row[0] != other[0] else None
            if i != k and wanted and row[2][k] != wanted:
                wrong.append(f"{i} and {k}: {row[2][k]}, the driver {wanted}")
    bed.say("peers are those of the driver", not wrong, "; ".join(wrong) or str([row[2] for row in rows][:2]))
    return rows[0][2][1][0] and rows[1][2][0][0]


def check(bed, what, program, *words, timeout=120, **environment):
    code, out, err = bed.run(program, *words, timeout=timeout, **environment)
    bed.say(what, code == 0 and out.endswith("exact\n"), out.strip() if code == 0 else f"{out}{err}".strip()[-300:])


def kill_executor(bed, number):
    """Return: whether there was one, and another one serves"""
    def active():
        found = json.loads(bed.ctl("--device", str(number), "status", "--json").stdout)
        domains = (found[0] if isinstance(found, list) else found)["domains"]
        return [worker["pid"] for domain in domains for worker in domain["executors"] if worker["role"] == "active"]
    before = active()
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    end = time.monotonic() + 60
    while time.monotonic() < end and (not active() or set(active()) & set(before)):
        time.sleep(0.05)
    return bool(before) and bool(active())


def outlive(bed):
    """A program with peers loses an executor of each device while it has nothing there."""
    program = bed.python(PEERS, PTX, "outlive")
    try:
        for number in range(2):
            if program.stdout.readline() != "works\n" or not kill_executor(bed, number):
                break
            program.stdin.write("\n")
            program.stdin.flush()
        out, err = program.communicate("\n", timeout=120)
    except (subprocess.TimeoutExpired, BrokenPipeError, KeyError, ValueError) as error:
        program.kill()
        out, err = "", f"{error!r} {program.stderr.read()[-200:]}"
    bed.say("peers outlive their executors", out.endswith("exact\n"), err.strip()[-300:])


def pass_handle(bed):
    """A handle of a program on device 0 is opened by one on device 1."""
    exporter = bed.python(PEERS, PTX, "exports")
    try:
        handle = exporter.stdout.readline().strip()
        check(bed, "a handle is opened on the other device", PEERS, PTX, "imports", handle)
        out, err = exporter.communicate("\n", timeout=60)
    except (subprocess.TimeoutExpired, BrokenPipeError) as error:
        exporter.kill()
        out, err = "", str(error)
    bed.say("its exporter sees what was written there", out.endswith("exact\n"), err.strip()[-300:])


def peers(bed):
    for what, word in (("kernels reach the other device's memory", "enable"), ("copies go straight", "copies"),
                       ("memory is mapped for both", "map"), ("a pool is for both", "pool")):
        check(bed, what, PEERS, PTX, word)
    for faulty in range(2):
        check(bed, f"a trap on device {faulty} leaves its peer", PEERS, PTX, "fault", str(faulty))
    pass_handle(bed)
    outlive(bed)


def pinned(bed):
    for what, word in (("kernels of both reach pinned memory", "pinned"), ("registered memory is for both", "registered"),
                       ("managed memory is for both", "managed"), ("copies with the other device's pinned memory", "copies")):
        check(bed, what, PINNED, PTX, word)
    for faulty in range(2):
        check(bed, f"a trap on device {faulty} leaves pinned memory to the other", PINNED, PTX, "fault", str(faulty))
    place = os.path.join(bed.folder, "pinned")
    exporter = bed.python(PINNED, PTX, "exports", place)
    try:
        exporter.stdout.readline()
        check(bed, "host memory is imported on the other device, as by NCCL", PINNED, PTX, "imports", place)
        out, err = exporter.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        exporter.kill()
        out, err = exporter.communicate()
    bed.say("its exporter sees what was counted there", out.endswith("exact\n"), err.strip()[-300:])


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


def distributed(bed, backend, as_hosts=False, **environment):
    """as_hosts: NCCL takes the ranks for those of two hosts, and no two devices for one."""
    ranks = [bed.python(TORCH_DDP, backend, RANK=str(i), WORLD_SIZE="2", LOCAL_RANK=str(i), MASTER_ADDR="127.0.0.1", MASTER_PORT="29511",
                        **environment, **({"NCCL_HOSTID": f"host {i}", "NCCL_SOCKET_IFNAME": "lo"} if as_hosts else {}))
             for i in range(2)]
    done = []
    for rank in ranks:
        try:
            done.append((*rank.communicate(timeout=90), rank.returncode))
        except subprocess.TimeoutExpired:
            rank.kill()
            done.append(("", "it does not end", None))
    return done


# NCCL says which way it takes between two devices.
NCCL_INFO = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,P2P,SHM,NET", "NCCL_DEBUG_FILE": "/dev/stderr"}


def ways(text):
    return ", ".join(sorted(set(re.findall(r"\bvia ([A-Z0-9]+/\w+)", text)))) or "NCCL names no way"


def nccl_in_one_process(bed):
    code, out, err = bed.run(TORCH_PEERS, "comm", timeout=180, **NCCL_INFO)
    good = code == 0 and out.endswith("exact\n")
    bed.say("NCCL in one process (torch.cuda.comm)", good, ways(err) if good else f"{out}{err}".strip()[-300:])


def has_torch():
    return not subprocess.run([sys.executable, "-c", "import torch"], capture_output=True, check=False).returncode


def torch(bed, count, are_logical, are_peers):
    if not has_torch():
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
    if are_peers:
        check(bed, "PyTorch knows the peers", TORCH_PEERS, "can", timeout=180)
        check(bed, "PyTorch copies between peers", TORCH_PEERS, "copies", timeout=180)
    if are_peers and not are_logical:
        nccl_in_one_process(bed)
        check(bed, "DataParallel", TORCH_PEERS, "parallel", timeout=180)
    # Memory that NCCL's ranks map of each other: by descriptors, by handles, and not at all.
    for kind, environment in (("sockets", {}),) if are_logical else (("descriptors", {"NCCL_CUMEM_ENABLE": "1"}),
                              ("handles", {"NCCL_CUMEM_ENABLE": "0"}), ("host memory", {"NCCL_P2P_DISABLE": "1"})):
        done = distributed(bed, "nccl", are_logical, **NCCL_INFO, **environment)
        # Each round sums both and adds 1: 4, 9, 19, ...
        good = all((code, out) == (0, "sum [[3.0], [2559.0], [7.0]]\n") for out, _, code in done)
        text = ways("".join(err for _, err, _ in done)) if good else "; ".join(f"{out}{err}".strip()[-200:] for out, err, _ in done)
        bed.say(f"sums over NCCL, {kind}" + (" (logical devices: reported only)" if are_logical else ""), good or are_logical, text)


def end(bed):
    """Return: whether all was as it should be"""
    bed.ctl("quit", "-t", "5")
    code = bed.service.wait()
    bed.say("the service ends whole", not code and not [name for name in os.listdir(bed.folder) if "sock" in name])
    if bed.failed:
        print(bed.said()[-4000:])
    return not bed.failed


def play(build, devices):
    with tempfile.TemporaryDirectory() as folder:
        bed = Bed(build, devices, folder)
        try:
            rows = look(bed)
            count = len(rows)
            if count > 1:
                are_peers = compare_peers(bed, rows)
                work(bed, count)
                both(bed)
                pinned(bed)
                if are_peers:
                    peers(bed)
                torch(bed, count, devices != "all", are_peers)
        finally:
            good = end(bed)
    return good


def play_alone(build, number):
    """A service with one of several GPUs."""
    with tempfile.TemporaryDirectory() as folder:
        bed = Bed(build, number, folder, options=())
        try:
            rows = look(bed)
            bed.say("a program sees one device", len(rows) == 1)
            bed.say("the doctor says so", "the service has 1 of the machine's" in bed.ctl("doctor").stdout)
            if has_torch():
                code, out, err = bed.run(TORCH_RANK, "0", "1")
                bed.say("PyTorch on it", not code, out.strip() or err[-300:])
        finally:
            good = end(bed)
    return good


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
    build = options.build.resolve()
    good = play(build, options.devices or ("all" if gpus > 1 else "0,0"))
    if gpus > 1:
        good &= play_alone(build, str(gpus - 1))
    sys.exit(not good)


if __name__ == "__main__":
    main()
