# SPDX-License-Identifier: Apache-2.0
"""The fragmentation policy on a real kube-scheduler: of the same pods in the same order more fit than by default."""
from rig.programs import wait_for

# Thousandths of a card, or of several; they fill 24 cards exactly. `hami sim cluster` says 38 of 40 by default.
PODS = [
    2000, 250, 1000, 250, 250, 250, 1000, 250, 500, 250, 250, 500, 2000, 250, 250, 2000, 250, 250, 250, 500,
    250, 250, 250, 2000, 250, 250, 250, 250, 1000, 250, 250, 250, 1000, 250, 500, 500, 250, 1000, 500, 2000,
]  # fmt: skip
FRAGMENTATION = {
    "hami.io/node-scheduler-policy": "fragmentation",
    "hami.io/gpu-scheduler-policy": "fragmentation",
}


def settled(lab, name):
    """Whether the pod runs; None while it is not known."""
    pod = lab.read(name)
    if pod["status"]["phase"] == "Running":
        return "fits"
    conditions = pod["status"].get("conditions", [])
    refused = [one for one in conditions if one["type"] == "PodScheduled" and one["status"] == "False"]
    return "refused" if refused else None


def fitting(lab, prefix, notes):
    """How many fit, one after the other; all are gone afterwards."""
    names = []
    fits = 0
    for number, milli in enumerate(PODS):
        names.append(f"{prefix}{number:02}")
        whole = milli // 1000
        asks = {"gpu": whole, "cores": 100} if whole else {"gpu": 1, "percent": milli // 10, "cores": milli // 10}
        lab.apply(names[-1], notes=notes, **asks)
        fits += wait_for(f"{names[-1]} to be settled", lambda: settled(lab, names[-1]), 60) == "fits"
    lab.remove(*names)
    return fits


def test_more_fits_than_by_default(lab):
    lab.nodes_of(6, cards_each=4)
    default = fitting(lab, "d", {})
    fragmentation = fitting(lab, "f", FRAGMENTATION)
    assert fragmentation == len(PODS) > default
