#!/usr/bin/env python3
"""Makes the C view of a schema, with the schema's comments. The build runs this.

usage: schema.py messages SCHEMA FOLDER     control.fbs: FOLDER/wire_messages.h and FOLDER/wire.def
       schema.py commands SCHEMA FOLDER     command.fbs: FOLDER/command_structs.h

It reads the part of FlatBuffers' language that the two schemas use. Everything else is an error with its line, so that
nothing of a schema is missing in C. Attributes of a schema for this program:

  table (body: "range")     tables with the same name share a C struct and a member of struct wire_message; without the
                            attribute both are named after the table. A message carries its own fields; when it is
                            decoded, the others are 0, "" and empty
  vector (most: "64")       at most so many elements, else as many as a packet holds; required for strings and structs
  vector (exactly: "16")    so many elements, an array in C

A count is a number or a constant of wire.h.
"""

import pathlib
import re
import sys
import textwrap
from typing import NamedTuple

# C type of a number, its bytes, and the list of such numbers in wire.h.
NUMBERS = {
    "bool": ("bool", 1, None),
    "ubyte": ("uint8_t", 1, "wire_bytes"),
    "uint8": ("uint8_t", 1, "wire_bytes"),
    "uint16": ("uint16_t", 2, None),
    "int32": ("int32_t", 4, "wire_i32s"),
    "uint32": ("uint32_t", 4, "wire_u32s"),
    "int64": ("int64_t", 8, None),
    "uint64": ("uint64_t", 8, "wire_u64s"),
}
# The frame of every message, which wire.h and wire.cc know.
FRAME = [("id", "uint64"), ("session", "uint64"), ("body", "Body")]
# To such names of fields flatc's C++ adds an underscore.
CXX_WORDS = {"module"}


class SchemaError(Exception):
    """A schema that this program does not understand or must not accept."""


class Field(NamedTuple):
    name: str
    type: str  # of its elements, if it is a vector
    is_vector: bool
    length: int  # of an array in a struct, else 0
    most: str  # attributes, else None
    exactly: str
    doc: list
    line: int

    def fail(self, why):
        raise SchemaError(f"line {self.line}: {self.name}:{self.type} {why}")


class Record(NamedTuple):
    kind: str  # "struct" or "table"
    name: str
    body: str
    fields: list
    doc: list
    line: int


class Schema(NamedTuple):
    records: dict  # by name, in the schema's order
    messages: list  # members of the union Body


def snake(name):
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class Parser:
    """Takes one pattern after the other from the text; lines of two slashes are not there."""

    def __init__(self, text):
        self.text, self.place = re.sub(r"(?m)^\s*//(?!/).*$", lambda found: "\n" * found.group().count("\n"), text), 0

    def line(self):
        self.take("")
        return self.text.count("\n", 0, self.place) + 1

    def take(self, pattern):
        found = re.compile(r"\s*" + pattern).match(self.text, self.place)
        self.place = found.end() if found else self.place
        return found

    def need(self, pattern):
        return self.take(pattern) or self.fail()

    def fail(self):
        raise SchemaError(f"line {self.line()}: this is not understood: {self.text[self.place:self.place + 40]!r}")

    def doc(self):
        lines = []
        while found := self.take(r"///(.*)"):
            lines.append(found[1].strip())
        return lines

    def attributes(self, *known):
        found = {}
        if self.take(r"\("):
            while not found or self.take(","):
                name, value = self.need(r'(\w+)\s*:\s*"(\w+)"').groups()
                if name not in known or name in found:
                    raise SchemaError(f"line {self.line()}: attribute {name} is not understood here")
                found[name] = value
            self.need(r"\)")
        return [found.get(name) for name in known]

    def field(self):
        doc, line = self.doc(), self.line()
        name, opened, kind, length, closed = self.need(r"(\w+)\s*:\s*(\[)?(\w+)(?::(\d+))?(\])?").groups()
        if bool(opened) != bool(closed) or (length and not opened):
            self.fail()
        most, exactly = self.attributes("most", "exactly")
        self.need(";")
        return Field(name, kind, bool(opened), int(length or 0), most, exactly, doc, line)

    def record(self, kind, name, doc):
        line, fields = self.line(), []
        body, = self.attributes("body") if kind == "table" else [None]
        self.need(r"\{")
        while not self.take(r"\}"):
            fields.append(self.field())
        if len({field.name for field in fields}) != len(fields):
            raise SchemaError(f"line {line}: {name} has two fields of one name")
        return Record(kind, name, body or snake(name), fields, doc, line)

    def schema(self):
        schema = Schema({}, [])
        while not self.take(r"\Z"):
            doc = self.doc()
            if found := self.take(r"(struct|table)\s+(\w+)"):
                if found[2] in schema.records:
                    raise SchemaError(f"line {self.line()}: {found[2]} is there twice")
                schema.records[found[2]] = self.record(*found.groups(), doc)
            elif not schema.messages and (found := self.take(r"union\s+Body\s*\{([\w\s,]+)\}")):
                schema.messages.extend(re.findall(r"\w+", found[1]))
            elif doc or not self.take(r"(namespace|root_type|file_identifier|attribute)\s[^;{]*;"):
                self.fail()
        return schema


# ---- C ----

def comment(doc, indent):
    """Lines of a C comment of at most 100 columns."""
    text, tabs, width = " ".join(doc).replace("*/", "* /"), "\t" * indent, 100 - 8 * indent
    if len(text) + 6 <= width:
        return [f"{tabs}/* {text} */"] if text else []
    return [f"{tabs}/*", *(f"{tabs} * {line}" for line in textwrap.wrap(text, width - 3)), f"{tabs} */"]


def fixed_struct(schema, record, prefix):
    """Lines of a struct of fixed layout, its bytes and its alignment. The compiler must have nothing to fill in."""
    name, lines, place, widest = f"{prefix}{snake(record.name)}", [], 0, 1
    for field in record.fields:
        if field.type in NUMBERS:
            c_type, size, _ = NUMBERS[field.type]
            align = size
        elif field.type in schema.records and schema.records[field.type].kind == "struct":
            c_type = f"struct {prefix}{snake(field.type)}"
            _, size, align = fixed_struct(schema, schema.records[field.type], prefix)
        else:
            field.fail("is not for a struct")
        if field.most or field.exactly or field.is_vector != bool(field.length) or place % align:
            field.fail("has no fixed layout, or would have bytes missing before it")
        lines += comment(field.doc, 1)
        lines.append(f"\t{c_type} {field.name}{f'[{field.length}]' if field.length else ''};")
        place, widest = place + size * (field.length or 1), max(widest, align)
    if not place or place % 8:
        raise SchemaError(f"line {record.line}: {record.name} is not a multiple of 8 bytes")
    lines = [*comment(record.doc, 0), f"struct {name} {{", *lines, "};",
             f'static_assert(sizeof(struct {name}) == {place}, "the same bytes everywhere");', ""]
    return lines, place, widest


class Member(NamedTuple):
    """A field of a table in C."""
    declarations: list
    row: str  # of wire.def
    absent: str  # its row in tables of the same struct without the field, if zeros are not right


def member_of(schema, field, outer=""):
    """@outer: of a part of a message, its place in the message with a dot."""
    name, record = outer + field.name, schema.records.get(field.type)
    accessor = f"{field.name}_" if field.name in CXX_WORDS else field.name
    c_type, _, c_list = NUMBERS.get(field.type, (None, 0, None))
    if field.length or (field.most and field.exactly) or ((field.most or field.exactly) and not field.is_vector):
        field.fail("is not for a table")
    if c_type and not field.is_vector:
        return Member([f"{c_type} {name}"], f"NUMBER({accessor}, {name})", "")
    if c_list and field.exactly:
        return Member([f"{c_type} {name}[{field.exactly}]"], f"EXACTLY({accessor}, {name}, {field.exactly})", "")
    if c_list:
        return Member([f"struct {c_list} {name}"], f"NUMBERS({accessor}, {name}, {field.most or 'ANY'})", "")
    if field.type == "string" and not field.is_vector:
        return Member([f"const char *{name}"], f"TEXT({accessor}, {name})", f"NO_TEXT({name})")
    if field.type == "string" and field.most:
        return Member([f"struct wire_names {name}", f"const char *{name}_storage[{field.most}]"],
                      f"TEXTS({accessor}, {name}, {field.most})", "")
    if record and record.kind == "struct" and field.is_vector and field.most:
        return Member([f"struct wire_{snake(record.name)}s {name}"],
                      f"STRUCTS({accessor}, {name}, {field.most}, {record.name})", "")
    if record and record.kind == "table" and not field.is_vector and record.name not in (*schema.messages, "Message"):
        inner = [member_of(schema, part, f"{name}.").absent for part in record.fields]
        absent = " ".join(filter(None, inner))
        return Member([f"struct wire_{record.body} {name}"], f"PART({accessor}, {name}, {record.name}, {absent})", absent)
    return field.fail("has no form in C")


def members_of(schema, records):
    """Members of the struct that these tables share, and the first comment of each, by name."""
    members, docs = {}, {}
    for field in (field for record in records for field in record.fields):
        member = member_of(schema, field)
        if members.setdefault(field.name, member) != member:
            field.fail(f"is another field in another of {', '.join(record.name for record in records)}")
        docs[field.name] = docs.get(field.name) or field.doc
    return members, docs


def bodies_of(schema):
    """Lists of tables with fields, by the name of their C struct: parts of messages first, then messages."""
    used = {field.type for record in schema.records.values() for field in record.fields}
    frame = schema.records.get("Message")
    if not frame or [(field.name, field.type) for field in frame.fields] != FRAME:
        raise SchemaError(f"table Message is not {FRAME}")
    if missing := [name for name in schema.messages if name not in schema.records]:
        raise SchemaError(f"there is no table {missing[0]}")
    parts = [record for record in schema.records.values()
             if record.kind == "table" and record.name not in (*schema.messages, "Message")]
    bodies = {}
    for record in parts + [schema.records[name] for name in schema.messages]:
        if record in parts and record.name not in used:
            raise SchemaError(f"line {record.line}: {record.name} is in no message")
        if record.fields:
            bodies.setdefault(record.body, []).append(record)
    return bodies


def header(name, origin, lines):
    guard = f"FRMPS_PROTOCOL_{name.upper()}_H"
    return "\n".join([f"// Made from {origin} by protocol/schema.py.", "", f"#ifndef {guard}", f"#define {guard}", "",
                      "#include <assert.h>", "#include <stdbool.h>", "#include <stdint.h>", "", *lines, "#endif", ""])


def commands_header(schema):
    lines = []
    for record in schema.records.values():
        if record.kind != "struct":
            raise SchemaError(f"line {record.line}: a {record.kind} is no command")
        lines += fixed_struct(schema, record, "frmps_")[0]
    return header("command_structs", "command.fbs", lines)


def messages_header(schema):
    bodies = bodies_of(schema)
    lines = ["enum wire_type {", "\tWIRE_NONE = 0,"]
    for name in schema.messages:
        lines += comment(schema.records[name].doc, 1) + [f"\tWIRE_{snake(name).upper()},"]
    lines += ["\tWIRE_TYPES", "};", ""]
    for record in schema.records.values():
        if record.kind == "struct":
            name = f"wire_{snake(record.name)}"
            lines += fixed_struct(schema, record, "wire_")[0]
            lines += [f"struct {name}s {{", f"\tconst struct {name} *at;", "\tuint32_t count;", "};", ""]
    for body, records in bodies.items():
        members, docs = members_of(schema, records)
        lines += comment([", ".join(record.name for record in records) + "."], 0) + [f"struct wire_{body} {{"]
        for name, member in members.items():
            lines += comment(docs[name], 1) + [f"\t{declaration};" for declaration in member.declarations]
        lines += ["};", ""]
    lines += ["struct wire_message {", "\tenum wire_type type;", "\tuint64_t id, session;", "\tunion {"]
    lines += [f"\t\tstruct wire_{body} {body};" for body, records in bodies.items() if records[0].name in schema.messages]
    return header("wire_messages", "control.fbs", [*lines, "\t};", "};", ""])


ROWS_HEAD = """\
// Made from control.fbs by protocol/schema.py. The including file defines TABLE, MESSAGE, EMPTY and STRUCT as it needs
// them, and the rows of fields for a TABLE that uses these; all are undefined at the end.
//
//   STRUCT(name, struct)            a struct of the schema and its C struct: the same bytes
//   TABLE(table, struct, fields)    a table with fields and its C struct; parts of messages come first
//   MESSAGE(name, table, body)      a message with its member of struct wire_message; EMPTY(name, table): without one
//
// A row of a field has flatc's accessor, then the member:
//
//   NUMBER(from, in)                a number or truth value
//   NUMBERS(from, in, most)         a vector of at most so many numbers; ANY: as many as a packet holds
//   EXACTLY(from, in, count)        a vector of so many numbers, an array in C
//   TEXT(from, in)                  a string
//   TEXTS(from, in, most)           a list of strings, whose storage is in_storage
//   STRUCTS(from, in, most, name)   a list of structs
//   PART(from, in, table, absent)   a table or none; the rows `absent` are for none
//   NO_TEXT(in)                     a string that the C struct has and the table lacks
"""
ROWS = ("STRUCT", "TABLE", "MESSAGE", "EMPTY", "NUMBER", "NUMBERS", "EXACTLY", "TEXT", "TEXTS", "STRUCTS", "PART", "NO_TEXT")


def rows(schema):
    lines = [ROWS_HEAD]
    for name in ROWS[:4]:
        lines += [f"#ifndef {name}", f"#define {name}(...)", "#endif"]
    lines += [f"STRUCT({record.name}, wire_{snake(record.name)})"
              for record in schema.records.values() if record.kind == "struct"]
    for body, records in bodies_of(schema).items():
        members, _ = members_of(schema, records)
        for record in records:
            own = [field.name for field in record.fields]
            fields = [members[name].row for name in own]
            fields += [member.absent for name, member in members.items() if member.absent and name not in own]
            lines.append("\n\t".join([f"TABLE({record.name}, wire_{body},", *fields]) + ")")
    for record in (schema.records[name] for name in schema.messages):
        name = snake(record.name).upper()
        lines.append(f"MESSAGE({name}, {record.name}, {record.body})" if record.fields else f"EMPTY({name}, {record.name})")
    return "\n".join([*lines, *(f"#undef {name}" for name in ROWS), ""])


def outputs(kind, text):
    """Contents of the files to write, by name."""
    schema = Parser(text).schema()
    if kind == "commands":
        return {"command_structs.h": commands_header(schema)}
    return {"wire_messages.h": messages_header(schema), "wire.def": rows(schema)}


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in ("messages", "commands"):
        sys.exit(__doc__)
    kind, schema, folder = sys.argv[1:]
    try:
        for name, content in outputs(kind, pathlib.Path(schema).read_text(encoding="utf-8")).items():
            (pathlib.Path(folder) / name).write_text(content, encoding="utf-8")
    except SchemaError as error:
        sys.exit(f"{schema}: {error}")


if __name__ == "__main__":
    main()
