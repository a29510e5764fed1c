#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How well limits on GPU time are kept on a real GPU: the table of `tools/bench-sm`, from what programs got done.

    test/gpu/gpu_time.py [--build build] [--limits 10,30,50,75] [--kinds half,matmul,...] [--tenants 30:70,10:20:30:40]
                         [--seconds 12] [--native 3] [--out FILE.json]

Each kind of load (guests/load.py; matmul, step and step-graph need PyTorch) runs alone without a limit, before and after
its runs under `hami run --cores`; both together are what the GPU does natively. Its share in a window is the work that
ended in it by that. Never NVML's utilisation. The first two seconds of each run are left out, and the last moment. Where kernels write down
by %globaltimer when they are at work, the busy time that they saw is printed beside it. Tenants run all at once, each in
a share of its own, with the kind that --tenant-kind names.
Rows: mean absolute error over windows of 1 s and 10 s, bias and p95 in points, and work in % of limit x native.
Targets: 1.0 point over 1 s, 0.5 over 10 s (a kernel that can not be cut adds its length), work 98 %. Exit status: 0 all
met, 1 some missed. On a machine with no GPU it runs on simgpu if SIMGPU is set, to see that it works; else it does
nothing.
"""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from run import gpu_name, has, has_gpu

HERE = pathlib.Path(__file__).resolve().parent
LOAD = HERE / "guests/load.py"
OWN = ("short", "half", "sync50", "long500", "graph100", "streams8", "bursty")
WITH_TORCH = ("matmul", "step", "step-graph")
GRAIN = {"sync50": 0.05, "long500": 0.5, "bursty": 0.05}  # seconds that nobody can cut
SKIP, LAST = 2.0, 0.1
STEP = 0.1


class Run:
    """What a load did: (seconds, work) at each end of an iteration; busy percent by the kernels' own stamps, or None."""

    def __init__(self, out):
        lines = [line.split() for line in out.splitlines()]
        self.points = [(int(at) / 1e9, float(work)) for at, work in (words for words in lines if len(words) == 2)]
        if len(self.points) < 2:
            raise SystemExit("gpu_time.py: a load got nothing done")
        stamps = next((words for words in lines if words[:1] == ["stamps"]), None)
        count, busy, span = (int(word) for word in stamps[1:]) if stamps else (0, 0, 0)
        self.stamped = 100 * busy / span if count and span else None

    def at(self, when):
        """Work done by then; between two ends it goes on evenly."""
        before = self.points[0]
        for point in self.points:
            if point[0] >= when:
                part = (when - before[0]) / (point[0] - before[0]) if point[0] > before[0] else 0
                return before[1] + part * (point[1] - before[1])
            before = point
        return before[1]

    def rate(self):
        """Work a second, without the first seconds."""
        end = self.points[-1][0] - LAST
        begin = self.points[0][0] + min(SKIP, (end - self.points[0][0]) / 2)
        return (self.at(end) - self.at(begin)) / (end - begin)

    def windows(self, length, native):
        begin, end = self.points[0][0] + SKIP, self.points[-1][0] - LAST
        count = int((end - begin - length) / STEP) + 1
        marks = [self.at(begin + i * STEP) for i in range(count + round(length / STEP))]
        ahead = round(length / STEP)
        return [100 * (marks[i + ahead] - marks[i]) / length / native for i in range(max(0, count))]


class Machine:
    def __init__(self, build, state):
        self.hami, self.env = build / "bin/hami", dict(os.environ, HAMI_STATE_DIR=state)

    def start(self, words, cores=None, name="box"):
        share = [self.hami, "run", "--name", name, "--cores", cores, "--mem", "8g", "--"] if cores else []
        out = tempfile.TemporaryFile("w+")  # a pipe that nobody reads yet would hold the load
        argv = [str(word) for word in [*share, sys.executable, LOAD, *words]]
        return subprocess.Popen(argv, env=self.env, stdout=out), out

    def end(self, started):
        process, out = started
        if process.wait(timeout=120) != 0:
            raise SystemExit(f"gpu_time.py: a load ended with {process.returncode}")
        with out:
            out.seek(0)
            return out.read()

    def load(self, words, cores=None):
        return Run(self.end(self.start(words, cores)))


def row_of(name, runs, limit, native, grain):
    """One row, of (run, its limit) with what it does natively a second."""
    share = 100 * runs.rate() / native
    ones, tens = runs.windows(1.0, native), runs.windows(10.0, native)
    error = {length: statistics.fmean(abs(value - limit) for value in values) if values else None
             for length, values in ((1, ones), (10, tens))}
    p95 = sorted(abs(value - limit) for value in ones)[int(0.95 * len(ones))] if ones else None
    floor = {1: 100 * grain / 1, 10: 100 * grain / 10}
    met = (error[1] is None or error[1] <= 1.0 + floor[1]) and (error[10] is None or error[10] <= 0.5 + floor[10]) and \
        share >= 0.98 * limit - floor[10]
    row = {"name": name, "limit": limit, "share": share, "mae_1s": error[1], "mae_10s": error[10], "p95": p95,
           "bias": share - limit, "work": 100 * share / limit, "stamped": runs.stamped, "met": met}
    texts = ["-" if value is None else f"{value:.2f}" for value in (share, error[1], error[10], share - limit, p95)]
    print(f"{name:>24} {limit:5}  " + "".join(f"{text:>9}" for text in texts) + f"{row['work']:9.1f}"
          + f"{'-' if runs.stamped is None else format(runs.stamped, '.2f'):>9}  {'met' if met else 'MISSED'}", flush=True)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent.parent / "build")
    parser.add_argument("--limits", default="10,30,50,75")
    parser.add_argument("--kinds", default=",".join(OWN + WITH_TORCH))
    parser.add_argument("--tenants", default="30:70,10:20:30:40")
    parser.add_argument("--tenant-kind", default="half")
    parser.add_argument("--seconds", type=float, default=12.5)
    parser.add_argument("--native", type=float, default=3.0)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    real = has_gpu()
    if not real and "SIMGPU" not in os.environ:
        print("no NVIDIA GPU here, and SIMGPU is not set: nothing was run")
        return 0
    kinds = [kind for kind in options.kinds.split(",") if kind]
    if any(kind not in OWN + WITH_TORCH for kind in kinds + [options.tenant_kind]):
        raise SystemExit(f"gpu_time.py: the kinds are {', '.join(OWN + WITH_TORCH)}")
    wanted = [kind for kind in kinds if kind in WITH_TORCH]
    if wanted and not has("torch", "pynvml"):
        print("PyTorch or pynvml is not installed, so these do not run: " + ", ".join(wanted))
        kinds = [kind for kind in kinds if kind not in WITH_TORCH]
    machine = gpu_name() if real else "simgpu"
    rows = []
    with tempfile.TemporaryDirectory(prefix="hami-gpu-time-") as state:
        gpu = Machine(options.build.resolve(), state)
        calibrated = gpu.end(gpu.start(["calibrate"])).strip()
        block_ns = calibrated.split()[0]
        print(f"{datetime.date.today()} {machine}; a block of work takes {calibrated.replace(' ', ' ns of ', 1)}")
        print(f"{'':>24} limit  {'share':>9}{'MAE 1s':>9}{'MAE 10s':>9}{'bias':>9}{'p95':>9}{'work %':>9}{'stamps':>9}")

        def words(kind, seconds):
            return [kind, seconds] + ([] if kind in WITH_TORCH else [block_ns])

        for kind in kinds:
            before = gpu.load(words(kind, options.native))
            runs = [(int(limit), gpu.load(words(kind, options.seconds), limit)) for limit in options.limits.split(",")]
            after = gpu.load(words(kind, options.native))
            native = (before.rate() + after.rate()) / 2
            # Of a load that leaves the GPU idle by itself only a share of its own pace can be told, and that needs no limit.
            if kind == "bursty":
                native = native / 0.2
            for limit, run in runs:
                rows.append(row_of(kind, run, min(limit, 20) if kind == "bursty" else limit, native, GRAIN.get(kind, 0)))
            print(f"{'':>24}native {before.rate():.4g} and {after.rate():.4g} a second, "
                  f"{100 * abs(before.rate() - after.rate()) / native:.2f} % apart", flush=True)
        kind = options.tenant_kind
        native = gpu.load(words(kind, options.native)).rate() if options.tenants else 0
        for shares in (group.split(":") for group in options.tenants.split(",") if group):
            started = [gpu.start(words(kind, options.seconds), share, f"tenant{i}") for i, share in enumerate(shares)]
            runs = [Run(gpu.end(load)) for load in started]
            for share, run in zip(shares, runs):
                rows.append(row_of(f"{':'.join(shares)} {kind}", run, int(share), native, GRAIN.get(kind, 0)))
            got = [100 * run.rate() / native for run in runs]
            print(f"{'':>24}all together {sum(got):.1f} % of one alone", flush=True)
    if options.out:
        options.out.write_text(json.dumps({"date": datetime.date.today().isoformat(), "machine": machine, "rows": rows}, indent=1)
                               + "\n")
    missed = sum(not row["met"] for row in rows)
    print(f"{len(rows) - missed} rows met, {missed} missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
