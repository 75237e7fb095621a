#!/usr/bin/env python3
"""The tools beside a service with several devices: frmpsctl and the program that stands in for NVIDIA's, our NVML, the exporter,
and frmps-run. Of two GPUs the second is two logical devices. And frmps-run beside a service that has one of two GPUs, and one that
has left out what cannot be served.

    devices.py BUILD      the build folder
"""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

BUILD = sys.argv.pop(1)
UUIDS = ['GPU-66726d70-7300-4000-8000-000000000001', 'GPU-66726d70-7300-4000-8000-000000000002',
         'GPU-66726d70-7300-4000-8001-000000000002']
THIRD = 'GPU-66726d70-7300-4000-8000-000000000003'
# A program on the device that it is given: prints the device's bytes, and works until its input ends.
PROGRAM = r'''
import ctypes, sys
cuda, context, size, memory = ctypes.CDLL(sys.argv[1]), ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_uint64()
assert not cuda.cuInit(0) and not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), int(sys.argv[2]))
assert not cuda.cuCtxSetCurrent(context) and not cuda.cuDeviceTotalMem_v2(ctypes.byref(size), int(sys.argv[2]))
assert not cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4096))
print(size.value, flush=True)
for line in sys.stdin:
    print(cuda.cuMemsetD8_v2(memory, 1, ctypes.c_size_t(4096)) or cuda.cuCtxSynchronize(), flush=True)
'''
# What a program was told of devices, and the UUIDs of those that it sees.
SEE = r'''
import ctypes, json, os, sys
cuda, count, uuid, seen = ctypes.CDLL(sys.argv[1]), ctypes.c_int(), (ctypes.c_ubyte * 16)(), []
assert not cuda.cuInit(0) and not cuda.cuDeviceGetCount(ctypes.byref(count))
for i in range(count.value):
    assert not cuda.cuDeviceGetUuid_v2(uuid, i)
    seen.append(bytes(uuid).hex())
print(json.dumps([os.environ.get('CUDA_VISIBLE_DEVICES'), seen]))
'''
# What pynvml asks, of all devices.
ASKER = r'''
import ctypes, json
nvml, count, rows = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_uint(), []
assert not nvml.nvmlInit_v2() and not nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
for i in range(count.value):
    device, uuid, index, other = ctypes.c_void_p(), ctypes.create_string_buffer(96), ctypes.c_uint(), ctypes.c_void_p()
    memory, used, status = (ctypes.c_ulonglong * 3)(), ctypes.c_uint(8), ctypes.c_int()
    processes = (ctypes.c_ulonglong * 24)()
    assert not nvml.nvmlDeviceGetHandleByIndex_v2(i, ctypes.byref(device)) and not nvml.nvmlDeviceGetUUID(device, uuid, 96)
    assert not nvml.nvmlDeviceGetIndex(device, ctypes.byref(index)) and index.value == i
    assert not nvml.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(other)) and other.value == device.value
    assert not nvml.nvmlDeviceGetMemoryInfo(device, memory)
    # Read, write, NVLink, atomics: each device reaches the others, and no device is its own peer.
    for other_index in range(count.value):
        assert not nvml.nvmlDeviceGetHandleByIndex_v2(other_index, ctypes.byref(other))
        for way, answer in ((0, 0), (1, 0), (2, 5), (3, 0)):
            assert not nvml.nvmlDeviceGetP2PStatus(device, other, way, ctypes.byref(status))
            assert status.value == (5 if other_index == i else answer)
    assert nvml.nvmlDeviceGetP2PStatus(device, None, 0, ctypes.byref(status)) == 2
    assert not nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(used), processes)
    rows.append([uuid.value.decode(), memory[0], [processes[3 * k] & 0xffffffff for k in range(used.value)]])
assert nvml.nvmlDeviceGetHandleByIndex_v2(count.value, ctypes.byref(device)) == 2
print(json.dumps(rows))
'''


def tool(name):
    return os.path.join(BUILD, 'server', name)


def run(name, *words, **more):
    return subprocess.run([tool(name), *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120, **more)


def on_machine(gpus, *words, **more):
    """frmps-run on a machine with so many GPUs, as far as their device files go."""
    files = ' '.join(['/dev/nvidiactl', *(f'/dev/nvidia{i}' for i in range(gpus))])
    with tempfile.TemporaryDirectory() as place:
        script = (f'mount --rbind /dev {place}; mount -t tmpfs none /dev; ln -s $(ls -d {place}/* | grep -v nvidia) /dev; '
                  f'touch {files}; exec "$@"')
        return subprocess.run(['unshare', '--mount', 'sh', '-ec', script, 'sh', tool('frmps-run'), *words], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False, timeout=120, **more)


HAS_MACHINES = not on_machine(1, '--version').returncode


def see_on_machine(gpus, *options, **variables):
    """Return: CUDA_VISIBLE_DEVICES of a program that frmps-run starts, and the devices that it sees"""
    environment = {key: value for key, value in os.environ.items() if key != 'CUDA_VISIBLE_DEVICES'}
    done = on_machine(gpus, *options, sys.executable, '-c', SEE, os.path.join(BUILD, 'client', 'libcuda.so.1'), env={**environment, **variables})
    if done.returncode:
        raise AssertionError(done.stderr)
    listed, seen = json.loads(done.stdout)
    return listed, [[*UUIDS, THIRD].index('GPU-' + '-'.join((one[:8], one[8:12], one[12:16], one[16:20], one[20:]))) for one in seen]


class Service(unittest.TestCase):
    CONFIGURATION, COUNT = '', 0
    GPUS, MODES = 2, 'd'  # tests/host/context.c

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.programs = []
        os.environ.update(FRMPS_SOCKET=os.path.join(self.folder.name, 'frmps.sock'), FRMPS_HOST_DEVICES=str(self.GPUS), FRMPS_NVML='',
                          FRMPS_HOST_MODE=os.path.join(self.folder.name, 'modes'), FRMPS_SHIM_DIR=os.path.join(BUILD, 'client'))
        with open(os.environ['FRMPS_HOST_MODE'], 'w', encoding='utf-8') as file:
            file.write(self.MODES)
        configuration = os.path.join(self.folder.name, 'conf')
        with open(configuration, 'w', encoding='utf-8') as file:
            file.write(self.CONFIGURATION)
        self.log = open(os.path.join(self.folder.name, 'log'), 'w+', encoding='utf-8')
        self.server = subprocess.Popen([tool('frmps-server'), '--config', configuration, '--backend', 'host'], stderr=self.log)
        self.addCleanup(self.server.kill)
        while not self.is_ready():
            self.assertIsNone(self.server.poll(), 'the service has ended')

    def is_ready(self):
        said = self.ask('status', '--json')
        shown = json.loads(said.stdout) if not said.returncode else []
        return bool(shown) and all(one['ready'] for one in (shown if self.COUNT > 1 else [shown]))

    def tearDown(self):
        for program in self.programs:
            program.communicate()
        self.server.terminate()
        self.assertEqual(self.server.wait(), 0)
        self.log.close()
        self.folder.cleanup()

    @staticmethod
    def ask(*words):
        return run('frmpsctl', *words)

    def program(self, device, **environment):
        program = subprocess.Popen([sys.executable, '-c', PROGRAM, os.path.join(BUILD, 'client', 'libcuda.so.1'), str(device)],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})
        self.programs.append(program)
        program.bytes = int(program.stdout.readline())
        return program


class Devices(Service):
    CONFIGURATION, COUNT = 'devices = 0,GPU-66726d70-7300-4000-8000-000000000002,1\n[device 2]\nmemory_limit = 1G\n', 3

    def good(self, *words, name='frmpsctl'):
        done = run(name, *words)
        self.assertEqual((done.returncode, done.stderr), (0, ''), words)
        return done.stdout

    def show(self, *words):
        return json.loads(self.good(*words, '--json'))

    def clients(self):
        """Processes on each device."""
        return [[client['pid'] for domain in status['domains'] for client in domain['clients']] for status in self.show('status')]

    def test_each_device_is_shown(self):
        first, last = self.program(0), self.program(2)
        self.assertEqual(last.bytes, 1 << 30)
        shown = self.show('status')
        self.assertEqual([one['device']['uuid'] for one in shown], UUIDS)
        self.assertEqual([one['device']['number'] for one in shown], [0, 1, 2])
        self.assertEqual(self.clients(), [[first.pid], [], [last.pid]])
        for command in 'status', 'top', 'faults', 'events', 'quarantine', 'reload':
            text = self.good(command)
            self.assertEqual(re.findall(r'^device (\d) \((.*)\):$', text, re.MULTILINE), list(zip('012', UUIDS)), command)
            self.assertEqual(len(self.show(command)), 3, command)
        # One of them.
        for word in '2', UUIDS[2], UUIDS[2][:28]:
            self.assertEqual(self.show('--device', word, 'status')['device']['uuid'], UUIDS[2])
        self.assertNotIn('device 2', self.good('--device', '2', 'status'))
        self.assertEqual(self.show('--socket', os.environ['FRMPS_SOCKET'] + '.1', 'status')['device']['uuid'], UUIDS[1])
        done = self.ask('--device', '3', 'status')
        self.assertEqual((done.returncode, done.stderr), (1, 'frmpsctl: status: there is no device 3: the service has 3, from 0\n'))

    def test_its_form_says_how_many_there_are(self):
        """Also where the others have no socket yet."""
        places = [os.environ['FRMPS_SOCKET'] + end for end in ('.1', '.2')]
        for place in places:
            os.rename(place, place + '-')
        done = self.ask('status', '--json')
        for place in places:
            os.rename(place + '-', place)
        shown = json.loads(done.stdout)
        self.assertEqual((done.returncode, shown[0]['device']['uuid'], shown[1:]), (69, UUIDS[0], [None, None]))

    def test_a_session_is_found_on_its_device(self):
        # The third device gives out the numbers 3, 6, 9, ...
        program, session = self.program(2), '3'
        for words in ('quarantine', 'lift', '1'), ('events', '--follow'):
            done = self.ask(*words)
            self.assertEqual(done.returncode, 64, words)
            self.assertIn('the service has 3 devices', done.stderr)
        self.assertIn('there is no session 99', self.ask('terminate', '99').stderr)
        self.good('pause', session)
        self.assertIn('paused', self.good('--device', '2', 'status'))
        self.good('resume', session)
        self.good('terminate', session)
        program.stdin.write('\n')
        program.stdin.flush()
        self.assertEqual(program.stdout.readline(), '810\n')

    def test_one_is_drained_or_all(self):
        def states():
            return [one['device']['state'] for one in self.show('status')]

        def executors():
            return [sum(len(domain['executors']) for domain in one['domains']) for one in self.show('status')]

        first, last = self.program(0), self.program(2)
        self.good('drain', '2')
        self.assertEqual(states(), ['serving', 'serving', 'drained'])
        self.assertEqual(executors()[2], 0)
        self.assertIn('the device is drained: programs wait', self.good('--device', '2', 'status'))
        self.assertIn(', drained\n', self.good('--device', '2', 'top'))
        self.assertNotIn('drained', self.good('--device', '0', 'top'))
        rows = [row.split() for row in self.good('ps').splitlines()]
        self.assertEqual([row[0] for row in rows], ['PID', str(first.pid), str(last.pid)])
        self.assertEqual(rows[2][2], '0')
        self.good('drain')
        self.assertEqual((states(), executors()), (['drained'] * 3, [0] * 3))
        self.good('refill', UUIDS[1])
        self.assertEqual(states(), ['drained', 'serving', 'drained'])
        self.good('refill')
        self.assertEqual(states(), ['serving'] * 3)
        self.assertEqual(self.clients(), [[first.pid], [], [last.pid]])
        for words in ('drain', '3'), ('refill', '3'):
            done = self.ask(*words)
            self.assertEqual((done.returncode, done.stderr), (1, f'frmpsctl: {words[0]}: there is no device 3: the service has 3, from 0\n'))

    def test_verbs_of_stock_mps(self):
        first, last = self.program(0), self.program(2)
        for name in 'frmpsctl', 'nvidia-cuda-mps-control':
            servers = self.good('get_server_list', name=name).split()
            self.assertEqual(len(servers), 2)
            rows = [row.split() for row in self.good('ps', name=name).splitlines()]
            self.assertEqual([row[0] for row in rows], ['PID', str(first.pid), str(last.pid)])
            self.assertEqual([row[2] for row in rows[1:]], servers)
            # By its server, whichever device that is on.
            self.assertEqual(self.good('get_client_list', servers[1], name=name), f'{last.pid}\n')
            self.assertEqual(self.good('get_server_status', servers[1], name=name), 'ACTIVE\n')
            self.assertEqual(self.good('ps', '-p', servers[1], name=name).splitlines()[1].split()[0], str(last.pid))
            self.assertNotEqual(run(name, 'get_client_list', '1').returncode, 0)
            rows = self.good('device_query', '--csv', name=name).splitlines()
            self.assertEqual([row.split(',')[0] for row in rows], ['Default', 'Device Ordinal', '0', '1', '2'])
            self.assertEqual([row.split(',')[2] for row in rows[2:]], UUIDS)
        # Limits are a device's, by its number or its UUID.
        self.good('set_default_device_pinned_mem_limit', '0', '2G')
        self.good('set_default_device_pinned_mem_limit', UUIDS[1], '3G')
        self.assertEqual([self.good('get_default_device_pinned_mem_limit', str(i)) for i in range(2)], ['2G\n', '3G\n'])
        # Without an operator's word it is that of the configuration for that device.
        self.assertEqual(self.good('get_default_device_pinned_mem_limit', '2'), '1G\n')
        self.assertEqual([self.program(i).bytes >> 30 for i in range(3)], [2, 3, 1])
        done = run('nvidia-cuda-mps-control', 'set_default_device_pinned_mem_limit', '3', '1G')
        self.assertIn('there is no device 3', done.stderr)
        self.assertEqual(done.returncode, 1)
        # What has no device is for all.
        self.assertEqual(self.good('set_default_active_thread_percentage', '50'), '50.0\n')
        self.assertEqual([self.good('--device', str(i), 'get_default_active_thread_percentage') for i in range(3)], ['50.0\n'] * 3)
        self.assertIn(UUIDS[1] + '/p1', self.good('sm_partition', 'add', '1', '1'))
        self.assertEqual([len(one['partitions']) for one in self.show('status')], [0, 1, 0])
        self.assertEqual(self.good('terminate_client', servers[1], str(last.pid)), '0\n')
        last.stdin.write('\n')
        last.stdin.flush()
        self.assertEqual(last.stdout.readline(), '810\n')

    def test_verbs_of_protocol_3(self):
        name, last = 'nvidia-cuda-mps-control', self.program(2)
        rows = [row.split(',') for row in self.good('device', 'list', '--format=csv,noheader', name=name).splitlines()]
        self.assertEqual([(row[0], row[3]) for row in rows], list(zip('012', UUIDS)))
        self.assertEqual(self.good('client', 'get', str(last.pid), 'device', name=name), '2\n')
        self.assertIn(UUIDS[1] + '/p1', self.good('sm-partition', 'create', 'some', '--device=1', '--chunks=1', name=name))
        rows = self.good('sm-partition', 'list', '--format=csv,noheader', name=name).splitlines()
        self.assertEqual([row.split(',')[1] for row in rows if ',some,' in row], [UUIDS[1]])
        self.good('sm-partition', 'delete', 'some', '--device=' + UUIDS[1], name=name)
        self.assertEqual([one['partitions'] for one in self.show('status')], [[], [], []])
        done = run(name, 'sm-partition', 'create', 'some', '--device=7', '--chunks=1')
        self.assertEqual(done.returncode, 1)
        self.assertIn('there is no device 7', done.stderr)
        self.good('client', 'terminate', str(last.pid), name=name)

    def test_nvml_has_all_devices(self):
        program = self.program(1)
        done = run('frmps-run', '--nvml', sys.executable, '-c', ASKER)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = json.loads(done.stdout)
        self.assertEqual([row[0] for row in rows], UUIDS)
        self.assertEqual([row[1] >> 30 for row in rows], [4, 4, 1])
        self.assertEqual([row[2] for row in rows], [[], [program.pid], []])
        # The program has no session for that.
        self.assertEqual(self.clients(), [[], [program.pid], []])

    @unittest.skipUnless(os.path.exists(tool('frmps-exporter')), 'the exporter is not built')
    def test_metrics_are_labelled(self):
        self.program(2)
        exporter = subprocess.Popen([tool('frmps-exporter'), '--listen', '127.0.0.1:0'], stdout=subprocess.PIPE, text=True)
        try:
            port = int(re.search(r':(\d+)/', exporter.stdout.readline())[1])
            connection = http.client.HTTPConnection('127.0.0.1', port)
            connection.request('GET', '/metrics')
            text = connection.getresponse().read().decode()
            connection.close()
        finally:
            exporter.terminate()
            exporter.communicate()
        self.assertEqual(re.findall(r'^frmps_up\{gpu="(\d)"\} 1$', text, re.MULTILINE), ['0', '1', '2'])
        self.assertEqual(re.findall(r'^frmps_session_state\{gpu="(\d)",', text, re.MULTILINE), ['2'])
        kinds = re.findall(r'^# TYPE (\S+)', text, re.MULTILINE)
        self.assertEqual(len(kinds), len(set(kinds)))

    def test_one_device_is_enough_to_start(self):
        holder = self.show('status')[0]['holder']
        # It is not started again meanwhile: its parent stands still.
        os.kill(self.server.pid, signal.SIGSTOP)
        os.kill(holder, signal.SIGKILL)
        while not self.ask('--device', '0', 'ping').returncode:
            pass
        try:
            done = run('frmps-run', sys.executable, '-c', PROGRAM, os.path.join(BUILD, 'client', 'libcuda.so.1'), '1',
                       env={**os.environ, 'FRMPS_LOG': 'off'})
            # The others have moved up: this one is the last.
            self.assertEqual((done.returncode, done.stdout), (0, f'{1 << 30}\n'), done.stderr)
            if HAS_MACHINES:
                self.assertEqual(see_on_machine(3, FRMPS_LOG='off'), (','.join(UUIDS[1:]), [1, 2]))
            done = self.ask('doctor')
            self.assertIn('device 0 of 3 does not answer', done.stdout)
            self.assertEqual(self.ask('ping').returncode, 69)
            self.assertEqual(json.loads(self.ask('status', '--json').stdout)[0], None)
        finally:
            os.kill(self.server.pid, signal.SIGCONT)
        while self.ask('ping').returncode:
            pass

    @unittest.skipUnless(HAS_MACHINES, 'mount namespaces are not permitted')
    def test_programs_learn_which_gpus_are_the_services(self):
        self.assertEqual(see_on_machine(4), (','.join(UUIDS), [0, 1, 2]))
        self.assertEqual(see_on_machine(3), (None, [0, 1, 2]))
        self.assertEqual(see_on_machine(0), (None, [0, 1, 2]))

    def test_quit_ends_all(self):
        self.good('quit')
        self.assertEqual(self.server.wait(), 0)
        self.assertEqual([name for name in os.listdir(self.folder.name) if 'sock' in name], [])


@unittest.skipUnless(HAS_MACHINES, 'mount namespaces are not permitted')
class OneOfTwo(Service):
    """NVIDIA's NVML shows a program both."""
    CONFIGURATION, COUNT = 'devices = 1\n', 1

    def test_a_program_sees_one_by_cuda_and_by_nvml(self):
        self.assertEqual(see_on_machine(2), (UUIDS[1], [1]))

    def test_nothing_is_set_where_nothing_is_needed(self):
        for gpus in 0, 1:
            self.assertEqual(see_on_machine(gpus), (None, [1]))
        # Our NVML shows the one as well.
        self.assertEqual(see_on_machine(2, '--nvml'), (None, [1]))

    def test_numbers_count_among_the_services(self):
        self.assertEqual(see_on_machine(2, CUDA_VISIBLE_DEVICES='0'), ('0', [1]))
        self.assertEqual(see_on_machine(2, CUDA_VISIBLE_DEVICES=UUIDS[1]), (UUIDS[1], [1]))
        self.assertEqual(on_machine(2, 'sh', '-c', 'echo "<$CUDA_VISIBLE_DEVICES>"', env={**os.environ, 'CUDA_VISIBLE_DEVICES': ''}).stdout, '<>\n')


class LeftOut(Service):
    """One of three GPUs cannot be served."""
    CONFIGURATION, COUNT = '[device 1]\nmemory_limit = 1G\n[device 2]\nmemory_limit = 2G\n', 2
    GPUS, MODES = 3, 'dpd'

    def test_it_is_named(self):
        said = f'GPU 1 ({UUIDS[1]}) is left out: its compute mode is PROHIBITED. To do: nvidia-smi -c DEFAULT; then restart the service\n'
        self.assertEqual(self.ask('status').stdout.count(said), 1)
        shown = json.loads(self.ask('status', '--json').stdout)
        self.assertEqual([one['device']['uuid'] for one in shown], [UUIDS[0], THIRD])
        for one in shown:
            self.assertEqual([(gpu['gpu'], gpu['uuid']) for gpu in one['left_out']], [(1, UUIDS[1])])
        self.assertRegex(self.ask('doctor').stdout, r'warning  devices +the service has left GPU 1 out: its compute mode is PROHIBITED\. To do: ')
        self.log.seek(0)
        self.assertEqual(self.log.read().count('GPU 1 is left out'), 1)

    def test_sections_mean_the_same_gpus(self):
        self.assertEqual(self.program(1).bytes, 2 << 30)

    @unittest.skipUnless(HAS_MACHINES, 'mount namespaces are not permitted')
    def test_programs_see_the_others(self):
        self.assertEqual(see_on_machine(3), (f'{UUIDS[0]},{THIRD}', [0, 3]))


class OneIsLeft(Service):
    """Two of three GPUs cannot be served, and the first becomes so only at its first context."""
    COUNT = 1
    GPUS, MODES = 3, 'ldp'

    def is_ready(self):
        return 'ready: 1 of 2 devices' in self.said()

    def said(self):
        with open(self.log.name, encoding='utf-8') as log:
            return log.read()

    def test_programs_see_it(self):
        self.assertEqual(self.ask('--device', '1', 'status').returncode, 0)
        done = run('frmps-run', sys.executable, '-c', SEE, os.path.join(BUILD, 'client', 'libcuda.so.1'), env={**os.environ, 'FRMPS_LOG': 'off'})
        self.assertEqual(json.loads(done.stdout)[1], [UUIDS[1][4:].replace('-', '')])
        self.assertIn('device 0 of 2 does not answer', self.ask('doctor').stdout)

    def test_the_other_comes_once_it_can_be_served(self):
        with open(os.environ['FRMPS_HOST_MODE'], 'w', encoding='utf-8') as file:
            file.write('ddp')
        while self.ask('--device', '0', 'ping').returncode:
            pass
        self.assertEqual(self.program(1).bytes, 4 << 30)


if __name__ == '__main__':
    unittest.main()
