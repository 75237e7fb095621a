#!/usr/bin/env python3
"""Do the documents tell the truth about the tree? README.md is short; links and files exist; names between back quotes occur in
the sources; commands can be run, and each of a code block is run by a test, or has a reason here why it is not.
"""

import os
import re
import sys

from sections import ROOT

README_BYTES = 10_000

GPU = "needs a GPU"
MACHINE = "changes the machine"
SHOWN = "shows how to start some tests; meson itself lists them for tests/run.sh"

# What a command is, whole; the test that runs it (a file, and what it has of the command), or why there is none.
COMMANDS = [
    (r"server/demo\.sh", ("tests/system/demo.sh", "server/demo.sh"), ""),
    (r"tests/run\.sh", None, "runs this test"),
    (r"build/server/(frmps-server &|frmps-run python3 train\.py|frmpsctl status)",
     ("tests/system/readme.sh", "## Quick start"), ""),
    (r"frmps-run python3 train\.py", ("tests/system/readme.sh", "## Quick start"), ""),
    (r"frmps-run --trace train\.json python3 train\.py", ("tests/system/trace.py", "'--trace'"), ""),
    (r"sudo meson install -C build", ("tests/system/install.sh", "meson install -C"), ""),
    (r"server/debian/build\.sh", ("tests/package/run.sh", "server/debian/build.sh"), ""),
    (r"sudo apt install \./build-debian/frmps_\*\.deb", ("tests/package/inside.sh", "apt-get install"), ""),
    (r"sudo ninja -C build uninstall|sudo systemctl .*", None, MACHINE),
    (r"docker run .*", None, "needs Docker and an image"),
    (r"meson setup build -Dauto_features=disabled && ninja -C build", None, "a second build"),
    (r"meson setup build && ninja -C build", ("tests/lib/build.sh", "meson setup"), ""),
        (r"(CK_\w+=\w+ )*meson test -C build .*", None, SHOWN),
    (r"tests/gpu/matrix\.py --backend host --second all", ("tests/meson.build", "'--second', 'all'"), ""),
    (r"tests/gpu/matrix\.py --backend host --soak", ("tests/meson.build", "'--soak', '60'"), ""),
    (r"tests/gpu/\w+\.py.*", None, GPU + "; tests/gpu/run.sh runs the short forms"),
    (r"bench/run --report FILE\.json", ("tests/system/bench.py", '"--report"'), ""),
    (r"bench/run --resume FILE\.json", ("tests/system/bench.py", '"--resume"'), ""),
    (r"bench/run --only .*", ("tests/system/bench.py", '"--only"'), ""),
    (r"bench/run( --list| --full --out FILE\.json)?", None, "a measurement of minutes; tests/system/bench.py runs a small one"),
]

# Names that are no words of the sources: of others, and those that are made of parts.
FOREIGN = {
    "fault_trap_1",
    "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
}

TOKEN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#]+)(#[^)]*)?\)")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PATH = re.compile(r"[\w.-]+(/[\w.-]+)*\.(c|cc|cu|h|py|sh|def|fbs|md|json|map|build|supp)|([\w.-]+/)+")
NAME = re.compile(r"([A-Za-z]\w*)(\(\))?( = \S+)?")


def documents(root):
    """The Markdown files of the tree, and the words of all its other files, their names among them."""
    texts, words = {}, set()
    for folder, folders, files in os.walk(root):
        folders[:] = [one for one in folders if not one.startswith((".", "build", "__"))]
        for name in files:
            path = os.path.join(folder, name)
            words.add(name.split(".")[0])
            if name.endswith(".md"):
                with open(path, encoding="utf-8") as file:
                    texts[os.path.relpath(path, root)] = file.read()
            elif not name.endswith((".json", ".cubin")):
                with open(path, encoding="utf-8", errors="replace") as file:
                    words.update(re.findall(r"[A-Za-z]\w*", file.read()))
    return texts, words


def commands(text):
    for language, block in BLOCK.findall(text):
        for line in block.replace("\\\n", " ").splitlines() if language == "sh" else []:
            command = " ".join(re.sub(r"(^|\s)#.*", "", line).split())
            if command:
                yield command


def offences(root, name, text, words):
    """What is wrong with a document, in words."""
    here = os.path.dirname(os.path.join(root, name))
    if name == "README.md" and len(text.encode()) > README_BYTES:
        yield f"has {len(text.encode())} bytes, {README_BYTES} are allowed"
    for target, _ in LINK.findall(text):
        if "://" not in target and not os.path.exists(os.path.join(here, target)):
            yield f"links to {target}, which does not exist"
    for token in TOKEN.findall(BLOCK.sub("", text)):
        if PATH.fullmatch(token) and not token.startswith("build"):
            if not any(os.path.exists(os.path.join(base, token)) for base in (here, root)):
                yield f"names the file {token}, which does not exist"
        elif match := NAME.fullmatch(token):
            word = match[1]
            placeholder = re.search("[a-z]", word) and re.search("_[A-Z]+(_|$)", word)
            if ("_" in word or re.search("[a-z][A-Z]", word)) and not placeholder and word not in words | FOREIGN:
                yield f"has the name {word}, which occurs in no source"
    for command in [*commands(text), *(token for token in TOKEN.findall(text) if " -" in token)]:
        program = os.path.join(root, command.split()[0])
        if os.path.isfile(program) and not os.access(program, os.X_OK):
            yield f"has the command `{command}`, which is not executable"
    for command in commands(text):
        if not any(re.fullmatch(pattern, command) for pattern, *_ in COMMANDS):
            yield f"has the command `{command}`, of which tests/contract/documents.py does not know whether a test runs it"


def stale(texts):
    """Rows of the table that are not true."""
    there = [command for text in texts.values() for command in commands(text)]
    for pattern, test, reason in COMMANDS:
        if not any(re.fullmatch(pattern, command) for command in there):
            yield f"no document has a command like {pattern}"
        if bool(test) == bool(reason):
            yield f"{pattern} needs a test or a reason"
        elif test and test[1] not in (ROOT / test[0]).read_text():
            yield f"{test[0]} does not run {pattern}"


def unnamed_tests(build, document):
    """System tests of a meson.build that a document does not name."""
    # A foreach has the names of most; lines of test() the others'.
    rows = re.findall(r"foreach name : \[(.*?)\]\n +program = executable\('system-'", build)
    names = [name for row in rows for name in re.findall(r"'(\w+)'", row)] + re.findall(r"test\('system/(\w+)'", build)
    for name in names:
        if not re.search(rf"`(system/)?{name}`", document):
            yield f"tests/README.md does not name the system test {name}"
    if not rows:
        yield "tests/contract/documents.py: finds no system tests in tests/meson.build"


def versions(build, header, changes):
    """The build, the programs and the list of changes speak of the same version."""
    found = [re.search(pattern, text, re.MULTILINE) for pattern, text in (
        (r"^ *version: '([0-9.]+)',$", build), (r'SERVER_VERSION "([0-9.]+)"', header), (r"^## ([0-9.]+)$", changes))]
    numbers = [one and one[1] for one in found]
    if None in numbers or len(set(numbers)) != 1:
        yield f"meson.build, server/version.h and server/CHANGELOG.md have different versions: {numbers}"


def self_check(words):
    # meson.build stands for a script that is not executable.
    planted = ["x" * (README_BYTES + 1), "[a](nowhere.md)", "`server/nowhere.c`", "`no_such_name_" + "of_a_key`", "`FRMPS_NO_SUCH_" + "NAME`",
               "```sh\nfrmpsctl explode\n```", "`meson.build --all`"]
    for text in planted:
        if len(list(offences(ROOT, "README.md", text + "\n", words))) != 1:
            sys.exit(f"documents.py: does not notice {text[:40]}")
    planted = "foreach name : ['test_a', 'test_b']\n  program = executable('system-' + name)\ntest('system/c', d)"
    if len(list(versions(" version: '1.2.3',", 'SERVER_VERSION "1.2.3"', "## 1.2.4\n"))) != 1:
        sys.exit("documents.py: does not notice versions that differ")
    if len(list(unnamed_tests(planted, "`test_a`"))) != 2:
        sys.exit("documents.py: does not notice a test that has no row")


def main():
    texts, words = documents(ROOT)
    self_check(words)
    wrong = [f"{name} {offence}" for name, text in sorted(texts.items()) for offence in offences(ROOT, name, text, words)]
    wrong += [f"tests/contract/documents.py: {row}" for row in stale(texts)]
    wrong += unnamed_tests((ROOT / "tests/meson.build").read_text(), texts["tests/README.md"])
    wrong += versions(*((ROOT / name).read_text() for name in ("meson.build", "server/version.h", "server/CHANGELOG.md")))
    print("\n".join(wrong), file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
