# SPDX-License-Identifier: Apache-2.0
"""A cluster that another scheduler of HAMi's protocol ran until now. Nothing is cleaned up; ours starts and goes on.

What HAMi leaves at such a moment is written here as its protocol says, by Python that has nothing of our C++: pods that
run, pods bound and not allocated, pods filtered and not bound (HAMi writes a pod's share at /filter, we at /bind).
"""
import datetime
import time

import pytest

from rig.annotations import ALLOCATED, LOCK, NODE, PHASE, TO_ALLOCATE, of
from rig.gate import GATED
from rig.programs import wait_for

TIME = "hami.io/vgpu-time"
BIND_TIME = "hami.io/bind-time"
HANDSHAKE = "hami.io/node-handshake"
NOBODY = "nobody"  # the profile of a kube-scheduler that does not run any more


def local(moment):
    return moment.astimezone().isoformat(timespec="seconds")


class HAMi:
    """Writes what HAMi's scheduler would have written."""

    def __init__(self, lab):
        self.lab = lab

    def granted(self, node, card, mem, cores=0, age=0):
        """What its /filter wrote, `age` seconds ago: one card for one container."""
        row = f"{self.lab.full(card)},NVIDIA,{mem},{cores}:;"
        where = self.lab.full(node)
        return {NODE: where, TIME: str(int(time.time()) - age), ALLOCATED: row, TO_ALLOCATE: row}

    def handshake(self, node, clutter=True):
        now = datetime.datetime.now()
        notes = {HANDSHAKE: f"Requesting_{now:%Y-%m-%d %H:%M:%S}"}
        if clutter:  # one for each vendor that it knows, whatever the node has
            notes |= {f"{HANDSHAKE}-{vendor}": f"Requesting_{now:%Y-%m-%d %H:%M:%S}" for vendor in ("dcu", "va", "biren")}
        self.lab.annotate_node(node, notes)

    def lock(self, node, pod):
        self.lab.annotate_node(node, {LOCK: f"{local(datetime.datetime.now())},{self.lab.name},{pod}"})

    def pod(self, name, notes, bound=None, profile=NOBODY, **asks):
        """A pod as its webhook and filter left it; `bound` is the node of its Binding."""
        thing = self.lab.manifest(name, notes=notes, **asks)
        # Ours is away, so there is no webhook to answer; HAMi's has been there before.
        thing["metadata"]["labels"] = {"hami.io/webhook": "ignore"} | ({NODE: notes[NODE]} if NODE in notes else {})
        thing["spec"]["schedulerName"] = profile
        if bound:
            thing["spec"]["nodeName"] = self.lab.full(bound)
        self.lab.kubectl.apply(thing)

    def running(self, name, node, card, mem, cores=0):
        notes = self.granted(node, card, mem, cores, age=3600)
        notes |= {TO_ALLOCATE: ";", PHASE: "success", BIND_TIME: notes[TIME]}
        self.pod(name, notes, bound=node, gpu=1, mem=mem)
        status = f"/api/v1/namespaces/{self.lab.name}/pods/{name}/status"
        self.lab.api.patch(status, {"status": {"phase": "Running"}})

    def allocating(self, name, node, card, mem):
        """Bound, the node locked for it, and its plugin has not answered yet."""
        notes = self.granted(node, card, mem)
        self.lock(node, name)
        self.pod(name, notes | {PHASE: "allocating", BIND_TIME: notes[TIME]}, bound=node, gpu=1, mem=mem)


@pytest.fixture
def hami(lab):
    return HAMi(lab)


def test_shares_of_running_pods_are_kept(lab, hami, alive):
    lab.node("a", [lab.card("A0"), lab.card("A1")])
    hami.handshake("a")
    alive.program.stop()
    hami.running("old0", "a", "A0", 10000, cores=60)
    hami.running("old1", "a", "A1", 12000)
    alive.start_again()
    assert "2/2 CardInsufficientMemory" in lab.refused("large", gpu=1, mem=6385)
    assert lab.run("fits", gpu=1, mem=6384) == ("a", ["A0"])
    assert lab.run("rest", gpu=1, mem=4384) == ("a", ["A1"])
    lab.remove("old1")
    assert lab.placed("large") == ("a", ["A1"])


def test_pod_whose_plugin_is_at_work_is_waited_for(lab, hami, alive, actor):
    """HAMi locked the node and bound; the plugin allocates under ours. Its lock is given back by itself, not by us."""
    lab.node("a", [lab.card("A0")])
    actor.paused.add(lab.full("a"))
    alive.program.stop()
    hami.allocating("old", "a", "A0", 10000)
    alive.start_again()
    lab.apply("new", gpu=1, mem=6384)
    lab.event("new", "BindingFailed", "node lock contention")
    assert of(lab.read_node("a"))[LOCK].endswith(f",{lab.name},old")
    actor.resume(lab.full("a"))
    assert lab.placed("old") == lab.placed("new") == ("a", ["A0"])


def test_pod_that_was_filtered_is_never_bound(lab, hami, alive):
    """What HAMi promised and never bound counts for five minutes after it was promised, and no longer."""
    lab.node("a", [lab.card("A0"), lab.card("A1")])
    alive.program.stop()
    hami.pod("fresh", hami.granted("a", "A0", 16000), gpu=1, mem=16000)
    hami.pod("stale", hami.granted("a", "A1", 16000, age=301), gpu=1, mem=16000)
    alive.start_again()
    assert lab.run("new", gpu=1, mem=16384) == ("a", ["A1"])
    assert "2/2 CardInsufficientMemory" in lab.refused("late", gpu=1, mem=16384)
    lab.remove("fresh", "stale")
    assert lab.placed("late") == ("a", ["A0"])


@pytest.mark.parametrize("taken", [False, True], ids=["free", "taken"])
def test_filtered_by_hami_bound_by_us(lab, hami, gate, alive, taken):
    """kube-scheduler lived on and asks ours to bind what HAMi had chosen. The pod runs in the end, on what is free."""
    lab.node("a", [lab.card("A0"), lab.card("A1")])
    gate.shut("/bind")
    lab.apply("p", spec={"schedulerName": GATED}, gpu=1, mem=10000)
    assert gate.wait_at("/bind")
    alive.program.kill()  # what it had chosen was in its memory only
    lab.annotate_pod("p", hami.granted("a", "A1", 10000))
    if taken:
        hami.running("other", "a", "A1", 10000)
    alive.start_again()
    gate.open("/bind")
    node, cards = lab.placed("p")
    assert node == "a" and cards in ([["A0"]] if taken else [["A0"], ["A1"]])


def test_lock_that_was_left_without_a_pod(lab, hami, alive):
    lab.node("a", [lab.card("A0")])
    alive.program.stop()
    hami.lock("a", "deleted-since")
    alive.start_again()
    assert lab.run("p", gpu=1, mem=1000) == ("a", ["A0"])


def test_the_way_back(lab, hami, alive):
    """What ours leaves says all that HAMi's scheduler and plugin read, in their words."""
    lab.node("a", [lab.card("A0")])
    lab.run("p", gpu=1, mem=3000, cores=30)
    wait_for("the handshake, which no binding waits for", lambda: HANDSHAKE in of(lab.read_node("a")))
    alive.program.stop()
    pod, notes = lab.read("p"), of(lab.read("p"))
    assert notes[ALLOCATED] == f"{lab.full('A0')},NVIDIA,3000,30:;"
    assert notes[NODE] == pod["metadata"]["labels"][NODE] == lab.full("a")
    assert notes[PHASE] == "success"
    assert abs(int(notes[TIME]) - time.time()) < 60 and abs(int(notes[BIND_TIME]) - time.time()) < 60
    wait_for("the lock to be given back", lambda: LOCK not in of(lab.read_node("a")))
    assert of(lab.read_node("a"))[HANDSHAKE].startswith("Requesting_")
