# SPDX-License-Identifier: Apache-2.0
"""Two replicas: one decides, both answer the webhook, and either may go at any time."""
import signal
import threading
import time

import pytest

from rig import annotations
from rig.programs import wait_for
from rig.replicas import LEASE, OURS, Replicas, Watchman


@pytest.fixture
def replicas(room, lab, plane, build):  # pylint: disable=unused-argument
    one = Replicas(plane, build / "bin/hami-scheduler", lab.name)
    try:
        one.start()
        yield one
    finally:
        one.stop()


def manifest(lab, name, **asks):
    """A pod for the replicas: it says nothing of a scheduler, their webhook does."""
    thing = lab.manifest(name, **asks)
    thing["metadata"]["labels"] = OURS
    return thing


def run(lab, name, **asks):
    lab.kubectl.apply(manifest(lab, name, **asks))
    assert lab.read(name)["spec"]["schedulerName"] == LEASE
    return lab.placed(name)


def review(pod):
    """What the API server sends to a webhook when that pod is created."""
    request = {"uid": "e2e", "operation": "CREATE", "kind": {"group": "", "version": "v1", "kind": "Pod"}}
    request |= {"resource": {"group": "", "version": "v1", "resource": "pods"}, "object": pod}
    request |= {"namespace": pod["metadata"]["namespace"], "name": pod["metadata"]["name"]}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def test_both_answer_the_webhook_and_one_filters(lab, replicas):
    """What a follower is asked to place waits, and is answered when it leads."""
    lab.node("a", [lab.card("A0")])
    leader, follower = replicas.pair()
    for one in replicas.all:
        response = one.post("/webhook", review(manifest(lab, "p", gpu=1)), 10)["response"]
        assert response["allowed"] and response["patch"]
    lab.kubectl.apply(manifest(lab, "p", gpu=1, mem=1000, spec={"schedulerName": "nobody"}))
    question = {"Pod": lab.read("p"), "NodeNames": [lab.full("a")]}
    assert follower.post("/filter", question, 2) is None
    assert leader.post("/filter", question, 10)["NodeNames"] == [lab.full("a")]
    uid = question["Pod"]["metadata"]["uid"]
    bind = {"PodName": "p", "PodNamespace": lab.name, "PodUID": uid, "Node": lab.full("a")}
    assert follower.post("/bind", bind, 10)["Error"], "it is bound by who placed it"

    answers = []
    asking = threading.Thread(target=lambda: answers.append(follower.post("/filter", question, 60)))
    asking.start()
    leader.kill()
    asking.join(60)
    assert answers[0]["NodeNames"] == [lab.full("a")]
    assert follower.leads()


def test_lease_moves_while_both_live(lab, replicas):
    """Not one call of the webhook is lost, and who leads now knows what the other one gave away."""
    lab.node("a", [lab.card("A0")])
    leader, follower = replicas.pair()
    assert (leader.role(), follower.role()) == ("leader", "follower")
    run(lab, "p1", gpu=1, mem=10000)
    with Watchman(replicas) as watchman:
        leader.kube.kill()
        replicas.wait_for_leader([follower])
        wait_for("the old leader's label", lambda: leader.role() == "follower")
        watchman.more()
        assert run(lab, "p2", gpu=1, mem=6384) == ("a", ["A0"])
        leader.kube.start()
        watchman.more()
    assert watchman.failures == []
    assert follower.leads() and not leader.leads()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def test_leader_goes(lab, replicas, number):
    """The other one takes over in the middle of the work: nobody is lost, and every card is exactly full."""
    lab.nodes_of(8, cards_each=1, memory=16000)
    leader, follower = replicas.pair()
    things = [manifest(lab, f"p{index:02}", gpu=1, mem=3200, cores=20) for index in range(40)]
    lab.kubectl.apply(*things)
    wait_for("some pods to run", lambda: len(running(lab)) >= 10, 60)
    with Watchman(replicas) as watchman:
        gone = time.monotonic()
        statuses = leader.end(number)
        replicas.wait_for_leader([follower])
        watchman.more()
    assert number == signal.SIGKILL or statuses == [0, 0]
    # From the kubelet's word that the pod is not ready until the other one has the label.
    assert [why for when, why in watchman.failures if when > gone + 3] == []
    wait_for("40 pods to run", lambda: len(running(lab)) == 40, 120)
    uses = annotations.books(running(lab))
    assert len(uses) == 8 and set(uses.values()) == {annotations.Use(5, 16000, 100)}


def running(lab):
    """The pods with a share of a card; the replicas' own have none."""
    return [pod for pod in lab.pods() if annotations.shares(pod) and pod["status"]["phase"] == "Running"]
