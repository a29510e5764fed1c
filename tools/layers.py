#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails when an #include in src/ or simgpu/ breaks the rule of who may look at whom (docs/architecture.md).

    layers.py [ROOT]

Each folder may include itself and what ALLOWED names for it; nothing else of ours. Tests, fuzzers and benchmarks stand beside
their source and may include anything, as may everything under test/. An include of ours that is not written from src/ or from
the root, or that names no file, is an error too: otherwise a rule could be stepped around by writing it another way.
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
    "vgpu": ["abi", "region"],
    "base": [],
    "net": ["base"],
    "kube": ["net"],
    "device": ["base"],
    "sched": ["device"],
    "simcluster": ["sched"],
    "scheduler": ["kube", "sched"],
    "nvml": ["abi", "base"],
    "plugin": ["nvml", "kube", "device", "region"],
    "monitor": ["nvml", "kube", "device", "region"],
    "cert": ["kube"],
    "cli": ["region", "nvml", "device", "sched", "simcluster", "cert"],
    "simgpu": [],  # files directly in simgpu/: what its users include
    "simgpu/machine": ["simgpu"],
    "simgpu/image": ["simgpu"],
    "simgpu/nvml": ["abi", "simgpu/machine", "simgpu/image"],
    "simgpu/driver": ["abi", "simgpu/machine", "simgpu/image"],
}

# Whose tests, fuzzers, benchmarks need more than their source may have.
FREE = re.compile(r"_(test|fuzz|bench)\.(cc|c|h|py)$")
SOURCE = {".h", ".hpp", ".inc", ".cc", ".c", ".cpp", ".S"}
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
        return parts[1]
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
    if folder is None or FREE.search(path.name):
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
        elif FREE.search(target.name):
            errors.append(f"{where}: {folder} includes {target}, which is a test")
        elif below not in reachable(folder):
            errors.append(f"{where}: {folder} may not include {below} ({target})")
    return errors


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
    return files, errors


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1]).resolve()
    files, errors = check_tree(root)
    for error in errors:
        print(error, file=sys.stderr)
    if files == 0:
        print(f"no sources under {root}", file=sys.stderr)
    print(f"{files} files, {len(errors)} includes against the rule")
    return 1 if errors or files == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
