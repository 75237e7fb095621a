"""What tests/run.sh does once the packages are there: builds three times, runs every test, says all the time what it does.

Two things happen side by side. The plain build's tests wait for most of their time; meanwhile the sanitizers' builds compile
and run their unit tests, at a low priority. The system tests of the address build follow. Each test's limit is counted on a
clock that is as slow as the machine is busy, so a loaded machine fails no test that would pass on an idle one. What every
test said lies in BUILD/testlogs. Only Python's own library is used.
"""

import collections
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

QUIET_S = 5  # nothing is printed for no longer than that
PROCESSORS = len(os.sched_getaffinity(0))
SUMMARY_LINES = 12  # of one failed test
SLOWEST = 12


def duration(seconds):
    seconds = int(seconds)
    return f'{seconds // 60}:{seconds % 60:02}'


class Clock:
    """A clock for limits. It ticks as fast as the machine serves one of its processes: half as fast where twice as many
    want to run as there are processors, and not at all while nothing runs, this process included."""

    TICK_S = 0.5

    def __init__(self, load=lambda: os.getloadavg()[0]):
        self.load = load
        self.now = 0.0

    def rate(self):
        return min(1.0, PROCESSORS / max(self.load(), 0.01))

    def tick(self, elapsed):
        """@elapsed: seconds of the wall clock since the last tick"""
        self.now += min(elapsed, 2 * self.TICK_S) * self.rate()


class Display:
    """Lines with the time since the start; and what runs, where nothing else was printed for a while."""

    def __init__(self, out=sys.stdout):
        self.out = out
        self.start = self.last = time.monotonic()
        self.lock = threading.RLock()
        self.running = {}  # what: [since, text]

    def say(self, text):
        with self.lock:
            self.last = time.monotonic()
            print(f'[{duration(self.last - self.start):>5}] {text}', file=self.out, flush=True)

    def begin(self, what, text=''):
        with self.lock:
            self.running[what] = [time.monotonic(), text]

    def change(self, what, text):
        with self.lock:
            self.running[what][1] = text

    def end(self, what):
        with self.lock:
            return time.monotonic() - self.running.pop(what)[0]

    def tick(self):
        with self.lock:
            now = time.monotonic()
            if now - self.last >= QUIET_S and self.running:
                self.say('... ' + ', '.join(f'{what} {text + " " if text else ""}({now - since:.0f} s)'
                    for what, (since, text) in self.running.items()))


class Test:
    """A test of one build, and what became of it."""

    def __init__(self, build, entry):
        self.build = build
        self.name = entry['name']
        self.command = entry['cmd']
        self.folder = entry['workdir'] or build
        self.environment = entry['env']
        self.limit = entry['timeout']
        self.suites = {suite.split(':')[-1] for suite in entry['suite']}
        self.priority = entry['priority']
        self.log = os.path.join(build, 'testlogs', self.name.replace('/', '-') + '.txt')
        self.outcome = None  # ok, skipped, failed
        self.why = ''
        self.seconds = 0.0

    def lines_of_failure(self):
        with open(self.log, errors='replace') as file:
            lines = file.read().splitlines()
        # libcheck's, then what sanitizers and scripts say; else its last words.
        for pattern in (r':[FE]:', r'ERROR: \w+Sanitizer|runtime error|WARNING: ThreadSanitizer', r'(Assertion|Error|FAILED)\b'):
            found = [line for line in lines if re.search(pattern, line)]
            if found:
                return found[:SUMMARY_LINES]
        return [line for line in lines if line.strip()][-SUMMARY_LINES:]


class Runner:
    def __init__(self, display, clock, wrapper=()):
        self.display = display
        self.clock = clock
        self.wrapper = list(wrapper)
        self.at_once = PROCESSORS + 1  # tests of a build: they wait, too
        self.tests = []  # that have run
        self.broken = []  # builds that could not be made, suites without a test: (what, lines)
        self.skipped = []  # builds that this machine cannot run: (what, why)
        self.spent = []  # (what, seconds)
        self.children = set()
        self.lock = threading.Lock()
        self.is_over = False

    # Processes

    def spawn(self, command, nice, **options):
        def lower():
            if nice:
                os.nice(nice)

        with self.lock:
            if self.is_over:
                raise KeyboardInterrupt
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=lower, **options)
            self.children.add(child)
            return child

    def forget(self, child):
        with self.lock:
            self.children.discard(child)

    def stop(self):
        """Ends all that was started."""
        with self.lock:
            self.is_over = True
            for child in self.children:
                end_group(child)

    # Builds

    def make(self, folder, options, nice=0):
        """Configures and compiles. Return: whether it was built"""
        os.makedirs(folder, exist_ok=True)
        began = time.monotonic()
        self.display.say(f'{folder}: is configured')
        log = tempfile.NamedTemporaryFile('w+', prefix='frmps-build-', suffix='.log')
        self.display.begin(folder, 'is configured')
        for command in ('. tests/lib/build.sh; configure "$@"', 'shift; ninja -C "$0" -j' + str(PROCESSORS)):
            child = self.spawn(['sh', '-c', command, folder, folder, *options], nice, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, errors='replace')
            for line in child.stdout:
                log.write(line)
                step = re.match(r'\[(\d+)/(\d+)\]', line)
                if step:
                    self.display.change(folder, f'compiles, step {step[1]} of {step[2]}')
            status = child.wait()
            self.forget(child)
            if status:
                break
        self.display.end(folder)
        self.spent.append((folder + ' is built', time.monotonic() - began))
        log.seek(0)
        if status:
            lines = log.read().splitlines()
            first = next((i for i, line in enumerate(lines) if re.search(r'error:|ERROR|FAILED', line)), max(0, len(lines) - 40))
            self.broken.append((folder + ' does not build', lines[first:first + 40]))
            self.display.say(f'FAILED {folder} does not build:\n' + '\n'.join(lines[first:first + 40]))
            return False
        self.display.say(f'{folder}: is built, after {duration(time.monotonic() - began)}')
        return True

    # Tests

    def run(self, name, build, choose, nice=0):
        """Runs those tests of a build that are chosen. @choose: which suites a test of it is in -> whether it runs"""
        listed = json.loads(subprocess.run(['meson', 'introspect', '--tests', build], check=True, stdout=subprocess.PIPE).stdout)
        chosen = [test for test in (Test(build, entry) for entry in listed) if choose(test.suites)]
        os.makedirs(os.path.join(build, 'testlogs'), exist_ok=True)
        if not chosen:
            self.display.say(f'FAILED {name}: there is no test')
            self.broken.append((f'{name}: there is no test', []))
            return
        self.display.say(f'{name}: {len(chosen)} tests')
        began = time.monotonic()
        # The longest ones first: nobody waits for one at the end.
        waiting = collections.deque(sorted(chosen, key=lambda test: (-test.priority, -test.limit)))
        lock = threading.Lock()
        done = []

        def work():
            while True:
                with lock:
                    if not waiting:
                        return
                    test = waiting.popleft()
                self.run_one(test, name, nice)
                with lock:
                    done.append(test)
                    self.tell(test, name, len(done), len(chosen))

        workers = [threading.Thread(target=work, daemon=True) for _ in range(self.at_once)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        self.tests += done
        self.spent.append((f'{name}: tests', time.monotonic() - began))

    def run_one(self, test, name, nice):
        # A limit within a test knows of the load at its start alone; a load that comes later has room, too.
        patience = max(1, round(3 / self.clock.rate()))
        environment = {**os.environ, 'MALLOC_PERTURB_': '85', **test.environment, 'CK_TIMEOUT_MULTIPLIER': str(patience)}
        label = f'{name} {test.name}'
        self.display.begin(label)
        began, deadline = time.monotonic(), self.clock.now + test.limit
        with open(test.log, 'wb') as log:
            child = self.spawn(self.wrapper + test.command, nice, stdout=log, stderr=subprocess.STDOUT, env=environment,
                cwd=test.folder)
        late = False
        while True:
            try:
                status = child.wait(1)
                break
            except subprocess.TimeoutExpired:
                if self.clock.now > deadline and not late:
                    late = True
                    end_group(child)
        self.forget(child)
        test.seconds = time.monotonic() - began
        test.outcome = {0: 'ok', 77: 'skipped'}.get(status, 'failed')
        if late:
            test.outcome = 'failed'
            test.why = f', ended at its limit of {test.limit} s on an idle machine'
        elif test.outcome == 'failed':
            test.why = f', ended by signal {-status}' if status < 0 else f', exit status {status}'
        self.display.end(label)

    def tell(self, test, name, number, count):
        mark = 'FAILED' if test.outcome == 'failed' else test.outcome
        self.display.say(f'{name} {number} of {count}: {mark:<7} {test.seconds:6.1f} s  {test.name}{test.why}')
        if test.outcome == 'failed':
            print('\n'.join('        ' + line for line in test.lines_of_failure()), file=self.display.out, flush=True)

    # Summary

    def summary(self):
        out = self.display.out
        failed = [test for test in self.tests if test.outcome == 'failed']
        if failed or self.broken:
            print('\n== failed', file=out)
        for what, lines in self.broken:
            print(what, *lines, sep='\n    ', file=out)
        for test in failed:
            print(f'{test.build}: {test.name}{test.why}, after {test.seconds:.1f} s; all it said is in {test.log}',
                *test.lines_of_failure(), sep='\n    ', file=out)
        for what, why in self.skipped:
            print(f'{what}: skipped, {why}', file=out)
        print('\n== the longest tests', file=out)
        for test in sorted(self.tests, key=lambda test: -test.seconds)[:SLOWEST]:
            print(f'{test.seconds:7.1f} s  {test.build}: {test.name}', file=out)
        print('\n== time', file=out)
        for what, seconds in self.spent:
            print(f'{duration(seconds):>7}    {what}', file=out)
        print(f'{duration(time.monotonic() - self.display.start):>7}    all\n', file=out)
        counts = {outcome: sum(test.outcome == outcome for test in self.tests) for outcome in ('ok', 'failed', 'skipped')}
        failures = counts['failed'] + len(self.broken)
        print(f'{counts["ok"]} passed, {failures} failed, {counts["skipped"] + len(self.skipped)} skipped', file=out, flush=True)
        return 1 if failures else 0


def end_group(child):
    """Ends a process and all that it has started: libcheck passes SIGTERM on, and says what ran."""
    for number, patience in ((signal.SIGTERM, 3), (signal.SIGKILL, 0)):
        try:
            os.killpg(child.pid, number)
            child.wait(patience)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass


def starts(sanitizers, wrapper):
    """Does a program with these sanitizers start at all on this machine, several times in a row?"""
    with tempfile.TemporaryDirectory() as scratch:
        program = os.path.join(scratch, 'start')
        with open(program + '.c', 'w') as file:
            file.write('int main(void) { return 0; }\n')
        return not subprocess.run(['cc', '-fsanitize=' + sanitizers, program + '.c', '-o', program], stderr=subprocess.DEVNULL).returncode \
            and all(not subprocess.run([*wrapper, program], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
                for _ in range(8))


def sanitized(runner):
    """The sanitizers' builds, one after the other, and their unit tests. Optimised less, with fewer notes for debuggers, they
    compile in two thirds of the time, and their tests are no slower. Return: whether there is an address build"""
    has_address = False
    # Threads first: of these tests one takes long, and nothing is left beside which it could run at the end.
    for kind, sanitizers in (('tsan', 'thread'), ('asan', 'address,undefined')):
        folder = 'build-' + kind
        if not starts(sanitizers, runner.wrapper):
            runner.skipped.append((folder, 'programs with its sanitizers do not run on this machine'))
            continue
        if runner.make(folder, ['-Ddebug=true', '-Doptimization=1', '-Dc_args=-g1', '-Dcpp_args=-g1', '-Db_sanitize=' + sanitizers,
                '-Db_lundef=false'], nice=19):
            runner.run(kind, folder, lambda suites, kind=kind: kind in suites and kind + '-alone' not in suites, nice=10)
            has_address |= kind == 'asan'
    return has_address


def main():
    for name in ('CK_RUN_CASE', 'CK_RUN_SUITE', 'CK_FORK', 'MESON_TESTTHREADS', 'CK_TIMEOUT_MULTIPLIER'):
        os.environ.pop(name, None)
    os.environ['LC_ALL'] = 'C'
    # Sanitizers of this compiler do not know the widest address randomisation of newer kernels; run without any, where that
    # is permitted.
    wrapper = ['setarch', '-R']
    if not shutil.which('setarch') or subprocess.run([*wrapper, 'true'], stderr=subprocess.DEVNULL).returncode:
        wrapper = []
    display, clock = Display(), Clock()
    runner = Runner(display, clock, wrapper)

    def follow():
        last = time.monotonic()
        while True:
            time.sleep(Clock.TICK_S)
            now = time.monotonic()
            clock.tick(now - last)
            display.tick()
            last = now

    def interrupted(_number, _frame):
        runner.stop()
        os._exit(130)

    signal.signal(signal.SIGINT, interrupted)
    signal.signal(signal.SIGTERM, interrupted)
    threading.Thread(target=follow, daemon=True).start()
    display.say(f'{PROCESSORS} processors, load {os.getloadavg()[0]:.1f}. What a test says is in testlogs of its build folder')
    has_plain = runner.make('build', ['-Dbuildtype=debugoptimized'])
    answers = []
    beside = threading.Thread(target=lambda: answers.append(sanitized(runner)), daemon=True)
    beside.start()
    if has_plain:
        runner.run('plain', 'build', lambda suites: 'plain' in suites)
    beside.join()
    if answers and answers[0]:
        runner.run('asan-alone', 'build-asan', lambda suites: 'asan-alone' in suites)
    return runner.summary()


if __name__ == '__main__':
    sys.exit(main())
