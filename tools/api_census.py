#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reports the symbols that exist somewhere and that our lists do not name, so that a new CUDA is noticed.

    api_census.py FILE|DIR ...     cuda.h / nvml.h, a folder that holds them, or a libcuda.so / libnvidia-ml.so
    api_census.py --strict ...     exit 1 when something is missing (else 0: it is a report)

A library is asked with `nm -D`, so a driver that is newer than every published header can be asked as well. Names of libraries
of which ours has no list (EGL, GL, VDPAU interoperation, internals) are counted, not listed, unless --all is given.
"""

import argparse
import pathlib
import re
import subprocess
import sys

import abi_parse as parse

# Exported for other APIs' sake, declared in headers of their own; simulating them would need those APIs.
FOREIGN = re.compile(r"^cu(EGL|GL|VDPAU|Graphics(EGL|GL|VDPAU)|EventCreateFromEGL|D3D|WGL)|^cudbg|^cuSqpCompile|^cuda")
PUBLIC = {"cuda": re.compile(r"^cu[A-Z]\w*$"), "nvml": re.compile(r"^nvml[A-Z]\w*$")}


def symbols_of_header(path):
    """Functions that a header declares or, by a macro, renames to; a name before a parenthesis is one unless it is a type."""
    text = parse.strip_comments(path.read_text(encoding="utf-8", errors="replace"))
    names = set(re.findall(r"\b(?:CUDAAPI|DECLDIR)\s+(\w+)\s*\(", text))
    return names | set(re.findall(r"^#define\s+\w+\s+(?:__CUDA_API_PT[DS]SZ?\()?((?:cu|nvml)[A-Z]\w*_v\d)\)?\s*$", text, re.M))


def symbols_of_library(path):
    done = subprocess.run(["nm", "-D", "--defined-only", str(path)], capture_output=True, text=True, check=True)
    return {line.split()[-1].split("@")[0] for line in done.stdout.splitlines() if re.search(r" [TWi] ", line)}


def sources(arguments):
    for argument in arguments:
        path = pathlib.Path(argument)
        if path.is_dir():
            found = [path / name for name in ("cuda.h", "nvml.h") if (path / name).exists()]
            if not found:
                sys.exit(f"no cuda.h or nvml.h in {path}")
            yield from found
        elif path.exists():
            yield path
        else:
            sys.exit(f"no such file: {path}")


def missing(path, abi):
    """(names that the list lacks, names of foreign APIs) of one source."""
    names = symbols_of_header(path) if path.suffix == ".h" else symbols_of_library(path)
    api = "nvml" if "nvml" in path.name or "nvidia-ml" in path.name else "cuda"
    absent = {n for n in names if PUBLIC[api].match(n)} - parse.listed(abi / f"{api}_api.inc")
    foreign = {n for n in absent if FOREIGN.match(n)}
    return sorted(absent - foreign), sorted(foreign), len(names)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--abi", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[1] / "src/abi")
    arguments.add_argument("--strict", action="store_true")
    arguments.add_argument("--all", action="store_true")
    arguments.add_argument("sources", nargs="+")
    options = arguments.parse_args()
    absent_anywhere = 0
    for path in sources(options.sources):
        absent, foreign, total = missing(path, options.abi)
        absent_anywhere += len(absent)
        print(f"{path}: {total} symbols, {len(absent)} not in our list, {len(foreign)} of other APIs")
        for name in absent + (foreign if options.all else []):
            print("  " + name)
        if total == 0:
            sys.exit(f"no symbols found in {path}")
    return 1 if options.strict and absent_anywhere else 0


if __name__ == "__main__":
    sys.exit(main())
