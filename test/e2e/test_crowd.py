# SPDX-License-Identifier: Apache-2.0
"""Many pods at once."""
from rig import annotations
from rig.lab import everybody_runs
from rig.programs import wait_for


def test_200_pods_to_20_nodes(lab):
    """Each node has two cards for five pods each: all fit, none is lost, and every card is exactly full."""
    lab.nodes_of(20, cards_each=2, memory=16000)
    things = [lab.manifest(f"p{index:03}", gpu=1, mem=3200, cores=20) for index in range(200)]
    lab.kubectl.apply(*things)
    pods = wait_for("200 pods to run", lambda: everybody_runs(lab, 200), 240)
    for pod in pods:
        lab.place_of(pod)
    uses = annotations.books(pods)
    assert len(uses) == 40
    assert set(uses.values()) == {annotations.Use(5, 16000, 100)}


def test_more_pods_than_room(lab):
    """Exactly as many as fit run; the others wait, and follow when room is made."""
    lab.nodes_of(4, cards_each=1)
    spread = {"hami.io/node-scheduler-policy": "spread"}
    things = [lab.manifest(f"p{index:02}", gpu=1, mem=5000, notes=spread) for index in range(20)]
    lab.kubectl.apply(*things)
    pods = wait_for("12 of 20 pods to run", lambda: ran(lab, 12), 120)
    lab.remove(*[pod["metadata"]["name"] for pod in pods[:4]])
    wait_for("four more to run", lambda: ran(lab, 12), 120)


def ran(lab, count):
    running = [pod for pod in lab.pods() if pod["status"]["phase"] == "Running"]
    assert len(running) <= count
    return running if len(running) == count else None
