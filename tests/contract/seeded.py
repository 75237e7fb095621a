#!/usr/bin/env python3
"""The tables of mutations.py and fuzz.py name what there is: a mutation's text stands once in its file, its tests are
tests, and a target of fuzz.py is a unit test with that case. A table that has gone stale would find nothing, or end in the middle."""

import pathlib
import sys

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS))

import fuzz  # noqa: E402
import mutations  # noqa: E402


def is_test(name):
    paths = [TESTS / name, TESTS / 'unit' / name]
    return any(path.with_name(path.name + suffix).exists() for path in paths for suffix in ('.c', '.py', '.sh'))


def mutation_faults(table):
    found = []
    for one in table:
        path = TESTS.parent / one.file
        count = path.read_text().count(one.old) if path.exists() else 0
        if count != 1:
            found.append(f'mutations.py: "{one.name}": its text is {count} times in {one.file}')
        found += [f'mutations.py: "{one.name}": there is no test {name}' for name in one.tests.split() if not is_test(name)]
    return found


def target_faults(targets):
    found = []
    for name, (program, case) in targets.items():
        path = TESTS / 'unit' / (program.replace('-', '/') + '.c')
        if not path.exists() or f'"{case}"' not in path.read_text():
            found.append(f'fuzz.py: "{name}": there is no case "{case}" of {program}')
    return found


def main():
    planted = mutations.Mutation('planted', 'meson.build', 'no such text', '', 'server/test_nothing')
    if len(mutation_faults([planted])) != 2 or not target_faults({'planted': ('server-test_parent', 'no such case')}):
        print('seeded.py does not notice a planted offence')
        return 1
    faults = mutation_faults(mutations.MUTATIONS) + target_faults(fuzz.TARGETS)
    print('\n'.join(faults), end='\n' if faults else '')
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main())
