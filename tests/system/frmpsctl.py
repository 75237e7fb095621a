#!/usr/bin/env python3
"""What frmpsctl shows of a service with programs: events as they happen and behind the end of whom they are about, and what
each command of its table prints; and a service whose log nobody reads.

    frmpsctl.py BUILD      the build folder
"""

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import unittest

BUILD = sys.argv.pop(1)
TABLE = os.path.join(os.path.dirname(__file__), '..', '..', 'server', 'tools', 'frmpsctl.def')
CTL = os.path.join(BUILD, 'server', 'frmpsctl')

# A program that has a context and some device memory; each line that it reads is a kernel to launch, the answer is the driver's code.
PROGRAM = """
import ctypes, sys
cuda = ctypes.CDLL(sys.argv[1])
context, module, function, memory = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
assert not cuda.cuInit(0) and not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
assert not cuda.cuCtxSetCurrent(context) and not cuda.cuModuleLoad(ctypes.byref(module), sys.argv[2].encode())
assert not cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4096))
print('ready', flush=True)
for line in sys.stdin:
    assert not cuda.cuModuleGetFunction(ctypes.byref(function), module, line.strip().encode())
    code = cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None) or cuda.cuCtxSynchronize()
    print(code, flush=True)
"""


def commands():
    """The rows of the table: (name, arguments). Verbs of stock MPS are rows of another kind: they print what its own program
    prints, and tests/system/mps.py has them."""
    with open(TABLE, encoding='utf-8') as file:
        return re.findall(r'^COMMAND\("([^"]+)", "([^"]*)"', file.read(), re.MULTILINE)


def run(*arguments):
    return subprocess.run([CTL, *arguments], capture_output=True, text=True, timeout=120)


def read_or_nothing(fd):
    """A terminal whose other end is closed has an error."""
    try:
        return os.read(fd, 65536)
    except OSError:
        return b''


class Service(unittest.TestCase):
    def standard_error(self):
        """Of the service."""
        return self.log

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.programs = []
        # A folder of its own, as a container needs it.
        os.mkdir(os.path.join(self.folder.name, 'socket'))
        os.environ['FRMPS_SOCKET'] = os.path.join(self.folder.name, 'socket', 'frmps.sock')
        os.environ['FRMPS_SHIM_DIR'] = os.path.join(BUILD, 'client')
        os.environ['TZ'] = 'UTC'
        self.log = open(os.path.join(self.folder.name, 'log'), 'w+', encoding='utf-8', errors='replace')
        self.server = subprocess.Popen([os.path.join(BUILD, 'server', 'frmps-server'), '--config', '/dev/null', '--socket',
                                        os.environ['FRMPS_SOCKET'], '--backend', 'host'],
                                       stderr=self.standard_error())
        while run('ping').returncode:
            self.assertIsNone(self.server.poll(), 'the service has ended')

    def tearDown(self):
        for process in [*self.programs, self.server]:
            process.kill()
            process.wait()
            for pipe in process.stdin, process.stdout:
                if pipe:
                    pipe.close()
        self.log.close()
        self.folder.cleanup()

    def start(self, *arguments):
        process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True,
                                   bufsize=1)
        self.programs.append(process)
        return process

    def program(self, *script):
        """A program that is served, and its session. @script: what the interpreter runs instead of the text"""
        process = self.start(sys.executable, *(script or ['-c', PROGRAM]), os.path.join(BUILD, 'client', 'libcuda.so.1'),
                             os.path.join(BUILD, 'tests', 'host_kernels.so'))
        self.assertEqual(process.stdout.readline(), 'ready\n')
        sessions = [one for domain in self.show('status')['domains'] for one in domain['clients']]
        return process, next(one['session'] for one in sessions if one['pid'] == process.pid)

    def show(self, *arguments):
        done = run(*arguments, '--json')
        self.assertEqual((done.returncode, done.stderr), (0, ''), arguments)
        return json.loads(done.stdout)


class Frmpsctl(Service):
    def follow(self):
        """frmpsctl events --follow --json, and what it says of the next event of a kind."""
        process = self.start(CTL, 'events', '--follow', '--json')

        def wait(kind):
            while True:
                event = json.loads(process.stdout.readline())
                if event.get('kind') == kind:
                    return event
        return process, wait

    def test_a_culprit_is_found_behind_its_end(self):
        follower, wait = self.follow()
        culprit, session = self.program()
        culprit.stdin.write('crash_trap\n')
        self.assertNotEqual(culprit.stdout.readline(), '0\n')
        culprit.stdin.close()
        self.assertEqual(culprit.wait(), 0)
        verdict = wait('verdict')
        self.assertEqual((verdict['session'], verdict['pid'], verdict['uid']), (session, culprit.pid, os.getuid()))
        self.assertIn('python', verdict['program'])
        self.assertIn('kernel crash_trap', verdict['text'])
        # Nobody who follows is disturbed by a new daemon, and nothing is forgotten.
        os.kill(self.show('status')['pid'], signal.SIGKILL)
        self.assertGreater(wait('daemon')['number'], verdict['number'])
        self.assertIn(verdict, self.show('events')['events'])
        self.assertEqual(self.show('faults')['faults'][0]['verdict'], verdict['text'])
        text = run('events').stdout
        self.assertRegex(text, rf'(?m)^\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{{3}}  verdict     user {os.getuid()}  culprit is process')
        # The follower ends with the service.
        self.server.terminate()
        self.assertEqual(follower.wait(), 69)

    def test_interpreters_are_shown_with_their_script(self):
        script = os.path.join(self.folder.name, 'train.py')
        with open(script, 'w', encoding='utf-8') as file:
            file.write(PROGRAM)
        self.program(script)
        for command in 'status', 'top':
            self.assertRegex(run(command).stdout, r'online +100 .*python[0-9.]* train\.py\n')

    def test_what_an_operator_does_is_an_event(self):
        _, wait = self.follow()
        _, session = self.program()
        self.assertEqual(run('isolate', str(session)).returncode, 0)
        self.assertEqual(wait('move')['session'], session)
        self.assertEqual(run('terminate', str(session)).returncode, 0)
        self.assertEqual(wait('terminated')['session'], session)
        counts = self.show('status')['events']
        self.assertEqual((counts['move'], counts['terminated']), (1, 1))

    def test_a_reader_who_stands_still_holds_nobody_up(self):
        follower, wait = self.follow()
        follower.send_signal(signal.SIGSTOP)
        for _ in range(3):
            _, session = self.program()
            self.assertEqual(run('terminate', str(session)).returncode, 0)
        self.assertEqual(self.show('status')['events']['terminated'], 3)
        follower.send_signal(signal.SIGCONT)
        self.assertEqual([wait('terminated')['session'] for _ in range(3)], [session - 2, session - 1, session])

    def test_top_ends_at_q_and_leaves_the_terminal_as_it_was(self):
        terminal, its = pty.openpty()
        before = termios.tcgetattr(its)
        top = subprocess.Popen([CTL, 'top'], stdin=its, stdout=its, stderr=its)
        self.programs.append(top)
        while b'COMMANDS' not in os.read(terminal, 65536).upper():
            self.assertIsNone(top.poll())
        # Pressed before the first second is over, or later.
        os.write(terminal, b'xq')
        reader = threading.Thread(target=lambda: [None for _ in iter(lambda: read_or_nothing(terminal), b'')], daemon=True)
        reader.start()
        self.assertEqual(top.wait(60), 0)
        self.assertEqual(termios.tcgetattr(its), before)
        os.close(its)
        reader.join()
        os.close(terminal)

    def test_operators_keep_no_program_from_the_service(self):
        # As many as a user may have, each of whom has been answered. What frmpsctl says is read from a socket in its place.
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(os.path.join(self.folder.name, 'ours'))
            listener.listen()
            asker = self.start(CTL, '--socket', os.path.join(self.folder.name, 'ours'), 'ping')
            connection, _ = listener.accept()
            ping = connection.recv(1 << 16)
            connection.close()
            asker.wait()
        for _ in range(32):
            operator = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.addCleanup(operator.close)
            operator.settimeout(60)
            operator.connect(os.environ['FRMPS_SOCKET'])
            operator.send(ping)
            self.assertTrue(operator.recv(1 << 16))
        self.assertIn('as many connections of frmpsctl as there may be', run('ping').stderr)
        done = subprocess.run([os.path.join(BUILD, 'server', 'frmps-run'), '--allow-native', 'true'], capture_output=True,
                              text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ''))

    def arguments(self, name, words, session):
        """Some for a command, by the words of its row."""
        there = {'SESSION': str(session), 'NUMBER': '1'}
        for word in words.split():
            if word.startswith('['):
                continue
            word = word.split('|')[0]
            self.assertTrue(word in there or word.islower(), f'{name}: what {word} is, is to be said here')
            yield there.get(word, word)

    def test_each_command_has_json_or_prints_nothing(self):
        culprit, _ = self.program()
        culprit.stdin.write('crash_trap\n')
        culprit.stdout.readline()
        for name, words in commands():
            # Other tests drain devices (devices.py), move programs to others (test_migrate) and save them (test_saved); here
            # no program would be served after the first, there is no device for the second, and there may be no CRIU.
            if name in ('drain', 'migrate', 'checkpoint', 'restore'):
                continue
            _, session = self.program()
            call = [*name.split(), *self.arguments(name, words, session)]
            with self.subTest(call=call):
                done = run(*call, *(['--json'] if '--json' in words else []))
                # The machine may have something that the doctor calls wrong.
                self.assertIn(done.returncode, (0, 1) if name == 'doctor' else (0,), done.stderr)
                if '--json' in words:
                    self.assertIsInstance(json.loads(done.stdout), (dict, list))
                else:
                    self.assertEqual(done.stdout, '')
                    self.assertEqual(run(*call, '--json').returncode, 64)

    def test_each_command_has_help_and_completion(self):
        completion = os.path.join(BUILD, 'server', 'man', 'frmpsctl')
        for name, words in commands():
            with self.subTest(name=name):
                done = run(*name.split(), '--help')
                self.assertEqual((done.returncode, done.stderr), (0, ''))
                self.assertTrue(done.stdout.startswith(f'usage: frmpsctl {name}{" " if words else ""}{words}\n'), done.stdout)
                script = f'. {completion}; COMP_WORDS=(frmpsctl {name} ""); COMP_CWORD={len(name.split()) + 1}; _frmpsctl; ' \
                    'echo "${COMPREPLY[@]}"'
                offered = subprocess.check_output(['bash', '-c', script], text=True).split()
                for flag in re.findall(r'\[(--[a-z]+)\]', words) + ['--help']:
                    self.assertIn(flag, offered)


class BlockedJournal(Service):
    def standard_error(self):
        """A stream, as the journal's are, whose other end nobody reads."""
        self.journal, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        status = os.fstat(end.fileno())
        os.environ['JOURNAL_STREAM'] = f'{status.st_dev}:{status.st_ino}'
        self.addCleanup(os.environ.pop, 'JOURNAL_STREAM')
        self.addCleanup(self.journal.close)
        self.addCleanup(end.close)
        return end

    def test_it_holds_nobody_up(self):
        _, session = self.program()
        # Each is a line of the log.
        for _ in range(40):
            self.assertEqual(run('recovery', str(session), 'replay').returncode, 0)
        self.journal.settimeout(60)
        text = self.journal.recv(1 << 20).decode()
        self.assertTrue(text.startswith('<6>frmps: '), text)
        self.assertNotIn('lines are lost', text)
        self.assertEqual(run('recovery', str(session), 'fail').returncode, 0)
        while 'recovery is fail' not in text:
            text += self.journal.recv(1 << 20).decode()
        self.assertRegex(text, r'<4>frmps: \d+ lines are lost: there was no room for them\n<6>frmps: ')


if __name__ == '__main__':
    unittest.main()
