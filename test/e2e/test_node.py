# SPDX-License-Identifier: Apache-2.0
"""A real kubelet and containerd: pods get their share of simulated GPUs in real containers, and keep to it."""
import itertools
import os
import pathlib
import re
import signal
import time

import pytest

from conftest import part
from rig import annotations, metrics
from rig.agents import INSIDE, MONITOR, PLUGIN, Agents, guest_layer
from rig.annotations import PHASE, of
from rig.lab import RESOURCES, Lab
from rig.node import GUEST, NAME, Node
from rig.programs import Failed, wait_for

MIB = 1 << 20
PIDS = itertools.count(100_000, 1000)
REPORTS = re.compile(r"^(\w+) (\d+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def node(request, plane, build):
    """The node with nothing of ours on it."""
    options = request.config.option
    if options.no_node:
        pytest.skip("--no-node")
    if options.no_kubelet_because:
        pytest.skip(f"a kubelet needs root and namespaces of its own: {options.no_kubelet_because}")
    one = Node(plane)
    try:
        one.start(guest_layer(build))
        yield one
    finally:
        one.stop()


@pytest.fixture(scope="module")
def agents(node, plane, extender, build):
    for name in (PLUGIN, MONITOR):
        if not os.access(build / "bin" / name, os.X_OK):
            pytest.fail(f"{build}/bin/{name} is not there; tools/e2e builds it")
    one = Agents(plane, build)
    one.start()
    wait_for("the node's GPUs", lambda: gpus(node) == 20, 30)
    return one


def gpus(node):
    return int(node.read()["status"].get("allocatable", {}).get("nvidia.com/gpu", 0))


class Bench(Lab):
    """A lab whose pods run on the real node."""

    def __init__(self, plane, actor, node, agents, name):
        super().__init__(plane, actor, name)
        self.node, self.agents = node, agents

    def guest(self, name, *command, **asks):
        """A container that runs `command`; the driver knows its processes by the node's pids, not by its own."""
        variables = {"SIMGPU_STATE": f"{INSIDE}/state", "SIMGPU_QUIET": "1", "SIMGPU_PID_OFFSET": str(next(PIDS))}
        return {
            "name": name, "image": GUEST, "imagePullPolicy": "Never", "command": ["visible", *command],
            "env": [{"name": key, "value": value} for key, value in variables.items()],
            "volumeMounts": [{"name": "simgpu", "mountPath": INSIDE}],
            "resources": {"limits": {RESOURCES[word]: str(amount) for word, amount in asks.items()}},
        }  # fmt: skip

    def pod(self, name, *containers, policy="Never"):
        machine = {"name": "simgpu", "hostPath": {"path": str(self.agents.machine), "type": "Directory"}}
        body = {"nodeSelector": {"kubernetes.io/hostname": NAME}, "volumes": [machine], "restartPolicy": policy}
        self.apply(name, containers=list(containers), spec=body)

    def logs(self, name, container):
        return self.kubectl("logs", "-n", self.name, name, "-c", container)

    def reports(self, name, container):
        """What the guest said: {key: value}."""
        return {key: int(value) for key, value in REPORTS.findall(self.logs(name, container))}

    def phase(self, name, wanted, timeout=60):
        def reached():
            status = self.read(name)["status"]
            if status["phase"] in ("Failed", "Succeeded") and status["phase"] != wanted:
                raise AssertionError(status)
            return status if status["phase"] == wanted else None

        try:
            return wait_for(f"{name} to be {wanted}", reached, timeout)
        except Failed as error:
            raise Failed(f"{error}\nevents: {self.events(name)}") from None

    def kill(self, name, program):
        """kill -9 to the container's process, as the kernel's OOM killer would."""
        uid = self.read(name)["metadata"]["uid"]
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            if uid in (process / "cgroup").read_text() and (process / "comm").read_text().strip() == program:
                os.kill(int(process.name), signal.SIGKILL)

    def restarts(self, name):
        return self.read(name)["status"]["containerStatuses"][0]["restartCount"]

    def paths(self):
        return [f"/api/v1/nodes/{NAME}"]


@pytest.fixture
def bench(request, plane, actor, node, agents):
    one = Bench(plane, actor, node, agents, request.node.name.removeprefix("test_").replace("_", "-")[:40])
    yield one
    part(request, one)


def test_kubelet_runs_our_image(node, plane):
    """The rig itself: without this, no other test here says anything."""
    thing = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "hello", "namespace": "default"},
        "spec": {"nodeName": NAME, "restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [{
            "name": "c", "image": GUEST, "imagePullPolicy": "Never",
            "command": ["sh", "-c", "echo hello from $HOSTNAME"]}]},
    }  # fmt: skip
    plane.kubectl.apply(thing)
    wait_for("the pod to end", lambda: plane.kubectl.json("get", "pod", "hello")["status"]["phase"] == "Succeeded", 30)
    assert plane.kubectl("logs", "hello") == "hello from hello\n"
    plane.kubectl("delete", "pod", "hello")


def test_node_registers_its_cards(node, agents):
    cards = annotations.cards(node.read())
    assert len(cards) == 2
    for card in cards.values():
        assert card["type"].startswith("NVIDIA") and "T4" in card["type"]
        assert (card["count"], card["devcore"], card["mode"], card["health"]) == (10, 100, "hami-core", True)
        assert 14000 < card["devmem"] <= 16384


def test_two_containers_each_within_its_limit(bench, agents):
    """One keeps to what it was given, the other takes all it can get, by every way of allocating."""
    bench.pod(
        "p",
        bench.guest("modest", "guest_steady", "4", "1000", "500", gpu=1, mem=2000, cores=30),
        bench.guest("greedy", "guest_greedy", "4", gpu=1, mem=3000, cores=30),
    )
    bench.phase("p", "Succeeded")
    modest, greedy = bench.reports("p", "modest"), bench.reports("p", "greedy")
    assert (modest["cuda_total"], modest["nvml_total"]) == (2000 * MIB, 2000 * MIB)
    assert (greedy["cuda_total"], greedy["nvml_total"]) == (3000 * MIB, 3000 * MIB)
    assert greedy["refused"] > 0
    assert 2000 * MIB < greedy["most_bytes"] <= 3000 * MIB
    assert of(bench.read("p"))[PHASE] == "success"


def test_container_sees_the_card_of_its_grant(bench):
    bench.pod("p", bench.guest("c", "sh", "-c", "env; cat /etc/ld.so.preload", gpu=1, mem=2000, cores=30))
    bench.phase("p", "Succeeded")
    said = bench.logs("p", "c")
    variables = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
    assert variables["NVIDIA_VISIBLE_DEVICES"] == annotations.cards_of(bench.read("p"))[0]
    assert variables["CUDA_DEVICE_MEMORY_LIMIT_0"] == "2000m"
    assert variables["CUDA_DEVICE_SM_LIMIT"] == "30"
    assert said.splitlines()[-1].endswith("/vgpu/libvgpu.so")


def test_metrics_of_running_containers(bench, agents):
    """The monitor tells of each container what its own region says."""
    bench.pod("p", bench.guest("c", "guest_steady", "600", "1000", "100", gpu=1, mem=2000))
    bench.phase("p", "Running")

    def told():
        samples = metrics.parse(agents.scrape())
        mine = {"namespace": bench.name, "pod": "p", "container": "c"}
        limit = metrics.select(samples, "hami_vgpu_memory_limit_bytes", "device_uuid", **mine)
        used = metrics.select(samples, "hami_vgpu_memory_used_bytes", "device_uuid", **mine)
        card = tuple(annotations.cards_of(bench.read("p")))
        return limit == {card: 2000 * MIB} and 1000 * MIB <= used.get(card, 0) <= 2000 * MIB

    wait_for("the container's metrics", told, 30)
    bench.remove("p")

    def gone():
        samples = metrics.parse(agents.scrape())
        return not metrics.select(samples, "hami_vgpu_memory_used_bytes", "pod", namespace=bench.name)

    wait_for("its metrics to go", gone, 30)


def test_deletion_gives_the_memory_back(bench, agents):
    bench.pod("p1", bench.guest("c", "guest_steady", "600", "9000", "100", gpu=1, mem=12000))
    bench.phase("p1", "Running")
    wait_for("p1's memory", lambda: max(agents.used_bytes().values()) >= 9000 * MIB, 30)
    bench.remove("p1")
    wait_for("the memory to come back", lambda: not any(agents.used_bytes().values()), 30)


def test_allocation_without_a_grant_is_refused(bench):
    """A pod that came past the scheduler gets nothing, and disturbs nobody."""
    thing = bench.manifest("p1", containers=[bench.guest("c", "true", gpu=1)], spec={"nodeName": NAME})
    thing["metadata"]["labels"] = {"hami.io/webhook": "ignore"}
    machine = {"name": "simgpu", "hostPath": {"path": str(bench.agents.machine)}}
    thing["spec"] |= {"volumes": [machine], "nodeSelector": {}, "restartPolicy": "Never"}
    bench.kubectl.apply(thing)
    assert bench.phase("p1", "Failed")["reason"] == "UnexpectedAdmissionError"
    bench.pod("p2", bench.guest("c", "true", gpu=1, mem=1000))
    bench.phase("p2", "Succeeded")


def test_container_that_is_killed_restarts_within_its_limit(bench, agents):
    bench.pod("p", bench.guest("c", "guest_steady", "600", "1000", "100", gpu=1, mem=2000), policy="Always")
    bench.phase("p", "Running")
    wait_for("its memory", lambda: sum(agents.used_bytes().values()) >= 1000 * MIB, 30)
    bench.kill("p", "guest_steady")
    wait_for("the restart", lambda: bench.restarts("p") == 1, 30)
    bench.phase("p", "Running")
    wait_for("its memory again", lambda: sum(agents.used_bytes().values()) >= 1000 * MIB, 30)
    assert sum(agents.used_bytes().values()) < 2000 * MIB, "what the first one held came back"


def test_kubelet_restarts(bench, node, agents):
    bench.pod("p1", bench.guest("c", "guest_steady", "600", "1000", "100", gpu=1, mem=2000))
    bench.phase("p1", "Running")
    before = agents.registrations()
    node.restart_kubelet()
    # The API server still has the old kubelet's word for 20 GPUs.
    wait_for("the plugin to register again", lambda: agents.registrations() > before, 30)
    bench.pod("p2", bench.guest("c", "guest_steady", "1", "1000", "100", gpu=1, mem=2000))
    bench.phase("p2", "Succeeded")
    assert bench.read("p1")["status"]["phase"] == "Running" and bench.restarts("p1") == 0


def test_plugin_is_killed_and_comes_back(bench, node, agents):
    bench.pod("p1", bench.guest("c", "guest_steady", "600", "1000", "100", gpu=1, mem=2000))
    bench.phase("p1", "Running")
    agents.plugin.kill()
    wait_for("the kubelet to notice", lambda: gpus(node) == 0, 30)
    agents.start_plugin_again()
    wait_for("the node's GPUs again", lambda: gpus(node) == 20, 30)
    bench.pod("p2", bench.guest("c", "guest_steady", "1", "1000", "100", gpu=1, mem=2000))
    bench.phase("p2", "Succeeded")
    assert bench.read("p1")["status"]["phase"] == "Running" and bench.restarts("p1") == 0


def test_plugin_is_killed_during_allocate(bench, node, agents):
    """The pod fails as Kubernetes lets it fail; its successor is served, and no lock and no memory is lost."""
    agents.plugin.signal(signal.SIGSTOP)
    bench.pod("p1", bench.guest("c", "guest_steady", "1", "1000", "100", gpu=1, mem=12000))
    wait_for("p1 to be bound", lambda: bench.read("p1")["spec"].get("nodeName"), 30)
    time.sleep(1)  # the kubelet has asked by now; nothing tells from outside
    agents.plugin.kill()
    agents.start_plugin_again()
    assert bench.phase("p1", "Failed")["reason"] == "UnexpectedAdmissionError"
    wait_for("the node's GPUs again", lambda: gpus(node) == 20, 30)
    bench.remove("p1")
    bench.pod("p2", bench.guest("c", "guest_steady", "1", "1000", "100", gpu=2, mem=12000))
    bench.phase("p2", "Succeeded")


def test_many_pods_at_once(bench):
    """Whose allocation is it? Equal pods and different ones, all on their way to one node at the same time."""
    sizes = {f"p{index}": 500 + 250 * (index // 4) for index in range(8)}
    tell = ("sh", "-c", "echo limit ${CUDA_DEVICE_MEMORY_LIMIT_0%m}")
    for name, size in sizes.items():
        bench.pod(name, bench.guest("c", *tell, gpu=1, mem=size, cores=5))
    for name, size in sizes.items():
        bench.phase(name, "Succeeded", timeout=120)
        assert bench.reports(name, "c") == {"limit": size}


def test_library_upgrade_while_a_pod_runs(bench, agents, node):
    """A running container keeps the library it mapped, also when it is restarted in place; others get the new one."""
    bench.pod("p1", bench.guest("c", "guest_steady", "600", "1000", "100", gpu=1, mem=2000), policy="Always")
    bench.phase("p1", "Running")
    shipped = installed(agents)
    assert len(shipped) == 1
    agents.plugin.stop()
    agents.library.write_bytes(agents.library.read_bytes() + b"another build")
    agents.start_plugin_again()
    wait_for("the node's GPUs again", lambda: gpus(node) == 20, 30)
    assert len(installed(agents)) == 2 and installed(agents) > shipped
    bench.kill("p1", "guest_steady")
    wait_for("the restart", lambda: bench.restarts("p1") == 1, 30)
    bench.phase("p1", "Running")
    bench.pod("p2", bench.guest("c", "sh", "-c", "exec tail -c 13 $(cat /etc/ld.so.preload)", gpu=1, mem=2000))
    bench.phase("p2", "Succeeded")
    assert bench.logs("p2", "c") == "another build"


def installed(agents):
    """The builds of the library on the node."""
    return {path.name for path in (agents.hook / "vgpu").glob("libvgpu.so.*")}


def test_api_server_is_away(bench, plane, node, agents):
    """30 s without an API server: what runs goes on, and afterwards everything is as before."""
    bench.pod("p1", bench.guest("c", "guest_steady", "600", "1000", "100", gpu=1, mem=2000), policy="Always")
    bench.phase("p1", "Running")
    plane.apiserver.stop(grace=5)
    time.sleep(30)
    assert agents.plugin.alive() and agents.monitor.alive()
    assert "hami_vgpu_memory_limit_bytes" in agents.scrape()
    plane.apiserver.start()
    plane.wait_for_apiserver()
    wait_for("the node's GPUs", lambda: node.ready() and gpus(node) == 20, 60)
    bench.pod("p2", bench.guest("c", "guest_steady", "1", "1000", "100", gpu=1, mem=2000))
    bench.phase("p2", "Succeeded", timeout=150)  # the kubelet's own watch comes back after up to a minute
    assert bench.read("p1")["status"]["phase"] == "Running" and bench.restarts("p1") == 0
