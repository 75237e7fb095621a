#!/usr/bin/env python3
# trim.py DUMP OUT: a small file from a dump that the driver wrote (H200, driver 580). It keeps, unchanged, the tables of
# modules, grids, SMs, blocks, warps and lanes; of some modules' images what says where code is and what it is called: the
# program's own (the last two) and the driver's for memset (the eighth). Code, registers and all other contents go, so do
# the blocks of most SMs on which nothing faulted. Sections are numbered anew.
import struct
import sys

HEAD, SECTION = "<16sHHIQQQIHHHHHH", "<IIQQQQIIQQ"
IMAGE, SMS, BLOCKS, WARPS, LANES = 0x80000007, 0x8000000B, 0x8000000D, 0x8000000E, 0x8000000F
KEPT = {IMAGE, SMS, 0x8000000C, BLOCKS, WARPS, LANES, 0x80000010}


class Elf:
    def __init__(self, data):
        self.head = list(struct.unpack_from(HEAD, data))
        self.sections = [list(struct.unpack_from(SECTION, data, self.head[6] + i * 64)) for i in range(self.head[12])]
        self.contents = [b"" if s[1] in (0, 8) else data[s[4]:s[4] + s[5]] for s in self.sections]

    def write(self):
        out = bytearray(64)
        for section, contents in zip(self.sections, self.contents):
            section[4] = len(out)
            if section[1] != 8:
                section[5] = len(contents)
            out += contents + bytes(-len(contents) % 8)
        self.head[5], self.head[6], self.head[9], self.head[10] = 0, len(out), 0, 0
        self.head[12] = len(self.sections)
        for section in self.sections:
            out += struct.pack(SECTION, *section)
        struct.pack_into(HEAD, out, 0, *self.head)
        return bytes(out)


def trim_image(data):
    elf = Elf(data)
    for i, section in enumerate(elf.sections):
        if section[1] not in (0, 2, 3):  # symbols and strings stay
            section[1], elf.contents[i] = 8, b""
    return elf.write()


def trim(data):
    elf = Elf(data)
    keep, exceptions = set(), {}
    for i, section in enumerate(elf.sections):
        if section[1] == SMS:
            for k in range(section[5] // section[9]):
                exceptions[k] = struct.unpack_from("<I", elf.contents[i], k * section[9] + 8)[0]
    for i, section in enumerate(elf.sections):
        if section[1] not in KEPT or (section[1] in (BLOCKS, WARPS, LANES) and not section[5]):
            continue
        if section[1] == IMAGE and section[7] not in (7, 9, 10):
            continue
        if section[1] == BLOCKS and section[7] % 48 and not exceptions[section[7]] and len(elf.sections) > 1000:
            continue
        if section[1] in (WARPS, LANES) and section[6] not in keep:
            continue
        keep.add(i)
    order = [0] + sorted(keep)
    number = {old: new for new, old in enumerate(order)}
    out = Elf.__new__(Elf)
    out.head, out.head[13] = elf.head, 0
    out.sections = [elf.sections[i] for i in order]
    out.contents = [trim_image(elf.contents[i]) if elf.sections[i][1] == IMAGE else elf.contents[i] for i in order]
    for section in out.sections:
        section[0], section[6] = 0, number.get(section[6], 0)
    return out.write()


with open(sys.argv[1], "rb") as file:
    dump = trim(file.read())
with open(sys.argv[2], "wb") as file:
    file.write(dump)
