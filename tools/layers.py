#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails when an #include in src/ or simgpu/ breaks the rule of who may look at whom (docs/design/architecture.md).

    layers.py [ROOT]

Each folder may include itself and what ALLOWED names for it; nothing else of ours. Tests, fuzzers and benchmarks stand beside
their source and may include anything, as may everything under test/ and in a folder named testing/: the fakes and worlds of a
library's tests stand there and nowhere else, no product includes them, and no target of a product is made of them or linked
with one that is (CMakeLists.txt, *.cmake). An include of ours that is not written from src/ or from
the root, or that names no file, is an error too: otherwise a rule could be stepped around by writing it another way.
Variables that change and belong to no object are counted where MUTABLE says how many a folder may have.
Exit status: 0 the rule holds, 1 it does not.
"""

import os
import pathlib
import re
import sys

# What a folder is built on directly. What those are built on in turn comes along.
ALLOWED = {
    "abi": [],
    "region": [],
    # Its sub-folders are rooms of their own. Files directly in it: what the library has instead of a C runtime.
    "vgpu": [],
    "vgpu/loader": ["abi", "region"],
    "vgpu/runtime": ["vgpu/loader"],
    "vgpu/memory": ["vgpu/runtime"],  # knows nothing of GPU time
    "vgpu/time": ["region"],  # decides, and knows nothing of the driver, of memory, or of a clock
    "vgpu/pacer": ["vgpu/time", "vgpu/runtime"],  # knows nothing of memory
    "vgpu/hooks": ["vgpu/memory", "vgpu/pacer"],
    "base": [],
    "net": ["base"],
    "kube": ["net"],
    "device": ["base"],
    "sched": ["device"],
    "simcluster": ["sched"],
    "page": ["kube", "sched"],
    "cluster": ["page"],
    "scheduler": ["page"],
    "nvml": ["abi", "base"],
    "mps": ["base", "region"],
    "plugin": ["nvml", "kube", "device", "region", "mps"],
    "monitor": ["nvml", "kube", "device", "region"],
    "cert": ["kube"],
    "upgrade": ["kube"],
    "cli": ["region", "nvml", "mps", "device", "sched", "simcluster", "cert", "cluster", "upgrade"],
    "simgpu": [],  # files directly in simgpu/: what its users include
    "simgpu/machine": ["simgpu"],
    "simgpu/image": ["simgpu"],
    "simgpu/mps": ["simgpu"],
    "simgpu/nvml": ["abi", "simgpu/machine", "simgpu/image"],
    "simgpu/driver": ["abi", "simgpu/machine", "simgpu/image", "simgpu/mps"],
}

# Folders under src/ in which each sub-folder has a line of its own.
SPLIT = {folder.split("/")[0] for folder in ALLOWED if "/" in folder and not folder.startswith("simgpu/")}

# How many variables that change, and belong to no object, a folder may have. The number only falls: new state goes into an
# object that is passed in or is part of one that the folder has. The loader works before any object is built; the words that
# a fork wipes, those that fast paths read, what a thread has, and what the linker wants are variables of their own.
MUTABLE = {"vgpu/loader": 6, "vgpu/runtime": 10, "vgpu/memory": 3, "vgpu/time": 0, "vgpu/pacer": 3, "vgpu/hooks": 0, "vgpu": 0}
VARIABLE = re.compile(
    r"^(?:(?:constinit|static|inline|thread_local|volatile|alignas\([^)]*\)) )*"
    r"(?!(?:extern|using|return|typedef|friend|namespace|template|enum|struct|class|union|const|constexpr|goto|case|else|[A-Z_]+_CONSTANT)\b)"  # a constant but for the test that varies it
    r"[\w:]+(?:<.*>)?(?P<pointer> ?[*&]+(?: ?const)? ?| )(?!operator)(?P<name>\w+)(?:\[[^\]]*\])*(?:\{.*|;| = .*)$"
)
LOCAL = re.compile(r"^ +(?:constinit )?static (?!(?:constexpr|const|inline|void|bool)\b|.*[\w>]\()")

# Whose tests, fuzzers, benchmarks need more than their source may have.
FREE = re.compile(r"_(test|fuzz|bench)\.(cc|c|h|py)$")
TESTING = "testing"
# What looks like such a thing and stands among the sources of a product.
ASIDE = re.compile(r"^(fake|mock|stub|test)_|_(test|testing|test_util|fixture|fake|world)\.(h|hpp|inc)$")
SOURCE = {".h", ".hpp", ".inc", ".cc", ".c", ".cpp", ".S"}
COMMAND = re.compile(r"^[ \t]*(\w+)\s*\(([^()]*(?:\([^()]*\)[^()]*)*)\)", re.M)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', re.M)


def reachable(folder):
    seen, todo = {folder}, [folder]
    while todo:
        for below in ALLOWED[todo.pop()]:
            if below not in seen:
                seen.add(below)
                todo.append(below)
    return seen


def folder_of(path):
    """The folder of the rule that a path relative to the root belongs to, or None."""
    parts = path.parts
    if len(parts) > 2 and parts[0] == "src":
        return "/".join(parts[1 : min(len(parts) - 1, 3)]) if parts[1] in SPLIT else parts[1]
    if len(parts) > 1 and parts[0] == "simgpu":
        return "/".join(parts[: min(len(parts) - 1, 2)])
    return None


def without_comments(text):
    return re.sub(r"//[^\n]*|/\*.*?\*/", lambda m: "\n" * m[0].count("\n"), text, flags=re.S)


def target_of(root, name):
    """What an include written as `name` is, relative to the root, or None when it is no file of ours."""
    for base in (root / "src", root):
        if (base / name).is_file():
            return pathlib.Path(os.path.normpath(base / name)).relative_to(root)
    return None


def check_file(root, path):
    """Lines about the includes of one file that break the rule."""
    relative = path.relative_to(root)
    folder = folder_of(relative)
    if folder is None or TESTING in relative.parts:
        return []
    if ASIDE.search(path.name) and not path.name.endswith(("_test.cc", "_test.c")):
        return [f"{relative}: serves tests and stands among a product's sources: move it into {TESTING}/ of its library"]
    if FREE.search(path.name):
        return []
    if folder not in ALLOWED:
        return [f"{relative}: the folder {folder} has no place in the rule: name it in tools/layers.py"]
    errors = []
    text = without_comments(path.read_text(encoding="utf-8"))
    for m in INCLUDE.finditer(text):
        where = f"{relative}:{text.count(chr(10), 0, m.start()) + 1}"
        target = target_of(root, m[2])
        if target is None:
            if m[1] == '"' and "/" in m[2]:
                errors.append(f'{where}: "{m[2]}" is no file under src/ or the root')
            elif m[1] == '"' and (path.parent / m[2]).is_file():
                errors.append(f'{where}: "{m[2]}" is written from its own folder; write it from src/ or the root')
            continue
        below = folder_of(target)
        if ".." in pathlib.PurePath(m[2]).parts:
            errors.append(f'{where}: "{m[2]}" climbs')
        elif below is None:
            errors.append(f"{where}: {folder} includes {target}, which is no part of the product")
        elif FREE.search(target.name) or TESTING in target.parts:
            errors.append(f"{where}: {folder} includes {target}, which is a test")
        elif below not in reachable(folder):
            errors.append(f"{where}: {folder} may not include {below} ({target})")
    return errors


def variables(text):
    """Names of the variables of a file that may change and belong to no object, as the formatter leaves them."""
    names, inside = [], 0
    for line in without_comments(text).splitlines():
        line = line.rstrip()
        found = VARIABLE.match(line)
        if found and "const" not in found["pointer"] and not line.startswith(("constinit const ", "static const ", "inline const ")):
            names.append(found["name"])
        elif LOCAL.match(line) and line.endswith((";", "{")) and inside == 0:
            names.append(line.strip())
        inside = max(0, inside + (1 if re.match(r"^(?:class|struct|union) .*\{$", line) else 0) - (1 if line == "};" else 0))
    return names


class Mutable:
    """How many such variables there are in the folders that MUTABLE names."""

    def __init__(self, root):
        self.found = {folder: [] for folder in MUTABLE}
        for path in sorted(p for top in ("src", "simgpu") for p in (root / top).rglob("*")):
            relative = path.relative_to(root)
            folder = folder_of(relative)
            if folder in self.found and path.suffix in SOURCE and not FREE.search(path.name) and TESTING not in relative.parts:
                self.found[folder] += [f"{relative}: {name}" for name in variables(path.read_text(encoding="utf-8"))]

    def errors(self):
        return [
            f"{folder}: {len(found)} variables that change and belong to no object, {MUTABLE[folder]} may be; put the new one into an "
            "object, see MUTABLE in tools/layers.py. They are " + ", ".join(found)
            for folder, found in self.found.items()
            if len(found) > MUTABLE[folder]
        ]


class Targets:
    """What the build files of a tree make, as far as it matters what is linked with what."""

    def __init__(self, root):
        self.tests, self.testing, self.errors, links = set(), set(), [], []
        for path in sorted(p for top in ("src", "simgpu") for p in (root / top).rglob("*") if is_build_file(p)):
            where = path.relative_to(root)
            text = re.sub(r"#[^\n]*", "", path.read_text(encoding="utf-8"))
            for command, inside in COMMAND.findall(text):
                name, *words = inside.split() or [""]
                if command in ("hami_test", "hami_fuzz") or (
                    command == "add_executable" and ("EXCLUDE_FROM_ALL" in words or name.endswith("_bench"))
                ):
                    self.tests.add(name)
                elif command in ("add_library", "add_executable", "target_sources"):
                    self.made_of(where, name, [word for word in words if pathlib.PurePath(word).suffix in SOURCE])
                elif command == "target_link_libraries":
                    links.append((where, name, words))
        for where, name, words in links:
            if name not in self.tests | self.testing:
                self.errors += [
                    f"{where}: {name} is linked with {word}, which is made for tests" for word in words if word in self.testing
                ]

    def made_of(self, where, name, sources):
        ours = [source for source in sources if TESTING in pathlib.PurePath(source).parts]
        if ours and ours == sources:
            self.testing.add(name)
        elif ours and name not in self.tests:
            self.errors.append(f"{where}: {name} is made of {ours[0]}, which is made for tests, and of what is not")


def is_build_file(path):
    return path.name == "CMakeLists.txt" or path.suffix == ".cmake"


def cycles():
    """Folders that reach themselves through others: then the rule itself is wrong."""
    return [f for f in ALLOWED if any(f in reachable(b) for b in ALLOWED[f])]


def check_tree(root):
    errors = [f"the rule has a cycle through {folder}" for folder in cycles()]
    files = 0
    for top in ("src", "simgpu"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix in SOURCE and path.is_file():
                files += 1
                errors += check_file(root, path)
    return files, errors + Targets(root).errors + Mutable(root).errors()


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1]).resolve()
    files, errors = check_tree(root)
    for error in errors:
        print(error, file=sys.stderr)
    if files == 0:
        print(f"no sources under {root}", file=sys.stderr)
    counted = ", ".join(f"{folder} {len(found)} of {MUTABLE[folder]}" for folder, found in Mutable(root).found.items())
    print(f"{files} files, {len(errors)} things against the rule; mutable variables of no object: {counted}")
    return 1 if errors or files == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
