# SPDX-License-Identifier: Apache-2.0
"""Nodes that are only objects, with the cards a device plugin would have registered."""
import datetime
import json

from rig.annotations import REGISTER
from rig.programs import wait_for

SCORE = "hami.io/node-nvidia-score"
GROUP = "e2e/group"  # label and selector: which test a node is for


def card(uuid, memory=16384, cores=100, count=10, kind="NVIDIA-Tesla T4", numa=0, mode="hami-core", health=True):
    """One element of the register annotation; zero values are left out, as HAMi's plugin leaves them out."""
    whole = {"id": uuid, "count": count, "devmem": memory, "devcore": cores, "type": kind, "numa": numa}
    whole |= {"mode": mode, "health": health}
    return {key: value for key, value in whole.items() if value}


def pair_scores(pairs):
    """{("A", "B"): 200, …} as the score annotation: each card with its score to every peer."""
    scores = {}
    for (one, other), score in pairs.items():
        scores.setdefault(one, {})[other] = score
        scores.setdefault(other, {})[one] = score
    return [{"uuid": uuid, "score": peers} for uuid, peers in scores.items()]


def register(cards):
    return json.dumps([dict(one, index=index) if index else one for index, one in enumerate(cards)])


def create(api, name, group, cards, scores=None, notes=None, capacity=None):
    annotations = {REGISTER: register(cards)} if cards else {}
    annotations |= notes or {}
    if scores:
        annotations[SCORE] = json.dumps(pair_scores(scores))
    labels = {GROUP: group, "kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
    meta = {"name": name, "labels": labels, "annotations": annotations}
    api.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": meta})
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    room = {"cpu": "64", "memory": "256Gi", "pods": "250", "ephemeral-storage": "100Gi"}
    room |= capacity or {}
    if cards:
        room["nvidia.com/gpu"] = str(sum(one["count"] for one in cards))
    ready = {"type": "Ready", "status": "True", "reason": "E2E", "message": "there is nothing behind this node"}
    ready |= {"lastHeartbeatTime": now, "lastTransitionTime": now}
    status = {"capacity": room, "allocatable": room, "conditions": [ready]}
    api.patch(f"/api/v1/nodes/{name}/status", {"status": status})
    # A new node is tainted until the controllers have seen that it is Ready.
    wait_for(f"node {name} to be open for pods", lambda: not api.get(f"/api/v1/nodes/{name}")["spec"].get("taints"))
