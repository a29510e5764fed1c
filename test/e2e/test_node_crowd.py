# SPDX-License-Identifier: Apache-2.0
"""Pods that all come at once to one node: whose allocation is it? The kubelet does not say."""
import re

from rig import annotations, metrics
from rig.annotations import Use, of
from rig.lab import everybody_runs
from rig.node import NAME
from rig.programs import wait_for

TOLD = re.compile(r"^\[pod/(\S+)/c\] (limit|card) (\S+)$", re.MULTILINE)


def test_many_kinds_of_pods_at_once(bench):
    """Equal pods and different ones."""
    sizes = {f"p{index}": 500 + 250 * (index // 4) for index in range(8)}
    tell = ("sh", "-c", "echo limit ${CUDA_DEVICE_MEMORY_LIMIT_0%m}")
    for name, size in sizes.items():
        bench.pod(name, bench.guest("c", *tell, gpu=1, mem=size, cores=5))
    for name, size in sizes.items():
        bench.phase(name, "Succeeded", timeout=120)
        assert bench.reports(name, "c") == {"limit": size}


def test_equal_shares_of_different_priority_at_once(bench, agents):
    """The region says the container's priority, and is made before the kubelet says which pod it is for."""
    levels = {f"p{index}": index % 2 for index in range(8)}
    bench.kubectl.apply(*(
        bench.on_node(name, bench.guest("c", "sleep", "600", gpu=1, mem=1500, cores=5, priority=level))
        for name, level in levels.items()
    ))  # fmt: skip
    wait_for("8 pods to run", lambda: everybody_runs(bench, 8), 120)

    def told():
        samples = metrics.parse(agents.scrape())
        return metrics.select(samples, "hami_container_priority", "pod", namespace=bench.name)

    wait_for("everybody's priority", lambda: told() == {(name,): level for name, level in levels.items()}, 30)


def test_64_equal_pods_at_once(bench, node):
    """Each gets a share of its own, and the card that its annotations say: nobody is lost, nothing is given twice."""
    assert of(node.read())["hami-cpp/concurrent-allocate"] == "1", "they do not wait for each other"
    tell = ("sh", "-c", "echo limit $CUDA_DEVICE_MEMORY_LIMIT_0; echo card $NVIDIA_VISIBLE_DEVICES; exec sleep 600")
    things = [bench.on_node(f"p{index:02}", bench.guest("c", *tell, gpu=1, mem=1500, cores=10)) for index in range(64)]
    for thing in things:
        thing["metadata"]["labels"] = {"app": "crowd"}
    bench.kubectl.apply(*things)
    pods = wait_for("64 pods to run", lambda: everybody_runs(bench, 64), 300, every=1)
    cards = {pod["metadata"]["name"]: annotations.cards_of(pod) for pod in pods}
    assert told(bench) == {name: {"limit": "1500m", "card": uuid} for name, (uuid,) in cards.items()}
    uses = annotations.books(pods)
    assert {where for where, _ in uses} == {NAME}
    assert set(uses.values()) == {Use(8, 12000, 80)}, "spread over eight cards"
    assert len(uses) == 8


def told(bench):
    """{pod: what its container said}"""
    said = bench.kubectl("logs", "-n", bench.name, "-l", "app=crowd", "--prefix", "--max-log-requests=64", "--tail=-1")
    words = {}
    for pod, key, value in TOLD.findall(said):
        words.setdefault(pod, {})[key] = value
    return words
