# SPDX-License-Identifier: Apache-2.0
"""One test's part of the cluster: a namespace, nodes that only its pods may use, and pods made by kubectl.

Names in tests are short ("a", "A0"); in the cluster they carry the namespace, so that what one test leaves in anybody's
memory is never mistaken for another's.
"""
from rig import annotations, fake_nodes
from rig.annotations import of
from rig.programs import Failed, wait_for

# What a pod asks for, by the word the tests use.
RESOURCES = {
    "gpu": "nvidia.com/gpu",
    "mem": "nvidia.com/gpumem",
    "percent": "nvidia.com/gpumem-percentage",
    "cores": "nvidia.com/gpucores",
    "priority": "nvidia.com/priority",
}


def container(name="main", **asks):
    limits = {RESOURCES[word]: str(amount) for word, amount in asks.items()}
    return {"name": name, "image": "local.test/nothing:1", "resources": {"limits": limits}}


def everybody_runs(lab, count):
    """The lab's pods, as soon as so many of them run."""
    pods = lab.pods()
    running = [pod for pod in pods if pod["status"]["phase"] == "Running"]
    return pods if len(running) == count else None


class Lab:
    def __init__(self, plane, actor, name):
        self.plane, self.actor, self.name = plane, actor, name
        self.api, self.kubectl = plane.admin, plane.kubectl
        self.nodes = []
        self.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
        wait_for(f"the service account of {name}", lambda: plane.has_account(name), 60)

    # ---- nodes

    def card(self, uuid, **features):
        return fake_nodes.card(self.full(uuid), **features)

    def full(self, short):
        return f"{self.name}-{short}"

    def short(self, full):
        return full.removeprefix(self.name + "-")

    def node(self, name, cards, scores=None):
        pairs = {tuple(map(self.full, pair)): score for pair, score in (scores or {}).items()}
        fake_nodes.create(self.api, self.full(name), self.name, cards, pairs)
        self.nodes.append(self.full(name))

    def other_node(self, name, notes=None, capacity=None):
        """A node with another vendor's cards, as its plugin tells them."""
        fake_nodes.create(self.api, self.full(name), self.name, [], notes=notes, capacity=capacity)
        self.nodes.append(self.full(name))

    def nodes_of(self, count, cards_each=1, **features):
        """Nodes `n00`, `n01`, … with the cards `n00-0`, … each."""
        for number in range(count):
            name = f"n{number:02}"
            self.node(name, [self.card(f"{name}-{index}", **features) for index in range(cards_each)])

    def read_node(self, name):
        return self.api.get(f"/api/v1/nodes/{self.full(name)}")

    def annotate_node(self, name, notes):
        self.api.patch(f"/api/v1/nodes/{self.full(name)}", {"metadata": {"annotations": notes}})

    def annotate_pod(self, name, notes):
        self.api.patch(f"/api/v1/namespaces/{self.name}/pods/{name}", {"metadata": {"annotations": notes}})

    # ---- pods

    def manifest(self, name, containers=None, notes=None, init=(), spec=None, **asks):
        """A pod that only this lab's nodes may run: `containers`, or one that asks for `asks`."""
        body = {
            "containers": containers or [container(**asks)],
            "nodeSelector": {fake_nodes.GROUP: self.name},
            "terminationGracePeriodSeconds": 0,
        }
        if init:
            body["initContainers"] = list(init)
        meta = {"name": name, "namespace": self.name, "annotations": notes or {}}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": body | (spec or {})}

    def apply(self, name, **asks):
        self.kubectl.apply(self.manifest(name, **asks))

    def read(self, name):
        return self.api.get(f"/api/v1/namespaces/{self.name}/pods/{name}")

    def run(self, name, **asks):
        """Applies a pod and waits until its node's plugin served it. (node, cards) in short names."""
        self.apply(name, **asks)
        return self.placed(name)

    def placed(self, name, timeout=60):
        def served():
            pod = self.read(name)
            return pod if pod["spec"].get("nodeName") and pod["status"]["phase"] == "Running" else None

        try:
            pod = wait_for(f"pod {name} to run", served, timeout)
        except Failed as error:
            words = "\n".join(f"  {reason}: {text}" for reason, text in self.events(name))
            raise Failed(f"{error}\nevents of {name}:\n{words}\nannotations: {of(self.read(name))}") from None
        return self.place_of(pod)

    def place_of(self, pod):
        if annotations.grants(pod) is not None and of(pod)[annotations.NODE] != pod["spec"]["nodeName"]:
            raise Failed(f"granted on {of(pod)[annotations.NODE]}, bound to {pod['spec']['nodeName']}")
        return self.short(pod["spec"]["nodeName"]), [self.short(uuid) for uuid in annotations.cards_of(pod)]

    def shares(self, name):
        return annotations.shares(self.read(name))

    def refused(self, name, **asks):
        """Applies a pod that nothing can take; what the scheduler says in its condition."""
        self.apply(name, **asks)
        return self.unschedulable(name)

    def unschedulable(self, name, text="", timeout=30):
        """Waits until the pod's condition says why it is not scheduled, in words that contain the text."""

        def condition():
            for one in self.read(name)["status"].get("conditions", []):
                if one["type"] == "PodScheduled" and one["status"] == "False" and text in one["message"]:
                    return one["message"]
            return None

        return wait_for(f"pod {name} to be unschedulable{text and ': '}{text}", condition, timeout)

    def events(self, name):
        """(reason, message) of the pod's events."""
        listed = self.api.get(f"/api/v1/namespaces/{self.name}/events")["items"]
        return [(one["reason"], one.get("message", "")) for one in listed if one["involvedObject"]["name"] == name]

    def event(self, name, reason, text, timeout=20):
        """Waits for an event of the pod with that reason that contains the text."""

        def seen():
            return [message for why, message in self.events(name) if why == reason and text in message]

        try:
            return wait_for(f"an event {reason} with {text!r}", seen, timeout)[0]
        except Failed as error:
            raise Failed(f"{error}; events of {name}: {self.events(name)}") from None

    def remove(self, *names):
        self.kubectl("delete", "pod", "-n", self.name, "--wait=true", *names)

    def pods(self):
        return self.api.pods(self.name)

    # ---- the end

    def verdict(self):
        """What must hold for every test: nobody was given what is not there, and the protocol was kept."""
        wait_for("every lock to be given back", lambda: not self.locks(), 15)
        assert annotations.overcommitted(map(self.api.get, self.paths()), self.pods()) == []
        assert not self.actor.complaints

    def paths(self):
        """Of the nodes that this lab's pods may run on."""
        return [f"/api/v1/nodes/{name}" for name in self.nodes]

    def locks(self):
        notes = {path: of(self.api.get(path)) for path in self.paths()}
        return {path: note[annotations.LOCK] for path, note in notes.items() if annotations.LOCK in note}

    def close(self):
        self.actor.forget()
        self.api.delete(f"/api/v1/namespaces/{self.name}/pods", grace=0)
        wait_for("the pods to go", lambda: not self.pods(), 60)
        self.api.delete(f"/api/v1/namespaces/{self.name}")
        for name in self.nodes:
            self.api.delete(f"/api/v1/nodes/{name}")
