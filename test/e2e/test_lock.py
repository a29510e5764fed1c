# SPDX-License-Identifier: Apache-2.0
"""The node lock: one pod at a time between binding and allocation, also when somebody never gives it back."""
import datetime
import time

import pytest

from rig.annotations import LOCK, PHASE, of
from rig.programs import wait_for


@pytest.fixture
def card(lab):
    lab.node("a", [lab.card("A0")])


def lock(lab, owner, age=0):
    """Locks node a as HAMi writes it, `age` seconds ago."""
    when = datetime.datetime.now().astimezone() - datetime.timedelta(seconds=age)
    value = f"{when.isoformat(timespec='seconds')},{lab.name},{owner}"
    lab.annotate_node("a", {LOCK: value})


def test_next_pod_waits_for_the_plugin(lab, card, actor):
    actor.paused.add(lab.full("a"))
    lab.apply("p1", gpu=1, mem=1000)
    wait_for("p1 to be bound", lambda: lab.read("p1")["spec"].get("nodeName"))
    assert of(lab.read("p1"))[PHASE] == "allocating"
    assert of(lab.read_node("a"))[LOCK].endswith(f",{lab.name},p1")
    lab.apply("p2", gpu=1, mem=1000)
    lab.event("p2", "BindingFailed", "node lock contention")
    assert "nodeName" not in lab.read("p2")["spec"]
    actor.resume(lab.full("a"))
    assert lab.placed("p1") == lab.placed("p2") == ("a", ["A0"])


def test_failed_binding_costs_nothing(lab, card, actor):
    """Who waits for the lock holds no memory of the card once its binding failed, so that it can not block others."""
    lab.node("b", [lab.card("B0")])
    actor.paused.add(lab.full("a"))
    lab.apply("p1", gpu=1, mem=1000)
    wait_for("p1 to be bound", lambda: lab.read("p1")["spec"].get("nodeName"))
    lab.apply("p2", gpu=1, mem=15000)
    lab.event("p2", "BindingFailed", "node lock contention")
    # The fuller node was the better one; while its lock stands the other comes first.
    assert lab.placed("p2") == ("b", ["B0"])
    actor.resume(lab.full("a"))
    wait_for("a to be unlocked", lambda: LOCK not in of(lab.read_node("a")))
    assert lab.run("p3", gpu=1, mem=15384) == ("a", ["A0"])


def test_lock_of_a_pod_that_is_gone_is_taken_over(lab, card):
    lock(lab, "nobody")
    assert lab.run("p", gpu=1, mem=1000) == ("a", ["A0"])


@pytest.fixture
def impatient(extender):
    """A lock is old after ten seconds."""
    usual = list(extender.program.argv)
    others = [word for word in usual if not word.startswith("--node-lock-timeout")]
    for argv in ([*others, "--node-lock-timeout=10s"], usual):
        extender.program.stop(10)
        extender.program.argv = argv
        extender.start_again()
        extender.wait()
        if argv is not usual:
            yield


def test_old_lock_is_taken_over(lab, card, actor, impatient):
    """The owner lives and its plugin never answered: others go on when the scheduler has seen the lock for that long."""
    actor.paused.add(lab.full("a"))
    lab.apply("p1", gpu=1, mem=1000)
    wait_for("p1 to be bound", lambda: lab.read("p1")["spec"].get("nodeName"))
    lock(lab, "p1", age=301)  # what another's clock says of it counts for nothing
    began = time.monotonic()
    lab.apply("p2", gpu=1, mem=1000)
    wait_for("p2 to be bound", lambda: lab.read("p2")["spec"].get("nodeName"), 60)
    assert time.monotonic() - began > 5
    assert of(lab.read_node("a"))[LOCK].endswith(f",{lab.name},p2")
    actor.resume(lab.full("a"))
    lab.placed("p2")
    actor.complaints.clear()  # p1's plugin finds p2's lock, as it must
    lab.remove("p1")


@pytest.mark.parametrize("who", ["the same pod", "another pod"])
def test_node_of_a_killed_scheduler(lab, card, who):
    """It died between lock and Binding. Nothing has to run out: neither the lock's five minutes nor any other."""
    for name in ("p1", "p2"):
        thing = lab.manifest(name, gpu=1, mem=1000)
        thing["spec"]["schedulingGates"] = [{"name": "e2e/later"}]
        lab.kubectl.apply(thing)
    lock(lab, "p1")
    seconds = datetime.datetime.fromisoformat(of(lab.read_node("a"))[LOCK].partition(",")[0]).timestamp()
    uid = lab.read("p1")["metadata"]["uid"]
    lab.annotate_node("a", {"hami-cpp/bind-ticket": f"{int(seconds)}000;of-the-dead;{lab.name}/p1/{uid}"})
    chosen = "p1" if who == "the same pod" else "p2"
    lab.api.patch(f"/api/v1/namespaces/{lab.name}/pods/{chosen}", {"spec": {"schedulingGates": []}})
    began = time.monotonic()
    assert lab.placed(chosen) == ("a", ["A0"])
    assert time.monotonic() - began < 30


def test_allocation_that_the_plugin_refuses(lab, card, actor):
    """The pod fails as under a real kubelet, and what it was given is free for its successor."""
    actor.refusing.add(lab.full("a"))
    lab.apply("p1", gpu=1, mem=16000)
    wait_for("p1 to fail", lambda: lab.read("p1")["status"]["phase"] == "Failed")
    actor.refusing.discard(lab.full("a"))
    assert lab.run("p2", gpu=1, mem=16000) == ("a", ["A0"])


def test_pod_without_gpu_takes_no_lock(lab, card):
    lock(lab, "nobody")
    lab.run("p", containers=[{"name": "main", "image": "local.test/nothing:1"}])
    assert of(lab.read_node("a"))[LOCK].endswith(",nobody")
    lab.annotate_node("a", {LOCK: None})
