#!/usr/bin/env python3
"""Do comments name their subjects? Counts, for each folder of C sources, pronouns per 100 words of comments, and
sentences that begin with What, Who, Whether or Whose. Each folder stays below both figures.

usage: pronouns.py [FOLDER...]   prints the figures of these folders, or of all
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = ["protocol", "shm", "client", "server"]

PRONOUNS_MOST = 4.0  # per 100 words
OPENINGS_MOST = 1.0  # per 100 sentences

PRONOUNS = set("it its they them their he she who whom whose what one ones".split())
# A string may have two slashes and is no comment.
TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|(/\*.*?\*/|//[^\n]*(?:\n\s*//[^\n]*)*)', re.DOTALL)
OPENING = re.compile(r"(What|Who|Whether|Whose)\b")


class Figures:
    def __init__(self):
        self.words = self.pronouns = self.sentences = self.openings = 0

    def add(self, text):
        for match in TOKEN.finditer(text):
            comment = " ".join(re.sub(r"[/*]+", " ", match.group(1) or "").split())
            words = re.findall(r"[a-z']+", comment.lower())
            self.words += len(words)
            self.pronouns += sum(word in PRONOUNS for word in words)
            for sentence in re.split(r"(?<=[.:;?])\s+", comment):
                if sentence[:1].isupper():
                    self.sentences += 1
                    self.openings += bool(OPENING.match(sentence)) and not sentence.endswith("?")
        return self

    def per_words(self):
        return 100 * self.pronouns / max(self.words, 1)

    def per_sentences(self):
        return 100 * self.openings / max(self.sentences, 1)

    def is_clear(self):
        return self.per_words() <= PRONOUNS_MOST and self.per_sentences() <= OPENINGS_MOST


def measure(root):
    """The figures of each folder that has sources itself, by its path."""
    folders = {}
    for part in PARTS:
        for path in sorted((root / part).rglob("*.[ch]")):
            folder = str(path.parent.relative_to(root))
            folders.setdefault(folder, Figures()).add(path.read_text())
    return folders


def check_self():
    good = Figures().add('/* The daemon stops the worker. Whether? */ char *url = "http://it.its";\n// The worker\n// ends.\n')
    bad = Figures().add("/* What it says. */\n// Who they are\n// is told. The daemon ends.\n")
    if not good.is_clear() or (good.words, good.sentences) != (9, 3):
        sys.exit(f"pronouns.py: finds {good.pronouns} pronouns of {good.words} words in good comments")
    if bad.is_clear() or (bad.pronouns, bad.openings) != (4, 2):
        sys.exit(f"pronouns.py: finds {bad.pronouns} pronouns of 4, {bad.openings} openings of 2")


def main(wanted):
    check_self()
    folders = measure(ROOT)
    failed = False
    print(f"{'folder':24} {'pronouns':>8} {'What, Who':>9}")
    for folder, figures in sorted(folders.items()):
        if wanted and folder not in wanted:
            continue
        print(f"{folder:24} {figures.per_words():8.1f} {figures.per_sentences():9.1f}")
        if not figures.is_clear():
            print(f"pronouns.py: {folder}: more than {PRONOUNS_MOST:g} pronouns per 100 words of comments, or more than"
                  f" {OPENINGS_MOST:g} % of sentences that begin with What, Who, Whether or Whose", file=sys.stderr)
            failed = True
    sys.exit(failed)


if __name__ == "__main__":
    main(sys.argv[1:])
