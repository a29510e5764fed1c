# SPDX-License-Identifier: Apache-2.0
"""The verbs of kube-scheduler's extender protocol beside filter and bind, asked by a real kube-scheduler."""
import pytest
from rig import extender as rig
from rig.control_plane import answers
from rig.programs import free_ports

CHOOSES = "hami-chooses"  # the profile of a kube-scheduler that chooses among the nodes that fit


@pytest.fixture(scope="module")
def chooser(plane, extender):
    """A hami-scheduler with --extender-mode=prioritize, and a kube-scheduler that asks it."""
    address, metrics_port, health = (f"127.0.0.1:{port}" for port in free_ports(3))
    program = rig.start(plane, extender.program.argv[0], CHOOSES, address, metrics_port.rpartition(":")[2],
                        f"--scheduler-name={CHOOSES}", "--extender-mode=prioritize")  # fmt: skip
    program.wait_until("healthy", lambda: answers(f"https://{address}/healthz"))
    scheduler = plane.start_scheduler(
        f"kube-scheduler-{CHOOSES}", [CHOOSES], f"https://{address}", int(health.rpartition(":")[2]),
        verbs={"prioritizeVerb": "prioritize"})  # fmt: skip
    yield program
    scheduler.stop()
    program.stop()


def preferring(lab, node, weight):
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [lab.full(node)]}]}
    preferred = [{"weight": weight, "preference": term}]
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}


def test_kube_scheduler_weighs_our_scores_with_its_own(lab, chooser):
    lab.nodes_of(3)
    notes = {"hami.io/gpu-scheduler-policy": "binpack"}
    chosen = {"schedulerName": CHOOSES}
    assert lab.run("p1", gpu=1, mem=1000, notes=notes, spec=chosen)[0] == "n00", "equal nodes: ours alone says which"
    liked = chosen | preferring(lab, "n02", 100)
    assert lab.run("p2", gpu=1, mem=1000, notes=notes, spec=liked)[0] == "n02", "preferred by the pod"
    assert lab.run("p3", gpu=1, mem=1000, notes=notes, spec=preferring(lab, "n02", 100))[0] == "n00", "by default not"
    full = lab.run("p4", gpu=1, mem=16000, notes=notes, spec=liked)
    assert full[0] == "n01", "where it does not fit it is not liked"


def test_pods_at_once_share_no_capacity(lab, chooser):
    """Each wants half of a card, and all like the same node best."""
    lab.nodes_of(3, cards_each=2, memory=16000)
    liked = {"schedulerName": CHOOSES} | preferring(lab, "n01", 100)
    lab.kubectl.apply(*[lab.manifest(f"p{index:02}", gpu=1, mem=8000, spec=liked) for index in range(12)])
    places = [lab.placed(f"p{index:02}") for index in range(12)]
    assert sorted(node for node, _ in places) == ["n00"] * 4 + ["n01"] * 4 + ["n02"] * 4
