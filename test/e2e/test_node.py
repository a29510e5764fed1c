# SPDX-License-Identifier: Apache-2.0
"""A real kubelet and containerd: pods get their share of simulated GPUs in real containers, and keep to it."""
import signal
import time

from rig import annotations, metrics
from rig.agents import CARDS, SLOTS
from rig.annotations import PHASE, of
from rig.bench import MIB
from rig.node import GUEST, NAME
from rig.programs import wait_for


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
    assert len(cards) == CARDS
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
    said, variables = bench.logs("p", "c"), bench.variables("p", "c")
    assert variables["NVIDIA_VISIBLE_DEVICES"] == annotations.cards_of(bench.read("p"))[0]
    assert variables["CUDA_DEVICE_MEMORY_LIMIT_0"] == "2000m"
    assert variables["CUDA_DEVICE_SM_LIMIT"] == "30"
    assert said.splitlines()[-1].endswith("/vgpu/libvgpu.so")


# What the simulated driver must know; nothing of HAMi's.
BARE = 'env -i PATH="$PATH" LD_LIBRARY_PATH="$LD_LIBRARY_PATH" ' + " ".join(
    f'{name}="${name}"' for name in ("SIMGPU_STATE", "SIMGPU_QUIET", "SIMGPU_CONTAINER", "NVIDIA_VISIBLE_DEVICES")
)


def test_limit_holds_without_the_environment(bench):
    """A login over ssh, MPI between pods, cron: the variables are gone, or others."""
    lines = {
        "empty": f"{BARE} guest_greedy 2",
        "lifted": f"{BARE} CUDA_DEVICE_MEMORY_LIMIT_0=0 CUDA_DEVICE_MEMORY_SHARED_CACHE=/tmp/own guest_greedy 2",
        "kept": "echo > $(dirname $CUDA_DEVICE_MEMORY_SHARED_CACHE)/share.env",
    }
    bench.pod("p", *(bench.guest(name, "sh", "-c", line, gpu=1, mem=2000) for name, line in lines.items()))
    bench.phase("p", "Failed")
    for name in ("empty", "lifted"):
        greedy = bench.reports("p", name)
        assert (greedy["cuda_total"], greedy["nvml_total"]) == (2000 * MIB, 2000 * MIB), name
        assert greedy["refused"] > 0 and greedy["most_bytes"] <= 2000 * MIB, name
    assert "share.env" in bench.logs("p", "kept"), "a container must not change what it may have"


def test_limits_by_number(bench):
    """Two of eight cards: each number is one of these two, and has its limit, also where the region is gone."""
    lines = [f"CUDA_VISIBLE_DEVICES={i} guest_steady 0.1 100 100" for i in (0, 1)]
    lines += ["rm $CUDA_DEVICE_MEMORY_SHARED_CACHE", *lines]
    bench.pod("p", bench.guest("c", "sh", "-ec", "; ".join(lines), gpu=2, mem=2000))
    bench.phase("p", "Succeeded")
    said = bench.logs("p", "c")
    assert said.count(f"cuda_total {2000 * MIB}") == 4, said
    assert said.count(f"nvml_total {2000 * MIB}") == 4, said


def test_metrics_of_running_containers(bench, agents):
    """The monitor tells of each container what its own region says."""
    limits = {"c": 2000, "d": 3000}
    steady = ("guest_steady", "600", "1000", "100")
    bench.pod("p", *(bench.guest(name, *steady, gpu=1, mem=size) for name, size in limits.items()))
    bench.phase("p", "Running")
    cards = dict(zip(limits, annotations.cards_of(bench.read("p")), strict=True))

    def told():
        samples = metrics.parse(agents.scrape())
        mine = {"namespace": bench.name, "pod": "p"}
        where = ("container", "device_uuid")
        limit = metrics.select(samples, "hami_vgpu_memory_limit_bytes", *where, **mine)
        used = metrics.select(samples, "hami_vgpu_memory_used_bytes", *where, **mine)
        return limit == {(name, cards[name]): size * MIB for name, size in limits.items()} and all(
            1000 * MIB <= used.get((name, cards[name]), 0) <= size * MIB for name, size in limits.items()
        )

    wait_for("the containers' metrics", told, 30)
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
    # The API server still has the old kubelet's word for the number of GPUs.
    wait_for("the plugin to register again", lambda: agents.registrations() > before, 30)
    bench.pod("p2", bench.guest("c", "guest_steady", "1", "1000", "100", gpu=1, mem=2000))
    bench.phase("p2", "Succeeded")
    assert bench.read("p1")["status"]["phase"] == "Running" and bench.restarts("p1") == 0


def test_plugin_is_killed_and_comes_back(bench, node, agents):
    bench.pod("p1", bench.guest("c", "guest_steady", "600", "1000", "100", gpu=1, mem=2000))
    bench.phase("p1", "Running")
    agents.plugin.kill()
    wait_for("the kubelet to notice", lambda: node.gpus() == 0, 30)
    agents.start_plugin_again()
    wait_for("the node's GPUs again", lambda: node.gpus() == SLOTS, 30)
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
    successor_is_served(bench, node, agents)


def test_plugin_is_killed_between_record_and_api_server(bench, plane, node, agents):
    """The same with the grant on disk and nobody told of it."""
    records = agents.hook / "vgpu/allocations.json"
    agents.plugin.stop()
    records.unlink(missing_ok=True)  # of pods that are gone; it would ask the API server what became of them
    agents.start_plugin_again()
    wait_for("the node's GPUs", lambda: node.gpus() == SLOTS, 30)
    node.kubelet.signal(signal.SIGSTOP)
    try:
        bench.pod("p1", bench.guest("c", "guest_steady", "1", "1000", "100", gpu=1, mem=12000))
        wait_for("p1 to be bound", lambda: bench.read("p1")["spec"].get("nodeName"), 30)
        uid = bench.read("p1")["metadata"]["uid"]
        time.sleep(1)  # both watches have shown it by now
        plane.apiserver.signal(signal.SIGSTOP)
        node.kubelet.signal(signal.SIGCONT)
        wait_for("the record of p1", lambda: records.exists() and uid in records.read_text(), 10, every=0.01)
        agents.plugin.kill()
    finally:
        node.kubelet.signal(signal.SIGCONT)
        plane.apiserver.signal(signal.SIGCONT)
    successor_is_served(bench, node, agents)


def successor_is_served(bench, node, agents):
    """The plugin comes back; p1 has failed, and all cards can be had."""
    agents.start_plugin_again()
    assert bench.phase("p1", "Failed")["reason"] == "UnexpectedAdmissionError"
    wait_for("the node's GPUs again", lambda: node.gpus() == SLOTS, 30)
    wait_for("p1's outcome", lambda: of(bench.read("p1"))[PHASE] != "allocating", 30)
    bench.remove("p1")
    bench.pod("p2", bench.guest("c", "guest_steady", "1", "1000", "100", gpu=CARDS, mem=12000))
    bench.phase("p2", "Succeeded")


def test_library_upgrade_while_a_pod_runs(bench, agents, node):
    """A running container keeps the library it mapped, also when it is restarted in place; others get the new one."""
    bench.pod("p1", bench.guest("c", "guest_steady", "600", "1000", "100", gpu=1, mem=2000), policy="Always")
    bench.phase("p1", "Running")
    shipped = installed(agents)
    assert len(shipped) == 1
    agents.plugin.stop()
    agents.library.write_bytes(agents.library.read_bytes() + b"another build")
    agents.start_plugin_again()
    wait_for("the node's GPUs again", lambda: node.gpus() == SLOTS, 30)
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
    wait_for("the node's GPUs", lambda: node.ready() and node.gpus() == SLOTS, 60)
    bench.pod("p2", bench.guest("c", "guest_steady", "1", "1000", "100", gpu=1, mem=2000))
    bench.phase("p2", "Succeeded", timeout=150)  # the kubelet's own watch comes back after up to a minute
    assert bench.read("p1")["status"]["phase"] == "Running" and bench.restarts("p1") == 0


def test_containers_on_one_card_share_an_area(bench, node):
    """Whoever launches on a card finds the others of that card, and nobody else, in what the plugin handed out."""
    first, second = list(annotations.cards(node.read()))[:2]
    for name, card in {"p1": first, "p2": first, "p3": second}.items():
        thing = bench.guest("c", "guest_witness", "600", "500", gpu=1, mem=1000, cores=30)
        bench.pod(name, thing, notes={"nvidia.com/use-gpuuuid": card})
    for name in ("p1", "p2", "p3"):
        bench.phase(name, "Running")
    areas = wait_for("all three to have an area", lambda: areas_of(bench, "p1", "p2", "p3"), 30)
    assert areas["p1"] == areas["p2"] != areas["p3"]


def areas_of(bench, *names):
    """{pod: inode of the shared memory that its program maps}, when each has one."""
    areas = {}
    for name in names:
        for process in bench.processes(name, "guest_witness"):
            maps = (process / "maps").read_text().splitlines()
            areas |= {name: line.split()[4] for line in maps if "memfd:hami-gpu-time" in line}
    return areas if len(areas) == len(names) else None
