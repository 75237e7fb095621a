#!/usr/bin/env python3
"""What our libnvidia-ml.so.1 shows a program: the calls that pynvml and PyTorch (torch.cuda.list_gpu_processes, device_count,
mem_get_info by NVML) make, by ctypes as these make them; with a library in NVIDIA's place, and without one.

    nvml.py BUILD FAKE      the build folder; the library in NVIDIA's place (tests/lib/fake_nvml.c)
"""

import ctypes
import json
import os
import subprocess
import sys
import tempfile
import unittest

BUILD, FAKE = sys.argv.pop(1), sys.argv.pop(1)
os.environ.pop('LD_LIBRARY_PATH', None)  # meson puts the folders of all libraries there
GIB = 1 << 30
SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND, INSUFFICIENT_SIZE = 0, 1, 2, 3, 6, 7
DRIVER_NOT_LOADED, FUNCTION_NOT_FOUND = 9, 13
# One process that asks: the libraries are those that it finds by name, as pynvml loads them. Each line of its input is Python.
ASKER = r'''
import ctypes, json, os, sys

class Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]

class Memory2(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint)] + [(name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used")]

class Process1(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("bytes", ctypes.c_ulonglong)]

class Process(ctypes.Structure):
    _fields_ = Process1._fields_ + [("gpu", ctypes.c_uint), ("compute", ctypes.c_uint)]

class Pci(ctypes.Structure):
    _fields_ = [("short", ctypes.c_char * 16)] + [(name, ctypes.c_uint) for name in ("domain", "bus", "device", "id", "sub")] + [
        ("bus_id", ctypes.c_char * 32)]

nvml = ctypes.CDLL("libnvidia-ml.so.1")
nvml.nvmlErrorString.restype = ctypes.c_char_p
device, other = ctypes.c_void_p(), ctypes.c_void_p()

def call(name, *arguments):
    """As pynvml: a name that is not there is its own error."""
    try:
        function = getattr(nvml, name)
    except AttributeError:
        return 13
    return function(*arguments)

def ask(name, result, *more):
    """A call on the device. Return: its code, or the fields of the result."""
    code = call(name, device, *more, ctypes.byref(result))
    if code:
        return code
    if isinstance(result, ctypes.Structure):
        return [value.decode() if isinstance(value, bytes) else value for value in
                (getattr(result, field) for field, *_ in result._fields_)]
    return result.value

def text(name, size=96):
    buffer = ctypes.create_string_buffer(size)
    code = call(name, device, buffer, size) if name.startswith("nvmlDevice") else call(name, buffer, size)
    return code or buffer.value.decode()

def processes(version="_v3", kind=Process):
    """As pynvml: first how many there are."""
    count = ctypes.c_uint(0)
    name = "nvmlDeviceGetComputeRunningProcesses" + version
    code = call(name, device, ctypes.byref(count), None)
    if code != 7:
        return code or []
    count = ctypes.c_uint(count.value * 2 + 5)
    rows = (kind * count.value)()
    code = call(name, device, ctypes.byref(count), rows)
    return code or [[rows[i].pid, rows[i].bytes] for i in range(count.value)]

def opened():
    return call("nvmlInit_v2") or call("nvmlDeviceGetHandleByIndex_v2", 0, ctypes.byref(device))

def cuda(size):
    """Makes a session and allocates."""
    driver, context, at = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
    return (driver.cuInit(0) or driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) or driver.cuCtxSetCurrent(context)
            or driver.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(size)))

for line in sys.stdin:
    print(json.dumps(eval(line)), flush=True)
'''


def tool(name):
    return os.path.join(BUILD, 'server', name)


class Asker:
    def __init__(self, options=('--nvml',), **environment):
        self.process = subprocess.Popen([tool('frmps-run'), *options, sys.executable, '-c', ASKER], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})
        self.pid = self.process.pid

    def __call__(self, line):
        self.process.stdin.write(line + '\n')
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self):
        self.process.communicate()


class Service(unittest.TestCase):
    DEVICES = 1  # of the host backend; the service has all by default

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        os.environ['FRMPS_HOST_DEVICES'] = str(self.DEVICES)
        os.environ['FRMPS_SOCKET'] = os.path.join(self.folder.name, 'frmps.sock')
        os.environ['FRMPS_NVML'] = ''
        with open(os.path.join(self.folder.name, 'log'), 'w', encoding='utf-8') as log:
            self.server = subprocess.Popen([tool('frmps-server'), '--config', '/dev/null', '--backend', 'host'], stderr=log)
        while not self.is_ready():
            self.assertIsNone(self.server.poll(), 'the service has ended')
        self.askers = []

    def tearDown(self):
        for asker in self.askers:
            asker.end()
        self.server.terminate()
        self.assertEqual(self.server.wait(), 0)
        self.folder.cleanup()

    @staticmethod
    def status():
        done = subprocess.run([tool('frmpsctl'), 'status', '--json'], capture_output=True, text=True, check=False)
        return json.loads(done.stdout) if not done.returncode else {}

    def is_ready(self):
        status = self.status()
        devices = status if isinstance(status, list) else [status]
        return len(devices) == self.DEVICES and all(device and device.get('ready') for device in devices)

    def asker(self, *words, **environment):
        self.askers.append(Asker(*words, **environment))
        return self.askers[-1]

    def asker_beside_nvidia(self):
        """With a library in NVIDIA's place."""
        fifo = os.path.join(self.folder.name, 'fifo')
        os.mkfifo(fifo)
        return self.asker(FRMPS_NVML=FAKE, FRMPS_TEST_NVML=fifo)


class Nvml(Service):
    def test_the_device(self):
        ask, device = self.asker(), self.status()['device']
        self.assertEqual(ask('call("nvmlDeviceGetCount_v2", ctypes.byref(ctypes.c_uint()))'), UNINITIALIZED)
        self.assertEqual(ask('text("nvmlSystemGetDriverVersion")'), UNINITIALIZED)
        self.assertEqual(ask('opened()'), SUCCESS)
        # As torch.cuda.device_count() and torch.cuda._raw_device_uuid_nvml(): without CUDA.
        self.assertEqual(ask('[call("nvmlDeviceGetCount_v2", ctypes.byref(n := ctypes.c_uint())), n.value]'), [SUCCESS, 1])
        self.assertEqual(ask('text("nvmlDeviceGetUUID")'), device['uuid'])
        self.assertEqual(ask('text("nvmlDeviceGetName")'), device['name'])
        self.assertEqual(ask('text("nvmlDeviceGetName", 4)'), INSUFFICIENT_SIZE)
        self.assertEqual(ask('[call("nvmlDeviceGetCudaComputeCapability", device, ctypes.byref(a := ctypes.c_int()), '
                             'ctypes.byref(b := ctypes.c_int())), a.value, b.value]'), [SUCCESS, 9, 0])
        self.assertEqual(ask('[call("nvmlSystemGetCudaDriverVersion_v2", ctypes.byref(n := ctypes.c_int())), n.value]'),
                         [SUCCESS, device['driver_version']])
        self.assertEqual(ask('ask("nvmlDeviceGetPciInfo_v3", Pci())'), ['0000:00:00.0', 0, 0, 0, 0, 0, '00000000:00:00.0'])
        for name, word in ('UUID', device['uuid']), ('PciBusId_v2', '00000000:00:00.0'):
            self.assertEqual(ask(f'[call("nvmlDeviceGetHandleBy{name}", {word!r}.encode(), ctypes.byref(d := ctypes.c_void_p())), '
                                 'd.value == device.value]'), [SUCCESS, True])
        self.assertEqual(ask('call("nvmlDeviceGetHandleByUUID", b"GPU-0", ctypes.byref(ctypes.c_void_p()))'), NOT_FOUND)
        self.assertEqual(ask('call("nvmlDeviceGetHandleByIndex_v2", 1, ctypes.byref(ctypes.c_void_p()))'), INVALID_ARGUMENT)
        self.assertEqual(ask('call("nvmlDeviceGetName", ctypes.c_void_p(7), ctypes.create_string_buffer(9), 9)'), INVALID_ARGUMENT)
        # None of it has made a session.
        self.assertEqual(self.status()['domains'][0]['clients'], [])
        self.assertEqual(ask('call("nvmlShutdown")'), SUCCESS)
        self.assertEqual(ask('call("nvmlShutdown")'), UNINITIALIZED)
        self.assertEqual(ask('text("nvmlDeviceGetUUID")'), UNINITIALIZED)

    def test_a_limit_is_the_devices_memory(self):
        ask = self.asker()
        self.assertEqual(ask('opened()'), SUCCESS)
        self.assertEqual(ask('ask("nvmlDeviceGetMemoryInfo", Memory())'), [4 * GIB, 4 * GIB, 0])
        self.assertEqual(subprocess.run([tool('frmpsctl'), 'set_default_device_pinned_mem_limit', '0', '2G'], check=False).returncode, 0)
        self.assertEqual(ask('ask("nvmlDeviceGetMemoryInfo", Memory())'), [2 * GIB, 2 * GIB, 0])
        self.assertEqual(ask(f'cuda({GIB})'), SUCCESS)
        total, free, used = ask('ask("nvmlDeviceGetMemoryInfo", Memory())')
        self.assertEqual((total, free + used), (2 * GIB, 2 * GIB))
        self.assertTrue(GIB <= used < GIB + GIB // 4, used)
        self.assertEqual(ask('ask("nvmlDeviceGetMemoryInfo_v2", Memory2(version=40 | 2 << 24))')[1:], [total, 0, free, used])
        # The limit of another program, and its own wish.
        other = self.asker(CUDA_MPS_PINNED_DEVICE_MEM_LIMIT='0=512M')
        self.assertEqual((other('opened()'), other('cuda(4096)')), (SUCCESS, SUCCESS))
        self.assertEqual(other('ask("nvmlDeviceGetMemoryInfo", Memory())')[0], GIB // 2)
        self.assertEqual(ask('ask("nvmlDeviceGetMemoryInfo", Memory())')[0], 2 * GIB)

    def test_programs_are_its_processes(self):
        first, second, watcher = self.asker(), self.asker(), self.asker()
        for ask in first, second, watcher:
            self.assertEqual(ask('opened()'), SUCCESS)
        self.assertEqual(watcher('processes()'), [])
        self.assertEqual(first(f'cuda({GIB // 2})'), SUCCESS)
        self.assertEqual(second('cuda(4096)'), SUCCESS)
        rows = watcher('processes()')
        self.assertEqual([pid for pid, _ in rows], [first.pid, second.pid])
        self.assertGreaterEqual(rows[0][1], GIB // 2)
        self.assertEqual(watcher('processes("", Process1)'), rows)
        self.assertEqual(watcher('processes("_v2")'), rows)
        self.assertEqual(watcher('[call("nvmlDeviceGetGraphicsRunningProcesses_v3", device, ctypes.byref(n := ctypes.c_uint(9)), None), '
                                 'n.value]'), [SUCCESS, 0])
        # Who has no session sees what they have together.
        self.assertEqual(watcher('ask("nvmlDeviceGetMemoryInfo", Memory())')[2], rows[0][1] + rows[1][1])
        first.end()
        while len(watcher('processes()')) > 1:
            pass

    def test_what_nobody_knows_is_said(self):
        ask = self.asker()
        self.assertEqual(ask('opened()'), SUCCESS)
        for name in 'nvmlDeviceGetTemperature', 'nvmlDeviceGetUtilizationRates', 'nvmlDeviceGetPowerUsage':
            self.assertEqual(ask(f'call("{name}", device, 0, ctypes.byref((ctypes.c_uint * 2)()))'), NOT_SUPPORTED)
        self.assertEqual(ask('text("nvmlSystemGetDriverVersion")'), NOT_SUPPORTED)
        self.assertEqual(ask('call("nvmlDeviceGetHoroscope", device)'), FUNCTION_NOT_FOUND)
        self.assertEqual(ask('[nvml.nvmlErrorString(code).decode() for code in (0, 3, 12345)]'),
                         ['Success', 'Not Supported', 'Unknown Error'])

    def test_nvidias_library_answers_the_rest(self):
        ask = self.asker_beside_nvidia()
        self.assertEqual(ask('opened()'), SUCCESS)
        self.assertEqual(ask('text("nvmlSystemGetDriverVersion")'), '999.1')
        self.assertEqual(ask('[call("nvmlDeviceGetUtilizationRates", device, rates := (ctypes.c_uint * 2)()), *rates]'), [SUCCESS, 70, 30])
        self.assertEqual(ask('call("nvmlDeviceGetTemperature", device, 0, ctypes.byref(ctypes.c_uint()))'), FUNCTION_NOT_FOUND)
        # What the service knows better.
        self.assertEqual(ask('ask("nvmlDeviceGetMemoryInfo", Memory())'), [4 * GIB, 4 * GIB, 0])
        self.assertEqual(ask('processes()'), [])

    def test_a_library_whose_driver_does_not_answer_is_none(self):
        ask = self.asker(FRMPS_NVML=FAKE)
        self.assertEqual(ask('opened()'), SUCCESS)
        self.assertEqual(ask('text("nvmlSystemGetDriverVersion")'), NOT_SUPPORTED)
        ask = self.asker(FRMPS_NVML=os.path.join(BUILD, 'client', 'nvml', 'libnvidia-ml.so.1'))
        self.assertEqual(ask('opened()'), SUCCESS, 'it is not its own NVIDIA library')
        self.assertEqual(ask('text("nvmlSystemGetDriverVersion")'), NOT_SUPPORTED)

    def test_without_a_service_there_is_no_driver(self):
        ask = self.asker()
        self.assertEqual(ask('opened()'), SUCCESS)
        os.environ['FRMPS_SOCKET'] = '/nonexistent/frmps.sock'
        other = Asker(('--allow-native',), LD_LIBRARY_PATH=os.path.join(BUILD, 'client', 'nvml'))
        self.assertEqual(other('opened()'), DRIVER_NOT_LOADED)
        other.end()

    def test_only_who_asks_for_it_gets_it(self):
        done = subprocess.run([tool('frmps-run'), 'sh', '-c', 'echo "$LD_LIBRARY_PATH"'], capture_output=True, text=True, check=False)
        self.assertNotIn('nvml', done.stdout)
        done = subprocess.run([tool('frmps-run'), '--nvml', 'sh', '-c', 'echo "$LD_LIBRARY_PATH"'], capture_output=True, text=True, check=False)
        self.assertRegex(done.stdout, r'^[^:]*/client/nvml:[^:]*/client(:|\n)')


class TwoDevices(Service):
    DEVICES = 2
    PEERS = ('[(call("nvmlDeviceGetP2PStatus", device, other, way, ctypes.byref(n := ctypes.c_int(-1))), n.value) '
             'for way in range(6)]')

    def opened(self, ask):
        self.assertEqual(ask('[opened(), call("nvmlDeviceGetHandleByIndex_v2", 1, ctypes.byref(other))]'), [SUCCESS, SUCCESS])
        return ask

    def test_reads_writes_and_atomics_are_the_services_word(self):
        # Reads, writes, NVLink, atomic operations, properties.
        self.assertEqual(self.opened(self.asker())(self.PEERS), [[SUCCESS, status] for status in (0, 0, 5, 0, 5, 5)])

    def test_nvlink_is_nvidias_word(self):
        ask = self.opened(self.asker_beside_nvidia())
        self.assertEqual(ask(self.PEERS), [[SUCCESS, 0], [SUCCESS, 0], [SUCCESS, 0], [SUCCESS, 0], [SUCCESS, 4], [INVALID_ARGUMENT, 4]])
        self.assertEqual(ask('call("nvmlDeviceGetP2PStatus", device, ctypes.c_void_p(7), 2, ctypes.byref(ctypes.c_int()))'), INVALID_ARGUMENT)
        self.assertEqual(ask('call("nvmlDeviceGetP2PStatus", ctypes.c_void_p(7), other, 2, ctypes.byref(ctypes.c_int()))'), INVALID_ARGUMENT)
        self.assertEqual(ask('call("nvmlDeviceGetP2PStatus", device, other, 2, None)'), INVALID_ARGUMENT)
        # By the name that NCCL looks up.
        self.assertEqual(ask('[call("nvmlDeviceGetNvLinkRemotePciInfo", one, 3, text := ctypes.create_string_buffer(68)) or text.value.decode() '
                             'for one in (device, other)]'), ['GPU 1, link 3', 'GPU 2, link 3'])


if __name__ == '__main__':
    unittest.main()
