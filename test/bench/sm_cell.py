# SPDX-License-Identifier: Apache-2.0
"""One measurement of GPU time: a simulated machine, guests on it, a judge beside them, and the arithmetic on what it saw.

A cell starts from nothing (machine, region, processes) and ends without a trace. Times are CLOCK_MONOTONIC in seconds or
nanoseconds, as the simulated device has them; shares are percent of the device.
"""
import mmap
import os
import pathlib
import random
import shutil
import statistics
import struct
import subprocess
import tempfile
import time

SM_LIMIT_OFFSET = 1728  # of the first device in the region (src/region/layout.h)
RECENT_KERNEL_OFFSET = 2_008_904
CHARGED_OFFSET = 2_011_136 + 66_880 + 16  # of the first device, in the private area (src/region/gpu_time.h)
STEP_BETWEEN_WINDOWS = 0.1
STARVED = 10.0  # percent of the time that guests wanted a processor and had none: from here on the host is to blame
DRIVER_THREAD = "simgpu"  # guests have one thread; whatever there is beside it and the driver's, the library started

# What a single thing that cannot be interrupted takes, in seconds: what windows can hold follows from it.
GRAIN = {"sync50": 0.05, "sync100": 0.1, "long500": 0.5}
BURST_PERIOD, BURST_WORK = 0.25, 0.05
PROCESSES = {"procs8": 8}
SHAPES = ("tiny", "sync50", "long500", "graph100", "streams8", "procs8", "bursty")
BY_NAME = ("half", "us20", "sync100", "sync40us", "mixed", "mixed-sync", "anew", "eager", "steps10")  # measured when asked for
UNSATURATED = ("bursty", "sync40us", "mixed-sync", "eager")  # without a limit they leave the GPU idle by themselves


class Board:
    """The file that guests, judge and this program share (struct Board in sm_board.h)."""

    def __init__(self, path):
        self.path = path
        path.write_bytes(bytes(4096))
        with path.open("r+b") as file:
            self.map = mmap.mmap(file.fileno(), 4096)

    def pid(self, slot):
        return struct.unpack_from("<i", self.map, 64 * (slot + 1) + 4)[0]

    def stop(self):
        struct.pack_into("<I", self.map, 0, 1)

    def wait_for(self, slots, processes, timeout=60):
        end = time.monotonic() + timeout
        while not all(self.pid(slot) for slot in slots):
            if any(process.poll() not in (None, 0) for process in processes) or time.monotonic() > end:
                raise SystemExit("a guest did not get to work")
            time.sleep(0.005)


class Region:
    """What of a container's region the benchmark reads and writes."""

    def __init__(self, path):
        with open(path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), 0)

    @property
    def sm_limit(self):
        return struct.unpack_from("<Q", self.map, SM_LIMIT_OFFSET)[0]

    @sm_limit.setter
    def sm_limit(self, percent):
        struct.pack_into("<Q", self.map, SM_LIMIT_OFFSET, percent)

    @property
    def charged(self):
        """Seconds of GPU time that the container was ever charged."""
        return struct.unpack_from("<Q", self.map, CHARGED_OFFSET)[0] / 1e9

    def set_recent_kernel(self, value):
        struct.pack_into("<i", self.map, RECENT_KERNEL_OFFSET, value)


class Guest:
    def __init__(self, process, slot, region):
        self.process, self.slot, self.region = process, slot, region


class Cell:
    """A machine with guests. Use as a context; whatever it started is gone afterwards."""

    def __init__(self, tools, sms=132, model="1xH100"):
        self.tools = tools
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="hami-sm-", dir=tools.scratch))
        option = f"option {tools.options}\n" if tools.options else ""
        (self.folder / "config").write_text(f"gpus {model}\ndevice * sms={sms}\n{option}")
        self.board = Board(self.folder / "board")
        self.bare = dict(os.environ, SIMGPU_CONFIG=str(self.folder / "config"), SIMGPU_QUIET="1",
                         SIMGPU_STATE=str(self.folder / "machine"), LD_LIBRARY_PATH=str(tools.build / "simgpu"),
                         HAMI_STATE_DIR=str(self.folder / "hami"))
        for name in ("LD_PRELOAD", "SIMGPU", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_SM_LIMIT", "CUDA_TASK_PRIORITY",
                     "GPU_CORE_UTILIZATION_POLICY", "CUDA_DISABLE_CONTROL", "SIMGPU_PROFILE"):
            self.bare.pop(name, None)
        self.guests, self.processes = [], []

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.board.stop()
        for process in self.processes:
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, argv, env=None, **options):
        process = subprocess.Popen([str(word) for word in argv], env=env or self.bare, text=True, **options)
        self.processes.append(process)
        return process

    def container(self, name, limit, priority=None):
        """The environment of a container called `name`, and where its region lies."""
        region = self.folder / f"{name}.cache"
        env = dict(self.bare, LD_PRELOAD=str(self.tools.library), CUDA_DEVICE_SM_LIMIT=str(limit),
                   CUDA_DEVICE_MEMORY_SHARED_CACHE=str(region), CUDA_DEVICE_MEMORY_LIMIT="8g")
        if priority is not None:
            env["CUDA_TASK_PRIORITY"] = str(priority)
        return env, region

    def load(self, shape, slot, seed, jitter, limit=None, how="library", name="box", priority=None):
        """One process under load. how: library, none, fake (limits itself), hami (through `hami run`)."""
        fake = limit / 100 / PROCESSES.get(shape, 1) if how == "fake" and limit else 0
        argv = [self.tools.guest, "load", self.board.path, slot, shape, seed, jitter, fake]
        env, region = self.bare, None
        if limit is not None and how == "library":
            env, region = self.container(name, limit, priority)
        elif limit is not None and how == "hami":
            cores = ["--cores", limit] if limit else []
            argv = [self.tools.hami, "run", "--name", name, *cores, "--mem", "8g", "--", *argv]
            region = self.folder / "hami/shares" / name / "region.cache"
        guest = Guest(self.start(argv, env), slot, region)
        self.guests.append(guest)
        return guest

    def ready(self, guests):
        self.board.wait_for([guest.slot for guest in guests], [guest.process for guest in guests])

    def watch(self, slots, seconds, interval=STEP_BETWEEN_WINDOWS):
        """The judge, at work from now on; give what it returns to `samples`."""
        return self.start([self.tools.guest, "watch", self.board.path, slots, seconds, interval * 1e3],
                          stdout=subprocess.PIPE)

    def samples(self, judge):
        out, _ = judge.communicate(timeout=600)
        if judge.returncode != 0:
            raise SystemExit("the judge failed")
        return Samples([[int(word) for word in line.split()] for line in out.splitlines()])

    def processor_time(self, slots):
        """Seconds on a processor of all, of the library's own threads, and spent waiting for a processor."""
        total = own = waited = 0
        for pid in (self.board.pid(slot) for slot in slots):
            for task in pathlib.Path(f"/proc/{pid}/task").glob("*"):
                try:
                    ran, wait, _ = (int(word) / 1e9 for word in (task / "schedstat").read_text().split())
                    name = (task / "comm").read_text().strip()
                except OSError:
                    continue
                total, waited = total + ran, waited + wait
                own += 0 if name == DRIVER_THREAD or task.name == str(pid) else ran
        return total, own, waited


class Samples:
    """What the judge saw: rows of time, busy time of the device, and for each slot busy time, work, time of that."""

    def __init__(self, rows):
        self.rows = rows

    def between(self, begin, end):
        return Samples([row for row in self.rows if begin <= row[0] / 1e9 <= end])

    def curve(self, slot=None):
        """(seconds, busy seconds) of the device or of one process; a process that is gone keeps what it had."""
        points, most = [], 0
        for row in self.rows:
            most = max(most, row[1] if slot is None else row[2 + 3 * slot])
            points.append((row[0] / 1e9, most / 1e9))
        return points

    def work_rate(self, slot):
        """GPU seconds of work a second, between the first and the last completion seen: no kernel is cut in two."""
        seen = [(row[3 + 3 * slot], row[4 + 3 * slot]) for row in self.rows]
        (work0, at0), (work1, at1) = seen[0], seen[-1]
        if at0 == 0:  # the first one had not ended yet
            work0, at0 = next(((w, t) for w, t in seen if t), (0, 0))
        return (work1 - work0) / (at1 - at0) if at1 > at0 else 0.0


def windows(points, length):
    """Percent busy in every window of `length` seconds that begins at a sample."""
    step = (points[-1][0] - points[0][0]) / max(1, len(points) - 1)
    ahead = max(1, round(length / step))
    return [100 * (points[i + ahead][1] - points[i][1]) / (points[i + ahead][0] - points[i][0])
            for i in range(len(points) - ahead)]


def mean_error(values, target):
    return statistics.fmean(abs(value - target) for value in values) if values else float("nan")


def quantile(values, portion):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(portion * len(ordered)))] if ordered else float("nan")


def floor_of(shape, limit, jitter, length, duty, spans=400):
    """Mean error that the best limiter has in windows of `length` seconds: it can not cut a kernel, nor see bursts come.

    After each kernel it waits for exactly as long as the kernel has to be paid for; bursts run at the limit.
    """
    rng, pieces, now = random.Random(1), [], 0.0  # (start, end, rate)
    fraction = limit / 100
    end = spans * max(1.0, length / 5)
    if shape in GRAIN:
        while now < end:
            cost = GRAIN[shape] * (1 + jitter * rng.uniform(-1, 1))
            pieces.append((now, now + cost, 1.0))
            now += cost / fraction
    elif shape == "bursty":
        due = 0.0
        while due < end:
            cost = BURST_WORK * (1 + jitter * rng.uniform(-1, 1))
            start = max(now, due)
            now = start + cost / fraction
            pieces.append((start, now, fraction))
            due += BURST_PERIOD
    else:
        return 0.0
    points, busy, at = [], 0.0, 0
    step = STEP_BETWEEN_WINDOWS / 2
    for i in range(int(end / step)):
        time_now = i * step
        while at < len(pieces) and pieces[at][1] <= time_now:
            busy += (pieces[at][1] - pieces[at][0]) * pieces[at][2]
            at += 1
        part = max(0.0, time_now - pieces[at][0]) * pieces[at][2] if at < len(pieces) else 0.0
        points.append((time_now, busy + part))
    return mean_error(windows(points, length), min(limit, duty))
