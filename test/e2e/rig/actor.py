# SPDX-License-Identifier: Apache-2.0
"""Stands in for kubelet and device plugin on nodes that are only objects, and keeps HAMi's side of the protocol.

For a pod in phase `allocating` it checks that the pod holds the node's lock, where one is needed, erases the rows of its to-allocate
annotation, writes the phase, gives the lock back and lets the pod run; pods that are deleted disappear. What the
scheduler did against the protocol is in `complaints`.
"""
import http.client
import threading

from rig.annotations import ALLOCATED, CONCURRENT, LOCK, NODE, PHASE, TO_ALLOCATE, of
from rig.fake_nodes import GROUP
from rig.programs import Failed


class Actor:
    def __init__(self, api):
        self.api = api
        self.complaints = []
        self.paused = set()  # nodes whose plugin does not answer
        self.refusing = set()  # nodes whose plugin answers `failed`
        self.over = threading.Event()
        self.lock = threading.Lock()
        self.ours = {}  # node name: is it one of ours?
        self.thread = threading.Thread(target=self.live, name="actor", daemon=True)
        self.thread.start()

    def stop(self):
        self.over.set()
        self.thread.join(10)

    def forget(self):
        """Between tests: what one of them wanted of the actor is not the next one's business."""
        with self.lock:
            self.complaints.clear()
            self.paused.clear()
            self.refusing.clear()

    def resume(self, node):
        """The plugin of that node answers again, beginning with what waited meanwhile."""
        with self.lock:
            self.paused.discard(node)
        for pod in self.api.pods(fieldSelector=f"spec.nodeName={node}"):
            self.look_at(pod)

    # ---- the thread

    def live(self):
        while not self.over.is_set():
            try:
                self.follow()
            except (OSError, http.client.HTTPException, ValueError, Failed):
                self.over.wait(0.1)  # the API server is away, or the watch is too old: list again

    def follow(self):
        listed = self.api.get("/api/v1/pods")
        for pod in listed["items"]:
            self.look_at(pod)
        for event in self.api.watch("/api/v1/pods", listed["metadata"]["resourceVersion"], seconds=5):
            if self.over.is_set():
                return
            if event["type"] == "ERROR":
                return
            if event["type"] in ("ADDED", "MODIFIED"):
                self.look_at(event["object"])

    def is_ours(self, node):
        if node not in self.ours:
            found = self.api.find(f"/api/v1/nodes/{node}")
            if found is None:
                return True  # deleted under its pods: nobody else will take them away
            self.ours[node] = GROUP in found["metadata"].get("labels", {})
        return self.ours[node]

    def look_at(self, pod):
        node = pod["spec"].get("nodeName")
        if not node or not self.is_ours(node):
            return
        with self.lock:
            try:
                if "deletionTimestamp" in pod["metadata"]:
                    self.api.delete(path(pod), grace=0)
                elif of(pod).get(PHASE) == "allocating" and node not in self.paused:
                    self.allocate(pod, node)
                elif of(pod).get(PHASE) is None and pod["status"].get("phase") == "Pending":
                    self.run(pod)
            except Failed as error:
                if getattr(error, "status", None) not in (404, 409):
                    raise  # gone, or changed meanwhile: another event comes

    # ---- the protocol

    def allocate(self, pod, node):
        fresh = self.api.find(path(pod))
        if fresh is None or of(fresh).get(PHASE) != "allocating":
            return
        name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        told = of(self.api.get(f"/api/v1/nodes/{node}"))
        lock = told.get(LOCK)
        owner = "/".join((lock or "").split(",")[1:])
        if owner != name and told.get(CONCURRENT) != "1":
            self.complaints.append(f"{name} is bound to {node} and the lock there is {lock!r}")
        notes = of(fresh)
        if notes.get(NODE) != node or notes.get(ALLOCATED) is None:
            self.complaints.append(f"{name} is bound to {node} with the annotations {notes}")
        owed, granted = notes.get(TO_ALLOCATE), notes.get(ALLOCATED)
        if owed != granted:
            self.complaints.append(f"{name}: {owed!r} to allocate, {granted!r} allocated")
        refused = node in self.refusing
        rest = {TO_ALLOCATE: ";" * (notes.get(ALLOCATED) or "").count(";")}
        change = {PHASE: "failed"} if refused else rest | {PHASE: "success"}
        self.api.patch(path(pod), {"metadata": {"annotations": change}})
        self.release(node, name)
        if refused:
            self.api.patch(path(pod) + "/status", {"status": {"phase": "Failed", "reason": "UnexpectedAdmissionError"}})
        else:
            self.run(pod)

    def release(self, node, name):
        """Only the owner's lock, and only while nobody changed the node in between."""
        for _ in range(5):
            found = self.api.get(f"/api/v1/nodes/{node}")
            if not of(found).get(LOCK, "").endswith("," + name.replace("/", ",")):
                return
            meta = {"resourceVersion": found["metadata"]["resourceVersion"], "annotations": {LOCK: None}}
            try:
                self.api.patch(f"/api/v1/nodes/{node}", {"metadata": meta})
                return
            except Failed as error:
                if getattr(error, "status", None) != 409:
                    raise
        self.complaints.append(f"the lock of {node} could not be given back for {name}")

    def run(self, pod):
        self.api.patch(path(pod) + "/status", {"status": {"phase": "Running"}})


def path(pod):
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
