# SPDX-License-Identifier: Apache-2.0
"""Pods that hami-scheduler never placed get nothing on the real node, and what was granted is what a pod keeps."""
from rig.annotations import ALLOCATED, NODE as WHERE, of
from rig.node import NAME
from rig.programs import wait_for


def unplaced(bench, name, **asks):
    """A pod as it is while the webhook is away, put on the node by its maker."""
    thing = bench.on_node(name, bench.guest("c", "sleep", "600", **asks))
    thing["metadata"].setdefault("labels", {})["hami.io/webhook"] = "ignore"
    thing["spec"]["schedulerName"] = "default-scheduler"
    thing["spec"]["nodeName"] = NAME
    return thing


def test_pod_that_nobody_placed_is_refused(bench):
    bench.pod("rightful", bench.guest("c", "sleep", "600", gpu=1, mem=3000))
    bench.phase("rightful", "Running")
    bench.kubectl.apply(unplaced(bench, "stranger", gpu=1))
    wait_for("the stranger to fail", lambda: bench.read("stranger")["status"]["phase"] == "Failed", 30)
    bench.event("stranger", "NotPlaced", "hami-scheduler never placed pod")
    assert bench.read("rightful")["status"]["phase"] == "Running"


def test_running_pod_that_forgets_its_grant_is_told_again(bench):
    bench.pod("p", bench.guest("c", "sleep", "600", gpu=1, mem=3000))
    bench.phase("p", "Running")
    granted = of(bench.read("p"))[ALLOCATED]
    for key in (ALLOCATED, WHERE):
        bench.kubectl("annotate", "pod", "-n", bench.name, "p", f"{key}-")
        wait_for(f"{key} to be there again", lambda key=key: of(bench.read("p")).get(key), 40)
    notes = of(bench.read("p"))
    assert (notes[ALLOCATED], notes[WHERE]) == (granted, NAME)
