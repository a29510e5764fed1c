# SPDX-License-Identifier: Apache-2.0
"""Parts of cards: how much of each is given away, to the last MiB, and that it comes back."""
import pytest

from rig import annotations
from rig.annotations import Share
from rig.lab import container


@pytest.fixture
def card(lab):
    lab.node("a", [lab.card("A0")])


def test_memory_to_the_last_mib(lab, card):
    lab.run("p1", gpu=1, mem=10000)
    lab.run("p2", gpu=1, mem=6384)
    assert "1/1 CardInsufficientMemory" in lab.refused("p3", gpu=1, mem=1)


def test_as_many_shares_as_the_card_may_have(lab):
    lab.node("a", [lab.card("A0", count=3)])
    for index in range(3):
        lab.run(f"p{index}", gpu=1, mem=1000)
    assert "1/1 CardTimeSlicingExhausted" in lab.refused("p3", gpu=1, mem=1000)


def test_percentage_of_the_card(lab, card):
    for index in range(4):
        lab.run(f"p{index}", gpu=1, percent=25)
    assert lab.shares("p0") == [Share(lab.full("A0"), "NVIDIA", 4096, 0)]
    assert "1/1 CardInsufficientMemory" in lab.refused("p4", gpu=1, percent=1)


@pytest.mark.parametrize("text, mib", [("3k", 3000), ("16Gi", 16384), ("1536Mi", 1536), ("1e3", 1000)])
def test_quantities(lab, card, text, mib):
    lab.run("p", gpu=1, mem=text)
    assert lab.shares("p")[0].memory == mib


def unseen(lab, name, **asks):
    """A pod that no webhook saw, for our scheduler."""
    thing = lab.manifest(name, **asks)
    thing["metadata"]["labels"] = {"hami.io/webhook": "ignore"}
    thing["spec"]["schedulerName"] = "hami-scheduler"
    lab.kubectl.apply(thing)


def test_bytes_mean_the_same_without_the_webhook(lab, card):
    unseen(lab, "p", gpu=1, mem="3Gi")
    lab.placed("p")
    assert lab.shares("p")[0].memory == 3072


@pytest.mark.parametrize("text", ["20G", "2147483648", "2Ki"])
def test_unreadable_amount_never_binds(lab, card, text):
    unseen(lab, "p", gpu=1, mem=text)
    lab.event("p", "FilteringFailed", "container main: nvidia.com/gpumem")
    assert "nodeName" not in lab.read("p")["spec"]


def test_count_of_zero_is_no_request(lab, card):
    lab.apply("p", gpu=0)
    pod = lab.read("p")
    assert pod["spec"]["schedulerName"] == "default-scheduler"
    assert "nvidia.com/gpucores" not in pod["spec"]["containers"][0]["resources"]["limits"]


def test_cores(lab, card):
    lab.run("p1", gpu=1, mem=1000, cores=60)
    assert "1/1 CardInsufficientCore" in lab.refused("p2", gpu=1, mem=1000, cores=41)
    lab.run("p3", gpu=1, mem=1000, cores=40)
    assert "1/1 CardComputeUnitsExhausted" in lab.refused("p4", gpu=1, mem=1000)


def test_whole_card(lab, card):
    lab.run("p1", gpu=1)
    assert lab.shares("p1") == [Share(lab.full("A0"), "NVIDIA", 16384, 100)]
    assert "1/1 " in lab.refused("p2", gpu=1, mem=1)


def test_whole_card_is_not_shared(lab, card):
    lab.run("p1", gpu=1, mem=1000)
    assert "1/1 ExclusiveDeviceAllocateConflict" in lab.refused("p2", gpu=1, mem=1000, cores=100)


def test_several_cards_are_different_cards(lab):
    lab.node("a", [lab.card(f"A{index}") for index in range(3)])
    assert sorted(lab.run("p1", gpu=2, mem=1000)[1]) == ["A1", "A2"]
    assert "NodeInsufficientDevice" in lab.refused("p2", gpu=4, mem=1000)


def test_each_container_has_its_row(lab, card):
    """A container without a GPU has an empty row, so that the rows of the others stay theirs."""
    idle = {"name": "idle", "image": "local.test/nothing:1"}
    containers = [idle, container("one", gpu=1, mem=1000, cores=10), container("two", gpu=1, mem=2000)]
    lab.run("p", containers=containers)
    uuid = lab.full("A0")
    expected = [[], [Share(uuid, "NVIDIA", 1000, 10)], [Share(uuid, "NVIDIA", 2000, 0)]]
    assert annotations.grants(lab.read("p")) == expected


def test_init_container_runs_before_the_others(lab, card):
    """Its memory is not needed at the same time as theirs."""
    init = [container("first", gpu=1, mem=16000)]
    lab.run("p1", containers=[container(gpu=1, mem=10000)], init=init)
    rows = annotations.grants(lab.read("p1"))
    assert [[share.memory for share in row] for row in rows] == [[16000], [10000]]
    assert "1/1 CardInsufficientMemory" in lab.refused("p2", gpu=1, mem=1000), "the first one may still need it all"


def test_sidecar_runs_beside_the_others(lab, card):
    sidecar = container("beside", gpu=1, mem=10000) | {"restartPolicy": "Always"}
    said = lab.refused("p1", containers=[container(gpu=1, mem=10000)], init=[sidecar])
    assert "1/1 CardInsufficientMemory" in said
    lab.run("p2", containers=[container(gpu=1, mem=6000)], init=[sidecar])
    assert "1/1 CardInsufficientMemory" in lab.refused("p3", gpu=1, mem=1000)


def test_deletion_frees(lab, card):
    lab.run("p1", gpu=1, mem=16000)
    lab.refused("p2", gpu=1, mem=16000)
    lab.remove("p1")
    assert lab.placed("p2") == ("a", ["A0"])


def test_the_end_of_a_pod_frees(lab, card):
    lab.run("p1", gpu=1, mem=16000)
    lab.refused("p2", gpu=1, mem=16000)
    lab.api.patch(f"/api/v1/namespaces/{lab.name}/pods/p1/status", {"status": {"phase": "Succeeded"}})
    assert lab.placed("p2") == ("a", ["A0"])
