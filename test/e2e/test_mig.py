# SPDX-License-Identifier: Apache-2.0
"""One H100 in mode mig: instances come and go with their pods, exactly where the scheduler reserved them."""
import json

import pytest

from rig import annotations
from rig.agents import SLOTS
from rig.bench import MIB
from rig.mig import ONE, WHOLE, Machine
from rig.programs import wait_for

MIG = {"nvidia.com/vgpu-mode": "mig"}
PLACES = "hami.io/vgpu-mig-allocations"

@pytest.fixture(scope="module")
def machine(agents, node):
    """The node has another GPU for these tests."""
    agents.plugin.stop()
    one = Machine(agents)
    agents.use_mode("mig")
    agents.start_plugin_again()
    wait_for("seven slots of a divided GPU", lambda: node.gpus() == 7, 60)
    yield one
    agents.use_mode("hami-core")
    wait_for("ten slots of a shared GPU", lambda: node.gpus() == 10, 60)
    agents.plugin.stop()
    one.give_back()
    agents.node_config.write_text(json.dumps({"nodeconfig": []}))
    agents.start_plugin_again()
    wait_for("the usual GPUs again", lambda: node.gpus() == SLOTS, 60)


def start(bench, name, mem, *command):
    bench.pod(name, bench.guest("c", *(command or ("guest_steady", "300", "1000", "100")), gpu=1, mem=mem), notes=MIG)


def places(bench, *names):
    """{name: (first slice, MIG UUID)}, once all have their instances."""

    def realised():
        found = {}
        for name in names:
            (one,) = json.loads(annotations.of(bench.read(name)).get(PLACES, "[{}]"))
            if "migUUID" not in one:
                return None
            found[name] = (one["placement"].get("start", 0), one["migUUID"])
        return found

    return wait_for(f"the instances of {names}", realised, 60)


def test_seven_small_pods_then_a_whole_one(bench, machine):
    """Seven instances fill the card; when their pods are gone, one takes all of it, and sees no more than its memory."""
    names = [f"p{number}" for number in range(7)]
    for name in names:
        start(bench, name, 9000)
    found = places(bench, *names)
    assert sorted(place for place, _ in found.values()) == list(range(7))
    assert len({uuid for _, uuid in found.values()}) == 7
    for name in names:
        bench.phase(name, "Running")
    assert machine.instances() == [(place, 1) for place in range(7)]
    bench.remove(*names)
    start(bench, "whole", 80000, "guest_greedy", "2")
    bench.phase("whole", "Succeeded")
    greedy = bench.reports("whole", "c")
    assert (greedy["cuda_total"], greedy["nvml_total"]) == (WHOLE * MIB, WHOLE * MIB)
    machine.undivided()


def test_container_keeps_to_its_instance(bench, machine):
    """Under libvgpu's limit beside a neighbour on the same card."""
    start(bench, "neighbour", 9000)
    start(bench, "p", 9000, "sh", "-c", "env; exec guest_greedy 2")
    bench.phase("p", "Succeeded")
    (_, uuid) = places(bench, "p")["p"]
    variables = bench.variables("p", "c")
    assert variables["NVIDIA_VISIBLE_DEVICES"] == uuid
    assert variables["HAMI_DEVICE_LIMITS"] == f"{uuid}={ONE}m:0"
    greedy = bench.reports("p", "c")
    assert (greedy["cuda_total"], greedy["nvml_total"]) == (ONE * MIB, ONE * MIB)
    assert greedy["refused"] > 0 and greedy["most_bytes"] <= ONE * MIB
    bench.remove("neighbour")
    machine.undivided()


def test_instance_survives_kubelet_and_plugin(bench, machine, node, agents):
    start(bench, "p", 9000)
    bench.phase("p", "Running")
    before = machine.instances()
    node.restart_kubelet()
    agents.plugin.kill()
    agents.start_plugin_again()
    wait_for("the slots again", lambda: node.gpus() == 7, 30)
    assert machine.instances() == before
    assert bench.phase("p", "Running") and bench.restarts("p") == 0
    bench.remove("p")
    machine.undivided()


def test_crash_before_the_record_leaves_nothing(bench, machine, agents):
    """The plugin died when the instance was made and its name not yet written down."""
    agents.plugin.kill()
    (uuid,) = annotations.cards(agents.node.read())
    journal = agents.hook / "vgpu/mig.json"
    entry = {"namespace": "n", "pod": "p", "uid": "u", "container": 0, "device": 0, "gpu": uuid, "profile": "1g.10gb"}
    journal.write_text(json.dumps({"version": 1, "instances": [entry | {"start": 3, "size": 1}]}))
    machine.divide("make", 3)
    assert machine.instances() == [(3, 1)]
    agents.start_plugin_again()
    machine.undivided()
    start(bench, "p", 9000, "true")
    bench.phase("p", "Succeeded")


def test_foreign_instance_in_the_way(bench, machine, agents):
    """Made by somebody else where the scheduler has just reserved: the pod is told, the instance stays, others go on."""
    machine.divide("make", 6)  # a small instance goes to the highest slice
    start(bench, "late", 9000)
    bench.event("late", "UnexpectedAdmissionError", "slices 6 to 6 of GPU")
    assert machine.instances() == [(6, 1)]
    agents.plugin.kill()
    agents.start_plugin_again()  # or half a minute later: the place is not offered any more
    start(bench, "p", 9000)
    assert places(bench, "p")["p"][0] != 6
    bench.phase("p", "Running")
    assert (6, 1) in machine.instances() and len(machine.instances()) == 2
    bench.remove("late", "p")
    wait_for("our instance to be gone and no other", lambda: machine.instances() == [(6, 1)], 30)
    machine.divide("remove", 6)
    machine.undivided()


def test_mode_change_waits_and_says_for_whom(bench, machine, agents, node):
    start(bench, "p", 9000)
    bench.phase("p", "Running")
    agents.use_mode("hami-core")
    refused = node_event(bench, "OperatingModeRefused", f"{bench.name}/p")
    assert "from mig to hami-core" in refused
    assert node.gpus() == 7 and machine.instances()
    agents.use_mode("mig")
    bench.remove("p")
    machine.undivided()


def node_event(bench, reason, text):
    """The message of the node's event with that reason that contains the text."""

    def seen():
        listed = bench.api.get("/api/v1/namespaces/default/events")["items"]
        found = [one["message"] for one in listed if one["reason"] == reason and text in one.get("message", "")]
        return found[0] if found else None

    return wait_for(f"an event {reason} with {text}", seen, 20)
