#!/usr/bin/env python3
"""Do more files call each other in a circle than before? Does a room of the daemon know one above it?

usage: circles.py LIBRARY...   the static libraries of the client and of the server

A file calls another one if its object refers to a symbol that the other's object defines. A circle is a set of files
of which each reaches each other one by such calls; calls through function pointers do not count. For each part of the
project the largest circle that touches it must not be larger than its number in PARTS. Who makes a circle smaller
lowers the number. Rooms of the daemon call those below them only, and include no header of a room above.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

# Part: where its files are, the largest circle there is, and the one there should be.
PARTS = {
    "client": ("client/", 4, 8),
    "executor": ("server/executor/", 11, 12),
    "daemon": ("server/(holder|worker|incident|session|resource|fault|standby|daemon|control|door|adopt|loop)/", 5, 12),
    "host backend": ("tests/host/", 5, 8),
    "CUDA backend": ("server/backend/cuda/", 8, 8),
    "keeper": ("server/keeper/", 1, 1),
    "compiler": ("server/compiler/", 1, 1),
}

# Rooms of the daemon, from the bottom.
ROOMS = [
    f"server/{room}/"
    for room in ("holder", "worker", "incident", "session", "resource", "fault", "standby", "daemon", "control", "door", "adopt")
]

# What nm says of a symbol of an archive's member: "lib.a[folder/member.o]: name type …".
SYMBOL = re.compile(r".*\[(?:.*/)?(\S+)\]: (\S+) ([A-Za-z])")


def calls(listing):
    """What each object calls: {object: {object}}, from the output of nm -A -P."""
    defined, wanted = {}, {}
    for line in listing.splitlines():
        match = SYMBOL.match(line)
        if not match:
            continue
        member, name, kind = match.groups()
        wanted.setdefault(member, set())
        if kind == "U":
            wanted[member].add(name)
        elif kind.isupper():
            defined[name] = member
    return {
        member: {defined[name] for name in names if name in defined} - {member} for member, names in wanted.items()
    }


def circles(graph):
    """The strongly connected sets of a graph (Tarjan's algorithm)."""
    number, low, path, found = {}, {}, [], []

    def visit(node):
        number[node] = low[node] = len(number)
        path.append(node)
        for other in graph[node]:
            if other not in number:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in path:
                low[node] = min(low[node], number[other])
        if low[node] == number[node]:
            at = path.index(node)
            found.append(set(path[at:]))
            del path[at:]

    sys.setrecursionlimit(10000)
    for node in graph:
        if node not in number:
            visit(node)
    return found


def floor(file):
    """The number of a file's room, from the bottom; None: it is none of these rooms."""
    return next((number for number, room in enumerate(ROOMS) if re.match(room, file)), None)


def climbs(graph):
    """The steps from a room to one above it, of a graph of source files."""
    return [
        (caller, called)
        for caller, others in sorted(graph.items())
        for called in sorted(others)
        if None not in (floor(caller), floor(called)) and floor(caller) < floor(called)
    ]


def includes(text):
    """The project's headers that a source file includes."""
    return set(re.findall(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', text, re.MULTILINE))


def headers():
    """What each source file of the rooms includes: {file: {header}}."""
    files = {path.relative_to(ROOT).as_posix(): path for path in (ROOT / "server").rglob("*.[ch]")}
    return {name: includes(path.read_text()) for name, path in files.items() if floor(name) is not None}


def sources():
    """The source file of each object of the libraries, by the object's name."""
    return {
        path.relative_to(ROOT / room).as_posix().replace("/", "_") + ".o": path.relative_to(ROOT).as_posix()
        for room in ("client", "server", "tests/host")
        for path in (ROOT / room).rglob("*.c")
    }


def check_self():
    def symbols(member, *names):
        return "".join(f"lib.a[lib.a.p/{member}.c.o]: {name[1:]} {name[0]} 0 0\n" for name in names)

    planted = symbols("a", "Tone", "Utwo", "tthree", "Umalloc") + symbols("b", "Ttwo", "Uthree")
    planted += symbols("c", "Tthree")
    if sorted(map(len, circles(calls(planted)))) != [1, 1, 1]:
        sys.exit("circles.py: finds a circle in files that only call down")
    planted += symbols("c", "Uone")
    if sorted(map(len, circles(calls(planted)))) != [3]:
        sys.exit("circles.py: does not find a planted circle")
    rooms = {"server/session/a.c": {"server/worker/b.c", "server/holder/store.c", "server/fault/c.c"}}
    if climbs(rooms) != [("server/session/a.c", "server/fault/c.c")]:
        sys.exit("circles.py: does not find a planted call to a room above")
    up = includes('#include <uv.h>\n# include "server/standby/move.h"\n#include "server/worker/worker.h"\n')
    if climbs({"server/fault/a.h": up}) != [("server/fault/a.h", "server/standby/move.h")]:
        sys.exit("circles.py: does not find a planted include of a room above")


def main():
    names, found, up, failed = sources(), [], [], False
    check_self()
    for library in sys.argv[1:]:
        listing = subprocess.run(["nm", "-A", "-P", library], capture_output=True, check=True, text=True).stdout
        graph = calls(listing)
        if not any(graph.values()):
            print(f"circles.py: {library} has no symbols: objects for link-time optimisation are not looked at")
            sys.exit(77)
        unknown = graph.keys() - names.keys()
        if unknown:
            sys.exit(f"circles.py: no source file is known for {' '.join(sorted(unknown))}")
        found += [{names[member] for member in circle} for circle in circles(graph)]
        up += climbs({names[caller]: {names[called] for called in others} for caller, others in graph.items()})
    for part, (folder, most, wish) in PARTS.items():
        largest = max((circle for circle in found if any(re.match(folder, file) for file in circle)), key=len)
        print(f"{part}: {len(largest)} files call each other in a circle, at most {most}; the aim is {wish}")
        if len(largest) > most:
            failed = True
            print(*sorted(largest), sep="\n", file=sys.stderr)
    for verb, steps in (("calls", up), ("includes", climbs(headers()))):
        for file, other in steps:
            failed = True
            print(f"{file} {verb} {other}, which is in a room above it", file=sys.stderr)
    sys.exit("circles.py: a circle has grown, or a room knows one above it (tests/README.md, \"Circles\")" if failed else 0)


if __name__ == "__main__":
    main()
