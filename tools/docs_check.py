#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails where the documentation names what is not there.

    docs_check.py [ROOT]

In every *.md of the tree: relative links, with their anchors; `make TARGET` and tools/SCRIPT; files and folders named in
`backticks` under src/, simgpu/, test/, tools/ and cmake/. In docs/design/architecture.md: each folder that holds sources has a
row in its table. A translation (README.zh.md) has the headings, commands and links of its original. Every command under tools/ answers --help,
from any folder, and does nothing else then. In sources: files that are named with their folder (docs/design/architecture.md),
and in the comments of C++ those that are named without.
Exit status: 0 all of it is there, 1 it is not.
"""

import pathlib
import re
import subprocess
import sys

LEFT_OUT = {".git", "node_modules"}
LINK = re.compile(r"\]\(([^)\s]+)\)")
MAKE = re.compile(r"`make ([a-z][a-z-]*)`")
TOOL = re.compile(r"\btools/([a-z][\w-]*(?:\.(?:py|sh))?)")
PLACE = re.compile(r"`((?:src|simgpu|test|tools|cmake)/[\w./-]*)`")
GROUPS = ("src", "simgpu", "test")  # whose folders have a row each
WHOLE = ("cmake", "docs", "tools")
SOURCES = {".cc", ".h", ".inc", ".c", ".S", ".py", ".sh", ".cmake", ".yaml", ".txt", ".go", ".js", ".html", ""}
PATH = re.compile(r"(?<![\w./<-])((?:src|simgpu|test|tools|docs|deploy|cmake)/[\w./-]*\w\.(?:md|cc|h|inc|py|sh|cmake|yaml|json|txt))\b")
CXX = {".cc", ".h", ".inc"}
COMMENT = re.compile(r"//(.*)")
NAME = re.compile(r"(?<![\w./<*-])(\w+\.(?:cc|h|inc))\b")


def tree(root):
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        if not LEFT_OUT & set(parts) and not parts[0].startswith("build") and path.is_file():
            yield path


def documents(root):
    return (path for path in tree(root) if path.suffix == ".md")


def anchors(text):
    heads = re.findall(r"^#+ +(.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


def bad_links(path, text):
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        if not target.exists():
            yield f"no such file: {link}"
        elif anchor and anchor not in anchors(target.read_text()):
            yield f"no such heading: {link}"


def bad_names(root, text):
    makefile = root / "Makefile"
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile.read_text(), re.M)) if makefile.exists() else set()
    for target in MAKE.findall(text):
        if target not in targets:
            yield f"no such target: make {target}"
    for tool in TOOL.findall(text):
        if not (root / "tools" / tool).exists():
            yield f"no such command: tools/{tool}"
    for place in PLACE.findall(text):
        if not (root / place).exists():
            yield f"no such place: {place}"


# Tests of tools make trees of their own, whose files are nowhere else.
def lost_mentions(root):
    files = list(tree(root))
    names = {path.name for path in files}
    for path in files:
        if path.suffix not in SOURCES or path.name.endswith("_test.py"):
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            where = f"{path.relative_to(root)}:{number}"
            yield from (f"{where}: no such place: {place}" for place in PATH.findall(line) if not (root / place).exists())
            comment = COMMENT.search(line) if path.suffix in CXX else None
            if comment and not line.lstrip().startswith("#include"):
                yield from (f"{where}: no such file: {name}" for name in NAME.findall(comment[1]) if name not in names)


def unnamed_folders(root):
    architecture = root / "docs/design/architecture.md"
    if not architecture.exists():
        return
    rows = "\n".join(line.split("|")[1] for line in architecture.read_text().splitlines() if line.startswith("| `"))
    folders = [f"{group}/{path.name}" for group in GROUPS for path in (root / group).glob("*") if path.is_dir()]
    folders += [name for name in WHOLE if (root / name).is_dir()]
    for folder in sorted(folders):
        if folder.rpartition("/")[2] != "__pycache__" and f"`{folder}/`" not in rows:
            yield f"no row for {folder}/"


# What a translation leaves as it is, in order: the ranks of headings, commands without their comments, links, words in backticks.
def frame(text):
    ranks = re.findall(r"^(#+) ", text, re.M)
    commands = [line.split("  #")[0].strip() for line in text.splitlines() if line.startswith("    ")]
    links = [link for link in LINK.findall(text) if not re.fullmatch(r"README(\.\w+)?\.md", link)]
    return {"headings": ranks, "commands": commands, "links": sorted(links), "words": sorted(re.findall(r"`([^`]+)`", text))}


def untrue_translations(root):
    for path in sorted(root.glob("*.*.md")):
        original = root / f"{path.name.split('.')[0]}.md"
        if not original.exists():
            yield f"{path.name}: translates nothing"
            continue
        theirs, ours = frame(original.read_text()), frame(path.read_text())
        for kind, wanted in theirs.items():
            lacks = [one for one in wanted if ours[kind].count(one) < wanted.count(one)]
            more = [one for one in ours[kind] if wanted.count(one) < ours[kind].count(one)]
            if lacks or more or (kind in ("headings", "commands") and wanted != ours[kind]):
                yield f"{path.name}: {kind} differ from {original.name}: lacks {lacks[:3]}, has beside {more[:3]}"


def mute_commands(root):
    for path in sorted((root / "tools").glob("*")):
        if path.suffix or not path.is_file():
            continue
        done = subprocess.run([f"./{path.name}", "--help"], cwd=path.parent, capture_output=True, text=True, timeout=20)
        if done.returncode != 0 or f"tools/{path.name}" not in done.stdout or done.stdout.count("\n") > 20:
            yield f"tools/{path.name} --help: status {done.returncode}, says {(done.stdout + done.stderr)[:80]!r}"


def check(root):
    found = []
    for path in documents(root):
        text = path.read_text()
        where = path.relative_to(root)
        found += [f"{where}: {what}" for what in (*bad_links(path, text), *bad_names(root, text))]
    found += [f"docs/design/architecture.md: {what}" for what in unnamed_folders(root)]
    return found + list(lost_mentions(root)) + list(untrue_translations(root)) + list(mute_commands(root))


def main(arguments):
    root = pathlib.Path(arguments[0] if arguments else pathlib.Path(__file__).parent.parent).resolve()
    found = check(root)
    for line in found:
        print(line)
    print(f"{len(list(documents(root)))} documents, {len(found)} things that are not as they say")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
