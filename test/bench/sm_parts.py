# SPDX-License-Identifier: Apache-2.0
"""What the table of sm.py does not show: priority, changes while running, and the cost."""
import dataclasses
import random
import statistics
import subprocess
import time

import sm_cell

P99_ADDED, IDLE_USED, STOP_MS, RESUME_MS = 5.0, 80.0, 2.0, 100.0
STOP_LOOKS = 0.0005  # seconds between the judge's looks
IN_FORCE_MS, SETTLED_MS, SETTLED_ERROR = 20.0, 100.0, 1.0
LAUNCH_NS, HELPER_CPU, SHARED_WRITES = 30.0, 1.0, 1.0
HOST_SLOWS = 1.25  # times the p99 of an ideal device, from which on the host and not the device makes the p99

# What of each cannot be cut in two, in seconds. The last one is beyond what p99 + 5 % allows, whoever decides.
BEST_EFFORT = {"tiny": 5e-6, "half": 5e-4, "half-sync": 5e-4, "streams8": 2e-4, "graph-tiny": 5e-4, "graph100": 2e-3}
REPEATS = 3  # of each sequence of requests
REQUEST_RATE, REQUEST_WORK = 150, 2e-3  # Poisson requests; the work is ten kernels of 200 us (sm_programs.h)


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
        argv += [] if options.requests == "ten" else [options.requests]
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


@dataclasses.dataclass(frozen=True)
class Stop:
    """When a guest was last at work after an order to stop, in ms. Nobody knows where between two looks of the judge the
    busy time lay: `latest` is the second look, `earliest` as long after the first one as the device was busy meanwhile.
    `in_time` is what a judge would have seen at most that is never late, unless `earliest` is later. `worked`: what the
    device did from the first look after the order on, by its own count. `looked_away`: between the two looks."""
    latest: float = 0.0
    earliest: float = 0.0
    in_time: float = 0.0
    worked: float = 0.0
    looked_away: float = 0.0


def stop_of(points, order, end, every):
    """Of the (seconds, busy seconds) of a judge that looks `every` so many seconds, from the order on until `end`."""
    after = [point for point in points if order <= point[0] <= end]
    late = [(a, b) for a, b in zip(after, after[1:]) if b[1] - a[1] > 2e-5]
    if not late:
        return Stop()
    (before, busy_before), (seen, busy) = late[-1]
    earliest = before + busy - busy_before
    return Stop(latest=1e3 * (seen - order), earliest=1e3 * (earliest - order),
                in_time=1e3 * (min(seen, max(earliest, before + every)) - order),
                worked=1e3 * (after[-1][1] - after[0][1]), looked_away=1e3 * (seen - before))


def judge_stops(verdicts, name, stops, target, slow):
    """A stop that was seen too late by a judge who came too late himself says nothing; one that was too late at the
    earliest, or that he would have seen too late in any case, is missed."""
    unseen = max(stop.in_time for stop in stops) <= target
    verdicts.row(f"{name}: stops after, worst of {len(stops)}", max(stop.latest for stop in stops), "ms", target,
                 slow=slow or unseen)
    worst = max(stops, key=lambda stop: stop.latest)
    print(f"    in that one not before {worst.earliest:.2f} ms, seen {worst.looked_away:.2f} ms after the look before; the "
          f"device's own count of work after an order: {max(stop.worked for stop in stops):.2f} ms at most")


def stop_and_resume(tools, options, shape):
    """How a best-effort guest obeys recent_kernel = -1 and 0, as a monitor writes them: stops, and ms until it resumes."""
    stops, resumes = [], []
    with sm_cell.Cell(tools) as cell:
        guest = cell.load(shape, 0, 1, options.jitter, 100, "library", priority=1)
        cell.ready([guest])
        region = sm_cell.Region(guest.region)
        time.sleep(0.5)
        rounds = 5 if options.quick else 10
        judge = cell.watch(1, rounds * 0.6 + 0.3, STOP_LOOKS)
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
        stops.append(stop_of(points, blocked, freed, STOP_LOOKS))
        begun = [after[0] for before, after in zip(points, points[1:]) if before[0] >= freed and after[1] - before[1] > 2e-5]
        resumes.append(1e3 * (begun[0] - freed) if begun else float("inf"))
    return stops, resumes, host.slow


def undisturbed(runs):
    """Of the same requests in several runs the median latency of each: what the host did to some of them goes."""
    return [statistics.median(latencies) for latencies in zip(*runs)]


def p99(sequences):
    """Of all requests of several sequences."""
    return sm_cell.quantile([latency for sequence in sequences for latency in sequence], 0.99)


def p99_target(grain):
    """Percent that p99 may grow: 5, but where no decision can hold that, 5 more than what is lost in any case."""
    least = least_added(grain, IDLE_USED)
    return P99_ADDED if least <= P99_ADDED else least + P99_ADDED


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
        verdicts.row(f"beside {shape}: p99 above alone", 100 * (steady[shape] / alone - 1), "%",
                     p99_target(BEST_EFFORT[shape]), slow=slow, noisy=noisy)
        print(f"    {100 * (raw[shape] / raw_alone - 1):.1f} % with the host's hiccups in both")
        verdicts.row(f"beside {shape}: the least that is possible (launches of {1e3 * BEST_EFFORT[shape]:g} ms)",
                     least_added(BEST_EFFORT[shape], IDLE_USED), "%")
        verdicts.row(f"beside {shape}: best effort's part of the idle time", statistics.median(used[shape]), "%", IDLE_USED,
                     True)
        print(f"    {least_added(BEST_EFFORT[shape], statistics.median(used[shape])):.1f} % is the least for such a part")
    for shape in (shape for shape in ("tiny", "half", "streams8") if shape in options.beside):
        stops, resumes, slow = stop_and_resume(tools, options, shape)
        judge_stops(verdicts, shape, stops, STOP_MS, slow)
        verdicts.row(f"{shape}: resumes after, worst of {len(resumes)}", max(resumes), "ms", RESUME_MS, slow=slow)
    return verdicts.result()


def in_force(points, at):
    """How many ms after `at` a change came into force: where the straight lines of before and after meet."""
    before, base = slope(points, at - 1.0, at)
    after, level = slope(points, at + 0.2, at + 1.2)
    return abs(1e3 * ((base - level) / (after - before) - at)) if abs(after - before) > 0.05 else float("inf")


def step_beside(tools, options, verdicts):
    """90, 20, 90 beside a guest without a limit, who has what is left; and an order to stop. Kernels of 100 us, as many
    ahead as the driver lets: without a bound on what is in flight all of it has to be waited for."""
    span, looks, delays, stops, settled, slow = 1.6, 0.002, [], [], [], False
    for seed in range(1, (1 if options.quick else 3) + 1):
        with sm_cell.Cell(tools) as cell:
            guests = [cell.load("ahead", 0, seed, options.jitter, 90, "hami", "box"),
                      cell.load("half", 1, seed + 1, options.jitter, 0, "hami", "other")]
            cell.ready(guests)
            region = sm_cell.Region(guests[0].region)
            time.sleep(1.5)
            judge = cell.watch(2, 4 * span, looks)
            marks = []
            with HostWatch(cell, [0, 1]) as host:
                time.sleep(1.1)
                for limit in (20, 90):
                    marks.append((time.monotonic(), limit))
                    region.sm_limit = limit
                    time.sleep(span)
                stopped = time.monotonic()
                region.set_recent_kernel(-1)
                time.sleep(1.0)
                region.set_recent_kernel(0)
            slow = slow or host.slow
            points = cell.samples(judge).curve(0)
        delays += [in_force(points, at) for at, _ in marks]
        settled += [abs(percent_between(points, at + SETTLED_MS / 1e3, at + SETTLED_MS / 1e3 + 1.0) - limit)
                    for at, limit in marks]
        stops.append(stop_of(points, stopped, stopped + 1.0, looks))
    name = "90, 20, 90 beside one without a limit"
    verdicts.row(f"{name}: in force after, worst of {len(delays)}", max(delays), "ms", IN_FORCE_MS, slow=slow)
    verdicts.row(f"{name}: error of the second that begins {SETTLED_MS:g} ms later", max(settled), "pt", SETTLED_ERROR,
                 slow=slow)
    judge_stops(verdicts, name, stops, IN_FORCE_MS, slow)


def step(tools, options):
    """The limit is rewritten in the region while the guest runs: 20, 80, 20."""
    verdicts = Verdicts()
    shapes = ("tiny", "half") if options.quick else ("tiny", "half", "graph100", "streams8", "procs8")
    if options.shapes != sm_cell.SHAPES:
        shapes = tuple(shape for shape in options.shapes if shape in shapes)
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
                delays.append(in_force(points, at))
                settled.append(abs(percent_between(points, at + SETTLED_MS / 1e3, at + SETTLED_MS / 1e3 + 1.0) - limit))
        verdicts.row(f"{shape}: in force after, worst of {len(delays)}", max(delays), "ms", IN_FORCE_MS, slow=slow)
        verdicts.row(f"{shape}: error of the second that begins {SETTLED_MS:g} ms later, worst", max(settled), "pt",
                     SETTLED_ERROR, slow=slow)
    step_beside(tools, options, verdicts)
    return verdicts.result()


def bench_guest(tools, words, model="1xH100"):
    """The figures of one run under a limit of 50 on each GPU."""
    with sm_cell.Cell(tools, model=model) as cell:
        out = subprocess.run([str(tools.bench_guest), *words], env=cell.container("box", 50)[0], capture_output=True,
                             text=True, timeout=300, check=True).stdout
    return {name: float(value) for name, value in (line.split() for line in out.splitlines())}


def cost(tools, options):
    """Launches under a limit that they never reach, in turns with the driver's own function (guest.cc)."""
    verdicts, rounds = Verdicts(), 3 if options.quick else 8
    print("\ncost of a launch under a limit that does not bind (50 %, kernels of 1 ns where nothing else is said)")
    for name, words, model in (("launch", ["launch"], "1xH100"), ("two GPUs, null stream: launch", ["launch"], "2xH100"),
                               ("two GPUs, on a stream: launch", ["launch", "stream"], "2xH100")):
        seen = [bench_guest(tools, words, model) for _ in range(rounds)]
        own, found, added = (statistics.median(run[f"launch_ns_{what}"] for run in seen) for what in ("own", "found", "added"))
        verdicts.row(f"{name}, median of {rounds} runs: {own:.1f} -> {found:.1f} ns, added", added, "ns", LAUNCH_NS)
    for shape in ("tiny", "streams8"):
        with sm_cell.Cell(tools) as cell:
            guest = cell.load(shape, 0, 1, options.jitter, 50)
            cell.ready([guest])
            time.sleep(1.0)
            before, begin = cell.processor_time([0]), time.monotonic()
            time.sleep(5.0)
            after, wall = cell.processor_time([0]), time.monotonic() - begin
        verdicts.row(f"{shape} at 50 %: the library's own threads", 100 * (after[1] - before[1]) / wall, "%", HELPER_CPU)
    # Those that renew a lease write; one in 40 of 5 us.
    for name, threads, nanos, model, most in (
            ("one thread", 1, 1, "1xH100", SHARED_WRITES), ("two threads", 2, 1, "1xH100", SHARED_WRITES),
            ("two threads, a GPU each", 2, 1, "2xH100", SHARED_WRITES), ("two threads, kernels of 5 us", 2, 5000, "1xH100", None)):
        wrote = statistics.median(bench_guest(tools, ["writes", str(threads), str(nanos)], model)["writes_found"]
                                  for _ in range(3))
        verdicts.row(f"launches that write memory that others share, {name}", wrote, "%", most)
    return verdicts.result()
