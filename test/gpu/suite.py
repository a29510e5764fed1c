#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a real GPU does, bare and with a library before the driver, in one command of at most 8 minutes.

    test/gpu/suite.py [--build build] [--ours NAME=PATH]... [--library NAME=PATH]... [--minutes 8] [--out FILE.json] [PART]...

Parts, in this order: facts (events, gaps, turns between contexts, what calls cost), cost (cuInit, a first context and a
launch, bare and limited by turns), starts (what a start takes where NVML is opened before, beside or after it), turns
(do exclusive turns beat the driver's time slices?), limits, tenants, host (programs that their host holds up),
priority, light (a launch of 1 ms each 20 ms beside a heavy tenant), nvml (what NVML says of a limited load), memory
(run.py's cases with PyTorch, CuPy and JAX), stranger (30 % beside a program without the library). Each case runs bare
first, then under `hami run`, then with each other build of our library (--ours) and each --library by another project;
processes are pinned to CPUs where there are eight. A part that fails costs itself only, and a part for which no time is
left is said to be left out.

Carry to the machine: build/bin/hami, build/lib/libvgpu.so, build/test/sm_guest, build/test/sm_facts.
On a machine without a GPU: `hami sim --gpus 1xH200 -- test/gpu/suite.py facts limits --quick`, to see that it works.
Exit status: 0 every figure that has a target met it, 1 some missed, 2 wrong use or no GPU.
"""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import bench
import nvml_says
from bench import Setup, Trouble
from run import gpu_name, has, has_gpu
from sm_cell import UNSATURATED, quantile
from sm_parts import least_added

BARE = Setup("bare")
LIMITED = ("us20", "half", "graph100", "streams8", "procs8", "sync50", "mixed", "anew", "eager", "sync40us")
LIMITS = (30, 75)
PROCESSES = {"procs8": 8}
GRAIN = {"sync50": 0.05}  # seconds that nothing can cut
ONE_OF_MANY = {"procs8": "milli"}  # what one process of those does alone: several lose a tenth to the driver's slices
TENANTS = ((30, 70), (10, 20, 30, 40))
BESIDE_A_STRANGER = ("half", "sync50", "streams8")
NVML_GRAIN = 0.5  # points: it says whole percents
NVML_SETTLES = 12.0  # seconds: the library asks once in one, and follows the last eight
UNLIMITED = 6  # containers that share one GPU as they come
PAIRS = ("streams8", "sync100")  # two of them, 30 : 70: what they lose is known (docs/design/gpu-time.md)
RATE, REQUEST_US = 150, 2000  # Poisson requests of sm_guest
PRIORITY_BESIDE = {"half": 0.5e-3, "graph100": 2.1e-3, "streams8": 0.2e-3, "tiny": 5e-6}  # seconds of a launch
P99_ADDED = 10  # percent, beyond what launches that nothing can cut make unavoidable
ADDED = {"cuInit": 2000, "primary context": 3000}  # us that may be added
ADDED_TO_A_LAUNCH = (10, 30)  # ns: without a limit, and with one that does not bind
NVML_OPENS = ("never", "before", "init", "context", "after")  # what sm_facts nvml knows
SAID = ("us20", "half", "streams8", "sync50")
HOST_BOUND = (("host-bound",) * 2, ("token",) * 2, ("host-bound", "half"), ("short-sync", "half"), ("host-bound",) * 3,
              ("token",) * 3)
MEMORY_CASES = ("fill", "graphs, cudaMallocAsync", "CuPy", "JAX", "nvidia-smi")


class Sheet:
    """Prints figures as they come and keeps them for the file."""

    def __init__(self):
        self.rows, self.missed = [], 0

    def add(self, part, name, setup, target=None, at_least=True, **figures):
        """`target` is of the first figure; None where a figure is for comparison alone."""
        first = next(iter(figures.values()))
        met = None if target is None else first is not None and (first >= target if at_least else first <= target)
        self.missed += met is False
        self.rows.append(dict(part=part, name=name, setup=setup, target=target, met=met, **figures))
        text = "  ".join(f"{key} {'-' if value is None else format(value, '.2f')}" for key, value in figures.items())
        verdict = "" if met is None else f"  {'met' if met else 'MISSED'} ({'>=' if at_least else '<='} {target:g})"
        print(f"{part:9} {name:34} {setup:8} {text}{verdict}", flush=True)


class Suite:
    def __init__(self, gpu, setups, options):
        quick, self.shapes, self.percent, self.beside = options.quick, options.shapes, options.limits, options.beside
        self.gpu, self.setups, self.sheet = gpu, setups, Sheet()
        self.long, self.short = (2.5, 1.5) if quick else (4.0, 2.0)
        self.quick, self.native = quick, {}

    def all(self):
        return [BARE, *self.setups]

    @staticmethod
    def one(setup, shape, box="", **limits):
        """A container that has the load `shape`, as Bench.work wants it."""
        return setup, shape, PROCESSES.get(shape, 1), box, limits

    def alone(self, shape):
        """GPU seconds of work a second that the load does bare, or of several processes one, measured once."""
        shape = ONE_OF_MANY.get(shape, shape)
        if shape not in self.native:
            self.native[shape] = bench.total(self.gpu.work([self.one(BARE, shape)], self.short, 0.5))
        return self.native[shape]

    # --- parts ---

    def facts(self):
        words = (("time",), ("turns", "1"), ("host",))
        for what in words:
            for setup in self.all() if what == ("host",) else [BARE]:
                self.tell_facts(what, setup, what[0])
        for setup in self.setups:  # a limit that hardly binds: what the pacer costs
            self.tell_facts(("host",), setup, "host, 99 %", cores=99)
        for others in (1, 2):
            board = self.gpu.board()
            loads = [self.gpu.load(BARE, board, "half", [slot], "") for slot in range(others)]
            try:
                self.gpu.await_all(board, loads)
                self.tell_facts(("turns", "2"), BARE, f"{others + 1} processes", slot=others)
            finally:
                self.gpu.stop(board, loads)

    def tell_facts(self, words, setup, name, slot=0, cores=None):
        argv, env = setup.wrap(self.gpu, [self.gpu.facts, *words], f"facts-{setup.name}-{cores}", cores=cores)
        out = self.gpu.run(argv, env, slot=slot)
        for line in out.splitlines():
            what, value = line.rsplit(" ", 1)
            self.sheet.add("facts", f"{name}: {what}", setup.name, us=float(value))

    def cost(self):
        """Medians of processes that start one after the other, in turns, as two of one kind differ by more than is added."""
        kinds = [("bare", BARE, None)]
        for setup in self.setups:
            kinds += [(setup.name, setup, None), (f"{setup.name} 99 %", setup, 99)]
        seen = {name: [] for name, _, _ in kinds}
        for turn in range(3 if self.quick else 8):
            for name, setup, cores in kinds if turn % 2 == 0 else reversed(kinds):
                argv, env = setup.wrap(self.gpu, [self.gpu.facts, "start"], f"cost{turn}-{setup.name}-{cores}", cores=cores)
                seen[name].append(dict(line.rsplit(" ", 1) for line in self.gpu.run(argv, env).splitlines()))
        middle = {name: {what: statistics.median(float(run[what]) for run in runs) for what in runs[0]} for name, runs in seen.items()}
        for name, setup, cores in kinds:
            for what, target in ADDED.items():
                added = middle[name][what] - middle["bare"][what]
                self.sheet.add("cost", f"{what}, {name}", setup.name, None if setup is BARE else target, False, added_us=added,
                               us=middle[name][what])
            self.sheet.add("cost", f"a launch, {name}", setup.name, None if setup is BARE else ADDED_TO_A_LAUNCH[cores is not None],
                           False, added_ns=1e3 * middle[name]["added to cuLaunchKernel"], us=middle[name]["cuLaunchKernel"])

    def starts(self):
        """Bare, on two CPUs and on one."""
        for one in (False, True) if self.gpu.cpus else (False,):
            seen = {when: [] for when in NVML_OPENS}
            for turn in range(2 if self.quick else 5):
                for when in NVML_OPENS if turn % 2 == 0 else reversed(NVML_OPENS):
                    argv = ["taskset", "-c", self.gpu.cpus[0]] if one else []
                    out = self.gpu.run([*argv, self.gpu.facts, "nvml", when], self.gpu.env)
                    seen[when].append({name: float(value) for name, value in (line.rsplit(" ", 1) for line in out.splitlines())})
            for when, runs in seen.items():
                figures = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
                self.sheet.add("starts", f"NVML {when}{', one CPU' if one else ''}", "bare", all_us=figures.pop("all of it"),
                               **{name.replace(" ", "_"): value for name, value in figures.items()})

    def turns(self):
        base = self.turned(1, 50.0)
        for count in (2, 3):
            curves = self.gpu.work([self.one(BARE, "half")] * count, self.short, 0.5)
            self.sheet.add("turns", f"{count} processes, the driver's slices", "bare", of_one=100 * bench.total(curves) / base)
            for ms in (2.0, 10.0):
                self.sheet.add("turns", f"{count} processes, turns of {ms:g} ms", "bare",
                               of_one=100 * self.turned(count, ms) / base)

    def turned(self, count, ms):
        """Work a second of so many processes that hand the turn on."""
        board = self.gpu.board()
        guests = [self.gpu.start([self.gpu.guest, "turns", board.path, slot, count, ms], self.gpu.env, slot)
                  for slot in range(count)]
        curves = [bench.Curve() for _ in guests]
        try:
            self.gpu.await_all(board, guests)
            time.sleep(0.5)
            self.gpu.look(board, curves, self.short)
        finally:
            self.gpu.stop(board, guests)
        return bench.total(curves)

    def limits(self):
        for shape in self.shapes or (LIMITED[:2] if self.quick else LIMITED):
            native = self.alone(shape)
            for setup in self.setups:
                for limit in self.percent:
                    curves = self.gpu.work([self.one(setup, shape, self.gpu.box(shape), cores=limit)], self.long)
                    share = 100 * bench.total(curves) / native
                    grain = 100 * GRAIN.get(shape, 0)
                    # Of one that leaves the GPU idle by itself nothing but its own pace is known.
                    target = None if shape in UNSATURATED else 1.0 + grain
                    self.sheet.add("limits", f"{shape} at {limit}", setup.name, target, False,
                                   error=abs(share - limit), share=share, work=100 * share / limit,
                                   paid=curves[0].paid, mae_1s=bench.window_error(curves, native, limit))

    def tenants(self):
        native = self.alone("half")
        for shares in TENANTS[:1] if self.quick else TENANTS:
            bare = self.gpu.work([self.one(BARE, "half")] * len(shares), self.short)
            self.sheet.add("tenants", f"{len(shares)} together", "bare", of_one=100 * bench.total(bare) / native)
            for setup in self.setups:
                loads = [self.one(setup, "half", self.gpu.box(f"t{i}"), cores=share) for i, share in enumerate(shares)]
                curves = self.gpu.work(loads, self.long)
                got = [100 * curve.rate() / native for curve in curves]
                name = ":".join(map(str, shares))
                self.sheet.add("tenants", name, setup.name, 98.0, of_one=sum(got))
                for share, value, curve in zip(shares, got, curves):
                    self.sheet.add("tenants", f"{name}, the {share}", setup.name, 1.0, False, error=abs(value - share), share=value,
                                   paid=curve.paid)
        native = self.alone("procs8")
        for setup in self.all():
            curves = self.gpu.work([self.one(setup, "procs8", self.gpu.box("p"))], self.long)
            self.sheet.add("tenants", "eight processes, no limit", setup.name, None if setup is BARE else 98.0,
                           of_one=100 * bench.total(curves) / native)
        native = self.alone("half")
        for setup in self.all():
            curves = self.gpu.work([self.one(setup, "half", self.gpu.box(f"u{i}")) for i in range(UNLIMITED)], self.long)
            got = [100 * curve.rate() / native for curve in curves]
            bare = setup is BARE
            self.sheet.add("tenants", f"{UNLIMITED} without a limit", setup.name, None if bare else 98.0, of_one=sum(got))
            self.sheet.add("tenants", f"{UNLIMITED} without a limit, each", setup.name, None if bare else 1.0, False,
                           error=max(abs(share - 100 / UNLIMITED) for share in got), least=min(got), most=max(got))
        for shape in () if self.quick else PAIRS:
            native = self.alone(shape)
            for setup in self.all():
                loads = [self.one(setup, shape, self.gpu.box(f"{shape}-{share}"), cores=share) for share in (30, 70)]
                got = [100 * curve.rate() / native for curve in self.gpu.work(loads, self.long)]
                self.sheet.add("tenants", f"30:70 of {shape}", setup.name, of_one=sum(got), first=got[0], second=got[1])

    def host(self):
        for shapes in HOST_BOUND[:1] if self.quick else HOST_BOUND:
            bare = [curve.rate() for curve in self.gpu.work([self.one(BARE, shape) for shape in shapes], self.short)]
            name = " + ".join(shapes)
            self.sheet.add("host", name, "bare", together=100 * sum(bare), **self.each(bare))
            for setup in self.setups:
                # Without a limit, which the driver's slices know nothing of either.
                loads = [self.one(setup, shape, self.gpu.box(f"h{i}")) for i, shape in enumerate(shapes)]
                got = [curve.rate() for curve in self.gpu.work(loads, self.long)]
                self.sheet.add("host", name, setup.name, 98.0, of_bare=100 * min(sum(got) / sum(bare), *(
                    mine / its for mine, its in zip(got, bare))), **self.each(got))

    @staticmethod
    def each(rates):
        return {name: 100 * rate for name, rate in zip(("first", "second", "third"), rates)}

    def priority(self):
        seconds = 4.0 if self.quick else 8.0
        beside = self.beside or (list(PRIORITY_BESIDE)[:1] if self.quick else PRIORITY_BESIDE)
        for setup in self.all():
            alone = self.requests(setup, None, seconds)
            self.sheet.add("priority", "requests alone", setup.name, p99_ms=alone[1], p50_ms=alone[0])
            for shape in beside:
                p50, p99, used = self.requests(setup, shape, seconds)
                floor = 100 + least_added(PRIORITY_BESIDE[shape], min(used, 99))
                self.sheet.add("priority", f"requests beside {shape}", setup.name,
                               None if setup is BARE else floor + P99_ADDED, False, p99_percent=100 * p99 / alone[1], floor=floor,
                               p99_ms=p99, p50_ms=p50, idle_used=used)

    def requests(self, setup, beside, seconds):
        """(p50, p99, percent of the idle time that best effort used) of requests in ms."""
        board, loads, curve = self.gpu.board(), [], bench.Curve()
        try:
            if beside:
                native = self.alone(beside)
                loads = [self.gpu.load(setup, board, beside, [0], self.gpu.box("low"), priority="low")]
                self.gpu.await_all(board, loads)
                time.sleep(0.5)
            argv = [self.gpu.guest, "requests", board.path, 1, 7, RATE, seconds, "warm"]
            asking = self.gpu.start(*setup.wrap(self.gpu, argv, self.gpu.box("high"), priority="high"), 1,
                                    stdout=subprocess.PIPE)
            loads.append(asking)
            if beside:
                self.gpu.look(board, [curve], seconds)
            out, _ = asking.communicate(timeout=seconds + 30)
            if asking.returncode != 0:
                raise Trouble(f"the requests ended with {asking.returncode}")
        finally:
            self.gpu.stop(board, loads)
        values = [float(line.split()[0]) / 1e3 for line in out.splitlines()]
        used = 100 * curve.rate() / native / (1 - RATE * REQUEST_US / 1e6) if beside else None
        return quantile(values, 0.5), quantile(values, 0.99), used

    def light(self):
        bare = self.lightly(BARE)
        self.sheet.add("light", "1 ms each 20 ms beside half", "bare", p99_ms=bare[1], p50_ms=bare[0])
        for setup in self.setups:
            p50, p99 = self.lightly(setup)
            self.sheet.add("light", "1 ms each 20 ms beside half", setup.name, max(bare[1], 1.0) * 1.02, False, p99_ms=p99, p50_ms=p50)

    def lightly(self, setup):
        board = self.gpu.board()
        loads = [self.gpu.load(setup, board, "half", [0], self.gpu.box("heavy"), cores=50)]
        try:
            self.gpu.await_all(board, loads)
            time.sleep(0.5)
            argv = [self.gpu.guest, "light", board.path, 1, 2 * self.long]
            out = self.gpu.run(*setup.wrap(self.gpu, argv, self.gpu.box("light"), cores=50), slot=1)
        finally:
            self.gpu.stop(board, loads)
        values = [float(line.split()[0]) / 1e3 for line in out.splitlines()]
        return quantile(values, 0.5), quantile(values, 0.99)

    def nvml(self):
        if not has("pynvml"):
            raise Trouble("nvidia-ml-py is not installed")
        for shape in SAID[:1] if self.quick else SAID:
            native = self.alone(shape)
            for setup in self.setups:
                with nvml_says.Watch() as said:
                    curves = self.gpu.work([self.one(setup, shape, self.gpu.box(shape), cores=30)], self.long)
                    says = said.figures(self.long - 0.5)
                self.sheet.add("nvml", f"{shape} at 30", setup.name, share=100 * bench.total(curves) / native,
                               paid=curves[0].paid, **says)

    def memory(self):
        if not has("torch"):
            raise Trouble("PyTorch is not installed")
        file = self.gpu.folder / "memory.json"
        words = [word for case in MEMORY_CASES for word in ("--only", case)]
        subprocess.run([sys.executable, pathlib.Path(__file__).with_name("run.py"), "--build", self.gpu.build, "--mem", "4g",
                        "--out", file, *words], env=self.gpu.env, check=False, timeout=150)
        for name, case in json.loads(file.read_text())["cases"].items():
            if case["verdict"] != "skip":
                self.sheet.add("memory", name, "hami", 1, passed=float(case["verdict"] == "ok"))

    def stranger(self):
        """Beside a program without the library, which takes no turns: bare, and at 30 % once NVML's figures had their say."""
        half = self.alone("half")
        for shape in BESIDE_A_STRANGER[:1] if self.quick else BESIDE_A_STRANGER:
            native = self.alone(shape)
            for setup in self.all():
                bare = setup is BARE
                loads = [self.one(setup, shape, self.gpu.box(shape), cores=None if bare else 30), self.one(BARE, "half")]
                curves, said = self.told(loads, 1.0 if bare else NVML_SETTLES)
                share = 100 * curves[0].rate() / native
                figures = {} if bare else {"error": abs(share - 30)}
                self.sheet.add("stranger", f"{shape} beside half", setup.name, None if bare else 1 + NVML_GRAIN, False, **figures,
                               share=share, stranger=100 * curves[1].rate() / half, paid=curves[0].paid, **said)

    def told(self, loads, settle):
        """The curves of loads, and what NVML says of their processes, in % and the largest first."""
        if not has("pynvml"):
            return self.gpu.work(loads, self.long, settle), {}
        with nvml_says.Watch() as said:
            curves = self.gpu.work(loads, self.long, settle)
            return curves, {f"nvml_{at + 1}": value for at, value in enumerate(said.processes(self.long - 0.5))}


PARTS = ("facts", "cost", "starts", "turns", "limits", "tenants", "host", "priority", "light", "nvml", "memory",
         "stranger")


def setups_of(options, parser):
    setups = [Setup("hami")]
    for kind in ("ours", "library"):
        for text in getattr(options, kind):
            name, _, path = text.partition("=")
            if not path or not pathlib.Path(path).is_file():
                parser.error(f"--{kind} {text}: NAME=PATH of a file is wanted")
            setups.append(Setup(name, **{kind: pathlib.Path(path).resolve()}))
    return setups


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--build", type=pathlib.Path, default=bench.REPOSITORY / "build")
    parser.add_argument("--ours", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--library", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--shapes", type=lambda text: text.split(","), default=(), help="of the part limits: A,B,...")
    parser.add_argument("--limits", type=lambda text: [int(word) for word in text.split(",")], default=LIMITS, metavar="A,B,...")
    parser.add_argument("--beside", type=lambda text: text.split(","), default=(), help=f"of the part priority: {','.join(PRIORITY_BESIDE)}")
    parser.add_argument("--quick", action="store_true", help="fewer cases, shorter")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"no part is called {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    if not has_gpu() and "SIMGPU" not in os.environ:
        print("no NVIDIA GPU here: nothing was run", file=sys.stderr)
        return 2
    end = time.monotonic() + 60 * options.minutes
    gpu = bench.Bench(options.build.resolve())
    record = {"date": datetime.date.today().isoformat(), "machine": gpu_name() if has_gpu() else "simgpu", "left_out": {}}
    suite = Suite(gpu, setups_of(options, parser), options)
    try:
        record["round_ns"] = gpu.calibrate()
        for part in options.parts or PARTS:
            begin = time.monotonic()
            try:
                if begin >= end:
                    raise Trouble("no time was left")
                getattr(suite, part)()
            except (Trouble, OSError, ValueError, subprocess.SubprocessError) as error:
                record["left_out"][part] = str(error)
                print(f"{part:9} NOT MEASURED: {error}", flush=True)
            print(f"{part:9} took {time.monotonic() - begin:.0f} s", flush=True)
            record["rows"] = suite.sheet.rows
            if options.out:  # after each part: what ends the program takes no more than the part
                options.out.write_text(json.dumps(record, indent=1) + "\n")
    finally:
        gpu.close()
    judged = [row for row in suite.sheet.rows if row["met"] is not None]
    print(f"{len(judged) - suite.sheet.missed} of {len(judged)} targets met" +
          (f"; not measured: {', '.join(record['left_out'])}" if record["left_out"] else ""))
    return 1 if suite.sheet.missed or record["left_out"] else 0


if __name__ == "__main__":
    sys.exit(main())
