# SPDX-License-Identifier: Apache-2.0
"""Which cards a pod may use: lists of its annotations, modes, cordons, health; and nodes that have none."""
import json

import pytest

from rig import annotations, fake_nodes, metrics
from rig.programs import wait_for

TYPES, NO_TYPES = "nvidia.com/use-gputype", "nvidia.com/nouse-gputype"
UUIDS, NO_UUIDS = "nvidia.com/use-gpuuuid", "nvidia.com/nouse-gpuuuid"
MODE = "nvidia.com/vgpu-mode"


@pytest.fixture
def mixed(lab):
    """Two kinds of cards on one node."""
    kinds = ("NVIDIA-Tesla T4", "NVIDIA-A10")
    lab.node("a", [lab.card(f"A{index}", kind=kinds[index // 2]) for index in range(4)])


@pytest.mark.parametrize(
    "notes, cards",
    [
        ({TYPES: "t4"}, ["A0", "A1"]),
        ({TYPES: "A100, A10"}, ["A2", "A3"]),
        ({NO_TYPES: "A10"}, ["A0", "A1"]),
    ],
    ids=["wanted", "listed", "unwanted"],
)
def test_types(lab, mixed, notes, cards):
    assert sorted(lab.run("p", gpu=2, mem=1000, notes=notes)[1]) == cards


def test_type_that_is_nowhere(lab, mixed):
    assert "4/4 CardTypeMismatch" in lab.refused("p", gpu=1, mem=1000, notes={TYPES: "H100"})


def test_uuids(lab, mixed):
    wanted = f"{lab.full('A0')}, {lab.full('A2')}"
    assert sorted(lab.run("p1", gpu=2, mem=1000, notes={UUIDS: wanted})[1]) == ["A0", "A2"]
    assert sorted(lab.run("p2", gpu=2, mem=1000, notes={NO_UUIDS: wanted})[1]) == ["A1", "A3"]
    assert "4/4 CardUuidMismatch" in lab.refused("p3", gpu=1, mem=1000, notes={UUIDS: "GPU-of-nobody"})


def test_mode(lab):
    lab.node("a", [lab.card("A0")])
    lab.node("b", [lab.card("B0", mode="mps")])
    assert lab.run("p1", gpu=1, mem=1000, notes={MODE: "mps"}) == ("b", ["B0"])
    assert lab.run("p2", gpu=1, mem=1000, notes={MODE: "hami-core"}) == ("a", ["A0"])


def test_cordon_of_a_card(lab):
    """An operator's word counts at once, and only for new pods."""
    lab.node("a", [lab.card("A0"), lab.card("A1")])
    lab.run("p1", gpu=1, mem=1000, notes={UUIDS: lab.full("A1")})
    lab.kubectl("annotate", "node", lab.full("a"), f"hami.io/device-cordon={lab.full('A1')}")
    assert lab.run("p2", gpu=1, mem=1000) == ("a", ["A0"])
    assert "1/2 CardCordoned" in lab.refused("p3", gpu=2, mem=1000)
    assert lab.read("p1")["status"]["phase"] == "Running"


def test_sick_card_is_not_used(lab):
    lab.node("a", [lab.card("A0"), lab.card("A1", health=False)])
    assert lab.run("p1", gpu=1, mem=1000) == ("a", ["A0"])
    assert "1/2 CardNotHealth" in lab.refused("p2", gpu=2, mem=1000)


def test_node_without_cards(lab):
    lab.node("a", [])
    assert "node unregistered" in lab.refused("p", gpu=1, mem=1000)


def test_card_that_is_registered_later(lab, extender):
    """What the device plugin writes counts without a restart."""
    first, second = lab.card("A0"), lab.card("A1")
    lab.node("a", [first])
    assert "NodeInsufficientDevice" in lab.refused("p", gpu=2, mem=1000)
    lab.annotate_node("a", {annotations.REGISTER: fake_nodes.register([first, second])})

    def known():
        samples = metrics.parse(extender.scrape())
        return len(metrics.select(samples, "hami_gpu_memory_limit_bytes", "device_uuid", node=lab.full("a"))) == 2

    wait_for("the second card in the scheduler's metrics", known, 20)
    # kube-scheduler looks at the pod again when the node changes; the annotation's own change may have come to it
    # before it came to us.
    lab.kubectl("label", "node", lab.full("a"), "e2e/seen=yes")
    assert sorted(lab.placed("p")[1]) == ["A0", "A1"]


def test_node_that_leaves(lab):
    lab.node("a", [lab.card("A0")])
    lab.node("b", [lab.card("B0")])
    lab.run("p1", gpu=1, mem=1000)
    lab.kubectl("delete", "node", lab.full("a"))
    lab.nodes.remove(lab.full("a"))
    assert lab.run("p2", gpu=1, mem=1000) == ("b", ["B0"])
    lab.remove("p1")


def test_damaged_register_annotation_changes_no_node(lab):
    """The cards that were registered before are still there, most likely."""
    lab.node("a", [lab.card("A0")])
    lab.node("b", [lab.card("B0")])
    whole = annotations.of(lab.read_node("a"))[annotations.REGISTER]
    broken = json.dumps([{"id": lab.full("A0"), "count": "many"}])[:-4]
    lab.annotate_node("a", {annotations.REGISTER: broken})
    assert lab.run("p1", gpu=1, mem=16000, notes={UUIDS: lab.full("B0")}) == ("b", ["B0"])
    assert lab.run("p2", gpu=1, mem=16000, notes={UUIDS: lab.full("A0")}) == ("a", ["A0"])
    lab.annotate_node("a", {annotations.REGISTER: whole})  # the lab counts by it in the end


def test_unreadable_grant_of_a_running_pod_closes_its_node(lab, alive):
    """A scheduler that starts cannot know what that pod holds: better no placement than a wrong one. The log says which
    pod it is."""
    lab.node("a", [lab.card("A0")])
    lab.run("p1", gpu=1, mem=1000)
    lab.annotate_pod("p1", {annotations.ALLOCATED: "what is this;"})
    alive.program.kill()
    alive.start_again()
    alive.wait()
    assert "node usage unavailable" in lab.refused("p2", gpu=1, mem=1000)
    blame = f"pod {lab.name}/p1: annotation {annotations.ALLOCATED}: pod annotation format error"
    assert blame in alive.program.log.read_text()
    lab.remove("p1")
    assert lab.placed("p2") == ("a", ["A0"])
