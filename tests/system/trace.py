#!/usr/bin/env python3
"""What `frmps-run --trace` writes of programs (traced.c): names, times, order, nesting and arrows; and what is left of it when a
program forks, faults, is killed, or cannot write. FRMPS_TEST_BACKEND and FRMPS_TEST_KERNELS say on what and with which kernels.

    trace.py BUILD
"""

import collections
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BUILD = sys.argv.pop(1)
BACKEND = os.environ.get('FRMPS_TEST_BACKEND', 'host')
if BACKEND == 'host':
    os.environ.pop('LD_LIBRARY_PATH', None)  # meson puts the folders of all libraries there
PROGRAM = os.path.join(BUILD, 'tests', 'traced')
BYTES = 65536 * 4
STREAMS = 8388608
# A limit for files, the program's image among them, which has less; a trace of many commands has more.
MOST = 4000000
# A float has this much of a moment in microseconds.
EPSILON = 0.002


def tool(name):
    return os.path.join(BUILD, 'server', name)


def end(event):
    return event['ts'] + event['dur']


class File:
    """Events of a trace. The file is whole: it is read as it stands."""

    def __init__(self, path):
        self.events = json.loads(pathlib.Path(path).read_text(encoding='utf-8'))
        self.slices = [event for event in self.events if event['ph'] == 'X']
        self.device = [event for event in self.slices if event['tid'] >= STREAMS]
        self.calls = [event for event in self.slices if event['cat'] == 'call']
        self.names = {(event['name'], event['tid']): event['args']['name'] for event in self.events if event['ph'] == 'M'}
        self.moments = [event for event in self.events if event['ph'] == 'i']

    def count(self):
        return collections.Counter((event['cat'], event['name']) for event in self.device)

    def tracks(self):
        tracks = collections.defaultdict(list)
        for event in self.slices:
            tracks[event['tid']].append(event)
        return tracks


class Trace(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.TemporaryDirectory()
        os.environ['FRMPS_SOCKET'] = os.path.join(cls.place.name, 'frmps.sock')
        os.environ.pop('NVTX_INJECTION64_PATH', None)
        config = os.path.join(cls.place.name, 'frmps.conf')
        # A program that faults is not served elsewhere afterwards.
        pathlib.Path(config).write_text('quarantine_faults = 0\n', encoding='utf-8')
        with open(os.path.join(cls.place.name, 'log'), 'w', encoding='utf-8') as log:
            cls.server = subprocess.Popen([tool('frmps-server'), '--config', config, '--backend', BACKEND], stderr=log)
        while subprocess.run([tool('frmpsctl'), 'ping'], capture_output=True, check=False).returncode:
            if cls.server.poll() is not None:
                raise RuntimeError('the service has ended')

    @classmethod
    def tearDownClass(cls):
        cls.server.terminate()
        if cls.server.wait():
            raise RuntimeError('the service has not ended well')
        cls.place.cleanup()

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, 'trace.json')

    def tearDown(self):
        self.folder.cleanup()

    def run_program(self, *words, options=None, **more):
        options = ['--trace', self.path] if options is None else options
        return subprocess.run([tool('frmps-run'), *options, PROGRAM, *words], capture_output=True, text=True, check=False,
                              timeout=100, **more)

    def trace(self, *words):
        done = self.run_program(*words)
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        return File(self.path)

    def await_step(self):
        """Until the file has a step of the program that runs: a command, and the wait for it."""
        until = time.monotonic() + 20
        while time.monotonic() < until:
            try:
                trace = File(self.path)
                if trace.device and any(call['name'] == 'cuCtxSynchronize' for call in trace.calls):
                    return
            except ValueError:  # it was read in the middle of a write
                pass
        self.fail('the file has no step')

    def check_work(self, trace):
        """The commands of the program `work`."""
        self.assertEqual(trace.count(), {('kernel', 'fill'): 4, ('kernel', 'spin_ns'): 3, ('graph', 'graph'): 2, ('fill', 'fill'): 1,
                                         ('copy', 'copy HtoD'): 1, ('copy', 'copy DtoD'): 1, ('copy', 'copy DtoH'): 4})
        self.assertEqual({event['pid'] for event in trace.events}, {trace.events[0]['pid']})
        self.assertEqual(trace.names['process_name', trace.events[0]['pid']], 'traced')

    def test_commands_have_their_names_sizes_and_times(self):
        trace = self.trace('work')
        self.check_work(trace)
        for event in trace.device:
            args = event['args']
            if event['name'] == 'fill' and event['cat'] == 'kernel':
                self.assertEqual((args['grid'], args['block'], args['shared_bytes']), ([4, 1, 1], [32, 1, 1], 0))
            if event['name'] == 'spin_ns':
                self.assertGreaterEqual(event['dur'], 1990)  # the device's timer has steps
            if event['cat'] in ('copy', 'fill'):
                self.assertEqual(args['bytes'], BYTES)
            if event['cat'] == 'graph':
                self.assertEqual(args['nodes'], 3)
            self.assertEqual(trace.names['thread_name', event['tid']].split()[:2], ['stream', str(args['stream'])])
            self.assertEqual(event['tid'], STREAMS + args['stream'])
        ways = collections.Counter((event['args']['from'], event['args']['to']) for event in trace.device if event['cat'] == 'copy')
        self.assertEqual(ways, {('pageable', 'device'): 1, ('device', 'device'): 1, ('device', 'pinned'): 1, ('device', 'pageable'): 3})
        # Default, one of the thread, two of the rest.
        self.assertEqual(len({event['tid'] for event in trace.device}), 4)

    def test_tracks_are_in_order(self):
        trace = self.trace('work')
        for track, events in trace.tracks().items():
            events.sort(key=lambda event: (event['ts'], -event['dur']))
            if track >= STREAMS:
                numbers = [event['args']['correlation'] for event in events]
                self.assertEqual(numbers, sorted(numbers))
                for one, other in zip(events, events[1:]):
                    self.assertLessEqual(end(one), other['ts'] + EPSILON)
            else:
                # Calls follow each other, or are inside each other.
                for one, other in zip(events, events[1:]):
                    self.assertTrue(end(one) <= other['ts'] + EPSILON or end(other) <= end(one) + EPSILON, (one, other))

    def test_arrows_lead_from_calls_to_commands(self):
        trace = self.trace('work')
        begins = {event['id']: event for event in trace.events if event['ph'] == 's'}
        ends = {event['id']: event for event in trace.events if event['ph'] == 'f'}
        self.assertEqual(len(begins), len(trace.device))
        self.assertEqual(begins.keys(), ends.keys())
        call_of = {'kernel': 'cuLaunchKernel', 'graph': 'cuGraphLaunch', 'fill': 'cuMemsetD32Async', 'copy': 'cuMemcpy'}
        for event in trace.device:
            begin, to = (arrows[event['args']['correlation']] for arrows in (begins, ends))
            self.assertEqual((to['tid'], to['ts']), (event['tid'], event['ts']))
            calls = [call for call in trace.calls if call['tid'] == begin['tid'] and call['ts'] <= begin['ts'] <= end(call)]
            self.assertEqual(len(calls), 1)
            self.assertTrue(calls[0]['name'].startswith(call_of[event['cat']]), calls[0])
            self.assertEqual((calls[0]['args']['correlation'], calls[0]['args']['command']),
                             (event['args']['correlation'], event['name']))
            # The clocks are compared so that no command runs before its call, or after the program has waited for it.
            self.assertGreaterEqual(event['ts'] + EPSILON, begin['ts'])
            waits = [call for call in trace.calls if call['tid'] == begin['tid'] and end(call) >= end(event) and
                     ('Synchronize' in call['name'] or 'DtoH' in call['name'])]
            self.assertTrue(waits, event)

    def test_ranges_and_marks(self):
        trace = self.trace('work')
        marks = sorted((event for event in trace.events if event.get('cat') == 'nvtx'), key=lambda event: event['ts'])
        main = trace.events[0]['pid']
        self.assertEqual([(event['ph'], event['name']) for event in marks if event['tid'] == main],
                         [('B', 'outer "quoted"\nä?'), ('B', 'inner'), ('i', 'half'), ('E', ''), ('E', '')])
        begin, over = (event for event in marks if event['tid'] != main)
        self.assertEqual((begin['ph'], begin['name'], over['ph']), ('B', 'thread', 'E'))
        inside = [call['name'] for call in trace.calls if call['tid'] == begin['tid'] and
                  begin['ts'] <= call['ts'] and end(call) <= over['ts'] and call['name'] != 'cuModuleGetFunction']
        self.assertEqual(inside, ['cuLaunchKernel'] * 3 + ['cuStreamSynchronize'])

    def test_children_have_files_of_their_own(self):
        self.trace('fork')
        files = sorted(pathlib.Path(self.folder.name).iterdir())
        self.assertEqual(len(files), 2)
        for path in files:
            self.check_work(File(path))
        pids = [File(path).events[0]['pid'] for path in files]
        self.assertEqual([str(path) for path in files], [self.path, f'{self.path}.{pids[1]}'])
        self.assertNotEqual(*pids)

    def test_a_fault_is_shown(self):
        done = self.run_program('fault')
        plain = self.run_program('fault', options=[])
        self.assertEqual((done.returncode, done.stdout), (plain.returncode, plain.stdout))
        self.assertEqual(len(done.stderr.splitlines()), len(plain.stderr.splitlines()))
        self.assertEqual(done.stdout, '719\n')
        trace = File(self.path)
        moment, = trace.moments
        # The contained kernel has an end, which may be seen later than the error.
        self.assertRegex(moment['name'], '^error 719: the session is over, [01] commands have no end$')
        self.assertEqual([call['args']['command'] for call in trace.calls if call['name'] == 'cuLaunchKernel'], ['fill', 'crash_trap'])
        self.assertEqual(trace.count()['kernel', 'fill'], 1)

    def start_steps(self):
        return subprocess.Popen([tool('frmps-run'), '--trace', self.path, PROGRAM, 'steps'], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True)

    def step(self, program):
        program.stdin.write('step\n')
        program.stdin.flush()
        self.assertEqual(program.stdout.readline(), 'done\n')

    def test_what_was_done_is_there_when_a_program_is_killed(self):
        with self.start_steps() as program:
            self.step(program)
            self.await_step()
            program.send_signal(signal.SIGKILL)
            program.wait()
        trace = File(self.path)
        self.assertEqual(trace.count(), {('kernel', 'spin_ns'): 1})
        self.assertEqual([call['name'] for call in trace.calls][-2:], ['cuLaunchKernel', 'cuCtxSynchronize'])

    def test_another_executor_goes_on(self):
        with self.start_steps() as program:
            self.step(program)
            self.await_step()  # else the executor's end may take its times along
            status = json.loads(subprocess.run([tool('frmpsctl'), 'status', '--json'], capture_output=True, check=True).stdout)
            active, = (one for domain in status['domains'] for one in domain['executors'] if one['role'] == 'active')
            os.kill(active['pid'], signal.SIGKILL)
            for _ in range(3):
                self.step(program)
            program.stdin.close()
            self.assertEqual(program.wait(), 0)
        trace = File(self.path)
        self.assertEqual(trace.count(), {('kernel', 'spin_ns'): 4})
        waits = [call for call in trace.calls if call['name'] == 'cuCtxSynchronize']
        for kernel, wait in zip(trace.device, waits):
            self.assertLessEqual(end(kernel), end(wait) + EPSILON)
        self.assertEqual([event['ts'] for event in trace.device], sorted(event['ts'] for event in trace.device))

    def test_exit_waits_for_what_is_under_way(self):
        self.assertEqual(self.trace('leave').count(), {('kernel', 'spin_ns'): 3})

    def test_all_of_many_commands(self):
        trace = self.trace('many', '20000')
        numbers = [event['args']['correlation'] for event in trace.device if event['cat'] == 'kernel']
        timed, lost = len(numbers), 20000 - len(numbers)
        self.assertEqual(len(set(numbers)), timed)
        # A slow disk may lose some, but not silently.
        self.assertEqual(bool(lost), bool(trace.moments), lost)

    def test_a_file_that_cannot_be_written_changes_nothing(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (MOST, MOST))

        done = self.run_program('many', '20000', preexec_fn=limit)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn('File too large', done.stderr)
        self.assertLessEqual(os.stat(self.path).st_size, MOST)
        self.assertIsInstance(File(self.path).events, list)

    def test_a_file_that_cannot_be_made_is_said_before(self):
        for path in '/nonexistent/trace.json', self.folder.name, '/dev/null':
            self.path = path
            done = self.run_program('work')
            self.assertEqual(done.returncode, 73, done.stderr)
            self.assertIn(path, done.stderr)

    def test_only_frmps_run_replaces_a_file(self):
        path = pathlib.Path(self.path)
        path.write_text('old', encoding='utf-8')
        self.check_work(self.trace('work'))
        path.write_text('old', encoding='utf-8')
        done = self.run_program('leave', options=[], env={**os.environ, 'FRMPS_TRACE': self.path})
        self.assertEqual((done.returncode, done.stderr, path.read_text(encoding='utf-8')), (0, '', 'old'))
        other, = (other for other in path.parent.iterdir() if other != path)
        self.assertEqual(File(other).count(), {('kernel', 'spin_ns'): 3})

    def test_the_program_may_leave_the_directory(self):
        done = subprocess.run([tool('frmps-run'), '--trace', 'trace.json', 'sh', '-c', f'cd / && {PROGRAM} leave'],
                              cwd=self.folder.name, check=False)
        self.assertEqual(done.returncode, 0)
        # The shell that has run it uses no device.
        self.assertEqual(File(self.path).count(), {('kernel', 'spin_ns'): 3})

    def test_a_file_in_the_place_of_standard_error_has_no_text_of_it(self):
        done = subprocess.run([tool('frmps-run'), '--trace', self.path, 'sh', '-c', f'exec {PROGRAM} fault 2>&-'], check=False)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(len(File(self.path).moments), 1)

    def test_another_tool_keeps_its_marks(self):
        done = self.run_program('work', env={**os.environ, 'NVTX_INJECTION64_PATH': '/nonexistent/tool.so'})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertFalse([event for event in File(self.path).events if event.get('cat') == 'nvtx'])

    def test_without_a_service_there_is_no_trace(self):
        done = subprocess.run([tool('frmps-run'), '--allow-native', '--socket', '/nonexistent/s', '--trace', self.path, 'true'],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0)
        self.assertIn('without a trace', done.stderr)
        self.assertFalse(os.path.exists(self.path))


if __name__ == '__main__':
    unittest.main()
