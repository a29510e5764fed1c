#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints what becomes of each driver symbol: replaced by libvgpu.so or passed on, and whether the simulated driver has it.

    api_coverage.py --build BUILD [--all]    per group, counts; with --all one row a symbol

Reads the two lists in src/abi and the built libraries, and fails (exit 1) where they contradict each other: a HOOK that
libvgpu.so does not export, an export that is no HOOK, a listed symbol that the simulated driver lacks. A weak definition in the
simulated driver is its answer for what it does not implement (CUDA_ERROR_NOT_SUPPORTED, or NVML's equivalent).
"""

import argparse
import pathlib
import re
import subprocess
import sys

LISTS = {"cuda": ("cuda_api.inc", "libcuda.so.1"), "nvml": ("nvml_api.inc", "libnvidia-ml.so.1")}
OWN_EXPORTS = {"dlsym", "dlvsym"}


def rows(text):
    """[(group, symbol, kind)], each symbol once, in the list's order. Aliases are second names, not symbols."""
    out, seen, group = [], set(), "all of them"
    lines = text.splitlines()
    for i, line in enumerate(lines):
        # A heading stands alone: an empty line before it, rows behind it.
        if line.startswith("// ") and i > 0 and lines[i - 1] == "" and lines[i + 1 :][:1] and lines[i + 1].startswith("HAMI"):
            group = line[3:]
        m = re.match(r"HAMI_(?:CUDA|NVML)_(HOOK|PASS)\((\w+)", line)
        if m and m[2] not in seen:
            seen.add(m[2])
            out.append((group, m[2], m[1]))
    return out


def exports(library):
    """{symbol: it is weak} of what a shared library defines."""
    done = subprocess.run(["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True)
    fields = (line.split() for line in done.stdout.splitlines())
    return {f[-1].split("@")[0]: f[-2] in "Ww" for f in fields if len(f) >= 2 and f[-2] in "TWwi"}


def contradictions(api, listed, vgpu, simulated):
    hooks = {symbol for _, symbol, kind in listed if kind == "HOOK"}
    ours = {s for s in vgpu if s.startswith("cu" if api == "cuda" else "nvml")}
    errors = [f"{s}: HOOK, but libvgpu.so does not export it" for s in sorted(hooks - ours)]
    errors += [f"{s}: exported by libvgpu.so, but no HOOK" for s in sorted(ours - hooks)]
    return errors + [f"{s}: listed, but not in the simulated driver" for _, s, _ in listed if s not in simulated]


def table(listed, simulated, whole):
    if whole:
        for group, symbol, kind in listed:
            print(f"| {symbol} | {kind} | {'implemented' if simulated.get(symbol) is False else 'not supported'} |")
        return
    groups = {}
    for group, symbol, kind in listed:
        counts = groups.setdefault(group, [0, 0, 0])
        counts[0] += 1
        counts[1] += kind == "HOOK"
        counts[2] += simulated.get(symbol) is False
    total = [sum(column) for column in zip(*groups.values())]
    shown = list(groups.items()) if len(groups) > 1 else []
    for group, counts in [*shown, ("all", total)]:
        print(f"| {group} | {counts[0]} | {counts[1]} | {counts[2]} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--all", action="store_true", help="one row a symbol")
    arguments = parser.parse_args()
    abi = pathlib.Path(__file__).resolve().parent.parent / "src" / "abi"
    vgpu = exports(arguments.build / "lib" / "libvgpu.so")
    errors = [f"{s}: exported by libvgpu.so" for s in vgpu if not s.startswith(("cu", "nvml")) and s not in OWN_EXPORTS]
    for api, (name, library) in LISTS.items():
        listed = rows((abi / name).read_text())
        simulated = exports(arguments.build / "simgpu" / library)
        print(f"\n{library}\n")
        print("| symbol | libvgpu.so | simulated |\n|---|---|---|" if arguments.all
              else "| group | symbols | replaced by libvgpu.so | simulated |\n|---|---|---|---|")
        table(listed, simulated, arguments.all)
        errors += contradictions(api, listed, vgpu, simulated)
    for error in errors:
        print(error, file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
