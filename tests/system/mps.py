#!/usr/bin/env python3
"""The verbs of stock MPS, as arguments and on standard input, of frmpsctl and of the program that stands in for NVIDIA's, beside
a service and programs: what they print, what they change, and what they end with.

    mps.py BUILD      the build folder
"""

import json
import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD = sys.argv.pop(1)
TABLE = os.path.join(os.path.dirname(__file__), '..', '..', 'server', 'tools', 'mps.def')
TERMINATED, OUT_OF_MEMORY = 810, 2
GIB = 1 << 30
# A program: prints the bytes of its device, then allocates and frees so many bytes as a line says and prints the result.
PROGRAM = r'''
import ctypes, sys
cuda, context, size, memory = ctypes.CDLL(sys.argv[1]), ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_uint64()
assert not cuda.cuInit(0) and not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
assert not cuda.cuCtxSetCurrent(context) and not cuda.cuDeviceTotalMem_v2(ctypes.byref(size), 0)
print(size.value, flush=True)
for line in sys.stdin:
    result = cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(int(line)))
    print(result or cuda.cuMemFree_v2(memory), flush=True)
'''


def tool(name):
    return os.path.join(BUILD, 'server', name)


def run(program, *words, lines=None, **more):
    """Runs a program of ours; lines are its standard input."""
    return subprocess.run([tool(program), *words], input=lines or '', capture_output=True, text=True, check=False, **more)


class Program:
    def __init__(self, **environment):
        self.process = subprocess.Popen([sys.executable, '-c', PROGRAM, os.path.join(BUILD, 'client', 'libcuda.so.1')],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, **environment})
        self.pid = self.process.pid
        self.bytes = int(self.process.stdout.readline())

    def allocate(self, size):
        self.process.stdin.write(f'{size}\n')
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def end(self):
        self.process.communicate()


class Bed(unittest.TestCase):
    """A folder for the socket, and programs that end with the test."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        os.chmod(self.folder.name, 0o755)
        os.environ['FRMPS_SOCKET'] = os.path.join(self.folder.name, 'frmps.sock')
        self.programs = []

    def tearDown(self):
        for program in self.programs:
            program.end()
        self.folder.cleanup()

    def program(self, **environment):
        self.programs.append(Program(**environment))
        return self.programs[-1]

    def says(self, text, *words, program='frmpsctl'):
        """The verb prints the text, whichever way it is given."""
        for done in run(program, *words), run(program, lines=' '.join(words) + '\n'):
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, text, ''), words)

    def refuses(self, pattern, *words, program='frmpsctl', code=1, **more):
        done = run(program, *words, **more)
        self.assertEqual((done.returncode, done.stdout), (code, ''), words)
        self.assertRegex(done.stderr, pattern)
        self.assertEqual(done.stderr.count('\n'), 1, done.stderr)


class Service(Bed):
    """A service with the host backend."""

    def setUp(self):
        super().setUp()
        self.log_path = os.path.join(self.folder.name, 'log')
        with open(self.log_path, 'w', encoding='utf-8') as log:
            self.server = subprocess.Popen([tool('frmps-server'), '--config', '/dev/null', '--socket', os.environ['FRMPS_SOCKET'],
                                            '--backend', 'host'], stderr=log)
        while not self.status_or_none():
            self.assertIsNone(self.server.poll(), 'the service has ended')

    def tearDown(self):
        super().tearDown()
        self.server.terminate()
        self.assertEqual(self.server.wait(), 0)

    def log(self):
        with open(self.log_path, encoding='utf-8') as log:
            return log.read()

    def status_or_none(self):
        done = run('frmpsctl', 'status', '--json')
        status = json.loads(done.stdout) if not done.returncode else {}
        return status if status.get('ready') else None

    def uuid(self):
        return self.status_or_none()['device']['uuid']

    def servers(self):
        return run('frmpsctl', 'get_server_list').stdout.split()

    def await_no_server(self, server):
        while server in self.servers():
            pass


class Verbs(Service):
    def test_lists(self):
        uuid, name = self.uuid(), self.status_or_none()['device']['name']
        headline = r'PID +ID +SERVER +DEVICE +NAMESPACE +COMMAND\n'
        self.assertRegex(uuid, r'^GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$')
        self.says('', 'get_server_list')
        self.says('', 'ps')
        self.says('', 'get_device_client_list')
        first, second = self.program(), self.program()
        active = [one['pid'] for domain in self.status_or_none()['domains'] for one in domain['executors']
                  if one['role'] == 'active']
        server = str(active[0])
        self.says(f'{server}\n', 'get_server_list')
        self.says('ACTIVE\n', 'get_server_status', server)
        self.says(f'{first.pid}\n{second.pid}\n', 'get_client_list', server)
        for words in ['get_device_client_list'], ['get_device_client_list', server]:
            self.says(f'[0] 00:00.0, {name}\n{first.pid}.1\n{second.pid}.1\n', *words)
        rows = ''.join(rf'{one.pid} +\d+ +{server} +{uuid[:22]} +\d+ +{re.escape(os.path.realpath(sys.executable))}\n' for one in (first, second))
        for words in ['ps'], ['ps', '-p', server]:
            for done in run('frmpsctl', *words), run('frmpsctl', lines=' '.join(words)):
                self.assertRegex(done.stdout, f'^{headline}{rows}$')
                self.assertEqual(done.returncode, 0)
        table = f'Device Ordinal,PCI IDs,UUID,Name,Attributes\n0,0000:00.00.00,{uuid},{name},N/A\n'
        self.says(f'Default\n{table}', 'device_query', '--csv')
        self.says(f'Default\n{table}\nServer {server}\n{table}', 'device_query', server, '--csv')
        self.assertRegex(run('frmpsctl', 'device_query').stdout,
                         f'^Default\nDevice Ordinal +PCI IDs +UUID +Name +Attributes\n0 +0000:00.00.00 +{uuid} +{re.escape(name)} +N/A\n$')
        for words in (['get_server_status', '1'], ['get_client_list', '1'], ['get_device_client_list', '1'], ['ps', '-p', '1'],
                      ['device_query', '1'], ['terminate_client', '1', str(first.pid)]):
            self.refuses(r'there is no server 1 ', *words)
        self.refuses('it takes nothing, or -p and a server', 'ps', '-x', '1', code=64)
        self.refuses("and not '--xml'", 'device_query', '--xml', code=64)

    def test_terminate_client(self):
        first, second = self.program(), self.program()
        server = self.servers()[0]
        self.refuses(f'server {server} has no client 1 ', 'terminate_client', server, '1')
        done = run('frmpsctl', lines=f'terminate_client {server} {first.pid}\n')
        self.assertEqual((done.returncode, done.stdout), (0, '0\n'), done.stderr)
        self.assertEqual((first.allocate(4096), second.allocate(4096)), (TERMINATED, 0))
        while run('frmpsctl', 'get_client_list', server).stdout.split() != [str(second.pid)]:
            pass

    def test_memory_limits(self):
        first = self.program()
        server = self.servers()[0]
        self.says('', 'get_default_device_pinned_mem_limit', '0')
        self.says('', 'set_default_device_pinned_mem_limit', '0', '2048M')
        self.says('2G\n', 'get_default_device_pinned_mem_limit', self.uuid())
        self.assertEqual(self.program().bytes, 2 * GIB)
        self.says('', 'set_device_pinned_mem_limit', server, '0', '900M')
        self.says('900M\n', 'get_device_pinned_mem_limit', server, '0')
        third = self.program()
        self.assertEqual((third.bytes, third.allocate(901 << 20), third.allocate(64 << 20)), (900 << 20, OUT_OF_MEMORY, 0))
        self.assertEqual((first.bytes, first.allocate(901 << 20)), (4 * GIB, 0))
        self.assertIn('programs that start from now on have at most 2048M of device memory', self.log())
        self.refuses('no number with K, M or G', 'set_default_device_pinned_mem_limit', '0', '5T')
        self.refuses('there is no device 1', 'set_default_device_pinned_mem_limit', '1', '5G')

    def test_percentages(self):
        self.program()
        server = self.servers()[0]
        self.says('60.0\n', 'set_default_active_thread_percentage', '60')
        self.says('60.0\n', 'get_default_active_thread_percentage')
        self.says('30.0\n', 'set_active_thread_percentage', server, '30')
        self.says('30.0\n', 'get_active_thread_percentage', server)
        self.says('60.0\n', 'get_default_active_thread_percentage')
        self.assertIn('programs that start from now on have at most 60 % of the multiprocessors', self.log())
        self.program()
        self.assertRegex(run('frmpsctl', 'status').stdout, 'multiprocessors are granted, 30 % is the most')
        self.refuses('no percentage from 1 to 100', 'set_default_active_thread_percentage', '0')

    def classes(self):
        return [one['class'] for domain in self.status_or_none()['domains'] for one in domain['clients']]

    def test_priority(self):
        self.says('0\n', 'get_default_client_priority')
        self.program()
        self.program(CUDA_MPS_CLIENT_PRIORITY='1')
        self.says('', 'set_default_client_priority', '1')
        self.says('1\n', 'get_default_client_priority')
        self.assertIn('programs that start from now on are offline', self.log())
        self.program(CUDA_MPS_CLIENT_PRIORITY='0')
        self.says('', 'set_default_client_priority', '0')
        self.program()
        self.assertEqual(self.classes(), ['online', 'offline', 'offline', 'online'])
        self.refuses('neither 0, normal, nor 1', 'set_default_client_priority', 'low')

    def document(self, *words):
        for program in 'frmpsctl', 'nvidia-cuda-mps-control':
            done = run(program, *words, '--json')
            self.assertEqual((done.returncode, done.stderr), (0, ''), words)
        self.assertEqual(run('frmpsctl', '--json', *words).stdout, done.stdout)
        self.assertEqual(run('frmpsctl', lines=' '.join(words) + ' --json').stdout, done.stdout)
        return json.loads(done.stdout)

    def test_documents(self):
        first = self.program()
        server, uuid = self.servers()[0], self.uuid()
        self.assertEqual(self.document('get_server_list'), {'servers': [{'server': int(server), 'uid': os.getuid()}]})
        self.assertEqual(self.document('get_server_status', server), {'status': 'ACTIVE'})
        clients = self.document('ps')
        for words in ['get_client_list', server], ['get_device_client_list'], ['ps', '-p', server]:
            self.assertEqual(self.document(*words), clients)
        client, = clients['clients']
        self.assertEqual((client['pid'], client['server'], client['device']), (first.pid, int(server), uuid))
        self.assertRegex(client['program'], 'python3')
        self.assertEqual(client['executable'], os.path.realpath(sys.executable))
        device, = self.document('device_query', server)['devices']
        self.assertEqual((device['ordinal'], device['uuid'], device['multiprocessors'], device['memory_bytes']),
                         (0, uuid, 4, 4 * GIB))
        self.says('', 'set_device_pinned_mem_limit', server, '0', '2048M')
        self.says('30.0\n', 'set_active_thread_percentage', server, '30')
        for words, text, value in ((['get_device_pinned_mem_limit', server, '0'], '2G', 2 * GIB),
                                   (['get_default_device_pinned_mem_limit'], '', 0),
                                   (['get_active_thread_percentage', server], '30.0', 30),
                                   (['get_default_active_thread_percentage'], '100.0', 100),
                                   (['get_default_client_priority'], '0', 0)):
            self.assertEqual(self.document(*words), {'text': text, 'value': value})
        done = run('frmpsctl', 'terminate_client', server, str(first.pid), '--json')
        self.assertEqual((done.returncode, json.loads(done.stdout)), (0, {'session': client['session']}))
        self.refuses('takes a server and --csv', 'device_query', '--csv', '--json', code=64)

    def test_what_prints_nothing_has_no_document(self):
        with open(TABLE, encoding='utf-8') as file:
            rows = re.findall(r'^VERB\("([^"]+)", "([^"]*)", (\d)', file.read(), re.MULTILINE)
        silent = [(name, int(least)) for name, words, least in rows if '[--json]' not in words]
        self.assertEqual({name for name, _ in silent if name.startswith('get_')}, set())
        for name, least in silent:
            done = run('frmpsctl', name, *['1'] * least, '--json')
            self.assertEqual((done.returncode, done.stdout), (64, ''), name)
            self.assertIn(f'{name} has no --json', done.stderr)

    def partitions(self, program='frmpsctl'):
        """The rows of lspart, as words, without the device's."""
        done = run(program, lines='lspart\n')
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        rows = [line.split() for line in done.stdout.splitlines()]
        self.assertEqual(rows[:2], [['GPU', 'Partition', 'free', 'used', 'free', 'used', 'clients'], ['chunks', 'chunks', 'SM', 'SM']])
        for row in rows[2:]:
            self.assertEqual(row[0], self.uuid()[:12])
        return [row[1:] for row in rows[2:]]

    def test_partitions(self):
        uuid = self.uuid()
        self.program()
        self.assertEqual(self.partitions(), [['-', '3', '0', '4', '0', '-']])
        self.says_once(f'Partition {uuid}/p1 created\n', 'sm_partition', 'add', uuid, '1')
        done = run('nvidia-cuda-mps-control', lines=f'sm_partition add {uuid[:12]} 1\n')
        self.assertEqual((done.returncode, done.stdout), (0, f'Partition {uuid}/p2 created\n'))
        os.environ['CUDA_MPS_SM_PARTITION'] = f'{uuid}/p2'
        try:
            member = self.program()
        finally:
            del os.environ['CUDA_MPS_SM_PARTITION']
        expected = [['-', '1', '2', '2', '2', '-'], ['p1', '-', '1', '-', '1', 'No'], ['p2', '-', '1', '-', '1', 'Yes']]
        self.assertEqual(self.partitions(), expected)
        self.assertEqual(self.partitions('nvidia-cuda-mps-control'), expected)
        self.assertEqual(self.document('lspart'), {
            'device': uuid, 'free_chunks': 1, 'chunk_multiprocessors': 1,
            'partitions': [{'name': 'p1', 'chunks': 1, 'multiprocessors': 1, 'clients': 0},
                           {'name': 'p2', 'chunks': 1, 'multiprocessors': 1, 'clients': 1}]})
        self.refuses('2 chunks are more than it can have, 1', 'sm_partition', 'add', '0', '2')
        self.refuses('there is no partition p3', 'sm_partition', 'rm', '0', 'p3')
        # Of a word no part is left out: the first 47 bytes of these are 1, the first 63 as well.
        self.refuses(r'000001000 chunks are more than', 'sm_partition', 'add', '0', '1000'.rjust(50, '0'))
        self.refuses('sm_partition: a word has more than 63 bytes', 'sm_partition', 'add', '0', '1000'.rjust(66, '0'))
        self.refuses('there is no partition .*/p4294967295 ', 'sm_partition', 'rm', '0', f'{uuid}/p4294967295')
        self.says('', 'sm_partition', 'resize', '0', 'p2', '2')
        self.assertRegex(run('frmpsctl', 'status').stdout, '2 multiprocessors are granted, of partition p2')
        self.assertIn('SM partition p2 has from now on 2 multiprocessors', self.log())
        status = self.status_or_none()
        self.assertEqual(status['partitions'], [{'name': 'p1', 'chunks': 1, 'multiprocessors': 1, 'clients': 0},
                                                {'name': 'p2', 'chunks': 2, 'multiprocessors': 2, 'clients': 1}])
        clients = status['domains'][0]['clients']
        self.assertEqual([(one['sm_partition'], one['multiprocessors']) for one in clients], [(None, 1), ('p2', 2)])
        # As a script does that removes what there is.
        for name in 'p1', 'p2':
            self.says_once('', 'sm_partition', 'rm', uuid[:12], name)
        self.assertEqual(self.partitions(), [['-', '3', '0', '4', '0', '-']])
        self.assertIn('SM partition p2 is removed: its programs, 1, go on as others do', self.log())
        self.assertEqual(member.allocate(4096), 0)

    def test_lines(self):
        """A line that fails is no end, the latest such line decides, and quit is the last one."""
        done = run('frmpsctl', lines='\n  get_default_client_priority\t\nsm_partition rm 0 p9\r\n'
                   'get_default_active_thread_percentage\n')
        self.assertEqual((done.returncode, done.stdout), (1, '0\n100.0\n'))
        self.assertEqual(run('frmpsctl', lines='nonsense\nsm_partition rm 0 p9').returncode, 1)
        self.assertEqual(run('frmpsctl', lines='sm_partition rm 0 p9\nnonsense').returncode, 64)
        self.assertEqual(run('frmpsctl', lines='ping\nstatus --json\n').returncode, 0)
        done = run('frmpsctl', '--json', lines='get_default_client_priority\n')
        self.assertEqual(json.loads(done.stdout)['value'], 0)
        done = run('frmpsctl', lines='terminate ' + 70000 * '1')
        self.assertEqual((done.returncode, done.stderr.count('\n')), (1, 1))
        self.assertIn('refuses: the words are too long', done.stderr)
        done = run('frmpsctl', '--socket', '/nonexistent/frmps.sock', lines='get_server_list\n')
        self.assertEqual(done.returncode, 69)
        self.assertIn('/nonexistent/frmps.sock', done.stderr)
        done = run('frmpsctl', lines='quit -t 0\nlspart\n')
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, '', ''))
        self.assertEqual(self.server.wait(), 0)

    def test_quit_gives_programs_time(self):
        program = self.program()
        self.says_once('', 'quit', '-t', '600')
        self.assertEqual(program.allocate(4096), 0)
        self.assertIn('have 600 s to finish', self.log())
        program.end()
        self.assertEqual(self.server.wait(), 0)

    def test_quit_at_once(self):
        program = self.program()
        self.says_once('', 'quit', '-t', '0')
        self.assertEqual(self.server.wait(), 0)
        self.assertEqual(program.allocate(4096), TERMINATED)

    def says_once(self, text, *words):
        done = run('frmpsctl', *words)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, text, ''), words)

    def test_servers_start_and_end(self):
        self.says('', 'start_server', '-uid', str(os.getuid()))
        server = self.servers()[0]
        self.says_once('', 'shutdown_server', server)
        self.await_no_server(server)
        program = self.program()
        server = self.servers()[0]
        self.says_once('', 'shutdown_server', server)
        # It is there for its program alone.
        self.assertEqual(program.allocate(4096), 0)
        other = self.program()
        self.assertEqual(len(self.servers()), 2)
        program.end()
        self.await_no_server(server)
        server = self.servers()[0]
        self.says_once('', 'shutdown_server', server, '-f')
        self.assertEqual(other.allocate(4096), TERMINATED)
        self.await_no_server(server)
        self.assertEqual(self.program().allocate(4096), 0)

    @unittest.skipIf(os.getuid(), 'needs root')
    def test_others_see_and_end_nothing(self):
        program = self.program()
        server = self.servers()[0]
        # The checkout may lie where only root may enter.
        ctl = shutil.copy(tool('frmpsctl'), self.folder.name)
        for words in (['quit'], ['set_default_device_pinned_mem_limit', '0', '1G'], ['set_default_client_priority', '1'], ['start_server', '-uid', '0'],
                      ['sm_partition', 'add', '0', '1'],
                      ['shutdown_server', server, '-f'], ['set_device_pinned_mem_limit', server, '0', '1G'],
                      ['terminate_client', server, str(program.pid)]):
            self.refuses(r"root|another user's|there is no server", *words, program=ctl, user=12345, group=12345)
        done = run(ctl, lines='get_server_list\n', user=12345, group=12345)
        self.assertEqual((done.returncode, done.stdout), (0, ''))
        self.assertEqual(program.allocate(4096), 0)

    def test_stand_in(self):
        stand_in = 'nvidia-cuda-mps-control'
        self.says('', 'get_server_list', program=stand_in)
        first = self.program()
        server = self.servers()[0]
        self.says(f'{server}\n', 'get_server_list', program=stand_in)
        self.says(f'{first.pid}\n', 'get_client_list', server, program=stand_in)
        self.refuses('there is no partition p9', 'sm_partition', 'rm', '0', 'p9', program=stand_in)
        self.refuses('there is no server 1', 'ps', '-p', '1', program=stand_in)
        # As a script would.
        script = (f'server=$(echo get_server_list | {stand_in}); for client in $(echo get_client_list $server | {stand_in}); do '
                  f'echo terminate_client $server $client | {stand_in}; done; echo quit -t 0 | {stand_in}')
        done = subprocess.run(['sh', '-c', script], env={**os.environ, 'PATH': os.path.dirname(tool(stand_in)) + ':/usr/bin:/bin'},
                              capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, '0\n', ''))
        self.assertEqual(first.allocate(4096), TERMINATED)
        self.assertEqual(self.server.wait(), 0)
        for words in [], ['get_server_list']:
            self.refuses('Cannot find MPS control daemon process', *words, program=stand_in, lines='quit\n')


class Protocol3(Service):
    """Verbs of two words, which the stand-in has beside the others."""

    def control(self, *words):
        return run('nvidia-cuda-mps-control', *words)

    def prints(self, text, *words):
        self.says(text, *words, program='nvidia-cuda-mps-control')

    def fails(self, pattern, *words):
        self.refuses(pattern, *words, program='nvidia-cuda-mps-control')

    def rows(self, *words):
        done = self.control(*words, '--format=csv,noheader')
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        return [line.split(',') for line in done.stdout.splitlines()]

    def create(self):
        """Return: the name of this user's server."""
        name = pwd.getpwuid(os.getuid()).pw_name
        self.prints('', 'server', 'create', f'--uid={os.getuid()}', '--allowed-devices=0', '--locality-domains=false')
        self.prints('', 'server', 'create', name)
        return name

    def test_servers(self):
        self.assertEqual(self.rows('server', 'list'), [])
        name, folder, uuid = self.create(), self.folder.name, self.uuid()
        server, = self.servers()
        row = [name, str(os.getuid()), server, 'Ready', folder, uuid, '-']
        header = ['name', 'uid', 'pid', 'status', 'pipe-directory', 'allowed-devices', 'context-ids']
        self.assertEqual(self.rows('server', 'list'), [row])
        self.assertEqual(self.rows('server', 'list', server), [row])
        self.prints(f'{",".join(header)}\n{",".join(row)}\n', 'server', 'list', name, '--format=csv')
        self.assertEqual([line.split() for line in self.control('server', 'list').stdout.splitlines()], [header, row])
        for field, value in zip(header[:6], row):
            self.prints(f'{value}\n', 'server', 'get', name, field)
        first = self.program()
        self.fails(f'server {name} has 1 clients', 'server', 'delete', name)
        self.assertEqual(self.control('server', 'delete', name, '--force').returncode, 0)
        self.assertEqual(first.allocate(4096), TERMINATED)
        self.assertNotIn(server, self.servers())
        for pattern, words in ((f'its user.s name here.* has {name}, not training', ['server', 'create', 'training']),
                               ('no device 1', ['server', 'create', name, '--allowed-devices=0,1']),
                               ('no locality domains', ['server', 'create', name, '--locality-domains=true']),
                               ('name of a user', ['server', 'create']), ('name of a user', ['server', 'create', '--uid=me']),
                               ('no server other', ['server', 'delete', 'other']), ('no server other', ['server', 'list', 'other']),
                               ("no field 'cost'", ['server', 'get', self.create(), 'cost']),
                               ("argument '--colour=red'", ['server', 'list', '--colour=red']),
                               ("argument '--uid=1'", ['server', 'create', '--uid=0', '--uid=1']),
                               ('table or csv', ['server', 'list', '--format=xml']),
                               ('table or csv', ['server', 'list', '--format=csv,nothing'])):
            self.fails(pattern, *words)

    def test_limits(self):
        name, folder = self.create(), self.folder.name
        self.prints('', 'server', 'set', name, '--pinned-memory-limit=1048576K', '--active-thread-percentage=50')
        row = ['default', name, 'Ready', '1G', '50.0', '0', folder]
        self.assertEqual(self.rows('namespace', 'list'), [row])
        self.prints('', 'namespace', 'set', 'default', f'--server={name}', '--pinned-memory-limit=512M', '--client-priority=0')
        self.prints('512M\n', 'namespace', 'get', 'default', name, 'pinned-memory-limit')
        self.assertEqual(self.rows('namespace', 'list', 'default', f'--server={name}')[0][3], '512M')
        self.assertEqual(self.program().bytes, 512 << 20)
        for pattern, words in (('needs --pinned-memory-limit or', ['server', 'set', name, '--locality-domains']),
                               ('set_default_client_priority', ['server', 'set', name, '--client-priority=1']),
                               ('no namespace high', ['namespace', 'create', 'high', f'--server={name}']),
                               ('no namespace high', ['namespace', 'list', 'high']),
                               ('while its server is', ['namespace', 'delete', 'default', f'--server={name}']),
                               ('needs --server', ['namespace', 'set', 'default', '--client-priority=0'])):
            done = self.control(*words)
            self.assertEqual((done.returncode, done.stdout), (1, ''), words)
            self.assertRegex(done.stderr, pattern if words[-1] != '--locality-domains' else 'unexpected argument')

    def test_clients(self):
        name, uuid = self.create(), self.uuid()
        first, second = self.program(), self.program()
        path = os.path.realpath(sys.executable)
        self.assertEqual(self.rows('client', 'list', f'--server={name}'),
                         [[str(one.pid), name, '0', 'default', path] for one in (first, second)])
        for field, value in ('pid', first.pid), ('server', name), ('maws-ns', 'default'), ('pci-id', '0000:00.00.00'), ('cmd', path):
            self.prints(f'{value}\n', 'client', 'get', str(first.pid), field)
        self.assertEqual(self.rows('device', 'list', f'--server={name}'),
                         [['0', name, '0000:00.00.00', uuid, self.status_or_none()['device']['name'], '4', '4', 'N/A']])
        done = self.control('client', 'terminate', str(first.pid))
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, '0\n', ''))
        self.assertEqual((first.allocate(4096), second.allocate(4096)), (TERMINATED, 0))
        while [row[0] for row in self.rows('client', 'list', '--all')] != [str(second.pid)]:
            pass
        for pid in '0', '1':
            self.fails(f'no client {pid} ', 'client', 'terminate', pid)

    def test_an_isolated_program_has_a_server_of_its_own(self):
        name = self.create()
        program = self.program()
        session = self.status_or_none()['domains'][0]['clients'][0]['session']
        self.assertEqual(run('frmpsctl', 'isolate', str(session)).returncode, 0)
        while self.rows('client', 'list')[0][1] != f'{name}_{session}':
            pass
        self.assertEqual(program.allocate(4096), 0)

    def test_partitions_have_names(self):
        name, uuid = self.create(), self.uuid()
        done = self.control('sm-partition', 'create', 'large', f'--server={name}', f'--device={uuid}', '--chunks=1')
        self.assertEqual((done.returncode, done.stdout), (
            0, f"SM partition 'large' created on device {uuid} (sm-count=1)\nCUDA_MPS_SM_PARTITION={uuid}/p1\n"))
        self.assertEqual(self.rows('sm-partition', 'list', '--all'), [['-', uuid, 'large', '1', '1', 'false', 'created', 'p1'],
                                                                      ['-', uuid, '-', '2', '2', '-', 'unallocated', '-']])
        self.program(CUDA_MPS_SM_PARTITION=f'{uuid}/p1')
        self.program(CUDA_MPS_SM_PARTITION='large')
        self.assertEqual([one['sm_partition'] for one in self.status_or_none()['domains'][0]['clients']], ['p1', 'p1'])
        for pattern, words in (('partition large already', ['create', 'large', '--device=0', '--chunks=1']),
                               ('no name for a partition', ['create', 'p7', '--device=0', '--chunks=1']),
                               ('no name for a partition', ['create', 'Large', '--device=0', '--chunks=1']),
                               ('in no chunk', ['create', 'small', '--device=0', '--chunks=1', '--include-remainder=true']),
                               ('no device 1', ['create', 'small', '--device=1', '--chunks=1']),
                               ('no partition small', ['delete', 'small', '--device=0'])):
            self.fails(pattern, 'sm-partition', *words)
        done = self.control('sm-partition', 'delete', 'large', '--device=0')
        self.assertEqual((done.returncode, done.stdout), (0, f"SM partition 'large' deleted from device {uuid}\n"))

    def test_features(self):
        self.assertEqual([row[:2] for row in self.rows('feature', 'describe')],
                         [['memacct', 'disabled (default)'], ['context-share', 'disabled (default)']])
        self.prints('', 'feature', 'disable', 'memacct')
        for words in ['feature', 'enable', 'memacct'], ['memacct', 'set', 'audit_log=true'], ['memacct', 'describe']:
            self.fails('it is not here', *words)
        self.fails('no feature x', 'feature', 'describe', 'x')


class StandIn(Bed):
    """The stand-in starts a service: beside a copy of it is a frmps-server that wants the host backend."""

    def setUp(self):
        super().setUp()
        name = self.folder.name
        del os.environ['FRMPS_SOCKET']
        self.environment = {**os.environ, 'CUDA_MPS_PIPE_DIRECTORY': os.path.join(name, 'pipe'),
                            'CUDA_MPS_LOG_DIRECTORY': os.path.join(name, 'log')}
        self.stand_in = shutil.copy(tool('nvidia-cuda-mps-control'), name)
        with open(os.path.join(name, 'frmps-server'), 'w', encoding='utf-8') as file:
            file.write(f'#!/bin/sh\nexec {os.path.abspath(tool("frmps-server"))} --config /dev/null ${{BACKEND---backend host}} "$@"\n')
        os.chmod(os.path.join(name, 'frmps-server'), 0o755)

    def control(self, *words, lines='', **more):
        return subprocess.run([self.stand_in, *words], input=lines, env={**self.environment, **more}, capture_output=True, text=True,
                              check=False)

    def test_daemon(self):
        done = self.control('-d')
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, '', ''))
        with open(os.path.join(self.folder.name, 'log', 'control.log'), encoding='utf-8') as log:
            self.assertIn('ready: host backend', log.read())
        self.assertEqual(self.control(lines='get_default_active_thread_percentage\n').stdout, '100.0\n')
        # What stock MPS would do with its own default.
        os.environ.update(self.environment)
        program = self.program()
        server = self.control('get_server_list').stdout.strip()
        self.assertEqual(self.control('get_client_list', server).stdout, f'{program.pid}\n')
        second = self.control('-multiuser-server', '-d')
        self.assertEqual(second.returncode, 1)
        self.assertEqual((second.stdout, second.stderr), ('An instance of this daemon is already running\n', ''))
        done = self.control(lines='quit -t 0\n')
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, '', ''))
        # The answer comes before the end.
        while self.control('get_server_list').returncode == 0:
            pass
        self.assertEqual(program.allocate(4096), TERMINATED)
        for name in 'CUDA_MPS_PIPE_DIRECTORY', 'CUDA_MPS_LOG_DIRECTORY':
            del os.environ[name]

    def test_it_serves_every_device(self):
        """As stock MPS does: one daemon for all devices that CUDA_VISIBLE_DEVICES leaves."""
        done = self.control('-d', FRMPS_HOST_DEVICES='2')
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, '', ''))
        rows = self.control('device_query', '--csv').stdout.splitlines()
        self.assertEqual([row.split(',')[0] for row in rows], ['Default', 'Device Ordinal', '0', '1'])
        self.assertEqual(self.control(lines='set_default_device_pinned_mem_limit 1 2G\nquit\n').returncode, 0)
        while self.control('get_server_list').returncode == 0:
            pass

    def test_no_other_service_is_meant(self):
        """A script's own service that is down does not have the machine's ended."""
        runtime = os.path.join(self.folder.name, 'runtime')
        os.mkdir(runtime)
        service = subprocess.Popen([self.stand_in, '-f'], env={**self.environment, 'CUDA_MPS_PIPE_DIRECTORY': runtime},
                                   stderr=subprocess.DEVNULL)
        elsewhere = {'CUDA_MPS_PIPE_DIRECTORY': '', 'FRMPS_SOCKET': os.path.join(runtime, 'frmps.sock')}
        while self.control('get_server_list', **elsewhere).returncode:
            self.assertIsNone(service.poll())
        empty, open_to_all = os.path.join(self.folder.name, 'empty'), os.path.join(self.folder.name, 'open')
        os.mkdir(empty)
        os.mkdir(open_to_all)
        os.chmod(open_to_all, 0o777)
        for folder in os.path.join(self.folder.name, 'none'), empty, open_to_all:
            done = self.control(lines='quit -t 0\n', CUDA_MPS_PIPE_DIRECTORY=folder, XDG_RUNTIME_DIR=runtime)
            self.assertEqual((done.returncode, done.stdout), (1, ''))
            self.assertIn('Cannot find MPS control daemon process', done.stderr)
            # Every tool means the same one.
            for words in (tool('frmpsctl'), 'status'), (tool('frmps-run'), 'true'):
                done = subprocess.run(words, env={**os.environ, 'CUDA_MPS_PIPE_DIRECTORY': folder, 'XDG_RUNTIME_DIR': runtime},
                                      capture_output=True, text=True, check=False)
                self.assertEqual((done.returncode, done.stdout), (69, ''))
                self.assertIn(f'{folder}/frmps.sock', done.stderr)
        with open(os.path.join(open_to_all, 'frmps.sock'), 'w', encoding='utf-8'):
            done = self.control('get_server_list', CUDA_MPS_PIPE_DIRECTORY=open_to_all)
        self.assertEqual(done.returncode, 1)
        self.assertIn('others than root and you can write', done.stderr)
        self.assertEqual(self.control('quit', **elsewhere).returncode, 0)
        self.assertEqual(service.wait(), 0)

    def test_protocol_3(self):
        """A configuration is done when -d returns; what it cannot do ends the service; -q ends it."""
        user, file = pwd.getpwuid(os.getuid()).pw_name, os.path.join(self.folder.name, 'mps.toml')
        good = (f'schema_version = "1.0"  # the only one\n\n[servers.{user}]\nuid = {os.getuid()}\nallowed_devices = "0"\n'
                f'pinned_memory_limit = "2G"\nclient_priority = "0"\n[servers.{user}.namespaces.default]\n'
                f'active_thread_percentage = "50"\n[[servers.{user}.devices]]\nuuid = "0"\n'
                f'[[servers.{user}.devices.sm_partitions]]\nname = "large"\nchunks = 2\n[features.memacct]\nenabled = false\n')
        for bad, says in ((good + 'colour = 1\n', ':17: there is no such key here'), (good + '[cars]\n', ':17: there is no such table'),
                          (good + 'enabled = "a\n', ':17: it is no KEY = VALUE'), ('[servers.x\n', ':1: a table.s name ends'),
                          ('schema_version = "2.0"\n', ':1: only schema_version 1.0'),
                          ('[[servers.x.devices.sm_partitions]]\n', ':1: a device needs its uuid')):
            with open(file, 'w', encoding='utf-8') as out:
                out.write(bad)
            done = self.control('-d', '-p', '3', '-a', file)
            self.assertEqual((done.returncode, done.stdout), (1, ''))
            self.assertRegex(done.stderr, says)
        self.assertFalse(os.path.exists(os.path.join(self.folder.name, 'pipe', 'frmps.sock')), 'a wrong file starts nothing')
        self.assertIn('--apply needs -d', self.control('-f', '-a', file).stderr)
        self.assertIn("2 or 3, not '4'", self.control('-d', '-p', '4').stderr)
        for text, says in (f'{good}enabled = true\n'.replace('enabled = false\n', ''), 'feature enable: it is not here'), (
                f'{good}[servers.nobody_here]\n', 'not nobody_here'):
            with open(file, 'w', encoding='utf-8') as out:
                out.write(text)
            done = self.control('-d', '-a', file)
            self.assertEqual(done.returncode, 1)
            self.assertIn(says, done.stderr)
            while self.control('server', 'list').returncode == 0:
                pass
        with open(file, 'w', encoding='utf-8') as out:
            out.write(good)
        done = self.control('-d', '-p', '3', '-a', file)
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        self.assertEqual(self.control('server', 'get', user, 'status').stdout, 'Ready\n')
        self.assertEqual(self.control('namespace', 'get', 'default', user, 'active-thread-percentage').stdout, '50.0\n')
        self.assertEqual(self.control('namespace', 'get', 'default', user, 'pinned-memory-limit').stdout, '2G\n')
        self.assertIn(',large,2,2,false,created,p1\n', self.control('sm-partition', 'list', '--format=csv').stdout)
        done = self.control('-q')
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, '', ''))
        while self.control('server', 'list').returncode == 0:
            pass
        self.assertIn('Cannot find MPS control daemon process', self.control('-q').stderr)

    def test_foreground(self):
        service = subprocess.Popen([self.stand_in, '-f'], env=self.environment, stderr=subprocess.DEVNULL)
        while self.control('get_server_list').returncode:
            self.assertIsNone(service.poll())
        self.assertEqual(self.control('quit').returncode, 0)
        self.assertEqual(service.wait(), 0)

    def test_what_goes_wrong(self):
        done = self.control('-d', BACKEND='--backend=./nonsense')
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, 'the service has ended with status 64')
        done = self.control('-d', CUDA_MPS_LOG_DIRECTORY='/nonexistent/log')
        self.assertEqual(done.returncode, 1)
        self.assertIn('/nonexistent/log/control.log: No such file or directory', done.stderr)
        for words, pattern in ((['-x'], 'unrecognized option'), (['-S', '-x'], 'unrecognized option')):
            done = self.control(*words)
            self.assertEqual((done.returncode, done.stdout), (1, ''))
            self.assertIn(pattern, done.stderr)
        os.remove(os.path.join(self.folder.name, 'frmps-server'))
        self.assertIn('frmps-server is not found', self.control('-d').stderr)
        self.assertRegex(self.control('-v').stdout, r'frmps \d')
        self.assertRegex(self.control('--help').stdout, 'usage: nvidia-cuda-mps-control')


if __name__ == '__main__':
    unittest.main()
