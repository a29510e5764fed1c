# SPDX-License-Identifier: Apache-2.0
"""Which node, which cards: every policy of the node level and of the card level, seen from outside."""
import pytest

NODE = "hami.io/node-scheduler-policy"
CARDS = "hami.io/gpu-scheduler-policy"
WEIGHTS = "hami.io/device-scoring-weights"
USE = "nvidia.com/use-gpuuuid"
NUMA = "nvidia.com/numa-bind"


def on(lab, uuid):
    """Annotations that put a pod on that card."""
    return {USE: lab.full(uuid)}


@pytest.fixture
def four(lab):
    """One node with four cards on two NUMA nodes."""
    lab.node("a", [lab.card(f"A{index}", numa=index // 2) for index in range(4)])


def test_node_binpack_is_the_default(lab):
    lab.nodes_of(3)
    assert lab.run("p1", gpu=1, mem=1000)[0] == "n00", "equal nodes: the smallest name"
    lab.run("p2", gpu=1, mem=2000, notes=on(lab, "n02-0"))
    assert lab.run("p3", gpu=1, mem=1000)[0] == "n02", "the fullest"


def test_node_spread(lab):
    lab.nodes_of(3)
    notes = {NODE: "spread"}
    nodes = [lab.run(f"p{index}", gpu=1, mem=1000 + index, notes=notes)[0] for index in range(4)]
    assert nodes == ["n00", "n01", "n02", "n00"]


def test_node_too_full_is_passed_over(lab):
    lab.nodes_of(2)
    lab.run("p1", gpu=1, mem=10000)
    assert lab.run("p2", gpu=1, mem=10000)[0] == "n01"


def test_card_spread_is_the_default(lab):
    lab.node("a", [lab.card("A0"), lab.card("A1")])
    assert lab.run("p1", gpu=1, mem=1000) == ("a", ["A1"]), "equal cards: the last registered"
    assert lab.run("p2", gpu=1, mem=1000) == ("a", ["A0"])


def test_card_binpack(lab):
    lab.node("a", [lab.card("A0"), lab.card("A1")])
    lab.run("p1", gpu=1, mem=1000, notes=on(lab, "A0"))
    assert lab.run("p2", gpu=1, mem=1000, notes={CARDS: "binpack"}) == ("a", ["A0"])
    assert lab.run("p3", gpu=1, mem=15000, notes={CARDS: "binpack"}) == ("a", ["A1"]), "no room on the fullest"


def test_card_mutex(lab):
    lab.node("a", [lab.card("A0"), lab.card("A1")])
    lab.run("p1", gpu=1, mem=1000, notes=on(lab, "A1"))
    assert lab.run("p2", gpu=1, mem=1000, notes={CARDS: "mutex"}) == ("a", ["A0"])
    assert "2/2 ExclusiveDeviceAllocateConflict" in lab.refused("p3", gpu=1, mem=1000, notes={CARDS: "mutex"})


def test_chain_of_numa_and_binpack(lab, four):
    lab.run("p1", gpu=1, mem=1000, notes=on(lab, "A2"))
    lab.run("p2", gpu=1, mem=5000, notes=on(lab, "A1"))
    assert lab.run("p3", gpu=1, mem=1000, notes={CARDS: "numa,binpack"}) == ("a", ["A2"])
    assert lab.run("p4", gpu=1, mem=1000, notes={CARDS: "numa,spread"}) == ("a", ["A3"])


def test_cards_of_one_numa_node(lab, four):
    lab.run("p1", gpu=1, mem=16000, notes=on(lab, "A3"))
    node, cards = lab.run("p2", gpu=2, mem=1000, notes={NUMA: "true"})
    assert (node, sorted(cards)) == ("a", ["A0", "A1"]), "NUMA node 1 has one card left"


def test_cards_of_one_numa_node_are_not_there(lab, four):
    for name, card in (("p1", "A1"), ("p2", "A3")):
        lab.run(name, gpu=1, mem=16000, notes=on(lab, card))
    assert "NumaNotFit" in lab.refused("p3", gpu=2, mem=1000, notes={NUMA: "true"})


def test_topology_aware(lab):
    """Cards 0 and 1 are linked best, 2 and 3 second best."""
    pairs = {(f"A{one}", f"A{other}"): 10 for one in range(4) for other in range(one)}
    pairs |= {("A1", "A0"): 200, ("A3", "A2"): 100}
    lab.node("a", [lab.card(f"A{index}") for index in range(4)], scores=pairs)
    notes = {CARDS: "topology-aware"}
    assert lab.run("p1", gpu=1, mem=1000, notes=notes) == ("a", ["A3"]), "the card whose loss costs least"
    node, cards = lab.run("p2", gpu=2, mem=1000, notes=notes)
    assert (node, sorted(cards)) == ("a", ["A0", "A1"])


def test_scoring_weights(lab):
    """A0 is full of memory, A1 of cores; which is fuller is a question of weights."""
    lab.node("a", [lab.card("A0"), lab.card("A1")])
    lab.run("p1", gpu=1, mem=8000, cores=5, notes=on(lab, "A0"))
    lab.run("p2", gpu=1, mem=1000, cores=60, notes=on(lab, "A1"))
    small = {"gpu": 1, "mem": 100, "cores": 1}
    by_memory = {CARDS: "binpack", WEIGHTS: "slot=0,core=0,memory=1"}
    by_cores = {CARDS: "binpack", WEIGHTS: "slot=0,core=1,memory=0"}
    assert lab.run("p3", **small, notes=by_memory) == ("a", ["A0"])
    assert lab.run("p4", **small, notes=by_cores) == ("a", ["A1"])


def test_scoring_weights_that_are_none(lab):
    lab.node("a", [lab.card("A0")])
    said = lab.refused("p", gpu=1, mem=100, notes={WEIGHTS: "slot=1,core=heavy,memory=1"})
    assert 'invalid hami.io/device-scoring-weights annotation "slot=1,core=heavy,memory=1"' in said
