# SPDX-License-Identifier: Apache-2.0
"""simgpu beside the H200 that its profile is named for: the same measurements, each figure within 5 %.

Real figures: one H200, driver 580.159, no library before the driver. What costs the host less than simgpu's own work
(calls of less than 0.3 us) is shown and not judged, and so is what a busy host made late.
"""
import statistics
import subprocess
import time

import sm_cell
import sm_parts

WITHIN = 5.0  # percent

# name, figure of sm_facts.cc, on the GPU; us
TIME = (
    ("two timed events, nothing between", "busy_0", 1.28),
    ("two events around one kernel, beyond the kernel", "busy_1", 2.95),
    ("around 2 kernels", "busy_2", 4.8),
    ("around 8 kernels", "busy_8", 15.3),
    ("around 32 kernels", "busy_32", 57.0),
    ("idle stream: nothing between", "idle_0", 1.28),
    ("idle stream: around one kernel", "idle_1", 4.95),
    ("idle stream: around 2 kernels", "idle_2", 6.8),
    ("idle stream: around 8 kernels", "idle_8", 17.3),
    ("kernel after kernel on a stream", "gap_stream", 1.79),
    ("kernel after kernel in a graph", "gap_graph", 1.02),
)
HOST = (
    ("cuInit", 100e3), ("primary context", 100e3), ("cuLaunchKernel", 3.0), ("launch + cuStreamSynchronize", 8.1),
    ("cuEventRecord timed", 0.8), ("cuEventRecord untimed", 0.15), ("cuEventQuery pending", 0.15), ("cuEventQuery done", 0.18),
    ("cuEventElapsedTime", 0.3), ("cuStreamQuery", 0.175), ("cuMemAlloc + cuMemFree 4 KiB", 1.7),
    ("cuMemAlloc + cuMemFree 64 MiB", 84), ("cuMemAllocAsync + cuMemFreeAsync 1 MiB", 0.57), ("cuMemGetInfo", 3.8),
    ("cuMemcpyHtoDAsync 4 KiB", 1.7), ("cuGraphLaunch of 50", 1.1),
)
JUDGED_FROM = 0.3  # us
TURNS = ((2, 2083, 2405), (3, 2080, 4650))  # processes, us of an own turn, us away
PAIRS = (("half", 89.7, "loops of 0.5 ms kernels"),)


class Sheet:
    """Figures beside those of the GPU."""

    def __init__(self):
        self.rows, self.missed, self.not_judged = [], 0, 0

    def row(self, name, figure, real, unit="us", judged=True, exact_below=0.0):
        """`exact_below`: a difference as small as this is none."""
        off = 100 * (figure / real - 1)
        good = abs(off) <= WITHIN or abs(figure - real) <= exact_below
        self.rows.append(dict(name=name, figure=figure, real=real, unit=unit, judged=judged, met=good))
        self.missed += judged and not good
        verdict = ("met" if good else "MISSED") if judged else ""
        print(f"{name:52} {figure:11.2f} {real:11.2f} {unit:4} {off:+6.1f} %  {verdict}", flush=True)

    def title(self, text):
        print(f"\n{text:52} {'simgpu':>11} {'H200':>11}")


def figures(cell, *words):
    out = subprocess.run([str(cell.tools.facts), *map(str, words)], env=cell.bare, capture_output=True, text=True, timeout=120,
                         check=True).stdout
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in out.splitlines())}


def least(cell, rounds, *words):
    """Of some runs the least of each figure: a busy host only ever adds."""
    runs = [figures(cell, *words) for _ in range(rounds)]
    return {name: min(run[name] for run in runs) for name in runs[0]}


def together(tools, options, shape, count):
    """What `count` processes do together, in percent of what one does alone."""
    rates = []
    for processes in (1, count):
        with sm_cell.Cell(tools, model="1xH200") as cell:
            guests = [cell.load(shape, slot, slot + 1, options.jitter) for slot in range(processes)]
            cell.ready(guests)
            time.sleep(0.5)
            samples = cell.samples(cell.watch(processes, 3.0))
            rates.append(sum(samples.work_rate(slot) for slot in range(processes)))
    return 100 * rates[1] / rates[0]


def facts(tools, options):
    sheet = Sheet()
    with sm_cell.Cell(tools, model="1xH200") as cell:
        sheet.title("inside one context")
        seen = least(cell, 5, "time")
        for name, key, real in TIME:
            sheet.row(name, seen[key], real)
        sheet.title("what calls cost the host")
        seen = least(cell, 5, "host")
        for name, real in HOST:
            sheet.row(name, seen[name], real, judged=real > JUDGED_FROM, exact_below=0.03)
    sheet.title("between contexts")
    for processes, turn, away in TURNS:
        with sm_cell.Cell(tools, model="1xH200") as cell:
            cell.ready([cell.load("half", slot, slot + 1, 0) for slot in range(processes - 1)])
            seen = figures(cell, "turns", 2)
        sheet.row(f"{processes} processes: own turn", seen["turn"], turn)
        sheet.row(f"{processes} processes: away", seen["away"], away)
    for shape, real, name in PAIRS:
        runs = [together(tools, options, shape, 2) for _ in range(1 if options.quick else 3)]
        sheet.row(f"two {name}, of one alone", statistics.median(runs), real, "%")
    return dict(rows=sheet.rows, missed=sheet.missed, not_judged=0)
