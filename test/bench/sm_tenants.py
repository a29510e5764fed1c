# SPDX-License-Identifier: Apache-2.0
"""Tenants beside each other: shares that add up to 100 %, all hungry; then half of the tenants leave and come back. A share
of 0 is no limit: who has none has what the others leave."""
import time

import sm_cell
import sm_parts

SHARE_ERROR, JAIN, TOTAL = 1.0, 0.995, 98.5
IN_TURN = ("half", "graph100", "tiny", "milli")
LOADS = IN_TURN + ("half-sync", "graph-tiny")  # those that the table does not have
GROUPS = ((30, 70), (50, 50), (10, 20, 70), (25, 25, 25, 25), (10, 20, 30, 40), (5, 10, 15, 20, 20, 30),
          (12, 12, 12, 12, 13, 13, 13, 13), (2, 5, 8, 10, 15, 15, 20, 25))
OF_OTHER_LOADS = (((30, 70), ("streams8",)), ((10, 20, 70), ("streams8", "half", "graph100")), ((30, 70), ("sync100",)),
                  ((10, 20, 70), ("sync100", "half", "sync50")), ((30, 0), ("graph100", "half")),
                  ((70, 0), ("half", "tiny")), ((20, 0, 30, 0), ("half", "graph100", "tiny", "milli")))
SETTLE = 0.3  # seconds after a change, before what is measured begins


def chosen(options):
    """(shares, loads) of each group."""
    if options.groups or options.loads:
        return [(shares, options.loads or IN_TURN) for shares in options.groups or GROUPS]
    if options.quick:
        return [(shares, IN_TURN) for shares in GROUPS[::3]] + [OF_OTHER_LOADS[0], OF_OTHER_LOADS[2]]
    return [(shares, IN_TURN) for shares in GROUPS] + list(OF_OTHER_LOADS)


def phase_of(options, loads):
    """Seconds: of kernels that take long, a share is a whole number of them."""
    return 2.0 + options.seconds / 3 + 60 * max(sm_cell.GRAIN.get(load, 0) for load in loads)


def percent_of(samples, slot=None):
    points = samples.curve(slot)
    return 100 * (points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0])


def jain(values):
    return sum(values) ** 2 / (len(values) * sum(value * value for value in values))


class Alone:
    """What loads do with the whole device, each measured once."""

    def __init__(self, tools, options):
        self.tools, self.options, self.known = tools, options, {}

    def of(self, load):
        """Percent busy, and GPU seconds of work that are done in a second of it."""
        if load not in self.known:
            with sm_cell.Cell(self.tools) as cell:
                guest = cell.load(load, 0, 1, self.options.jitter)
                cell.ready([guest])
                time.sleep(0.5)
                samples = cell.samples(cell.watch(1, 2.0))
            busy = percent_of(samples)
            self.known[load] = busy, 100 * samples.work_rate(0) / busy
        return self.known[load]


def due(shares, present, device):
    """What each of those present is to have, in percent, on a device that is busy for `device` percent at most."""
    left = device - sum(shares[i] for i in present)
    return {i: shares[i] or left / sum(shares[k] == 0 for k in present) for i in present}


def run_group(tools, options, shares, loads, phase):
    """What the judge saw of `shares` while all were there, half were, and all were again: for each (name, samples, slot of
    each tenant that was there, whether the host was slow)."""
    count = len(shares)

    def join(cell, i, slot, name):
        return cell.load(loads[i % len(loads)], slot, slot + 1, options.jitter, shares[i], options.through, f"{name}{i}")

    leavers = range(0, count, 2)
    present = [{i: i for i in range(count)}, {i: i for i in range(1, count, 2)},
               {i: count + i if i in leavers else i for i in range(count)}]
    seen = []
    with sm_cell.Cell(tools) as cell:
        joined = [join(cell, i, i, "tenant") for i in range(count)]
        cell.ready(joined)
        time.sleep(1.0)
        judge = cell.watch(2 * count, 3 * phase + 1.5, 0.02)
        for step, name in enumerate(("all", "half of them left", "back again")):
            if step == 1:
                for i in leavers:
                    joined[i].process.kill()
            if step == 2:
                cell.ready([join(cell, i, count + i, "again") for i in leavers])
            begin, length = time.monotonic(), phase - (step == 2)
            with sm_parts.HostWatch(cell, list(present[step].values())) as host:
                time.sleep(length)
            seen.append((name, begin + SETTLE, begin + length, host))
        samples = cell.samples(judge)
    return [(name, samples.between(begin, end), present[step], host.slow)
            for step, (name, begin, end, host) in enumerate(seen)]


def tenants(tools, options):
    verdicts = sm_parts.Verdicts()
    groups, alone = chosen(options), Alone(tools, options)
    takes = sum(3 * phase_of(options, loads) + 4 for _, loads in groups) / 60
    print(f"\ntenants: {len(groups)} groups, about {takes:.0f} minutes, through {options.through}")
    print("Each in a container of its own. error: of the share of each, worst one, over the whole time and over 1 s; kept: busy "
          "time of all / of a tenant alone; work: what was done, in the time it takes alone / the same.")
    for shares, loads in groups:
        device = max(alone.of(load)[0] for load in loads)
        for what, samples, present, slow in run_group(tools, options, shares, loads, phase_of(options, loads)):
            name = f"{':'.join(map(str, shares))}{' ' + ','.join(loads) if loads != IN_TURN else ''}, {what}"
            got = {i: percent_of(samples, slot) for i, slot in present.items()}
            work = {i: 100 * samples.work_rate(slot) / alone.of(loads[i % len(loads)])[1] for i, slot in present.items()}
            share = due(shares, present, device)
            over_1s = {i: sm_cell.mean_error(sm_cell.windows(samples.curve(slot), 1.0), share[i])
                       for i, slot in present.items()}
            verdicts.row(f"{name}: worst error of a share", max(abs(got[i] - share[i]) for i in got), "pt", SHARE_ERROR,
                         slow=slow)
            verdicts.row(f"{name}: the same over 1 s, mean", max(over_1s.values()), "pt")
            verdicts.row(f"{name}: Jain index", jain([got[i] / share[i] for i in got]), "", JAIN, True, slow)
            verdicts.rows[-1]["shares"], verdicts.rows[-1]["work"] = got, work
            if what != "half of them left" or 0 in (shares[i] for i in got):
                verdicts.row(f"{name}: kept", 100 * sum(got.values()) / device, "%", TOTAL, True, slow)
            verdicts.row(f"{name}: work", 100 * sum(work.values()) / sum(got.values()), "%", TOTAL, True, slow)
            print("    " + "  ".join(f"{shares[i]}: {got[i]:.2f} ({work[i] / got[i] * 100:.1f} %)" for i in got), flush=True)
    return verdicts.result()
