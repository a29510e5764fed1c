# SPDX-License-Identifier: Apache-2.0
"""Processes on one GPU, with or without a library before the driver, and what they got done: for suite.py.

Figures are work that the programs saw end (test/bench/sm_guest.cc), in ns of GPU time that it takes alone; never NVML's
utilisation. Times are CLOCK_MONOTONIC in seconds.
"""
import os
import pathlib
import shlex
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(REPOSITORY / "test/bench"))
import sm_cell  # noqa: E402 (its folder is not on the path before)

LOOK = 0.02  # seconds between looks at the board
CPUS_TO_PIN = 8  # a machine with fewer has none to spare for each process


class Setup:
    """How a process is started: `bare`, through `hami run` (`ours`: another build of its library), or with a library by path."""

    def __init__(self, name, library=None, ours=None):
        self.name, self.library, self.ours = name, library, ours

    def wrap(self, bench, argv, box, cores=None, priority=None, memory="8g"):
        """(argv, environment) of a process in the container `box`."""
        env = dict(bench.env)
        if self.name == "bare":
            return argv, env
        if self.library is None:
            words = ["--cores", cores] if cores else []
            words += ["--priority", priority] if priority else []
            env |= {"HAMI_LIBVGPU": str(self.ours)} if self.ours else {}
            return [bench.hami, "run", "--name", box, *words, "--mem", memory, "--", *argv], env
        env |= {"LD_PRELOAD": str(self.library), "CUDA_DEVICE_SM_LIMIT": str(cores or 100), "LIBCUDA_LOG_LEVEL": "0",
                "CUDA_DEVICE_MEMORY_LIMIT": memory, "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(bench.folder / f"{box}.cache")}
        if priority:
            env["CUDA_TASK_PRIORITY"] = "0" if priority == "high" else "1"
        return argv, env


class Curve:
    """Work done by a process as it went: (seconds, GPU seconds of work). `paid`: what its container was charged, in % of
    the time, or None without our library."""

    def __init__(self):
        self.points, self.paid = [], None

    def note(self, at, work):
        if at and (not self.points or at > self.points[-1][0]):
            self.points.append((at, work))

    def at(self, when):
        """By then; between two ends the work goes on evenly."""
        before = (when, self.points[0][1]) if self.points else (when, 0.0)
        for point in self.points:
            if point[0] >= when:
                part = (when - before[0]) / (point[0] - before[0]) if point[0] > before[0] else 0
                return before[1] + part * (point[1] - before[1])
            before = point
        return before[1]

    def rate(self):
        """GPU seconds of work a second, from the first end seen to the last."""
        if len(self.points) < 2:
            return 0.0
        (at0, work0), (at1, work1) = self.points[0], self.points[-1]
        return (work1 - work0) / (at1 - at0)


def total(curves):
    """Of several processes together, GPU seconds of work a second."""
    return sum(curve.rate() for curve in curves)


def window_error(curves, native, target, length=1.0):
    """Mean error in points over windows of `length` seconds of what processes got together, or None if it was too short."""
    usable = [curve for curve in curves if len(curve.points) > 1]
    if not usable:
        return None
    begin = max(curve.points[0][0] for curve in usable)
    end = min(curve.points[-1][0] for curve in usable)
    count = int((end - begin - length) / 0.1) + 1
    if count < 1:
        return None
    values = []
    for i in range(count):
        a = begin + 0.1 * i
        done = sum(curve.at(a + length) - curve.at(a) for curve in usable)
        values.append(100 * done / length / native)
    return statistics.fmean(abs(value - target) for value in values)


class Bench:
    """One GPU and a folder for what runs need. Whatever it started is gone when it is closed."""

    def __init__(self, build):
        self.build = build
        self.hami, self.guest, self.facts = build / "bin/hami", build / "test/sm_guest", build / "test/sm_facts"
        for program in (self.hami, self.guest, self.facts):
            if not program.exists():
                raise SystemExit(f"suite.py: {program} is missing: build `hami`, `sm_guest` and `sm_facts`, or name --build")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="hami-gpu-"))
        self.env = dict(os.environ, HAMI_STATE_DIR=str(self.folder / "hami"), SIMGPU_QUIET="1")
        for name in ("LD_PRELOAD", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_SM_LIMIT", "CUDA_TASK_PRIORITY"):
            self.env.pop(name, None)
        self.processes, self.runs = [], 0
        cpus = sorted(os.sched_getaffinity(0))
        self.cpus = cpus if len(cpus) >= CPUS_TO_PIN else []

    def close(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def pinned(self, argv, slot):
        """Two CPUs a process: a library's own threads have theirs, as in any container."""
        first = 2 * slot % len(self.cpus) if self.cpus else 0
        return ["taskset", "-c", ",".join(map(str, self.cpus[first:first + 2])), *argv] if self.cpus else argv

    def start(self, argv, env, slot=0, **options):
        process = subprocess.Popen([str(word) for word in self.pinned(argv, slot)], env=env, text=True, **options)
        self.processes.append(process)
        return process

    def board(self):
        self.runs += 1
        return sm_cell.Board(self.folder / f"board{self.runs}")

    def box(self, slot):
        """A name that no container had before: nothing is left of an earlier run."""
        return f"r{self.runs}-{slot}"

    def calibrate(self):
        """Has all guests know how long a round of the kernel takes."""
        board = self.board()
        out = self.run([self.guest, "calibrate", board.path], self.env)
        self.env["SM_ROUND_NS"] = out.strip()
        return float(out)

    def run(self, argv, env, timeout=60, slot=0):
        """What a process says until it ends."""
        process = self.start(argv, env, slot, stdout=subprocess.PIPE)
        try:
            out, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise Trouble(f"{pathlib.Path(str(argv[0])).name} did not end within {timeout} s") from None
        if process.returncode != 0:
            raise Trouble(f"{pathlib.Path(str(argv[0])).name} ended with {process.returncode}")
        return out

    def load(self, setup, board, shape, slots, box, jitter=0.1, **limits):
        """Guests of one container, on these slots, that are at work until the board says stop."""
        each = [self.pinned([self.guest, "load", board.path, slot, shape, slot + 1, jitter, 0], slot) for slot in slots]
        argv = each[0]
        if len(each) > 1:
            argv = ["sh", "-c", " & ".join(shlex.join(map(str, words)) for words in each) + " & wait"]
        return self.start(*setup.wrap(self, argv, box, **limits), slots[0])

    def work(self, loads, seconds, settle=1.0):
        """Runs loads (setup, shape, processes, box, limits) side by side; the curve of each process after `settle` seconds."""
        board, first, guests = self.board(), 0, []
        try:
            for setup, shape, count, box, limits in loads:
                guests.append(self.load(setup, board, shape, range(first, first + count), box, **limits))
                first += count
            curves = [Curve() for _ in range(first)]
            self.await_all(board, guests, first)
            time.sleep(settle)
            before, begin = [self.charged(load) for load in loads], time.monotonic()
            self.look(board, curves, seconds)
            passed = time.monotonic() - begin
            paid = [None if was is None else 100 * (self.charged(load) - was) / passed for load, was in zip(loads, before)]
        finally:
            self.stop(board, guests)
        of_process = [value for load, value in zip(loads, paid) for _ in range(load[2])]
        for curve, value in zip(curves, of_process):
            curve.paid = value
        return curves

    def charged(self, load):
        """GPU seconds that the container of a load was ever charged, or None without our library."""
        setup, _, _, box, _ = load
        path = self.folder / "hami/shares" / box / "region.cache"
        if setup.name == "bare" or setup.library is not None or not path.exists():
            return None
        return sm_cell.Region(path).charged

    @staticmethod
    def await_all(board, guests, count=None, timeout=30):
        """Until `count` slots (one for each of the guests) are at work."""
        end = time.monotonic() + timeout
        while not all(board.pid(slot) for slot in range(count or len(guests))):
            ended = [guest for guest in guests if guest.poll() is not None]
            if ended or time.monotonic() > end:
                raise Trouble(f"a load did not begin ({[guest.returncode for guest in ended] or 'time is over'})")
            time.sleep(0.01)

    @staticmethod
    def look(board, curves, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(LOOK)
            for slot, curve in enumerate(curves):
                at, work = read_work(board, slot)
                curve.note(at, work)

    @staticmethod
    def stop(board, processes):
        board.stop()
        for process in processes:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Trouble(Exception):
    """A part that could not be measured; the others go on."""


def read_work(board, slot):
    """(seconds, GPU seconds of work) of a slot, as struct BoardSlot has them."""
    for _ in range(100):
        before, _, work, at = struct.unpack_from("<Iiqq", board.map, 64 * (slot + 1))
        if before % 2 == 0 and struct.unpack_from("<I", board.map, 64 * (slot + 1))[0] == before:
            return at / 1e9, work / 1e9
    return 0, 0
