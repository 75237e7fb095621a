#!/usr/bin/env python3
"""locks.py: has each lock that the code takes one row in shm/locks.def, and each row a lock?"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROW = re.compile(r'^LOCK\((\d+), (\w+), "([^"]+)", "([^"]+)"\)$', re.M)
TAKE = re.compile(r'\bpthread_(?:mutex_(?:lock|trylock|timedlock)|rwlock_(?:rdlock|wrlock))\(([^,()]+)')
# Calls for locks of others, whose order nobody here knows.
FOREIGN = {'server/executor/mutex.c', 'server/demo'}


def taken(rooms):
    """Return: {(file, expression)} of all places that take a lock."""
    found = set()
    for room in rooms:
        for path in sorted((ROOT / room).rglob('*.[ch]')):
            name = str(path.relative_to(ROOT))
            if any(name.startswith(foreign) for foreign in FOREIGN):
                continue
            code = re.sub(r'//.*|/\*.*?\*/', '', path.read_text(), flags=re.S if name.endswith('.h') else 0)
            found |= {(name, match.group(1)) for match in TAKE.finditer(code)}
    return found


def wrong(rows, places):
    """Return: a line for each place without one row, and each row without a place."""
    lines, used = [], set()
    for name, expression in sorted(places):
        fitting = [row for row in rows if row[2] in name and row[3] == expression]
        used |= set(fitting)
        if len(fitting) != 1:
            lines.append(f'{name} takes {expression}: {len(fitting)} rows of shm/locks.def')
    lines += [f'shm/locks.def: nobody takes {row[1]} ({row[2]}, {row[3]})' for row in rows if row not in used]
    ranks = {}
    for row in rows:
        if ranks.setdefault(row[1], row[0]) != row[0]:
            lines.append(f'shm/locks.def: {row[1]} has two ranks')
    return lines


def main():
    rows = ROW.findall((ROOT / 'shm/locks.def').read_text())
    # The check itself: a lock without a row, a row without a lock.
    assert len(wrong([], {('client/a.c', '&lock')})) == 1 and len(wrong([('1', 'a', 'client/a.c', '&lock')], set())) == 1
    lines = wrong(rows, taken(('client', 'server', 'shm', 'tests/host')))
    print('\n'.join(lines), file=sys.stderr)
    return bool(lines) or len(rows) < 50


if __name__ == '__main__':
    sys.exit(main())
