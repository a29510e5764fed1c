# SPDX-License-Identifier: Apache-2.0
"""What the table of sm.py does not show: priority, changes while running, and the cost."""
import os
import random
import statistics
import subprocess
import time

import sm_cell

P99_ADDED, IDLE_USED, STOP_MS, RESUME_MS = 5.0, 80.0, 2.0, 100.0
IN_FORCE_MS, SETTLED_MS, SETTLED_ERROR = 20.0, 100.0, 1.0
LAUNCH_NS, HELPER_CPU = 30.0, 1.0
HOST_SLOWS = 1.25  # times the p99 of an ideal device, from which on the host and not the device makes the p99

BEST_EFFORT = {"tiny": 5e-6, "half": 5e-4, "half-sync": 5e-4, "graph100": 2e-3, "streams8": 2e-4}  # uncut, in seconds
REPEATS = 3  # of each sequence of requests
REQUEST_RATE, REQUEST_WORK = 150, 2e-3  # Poisson requests; the work is ten kernels of 200 us (sm_guest.cc)


class Verdicts:
    """Prints a figure beside its target and counts what is missed. A slow host explains a miss, it does not make a pass."""

    def __init__(self):
        self.rows, self.missed, self.not_judged = [], 0, 0

    def row(self, name, figure, unit, target=None, at_least=False, slow=False, noisy=False):
        """With `noisy` the host moves the figure by more than the target, so that it shows nothing either way."""
        slow = slow or noisy
        good = not noisy and (target is None or (figure >= target if at_least else figure <= target))
        self.missed += not good and not slow
        self.not_judged += not good and slow
        self.rows.append(dict(name=name, figure=figure, unit=unit, target=target, met=good, slow_host=slow))
        verdict = "NOT JUDGED: the host moves it by more" if noisy else "met" if good else "MISSED but NOT JUDGED: the host was too slow" if slow else "MISSED"
        aim = "" if target is None else f"{'>=' if at_least else '<='} {target:g} {unit}  {verdict}"
        print(f"{name:64} {figure:10.3f} {unit:4} {aim}", flush=True)

    def result(self):
        return dict(rows=self.rows, missed=self.missed, not_judged=self.not_judged)


class HostWatch:
    """Whether some guests had to wait for a processor while the body of the `with` ran."""

    def __init__(self, cell, slots):
        self.cell, self.slots, self.slow = cell, slots, False

    def __enter__(self):
        self.before, self.begin = self.cell.processor_time(self.slots), time.monotonic()
        return self

    def __exit__(self, *unused):
        waited = self.cell.processor_time(self.slots)[2] - self.before[2]
        self.slow = 100 * waited / len(self.slots) / (time.monotonic() - self.begin) > sm_cell.STARVED


def slope(points, begin, end):
    """Least squares through (seconds, busy seconds) between two times: (busy per second, busy at time 0)."""
    chosen = [point for point in points if begin <= point[0] <= end]
    if len(chosen) < 2:
        return float("nan"), float("nan")
    line = statistics.linear_regression([t for t, _ in chosen], [b for _, b in chosen])
    return line.slope, line.intercept


def percent_between(points, begin, end):
    inside = [point for point in points if begin <= point[0] <= end]
    return 100 * (inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0]) if len(inside) > 1 else float("nan")


def least_added(grain, used, requests=200_000):
    """Percent that the p99 of the requests grows at least beside launches of `grain` seconds that get `used` percent of
    the idle time, whatever decides when they begin, as long as it can neither cut them in two nor foresee a request.

    Requests that come at random find such a launch at work as often as it is at work, and at a random point of it; they
    wait for its rest, and all others for nothing but requests.
    """
    part = used / 100
    # A launch that a request waits for uses idle time, too: of 1 / rate + that, it uses `part`.
    at_work = part / REQUEST_RATE / (1 / REQUEST_RATE + grain / 2 * (1 - part))

    def latency(at_work):
        arrivals, rests = random.Random(1), random.Random(2)
        due, free, latencies = 0.0, 0.0, []
        for _ in range(requests):
            due += arrivals.expovariate(REQUEST_RATE)
            rest = rests.random() / at_work * grain if at_work else grain
            if due >= free:
                free = due + (rest if rest < grain else 0)
            free += REQUEST_WORK
            latencies.append(free - due)
        return sm_cell.quantile(latencies, 0.99)

    return 100 * (latency(at_work) / latency(0) - 1)


def serve(tools, options, beside, seed):
    """Latencies in us of Poisson requests at 30 % load, those that queueing alone makes, and what a best-effort neighbour
    got of the idle time. With one seed the requests come at the same moments, alone and beside others."""
    seconds = 20.0  # --quick, too: of 6 s nine requests would make the p99
    with sm_cell.Cell(tools) as cell:
        guests = []
        if beside:
            if options.through == "hami":
                argv = [tools.hami, "run", "--name", "low", "--priority", "low", "--mem", "8g", "--"]
                env = cell.bare
            else:
                argv, (env, _) = [], cell.container("low", 100, priority=1)
            argv += [tools.guest, "load", cell.board.path, 1, beside, 1, options.jitter, 0]
            guests.append(sm_cell.Guest(cell.start(argv, env), 1, None))
            cell.ready(guests)
            time.sleep(0.5)
        if options.through == "hami":
            argv, env = [tools.hami, "run", "--name", "high", "--priority", "high", "--mem", "8g", "--"], cell.bare
        else:
            argv, (env, _) = [], cell.container("high", 100, priority=0)
        argv += [tools.guest, "requests", cell.board.path, 0, seed, REQUEST_RATE, seconds]
        server = cell.start(argv, env, stdout=subprocess.PIPE)
        cell.board.wait_for([0], [server])
        judge = cell.watch(2, seconds - 0.2, 0.1)
        out, _ = server.communicate(timeout=300)
        samples = cell.samples(judge)
    high, low = samples.curve(0), samples.curve(1)
    idle = 100 - percent_between(high, high[0][0], high[-1][0])
    used = percent_between(low, low[0][0], low[-1][0]) / idle * 100 if beside else 0
    latencies = [[float(word) for word in line.split()] for line in out.splitlines()]
    return [real for real, _ in latencies], [ideal for _, ideal in latencies], used


def stop_and_resume(tools, options, shape):
    """Latencies in ms with which a best-effort guest obeys recent_kernel = -1 and 0, as a monitor writes them."""
    stops, resumes = [], []
    with sm_cell.Cell(tools) as cell:
        guest = cell.load(shape, 0, 1, options.jitter, 100, "library", priority=1)
        cell.ready([guest])
        region = sm_cell.Region(guest.region)
        time.sleep(0.5)
        rounds = 5 if options.quick else 10
        judge = cell.watch(1, rounds * 0.6 + 0.3, 0.0005)
        marks = []
        time.sleep(0.1)
        with HostWatch(cell, [0]) as host:
            for _ in range(rounds):
                blocked = time.monotonic()
                region.set_recent_kernel(-1)
                time.sleep(0.3)
                freed = time.monotonic()
                region.set_recent_kernel(0)
                time.sleep(0.3)
                marks.append((blocked, freed))
        points = cell.samples(judge).curve()
    for blocked, freed in marks:
        # The first and the last sample between which the device was busy while it should not have been.
        late = [after[0] for before, after in zip(points, points[1:])
                if blocked <= before[0] and after[0] <= freed and after[1] - before[1] > 2e-5]
        stops.append(1e3 * (late[-1] - blocked) if late else 0.0)
        begun = [after[0] for before, after in zip(points, points[1:]) if before[0] >= freed and after[1] - before[1] > 2e-5]
        resumes.append(1e3 * (begun[0] - freed) if begun else float("inf"))
    return stops, resumes, host.slow


def undisturbed(runs):
    """Of the same requests in several runs the median latency of each: what the host did to some of them goes."""
    return [statistics.median(latencies) for latencies in zip(*runs)]


def p99(sequences):
    """Of all requests of several sequences."""
    return sm_cell.quantile([latency for sequence in sequences for latency in sequence], 0.99)


def priority(tools, options):
    """Each seed is a sequence of requests, sent three times alone, beside each load, and alone again. Some thirty of a
    sequence lie above its p99, in a few bursts that a hiccup of the host hits or not: single runs of one sequence, alone,
    differ by up to a sixth. So each request counts with the median of its three latencies; that of all of them as they
    were is printed, too."""
    verdicts, seeds = Verdicts(), range(1, options.seeds + 1)
    takes = 22 * REPEATS * len(seeds) * (len(options.beside) + 2) / 60 + 0.5
    print(f"\npriority: about {takes:.0f} minutes, through {options.through}")
    if options.through != "hami":
        print("Containers that share no area know nothing of each other: p99 needs --through hami.")
    columns = ("alone", *options.beside, "alone again")
    runs = {column: [[] for _ in seeds] for column in columns}
    ideals, used = [], {column: [] for column in columns}
    for at, seed in enumerate(seeds):
        for _ in range(REPEATS):
            for column in columns:
                latencies, ideal, part = serve(tools, options, column if column in BEST_EFFORT else None, seed)
                runs[column][at].append(latencies)
                used[column].append(part)
        ideals.append(ideal)
    steady = {column: p99(map(undisturbed, runs[column])) for column in columns}
    raw = {column: p99(run for sequence in runs[column] for run in sequence) for column in columns}
    alone, ideal = (steady["alone"] + steady["alone again"]) / 2, p99(ideals)
    raw_alone = (raw["alone"] + raw["alone again"]) / 2
    apart = 100 * abs(steady["alone"] - steady["alone again"]) / alone
    verdicts.row(f"p99 of the requests alone ({raw_alone:.0f} with the host's hiccups)", alone, "us")
    verdicts.row("p99 of the requests on an ideal device", ideal, "us")
    verdicts.row("between the same requests alone and alone again, which is the host", apart, "%")
    slow, noisy = alone > HOST_SLOWS * ideal, apart > P99_ADDED
    if slow or noisy:
        print("already alone the host makes the requests late, or differs from itself by more than the target")
    for shape in options.beside:
        verdicts.row(f"beside {shape}: p99 above alone", 100 * (steady[shape] / alone - 1), "%", P99_ADDED, slow=slow,
                     noisy=noisy)
        print(f"    {100 * (raw[shape] / raw_alone - 1):.1f} % with the host's hiccups in both")
        verdicts.row(f"beside {shape}: the least that is possible (launches of {1e3 * BEST_EFFORT[shape]:g} ms)",
                     least_added(BEST_EFFORT[shape], IDLE_USED), "%")
        verdicts.row(f"beside {shape}: best effort's part of the idle time", statistics.median(used[shape]), "%", IDLE_USED,
                     True)
    for shape in (shape for shape in ("tiny", "half", "streams8") if shape in options.beside):
        stops, resumes, slow = stop_and_resume(tools, options, shape)
        verdicts.row(f"{shape}: stops after, worst of {len(stops)}", max(stops), "ms", STOP_MS, slow=slow)
        verdicts.row(f"{shape}: resumes after, worst of {len(resumes)}", max(resumes), "ms", RESUME_MS, slow=slow)
    return verdicts.result()


def step(tools, options):
    """The limit is rewritten in the region while the guest runs: 20, 80, 20."""
    verdicts = Verdicts()
    shapes = ("tiny", "half") if options.quick else ("tiny", "half", "graph100", "streams8", "procs8")
    span = 1.6
    print(f"\nstep response 20 -> 80 -> 20: about {len(shapes) * (3 * span + 3) * 3 / 60:.0f} minutes")
    for shape in shapes:
        delays, settled, slow = [], [], False
        for seed in range(1, (1 if options.quick else 3) + 1):
            with sm_cell.Cell(tools) as cell:
                processes = sm_cell.PROCESSES.get(shape, 1)
                guests = [cell.load(shape, slot, seed + slot, options.jitter, 20) for slot in range(processes)]
                cell.ready(guests)
                region = sm_cell.Region(guests[0].region)
                time.sleep(1.5)
                judge = cell.watch(1, 3 * span + 0.2, 0.002)
                marks = []
                with HostWatch(cell, range(processes)) as host:
                    time.sleep(span)
                    for limit in (80, 20):
                        marks.append((time.monotonic(), limit))
                        region.sm_limit = limit
                        time.sleep(span)
                slow = slow or host.slow
                points = cell.samples(judge).curve()
            for at, limit in marks:
                # Where the straight lines of before and after meet is when the new limit came into force.
                before, base = slope(points, at - 1.0, at)
                after, level = slope(points, at + 0.2, at + 1.2)
                meets = (base - level) / (after - before) if abs(after - before) > 0.05 else float("inf")
                delays.append(abs(1e3 * (meets - at)))
                settled.append(abs(percent_between(points, at + SETTLED_MS / 1e3, at + SETTLED_MS / 1e3 + 1.0) - limit))
        verdicts.row(f"{shape}: in force after, worst of {len(delays)}", max(delays), "ms", IN_FORCE_MS, slow=slow)
        verdicts.row(f"{shape}: error of the second that begins {SETTLED_MS:g} ms later, worst", max(settled), "pt",
                     SETTLED_ERROR, slow=slow)
    return verdicts.result()


def cost(tools, options):
    """Launches of 1 ns kernels under a limit that they never reach, in turns with the driver's own function (guest.cc)."""
    verdicts, rounds = Verdicts(), 3 if options.quick else 8
    print("\ncost of a launch under a limit that does not bind (50 %, kernels of 1 ns)")
    seen = []
    for _ in range(rounds):
        with sm_cell.Cell(tools) as cell:
            out = subprocess.run([str(tools.bench_guest), "launch"], env=cell.container("box", 50)[0], capture_output=True,
                                 text=True, timeout=300, check=True).stdout
        seen.append({name: float(value) for name, value in (line.split() for line in out.splitlines())})
    own, found, added = (statistics.median(run[f"launch_ns_{what}"] for run in seen) for what in ("own", "found", "added"))
    verdicts.row(f"launch, median of {rounds} runs: {own:.1f} -> {found:.1f} ns, added", added, "ns", LAUNCH_NS)
    for shape in ("tiny", "streams8"):
        with sm_cell.Cell(tools) as cell:
            guest = cell.load(shape, 0, 1, options.jitter, 50)
            cell.ready([guest])
            time.sleep(1.0)
            before, begin = cell.processor_time([0]), time.monotonic()
            time.sleep(5.0)
            after, wall = cell.processor_time([0]), time.monotonic() - begin
        verdicts.row(f"{shape} at 50 %: the library's own threads", 100 * (after[1] - before[1]) / wall, "%", HELPER_CPU)
    print(f"written per launch to shared cache lines: not measured here ({os.cpu_count()} cores; needs hardware counters)")
    return verdicts.result()
