#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What libvgpu.so costs a GPU process: each row measured without and with the library, in one run.

    run.py --build DIR [--rounds N] [--json FILE]

Runs build/test/bench_guest on simgpu. For the cost of a call "without" is the driver's own function and "with" the one
that a client finds, timed in turns inside one process (own, found, found, own); "added" is the median of their
differences. (The same code in two processes may differ by more than that, by where their memory happens to lie.) The
refusal, which is held against a figure as it is, is the least disturbed of its rounds. Instructions are counted one by
one. Starts are compared between processes. All are medians over the rounds. Exit status 1 when a target is missed.
"""
import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

LIMIT = 40 << 30


class Machine:
    def __init__(self, build, folder):
        self.guest = str(build / "test/bench_guest")
        self.library = str(build / "lib/libvgpu.so")
        self.folder = pathlib.Path(folder)
        self.bare = dict(os.environ, SIMGPU="1xH100", SIMGPU_STATE=str(self.folder / "machine"), SIMGPU_QUIET="1", SIMGPU_PROFILE="ideal",
                         LD_LIBRARY_PATH=str(build / "simgpu"))
        self.bare.pop("LD_PRELOAD", None)
        self.with_library = dict(self.bare, LD_PRELOAD=self.library, CUDA_DEVICE_MEMORY_LIMIT=str(LIMIT),
                                 CUDA_DEVICE_MEMORY_SHARED_CACHE=str(self.folder / "share.cache"))

    def env(self, side):
        return self.with_library if side == "with" else self.bare

    def start(self, side, *argv):
        return subprocess.Popen([self.guest, *map(str, argv)], env=self.env(side), stdout=subprocess.PIPE, text=True)

    @staticmethod
    def values(process):
        out, _ = process.communicate(timeout=300)
        if process.returncode != 0:
            raise SystemExit(f"bench_guest ended with {process.returncode}")
        return {name: float(value) for name, value in (line.split() for line in out.splitlines())}

    def call(self, rounds, key, *argv):
        """Medians over `rounds` processes with the library: the driver's own function, the one found, the difference."""
        seen = [self.values(self.start("with", *argv)) for _ in range(rounds)]
        return tuple(statistics.median(values[f"{key}_{what}"] for values in seen) for what in ("own", "found", "added"))

    def least(self, key, *argv):
        """The same, but of the function found the least disturbed round counts: for what is held against a figure as it is."""
        seen = [self.values(self.start("with", *argv)) for _ in range(3)]
        own, best = (min(values[f"{key}_{what}"] for values in seen) for what in ("own", "best"))
        return own, best, best - own

    def starts(self, rounds, key, *argv):
        """Medians of `key` without and with the library, and their difference, over processes in ABBA order."""
        seen = {"bare": [], "with": []}
        for i in range(rounds):
            for side in ("bare", "with") if i % 2 == 0 else ("with", "bare"):
                seen[side].append(self.values(self.start(side, *argv))[key])
        bare, held = statistics.median(seen["bare"]), statistics.median(seen["with"])
        return bare, held, held - bare

    def crowd(self, count):
        """`count` processes at once: p99 of their cuInit in ms, CPU seconds of all, wall seconds."""
        result = {}
        for side in ("bare", "with"):
            before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
            crowd = [self.start(side, "init") for _ in range(count)]
            inits = sorted(self.values(process)["init_ms"] for process in crowd)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            result[side] = (inits[int(0.99 * (count - 1))], cpu, time.monotonic() - begin)
        return result


def pair(crowd, index):
    bare, held = crowd["bare"][index], crowd["with"][index]
    return bare, held, held - bare


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    rows, missed = [], 0

    def row(name, unit, measured, target=None, what="added"):
        nonlocal missed
        bare, with_library, added = measured
        figure = added if what == "added" else with_library
        good = target is None or figure <= target
        missed += not good
        rows.append(dict(name=name, unit=unit, bare=bare, with_library=with_library, added=added, target=target,
                         held_against=what, met=good))
        aim = "" if target is None else f"{what} <= {target:g} {unit}  {'met' if good else 'MISSED'}"
        print(f"{name:44} {bare:12.3f} {with_library:12.3f} {added:+12.3f} {unit:3} {aim}", flush=True)

    with tempfile.TemporaryDirectory(prefix="hami-bench-") as folder:
        machine = Machine(options.build.resolve(), folder)
        print(f"{'':44} {'without':>12} {'with':>12} {'added':>12}")
        own = machine.values(machine.start("with", "own"))
        row("cuLaunchKernel, no core limit", "ns", machine.call(options.rounds, "launch_ns", "launch"), 5)
        row("the same, instructions", "", machine.call(2, "launch_steps", "steps"), 30)
        for live in (0, 10_000, 1_000_000):
            row(f"cuMemAlloc + cuMemFree, {live:,} live", "ns",
                machine.call(2 if live > 100_000 else options.rounds, "alloc_free_ns", "alloc", live, 1), 200)
        row("cuMemAlloc + cuMemFree, 8 threads, per pair", "ns", machine.call(options.rounds, "alloc_free_ns", "alloc", 0, 8))
        row("refusal", "ns", machine.least("refuse_ns", "refuse"), 1000, "with")
        row("cuGetProcAddress", "ns", machine.call(options.rounds, "lookup_ns", "lookup"), 200)
        row("cuInit", "ms", machine.starts(options.rounds, "init_ms", "init"), 5)
        crowd = machine.crowd(200)
        row("200 starts at once, cuInit p99", "ms", pair(crowd, 0), 50)
        crowd = machine.crowd(500)
        row("500 starts at once, CPU of all", "s", pair(crowd, 1), 1)
        functions = sorted(name[4:] for name, value in own.items() if value)
        print("handed out as the driver's own pointers: " + ", ".join(functions))
    if options.json:
        options.json.write_text(json.dumps(dict(rows=rows, own=own), indent=1) + "\n")
    print("every target is met" if not missed else f"{missed} targets are missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
