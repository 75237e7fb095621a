"""Parts of documents that a script makes: everything between two marks in a Markdown file.

    <!-- NAME: made by tests/contract/SCRIPT.py --write -->
    …
    <!-- /NAME -->
"""

import difflib
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def remade(text, script, sections):
    """The text with every section of this script made anew, and the names of those that it has.
    sections: name -> function that returns lines"""
    found = []

    def make(match):
        found.append(match["name"])
        return "\n".join([match["begin"], *sections[match["name"]](), match["end"]])

    mark = rf"(?P<begin><!-- (?P<name>[a-z-]+): made by tests/contract/{script}\.py --write -->)\n.*?(?P<end><!-- /(?P=name) -->)"
    return re.sub(mark, make, text, flags=re.DOTALL), found


def main(script, sections, documents):
    """Corrects the documents with --write, else exits with 1 and the difference where one is behind."""
    differences, found = [], []
    for name in documents:
        path = ROOT / name
        text = path.read_text()
        made, there = remade(text, script, sections)
        found += there
        # Self-check: a line that does not belong into a section is noticed.
        planted = re.sub(rf"(<!-- [a-z-]+: made by tests/contract/{script}\.py --write -->\n)", r"\1planted\n", made)
        if there and (planted == made or remade(planted, script, sections)[0] != made):
            sys.exit(f"{script}.py: does not notice a changed line in {name}")
        if made != text and "--write" in sys.argv[1:]:
            path.write_text(made)
        elif made != text:
            differences += difflib.unified_diff(text.splitlines(), made.splitlines(), name, "as it should be", lineterm="")
    missing = sorted(set(sections) - set(found))
    if missing:
        sys.exit(f"{script}.py: no document has the section {', '.join(missing)}")
    if differences:
        print("\n".join(differences[:60]), file=sys.stderr)
        sys.exit(f"{script}.py: documents are behind; tests/contract/{script}.py --write corrects them")
