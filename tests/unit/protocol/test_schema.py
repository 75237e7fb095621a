#!/usr/bin/env python3
"""Whether a change of a schema shows in the C view that protocol/schema.py makes, and what it does not understand is an
error.

usage: test_schema.py FLATC
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

PROTOCOL = pathlib.Path(__file__).resolve().parents[3] / "protocol"
sys.dont_write_bytecode = True
sys.path.insert(0, str(PROTOCOL))
import schema  # noqa: E402

FLATC = sys.argv.pop() if len(sys.argv) > 1 else "flatc"
SMALL = """
namespace n;
// A note.
struct Pair { low:uint32; high:uint32; }
/// Part of it.
table Part { name:string; size:uint64; }
/// The first.
table First (body: "shared") { id:uint32; part:Part; pairs:[Pair] (most: "4"); }
table Second (body: "shared") {
  id:uint32;
  /// Bytes,
  /// all of them.
  bytes:uint64; text:string; key:[uint64] (exactly: "2"); words:[uint32]; names:[string] (most: "3");
}
table Third { }
union Body { First, Second, Third }
table Message { id:uint64; session:uint64; body:Body; }
root_type Message;
"""


def changed(old, new, text=SMALL):
    assert text.count(old) == 1, old
    return text.replace(old, new)


class Messages(unittest.TestCase):
    def made(self, text=SMALL):
        files = schema.outputs("messages", text)
        return files["wire_messages.h"], files["wire.def"]

    def test_struct_and_rows(self):
        c_header, rows = self.made()
        self.assertIn("""\
/* First, Second. */
struct wire_shared {
	uint32_t id;
	struct wire_part part;
	struct wire_pairs pairs;
	/* Bytes, all of them. */
	uint64_t bytes;
	const char *text;
	uint64_t key[2];
	struct wire_u32s words;
	struct wire_names names;
	const char *names_storage[3];
};
""", c_header)
        self.assertIn("\t/* The first. */\n\tWIRE_FIRST,\n\tWIRE_SECOND,\n\tWIRE_THIRD,\n\tWIRE_TYPES\n", c_header)
        self.assertIn("\tunion {\n\t\tstruct wire_shared shared;\n\t};\n", c_header)
        self.assertIn("TABLE(First, wire_shared,\n\tNUMBER(id, id)\n\tPART(part, part, Part, NO_TEXT(part.name))\n"
                      "\tSTRUCTS(pairs, pairs, 4, Pair)\n\tNO_TEXT(text))\n", rows)
        self.assertIn("\tEXACTLY(key, key, 2)\n\tNUMBERS(words, words, ANY)\n\tTEXTS(names, names, 3)\n\tNO_TEXT(part.name))\n", rows)
        self.assertIn("MESSAGE(SECOND, Second, shared)\nEMPTY(THIRD, Third)\n", rows)
        self.assertLess(rows.index("TABLE(Part"), rows.index("TABLE(First"))

    def test_a_field_more_shows_in_both(self):
        c_header, rows = self.made(changed("bytes:uint64;", "bytes:uint64; module:int32;"))
        self.assertIn("\tint32_t module;\n", c_header)
        self.assertIn("\tNUMBER(module_, module)\n", rows)

    def test_what_is_not_understood_is_an_error(self):
        for old, new in (
                ("id:uint32; part", "id:uint32 = 7; part"),
                ("id:uint32; part", "id:uint32 (deprecated); part"),
                ("id:uint32; part", 'id:uint32 (deprecated: "1"); part'),
                ("id:uint32; part", 'id:uint32 (most: "4"); part'),
                ("id:uint32; part", "id:float; part"),
                ("id:uint32; part", "id:Missing; part"),
                ("id:uint32; part", "id:Pair; part"),
                ("id:uint32; part", "id:Third; part"),
                ("id:uint32; part", "id:int32; part"),  # another type than in Second
                ("id:uint32; part", "id:uint32; id:uint32; part"),
                ("words:[uint32]", "words:[Part]"),
                ("words:[uint32]", "words:[[uint32]]"),
                ("words:[uint32]", "words:[uint32"),
                ("words:[uint32]", "words:[uint32:4]"),
                ("words:[uint32]", "words:[int64]"),
                ("words:[uint32]", 'words:[uint32] (most: "1", exactly: "1")'),
                ('[string] (most: "3")', "[string]"),
                ('[string] (most: "3")', '[string] (exactly: "3")'),
                ('[Pair] (most: "4")', "[Pair]"),
                ('"shared") { id', '"shared", more: "x") { id'),
                ("high:uint32; }", "high:uint64; }"),  # four bytes between them
                ("high:uint32; }", "high:uint32; more:uint32; }"),
                ("high:uint32; }", "high:[uint32]; }"),
                ("struct Pair {", 'struct Pair (body: "x") {'),
                ("part:Part; ", ""),  # no message has the part
                ("table Third { }", ""),
                ("table Third { }", "table Third { } table Second { }"),
                ("table Third { }", "enum Third:uint32 { A, B }"),
                ("table Third { }", "table Third { } union Other { First }"),
                ("table Third { }", "table Third { } rpc_service S { }"),
                ("namespace n;", 'include "other.fbs";'),
                ("namespace n;", "/// Whose?\nnamespace n;"),
                ("{ First, Second, Third }", "{ F:First, Second, Third }"),
                ("session:uint64", "session:uint32"),
                ("root_type Message;", "root_type Message; /* what */"),
        ):
            with self.subTest(new=new), self.assertRaises(schema.SchemaError):
                self.made(changed(old, new))

    def test_errors_have_a_line(self):
        for old, new, line in (("id:uint32; part", "id:float; part", 8), ("id:uint32; part", "id:uint32 = 7; part", 8),
                               ("  bytes:uint64;", "  bytes:float;", 13), ("table Third { }", "table Third {", 16)):
            with self.assertRaisesRegex(schema.SchemaError, f"^line {line}: "):
                self.made(changed(old, new))


class Commands(unittest.TestCase):
    def test_struct(self):
        made = schema.outputs("commands", "/// Two.\nstruct TwoWords { a:uint64; /// The bytes.\n b:[ubyte:8]; }")
        self.assertIn("/* Two. */\nstruct frmps_two_words {\n\tuint64_t a;\n\t/* The bytes. */\n\tuint8_t b[8];\n};\n"
                      "static_assert(sizeof(struct frmps_two_words) == 16,", made["command_structs.h"])

    def test_a_table_is_an_error(self):
        with self.assertRaises(schema.SchemaError):
            schema.outputs("commands", "table T { a:uint64; }")


class Schemas(unittest.TestCase):
    """The real ones."""

    def text(self, name):
        return (PROTOCOL / name).read_text(encoding="utf-8")

    def test_every_message_and_field_is_there(self):
        text = re.sub("//.*", "", self.text("control.fbs"))
        files = schema.outputs("messages", self.text("control.fbs"))
        for table, body in re.findall(r"\btable (\w+)[^{]*\{([^}]*)\}", text):
            if table == "Message":
                continue
            row = re.search(rf"^(TABLE|EMPTY)\((\w+, )?{table}\b[^\n]*((\n\t[^\n]*)*)", files["wire.def"], re.M)
            fields = re.findall(r"(\w+):[\[\w]+[^\"]", body)
            self.assertEqual(re.findall(r"^\t[A-Z]{4,}\(\w+, (\w+)", row[3], re.M), fields, table)
            self.assertEqual(row[1], "TABLE" if fields else "EMPTY")

    def test_flatc_makes_structs_of_the_same_sizes(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([FLATC, "--cpp", "-o", folder, PROTOCOL / "command.fbs"], check=True)
            theirs = re.findall(r"STRUCT_END\((\w+), (\d+)\)", (pathlib.Path(folder) / "command_generated.h").read_text())
        ours = schema.outputs("commands", self.text("command.fbs"))["command_structs.h"]
        self.assertGreater(len(theirs), 10)
        self.assertEqual({f"frmps_{schema.snake(name)}": size for name, size in theirs},
                         dict(re.findall(r"sizeof\(struct (\w+)\) == (\d+)", ours)))


if __name__ == "__main__":
    unittest.main()
