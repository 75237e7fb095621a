#!/usr/bin/env python3
"""The exporter beside a service and a program: what Prometheus is told agrees with `frmpsctl status --json`, every line is
of its format, and a service that is gone is down.

    exporter.py BUILD      the build folder
"""

import contextlib
import ctypes
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

BUILD = sys.argv.pop(1)
TOOLS = os.path.join(os.path.dirname(__file__), '..', '..', 'server', 'tools')
METRIC = re.compile(r'(frmps_[a-z_]+)(?:\{([^}]*)\})?')
LINE = re.compile(r'(?P<name>frmps_[a-z_]+)(?:\{(?P<labels>(?:[a-z_]+="(?:[^"\\]|\\.)*",?)*)\})? (?P<value>\d+)')
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')


def dashboard():
    """What it asks: (expression, legend)."""
    with open(os.path.join(TOOLS, 'grafana.json'), encoding='utf-8') as file:
        return [(target['expr'], target['legendFormat'])
                for panel in json.load(file)['panels'] for target in panel['targets']]


def alerts():
    with open(os.path.join(TOOLS, 'alerts.yml'), encoding='utf-8') as file:
        return [(expression, '') for expression in re.findall(r'^ +expr: (.+)$', file.read(), re.MULTILINE)]


def labels_of(expression, selector, legend):
    """Labels that an expression about one metric needs."""
    return {*re.findall(r'([a-z_]+)=', selector), *re.findall(r'\{\{([a-z_]+)\}\}', legend),
            *re.findall(r'[a-z_]+', ' '.join(re.findall(r'by \(([^)]*)\)', expression)))}


def tool(name):
    return os.path.join(BUILD, 'server', name)


class Exporter(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        os.environ['FRMPS_SOCKET'] = os.path.join(self.folder.name, 'frmps.sock')
        ready, says_ready = os.pipe()
        self.server = subprocess.Popen(
            [tool('frmps-server'), '--config', '/dev/null', '--socket', os.environ['FRMPS_SOCKET'], '--backend', 'host'],
            stderr=says_ready)
        os.close(says_ready)
        self.log = os.fdopen(ready, errors='replace')
        while subprocess.run([tool('frmpsctl'), 'ping'], stderr=subprocess.DEVNULL).returncode:
            self.assertIsNone(self.server.poll(), 'the service has ended')
        self.exporter = subprocess.Popen([tool('frmps-exporter'), '--listen', '127.0.0.1:0'], stdout=subprocess.PIPE,
                                         stderr=subprocess.DEVNULL, text=True)
        self.where = re.fullmatch(r'http://([^/]+)/metrics\n', self.exporter.stdout.readline())[1]

    def tearDown(self):
        for process in self.exporter, self.server:
            process.kill()
            process.wait()
        self.exporter.stdout.close()
        self.log.close()
        self.folder.cleanup()

    def ask(self, method, path, timeout=60):
        connection = http.client.HTTPConnection(self.where, timeout=timeout)
        connection.request(method, path)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, answer.getheader('Content-Type'), text

    def samples(self):
        status, kind, text = self.ask('GET', '/metrics')
        self.assertEqual((status, kind), (200, 'text/plain; version=0.0.4; charset=utf-8'))
        found = []
        for line in text.splitlines():
            if not line.startswith('#'):
                match = LINE.fullmatch(line)
                self.assertTrue(match, line)
                found.append((match['name'], dict(LABEL.findall(match['labels'] or '')), int(match['value'])))
        return found

    def test_figures_are_those_of_the_status(self):
        cuda = ctypes.CDLL(os.path.join(BUILD, 'client', 'libcuda.so.1'))
        context, memory = ctypes.c_void_p(), ctypes.c_uint64()
        self.assertEqual(cuda.cuInit(0), 0)
        self.assertEqual(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), 0)
        self.assertEqual(cuda.cuCtxSetCurrent(context), 0)
        self.assertEqual(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(5 << 20)), 0)
        status = json.loads(subprocess.check_output([tool('frmpsctl'), 'status', '--json']))
        sessions = [one for domain in status['domains'] for one in domain['clients']]
        self.assertEqual([one['pid'] for one in sessions], [os.getpid()])
        samples = self.samples()
        self.assertIn(('frmps_up', {}, 1), samples)
        mine = {name: value for name, labels, value in samples if labels.get('session') == str(sessions[0]['session'])}
        self.assertEqual(mine['frmps_session_device_memory_bytes'], sessions[0]['memory_bytes'])
        self.assertGreaterEqual(sessions[0]['memory_bytes'], 5 << 20)
        self.assertEqual(mine['frmps_session_pinned_memory_bytes'], sessions[0]['host_bytes'])
        label = next(labels for name, labels, _ in samples if name == 'frmps_session_image_bytes')
        self.assertEqual((label['pid'], label['uid']), (str(os.getpid()), str(os.getuid())))
        self.assertEqual(label.get('cgroup'), sessions[0]['cgroup'])
        for name, value in status['counters'].items():
            self.assertIn((f'frmps_{name}_total', {}, value), samples)
        self.assertTrue(status['events'])
        for kind, value in status['events'].items():
            self.assertIn(('frmps_events_total', {'kind': kind}, value), samples)
        executors = sum(len(domain['executors']) for domain in status['domains'] if domain['uid'] is not None)
        self.assertEqual(sum(name == 'frmps_executor' for name, _, _ in samples), executors)
        self.check_labels(samples)
        # The library's threads end with the process: nothing of it may wait for a service that is gone.

    def check_labels(self, samples):
        """Dashboard and alerts ask for labels that there are. Prometheus adds instance."""
        for expression, legend in dashboard() + alerts():
            for name, selector in METRIC.findall(expression):
                found = [labels for other, labels, _ in samples if other == name]
                self.assertTrue(found, name)
                self.assertLessEqual(labels_of(expression, selector, legend) - {'instance'}, set(found[0]), expression)
                for kind in re.findall(r'kind=~?"([a-z|]+)"', selector):
                    self.assertLessEqual(set(kind.split('|')), {labels['kind'] for labels in found})

    def test_a_service_that_is_gone_is_down(self):
        self.server.send_signal(signal.SIGTERM)
        self.server.wait()
        self.assertEqual(self.samples(), [('frmps_up', {}, 0)])

    def test_a_service_that_hangs_is_down(self):
        daemon = json.loads(subprocess.check_output([tool('frmpsctl'), 'status', '--json']))['pid']
        os.kill(daemon, signal.SIGSTOP)
        try:
            self.assertEqual(self.samples(), [('frmps_up', {}, 0)])
        finally:
            os.kill(daemon, signal.SIGCONT)

    def test_connections_that_say_nothing_keep_nobody_out(self):
        host, port = self.where.split(':')
        with contextlib.ExitStack() as silent:
            for _ in range(40):
                silent.enter_context(socket.create_connection((host, int(port))))
            # As long as Prometheus waits for an answer.
            self.assertEqual(self.ask('GET', '/', timeout=10)[0], 200)

    def test_what_it_does_not_have(self):
        self.assertEqual(self.ask('GET', '/metric')[0], 404)
        self.assertEqual(self.ask('POST', '/metrics')[0], 405)
        self.assertEqual(self.ask('GET', '/')[0], 200)

    def test_an_answer_that_cannot_be_written_is_an_error(self):
        with open('/dev/full', 'w', encoding='utf-8') as full:
            for option in '--help', '--version':
                self.assertEqual(subprocess.run([tool('frmps-exporter'), option], stdout=full).returncode, 1)

    def test_the_dashboard_asks_for_what_there_is(self):
        there = set(re.findall(r'# TYPE (\S+)', self.ask('GET', '/metrics')[2]))
        for expressions in dashboard(), alerts():
            asked = {name for expression, _ in expressions for name, _ in METRIC.findall(expression)}
            self.assertTrue(asked)
            self.assertEqual(asked - there, set())

    def test_the_dashboard_is_of_the_services_that_were_chosen(self):
        for expression, _ in dashboard():
            for name, selector in METRIC.findall(expression):
                self.assertIn('instance=~"$instance"', selector, name)

    def test_it_ends_when_told(self):
        self.exporter.terminate()
        self.assertEqual(self.exporter.wait(), 0)

    def test_wrong_usage(self):
        for arguments in (['--listen', 'nowhere'], ['--listen', 'localhost:1'], ['--listen', '127.0.0.1:65536'],
                          ['--listen', '127.0.0.1:-1'], ['--nonsense'], ['word']):
            done = subprocess.run([tool('frmps-exporter')] + arguments, capture_output=True, text=True, timeout=20)
            self.assertEqual((done.returncode, done.stdout), (64, ''), arguments)
            self.assertIn('frmps-exporter: ', done.stderr)
        taken = subprocess.run([tool('frmps-exporter'), '--listen', self.where], capture_output=True, text=True)
        self.assertEqual(taken.returncode, 71)


if __name__ == '__main__':
    unittest.main()
