# SPDX-License-Identifier: Apache-2.0
"""Programs that die at the worst moment. What was promised is kept, and nothing is promised twice."""
import pytest

from rig.annotations import PHASE, of
from rig.gate import GATED
from rig.programs import wait_for


def pod_between_filter_and_bind(lab, gate, name, **asks):
    """kube-scheduler has its answer to /filter, and its call to /bind waits at the door."""
    gate.shut("/bind")
    lab.apply(name, spec={"schedulerName": GATED}, **asks)
    assert gate.wait_at("/bind"), "kube-scheduler never asked to bind"


def test_placement_holds_until_it_is_bound(lab, gate):
    """What /filter gave to one pod, nobody else gets, though nothing of it is written anywhere yet."""
    lab.node("a", [lab.card("A0")])
    pod_between_filter_and_bind(lab, gate, "p1", gpu=1, mem=10000)
    assert "1/1 CardInsufficientMemory" in lab.refused("p2", gpu=1, mem=10000)
    gate.open("/bind")
    assert lab.placed("p1") == ("a", ["A0"])


@pytest.mark.parametrize("way", ["kill", "stop"])
def test_scheduler_dies_between_filter_and_bind(lab, gate, alive, way):
    lab.node("a", [lab.card("A0")])
    pod_between_filter_and_bind(lab, gate, "p1", gpu=1, mem=10000)
    getattr(alive.program, way)()
    alive.start_again()
    gate.open("/bind")
    assert lab.placed("p1") == ("a", ["A0"])
    assert "1/1 CardInsufficientMemory" in lab.refused("p2", gpu=1, mem=10000)
    lab.remove("p1")
    assert lab.placed("p2") == ("a", ["A0"])


def test_place_is_taken_after_the_scheduler_died(lab, gate, alive):
    """The promise died with the one who gave it: another pod may have the place, but never both."""
    lab.node("a", [lab.card("A0")])
    pod_between_filter_and_bind(lab, gate, "p1", gpu=1, mem=10000)
    alive.program.kill()
    alive.start_again()
    assert lab.run("p2", gpu=1, mem=10000) == ("a", ["A0"])
    gate.open("/bind")
    lab.unschedulable("p1", "1/1 CardInsufficientMemory")
    assert "nodeName" not in lab.read("p1")["spec"]
    lab.remove("p2")
    assert lab.placed("p1") == ("a", ["A0"])


def test_scheduler_is_away_when_asked_to_bind(lab, gate, alive):
    """kube-scheduler hears an error, asks again, and the pod is charged once."""
    lab.node("a", [lab.card("A0")])
    pod_between_filter_and_bind(lab, gate, "p1", gpu=1, mem=10000)
    alive.program.kill()
    gate.open("/bind")
    wait_for("kube-scheduler to ask again", lambda: gate.calls.count("/filter") > 1)
    alive.start_again()
    assert lab.placed("p1") == ("a", ["A0"])
    assert lab.run("p2", gpu=1, mem=6384) == ("a", ["A0"])


def test_pod_is_deleted_between_filter_and_bind(lab, gate):
    lab.node("a", [lab.card("A0")])
    pod_between_filter_and_bind(lab, gate, "p1", gpu=1, mem=16000)
    lab.remove("p1")
    gate.open("/bind")
    assert lab.run("p2", gpu=1, mem=16000) == ("a", ["A0"])


def test_books_survive_a_restart(lab, alive):
    lab.nodes_of(2, cards_each=2)
    for index in range(8):
        lab.run(f"p{index}", gpu=1, mem=7000)
    alive.program.kill()
    alive.start_again()
    assert "2/2 CardInsufficientMemory" in lab.refused("late", gpu=1, mem=3000)
    lab.remove("p0")
    lab.placed("late")


def test_pods_wait_while_the_scheduler_is_away(lab, alive):
    lab.node("a", [lab.card("A0")])
    thing = lab.manifest("p", gpu=1, mem=1000, spec={"schedulerName": "hami-scheduler"})
    thing["metadata"]["labels"] = {"hami.io/webhook": "ignore"}  # there is nobody to answer the webhook
    alive.program.kill()
    lab.kubectl.apply(thing)
    lab.unschedulable("p")
    alive.start_again()
    assert lab.placed("p") == ("a", ["A0"])


def test_scheduler_ends_when_told(alive):
    assert alive.program.stop(grace=10) == 0


def test_api_server_restarts(lab, plane, extender):
    lab.node("a", [lab.card("A0")])
    lab.run("p1", gpu=1, mem=10000)
    plane.apiserver.stop(grace=5)
    plane.apiserver.start()
    plane.wait_for_apiserver()
    assert extender.program.alive()
    assert "1/1 CardInsufficientMemory" in lab.refused("p2", gpu=1, mem=10000)
    lab.remove("p1")
    assert lab.placed("p2") == ("a", ["A0"])
    assert of(lab.read("p2"))[PHASE] == "success"
