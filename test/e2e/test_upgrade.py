# SPDX-License-Identifier: Apache-2.0
"""`hami upgrade` on a cluster as HAMi 2.10 leaves it: taken over while pods come and go, and handed back.

Deployments and DaemonSets are real objects with Kubernetes' own controllers; their pods are only objects. While HAMi's
Deployment has a pod, what its scheduler writes is written here; while ours has one, hami-scheduler runs.
"""
import json
import subprocess
import threading

import pytest

from rig.annotations import ALLOCATED, NODE, shares
from rig.extender import webhook
from rig.fake_nodes import GROUP
from rig.metrics import parse, scrape, select
from rig.programs import Failed, wait_for
from test_changeover import HAMi

LEASE = ["--leader-elect", "--leader-elect-resource-name=hami-scheduler", "--leader-elect-resource-namespace=kube-system"]
IGNORED = {"hami.io/webhook": "ignore"}


class Releases:
    """HAMi's release and ours as helm leaves them, in the lab's namespace; a thread is the kubelet of their pods."""

    def __init__(self, lab, alive, build):
        self.lab, self.alive, self.build = lab, alive, build
        self.old, self.new = f"{lab.name}-hami-old", f"{lab.name}-hami-new"
        self.over = threading.Event()
        self.failed = []
        alive.program.stop()
        for release, replicas, selector in ((self.old, 1, {"gpu": "on"}), (self.new, 0, {"hami-upgrade": "ours"})):
            self.install(release, replicas, selector)
        self.thread = threading.Thread(target=self.live, daemon=True)
        self.thread.start()

    def install(self, release, replicas, selector):
        def workload(kind, name, node_selector, more):
            labels = {"app": name} | IGNORED
            spec = {
                "containers": [{"name": "x", "image": "local.test/nothing:1", "args": LEASE}],
                "nodeSelector": node_selector | {GROUP: self.lab.name},
                "terminationGracePeriodSeconds": 0,
            }
            template = {"metadata": {"labels": labels}, "spec": spec}
            spec = {"selector": {"matchLabels": {"app": name}}, "template": template} | more
            return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": self.lab.name}, "spec": spec}

        self.lab.kubectl.apply(
            workload("Deployment", f"{release}-scheduler", {}, {"replicas": replicas}),
            workload("DaemonSet", f"{release}-device-plugin", selector, {}),
            webhook(f"{release}-webhook", {"url": "https://127.0.0.1:1/webhook"}, {"matchLabels": {"team": self.lab.name}}),
        )

    def pods(self, name):
        found = self.lab.api.pods(self.lab.name, labelSelector=f"app={name}")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def live(self):
        """A container that runs is ready at once; ours is the program."""
        while not self.over.wait(0.2):
            try:
                for pod in self.lab.api.pods(self.lab.name):
                    if "app" in pod["metadata"].get("labels", {}) and pod["status"].get("phase") == "Running":
                        self.make_ready(pod)
                wanted = bool(self.pods(f"{self.new}-scheduler"))
                if wanted != self.alive.program.alive():
                    self.alive.start_again() if wanted else self.alive.program.stop()
            except (OSError, Failed) as error:
                if getattr(error, "status", None) not in (404, 409):
                    self.failed.append(error)

    def make_ready(self, pod):
        if any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", [])):
            return
        ready = [{"type": kind, "status": "True"} for kind in ("Ready", "ContainersReady")]
        path = f"/api/v1/namespaces/{self.lab.name}/pods/{pod['metadata']['name']}/status"
        kept = [one for one in pod["status"].get("conditions", []) if one["type"] not in ("Ready", "ContainersReady")]
        self.lab.api.patch(path, {"status": {"conditions": kept + ready}})

    def upgrade(self, *words, status=0):
        done = subprocess.run(
            [self.build / "bin/hami", "upgrade", *words, "--wait", "40", f"--hami={self.lab.name}/{self.old}",
             f"--ours={self.lab.name}/{self.new}", "--kubeconfig", self.lab.plane.kubeconfig("admin")],
            capture_output=True, text=True, timeout=200)  # fmt: skip
        assert done.returncode == status, done.stdout + done.stderr + self.state()
        return done.stdout + done.stderr

    def state(self):
        pods = [(pod["metadata"]["name"], pod["spec"].get("nodeName"), pod["status"].get("phase"), pod["status"].get("conditions"),
                 pod["metadata"].get("deletionTimestamp")) for pod in self.lab.api.pods(self.lab.name)]  # fmt: skip
        return "\n".join(map(str, pods + self.failed)) + f"\nits kubelet lives: {self.thread.is_alive()}"

    def survey(self):
        found = json.loads(self.upgrade("--output", "json"))
        return {self.lab.short(node["name"]): node["plugin"] for node in found["nodes"] if self.lab.name in node["name"]}

    def hook(self, release):
        path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
        return self.lab.api.get(f"{path}/{release}-webhook")["webhooks"]

    def close(self):
        self.over.set()
        self.thread.join(20)
        for release in (self.old, self.new):
            for kind in ("deployment", "daemonset"):
                what = "scheduler" if kind == "deployment" else "device-plugin"
                self.lab.kubectl("delete", kind, "-n", self.lab.name, f"{release}-{what}", "--wait=false")
            self.lab.kubectl("delete", "mutatingwebhookconfiguration", f"{release}-webhook")


class Traffic:
    """GPU pods that come and go all the while; a pod that no scheduler of the moment takes waits."""

    def __init__(self, lab):
        self.lab, self.over, self.count = lab, threading.Event(), 0
        self.thread = threading.Thread(target=self.live, daemon=True)
        self.thread.start()

    def live(self):
        while not self.over.wait(0.4):
            name = f"guest{self.count}"
            thing = self.lab.manifest(name, gpu=1, mem=2000, spec={"schedulerName": "hami-scheduler"})
            thing["metadata"]["labels"] = dict(IGNORED)  # it names its scheduler itself, as the webhook would
            # To both nodes: one of them is locked for a while.
            thing["metadata"].setdefault("annotations", {})["hami.io/node-scheduler-policy"] = "spread"
            self.lab.kubectl.apply(thing)
            self.count += 1
            if self.count > 6:
                self.lab.kubectl("delete", "pod", "-n", self.lab.name, f"guest{self.count - 7}", "--wait=false", "--ignore-not-found")

    def close(self):
        self.over.set()
        self.thread.join(30)


@pytest.fixture
def releases(lab, alive, build):
    for name in ("a", "b"):
        lab.node(name, [lab.card(f"{name.upper()}{index}") for index in range(2)])
        lab.api.patch(f"/api/v1/nodes/{lab.full(name)}", {"metadata": {"labels": {"gpu": "on"}}})
    one = Releases(lab, alive, build)
    yield one
    one.close()


def allocated(lab):
    """MiB of each card that pods hold, as their annotations say."""
    sums = {}
    for pod in lab.pods():
        if pod["spec"].get("nodeName") and pod["status"]["phase"] in ("Pending", "Running"):
            for share in shares(pod):
                sums[share.uuid] = sums.get(share.uuid, 0) + share.memory
    return sums


def versions(lab):
    """Of everything that an upgrade could write."""
    paths = [f"/api/v1/nodes/{name}" for name in lab.nodes]
    objects = [lab.api.get(path) for path in paths]
    for kind in ("deployments", "daemonsets"):
        objects += lab.api.get(f"/apis/apps/v1/namespaces/{lab.name}/{kind}")["items"]
    return [(one["metadata"]["uid"], json.dumps(one["spec"], sort_keys=True), one["metadata"].get("labels")) for one in objects]


def test_taken_over_and_handed_back(lab, releases, actor, alive):
    hami = HAMi(lab)
    for node in ("a", "b"):
        hami.handshake(node)
    hami.running("old0", "a", "A0", 10000, cores=60)
    hami.running("old1", "b", "B0", 12000)
    actor.paused.add(lab.full("b"))
    hami.allocating("mid", "b", "B1", 9000)
    wait_for("HAMi's plugin on both nodes", lambda: releases.survey() == {"a": "HAMi", "b": "HAMi"}, 60)
    before = {name: lab.read(name) for name in ("old0", "old1", "mid")}
    hooks = {release: releases.hook(release) for release in (releases.old, releases.new)}

    was = versions(lab)
    for words in (["scheduler"], ["node", lab.full("a")]):
        assert "nothing was written" in releases.upgrade(*words)
    assert versions(lab) == was

    traffic = Traffic(lab)
    try:
        said = releases.upgrade("scheduler", "--apply")
        assert said.index("is ready") < said.index("from 1 to 0"), said
        assert releases.hook(releases.old)[0]["failurePolicy"] == "Ignore"
        wait_for("a pod of ours", lambda: any(shares(pod) for pod in lab.pods() if pod["metadata"]["name"].startswith("guest")))
        releases.upgrade("node", lab.full("a"), "--apply")
        assert releases.survey() == {"a": "ours", "b": "HAMi"}, "both kinds of plugin in one cluster"
        late = threading.Timer(3, lambda: actor.resume(lab.full("b")))
        late.start()
        assert "wait until no pod" in releases.upgrade("node", lab.full("b"), "--apply")
        assert releases.survey() == {"a": "ours", "b": "ours"}
        assert lab.placed("mid") == ("b", ["B1"])
    finally:
        traffic.close()
    lab.remove(*[pod["metadata"]["name"] for pod in lab.pods() if pod["metadata"]["name"].startswith("guest")])

    def books_are_equal():
        page = parse(scrape(f"http://127.0.0.1:{lab.plane.metrics_port}/metrics"))
        told = select(page, "hami_gpu_memory_allocated_bytes", "node", "device_uuid")
        sums = {uuid: int(value) // 2**20 for (node, uuid), value in told.items() if lab.name in node and value}
        return sums == allocated(lab)

    wait_for("the books to say what the pods' annotations say", books_are_equal)
    lab.run("ours", gpu=1, mem=4000)

    releases.upgrade("node", lab.full("a"), lab.full("b"), "--back", "--apply")
    releases.upgrade("scheduler", "--back", "--apply")
    assert releases.survey() == {"a": "HAMi", "b": "HAMi"}
    assert releases.hook(releases.old) == hooks[releases.old]
    wait_for("our scheduler to be gone", lambda: not alive.program.alive())
    for name, pod in before.items():
        now = lab.read(name)
        assert now["metadata"]["uid"] == pod["metadata"]["uid"] and now["spec"]["nodeName"] == pod["spec"]["nodeName"]
        for key in (NODE, ALLOCATED):
            assert now["metadata"]["annotations"][key] == pod["metadata"]["annotations"][key]
    for name in lab.nodes:
        node = lab.api.get(f"/api/v1/nodes/{name}")
        assert "unschedulable" not in node["spec"] and node["metadata"]["labels"]["gpu"] == "on"
        assert "hami-upgrade" not in node["metadata"]["labels"]
    assert releases.failed == []
