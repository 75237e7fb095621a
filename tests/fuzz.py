#!/usr/bin/env python3
"""Lets the tests that try random things try others, for some time each, one after the other.

    tests/fuzz.py [--minutes N] [--only NAME] [BUILD]

BUILD is build-asan as a rule, which tests/run.sh makes: without sanitizers little is noticed. What fails is printed
with its seed: FRMPS_TEST_SEED=N repeats it.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import time

# Test program, and its cases that are random.
TARGETS = {
    'requests of programs': ('server-session-test_mutation', 'mutation'),
    'answers of executors and keepers': ('server-daemon-test_answers', 'anything'),
    'records of a daemon that died': ('server-daemon-test_answers', 'records'),
    'programs from files': ('server-adopt-test_arrive', 'bundles'),
    'programs from files, next daemon': ('server-adopt-test_arrive', 'bundles in lives'),
    'packets': ('protocol-test_wire', 'hostile packets'),
    'images': ('server-backend-test_cubin', 'cubin'),
    'images for the loader': ('server-backend-test_kernels', 'kernels'),
    'images with variables to move': ('server-backend-test_relocate', 'lies'),
}


def environment(build):
    """As tests/meson.build has it."""
    tests = pathlib.Path(__file__).resolve().parent
    return {**os.environ, 'FRMPS_TEST_IMAGES': str(tests / 'unit/server/backend/images'), 'CK_DEFAULT_TIMEOUT': '240',
            'FRMPS_TEST_KERNELS': str(build / 'tests/host_kernels.so'), 'ASAN_OPTIONS': 'abort_on_error=1',
            'UBSAN_OPTIONS': 'halt_on_error=1:abort_on_error=1:print_stacktrace=1',
            'LSAN_OPTIONS': f'use_stacks=0:use_registers=0:print_suppressions=0:suppressions={tests}/lib/leaks.supp'}


def fuzz(build, name, minutes, seed):
    """Returns how many seeds were tried, and how many failed."""
    program, case = TARGETS[name]
    end, tried, failed = time.monotonic() + 60 * minutes, 0, 0
    while time.monotonic() < end:
        seed, tried = seed + 1, tried + 1
        done = subprocess.run([build / 'tests' / program], env={**environment(build), 'FRMPS_TEST_SEED': str(seed), 'CK_RUN_CASE': case},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors='replace')
        if done.returncode:
            failed += 1
            print(f'{name}: FRMPS_TEST_SEED={seed} CK_RUN_CASE="{case}" {program}\n{done.stdout[-4000:]}', flush=True)
    return tried, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--minutes', type=float, default=30)
    parser.add_argument('--only', choices=TARGETS)
    parser.add_argument('--seed', type=int, default=int(time.time()) % 1000000000)
    parser.add_argument('build', nargs='?', type=pathlib.Path, default=pathlib.Path('build-asan'))
    words = parser.parse_args()
    os.nice(19)
    wrong = 0
    for name in [words.only] if words.only else TARGETS:
        tried, failed = fuzz(words.build.resolve(), name, words.minutes, words.seed)
        wrong += failed
        print(f'{name:34} {words.minutes:g} minutes, {tried} seeds, {failed} failed', flush=True)
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
