# SPDX-License-Identifier: Apache-2.0
"""One H100 in mode mig: instances come and go with their pods, exactly where the scheduler reserved them."""
import json
import subprocess
import sys

import pytest

from rig import annotations
from rig.agents import SLOTS
from rig.bench import MIB
from rig.programs import wait_for

MIG = {"nvidia.com/vgpu-mode": "mig"}
PLACES = "hami.io/vgpu-mig-allocations"
ONE, WHOLE = 9984, 80896  # MiB of the instances 1g.10gb and 7g.80gb

# What nvidia-smi mig would do: make an instance 1g.10gb at a slice, remove those at a slice, list all of the GPU.
DIVIDE = """
import ctypes, json, sys
nvml, verb, slice = ctypes.CDLL(sys.argv[1]), sys.argv[2], int(sys.argv[3])
gpu, one = ctypes.c_void_p(), ctypes.c_void_p()
nvml.nvmlInit_v2()
nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(gpu))
if verb == "make":
    place = (ctypes.c_uint * 2)(slice, 1)
    assert nvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, 19, place, ctypes.byref(one)) == 0
found = []
for number in range(64):
    if nvml.nvmlDeviceGetGpuInstanceById(gpu, number, ctypes.byref(one)) != 0:
        continue
    info = (ctypes.c_uint * 8)()  # device (two words), id, profile, start, size
    assert nvml.nvmlGpuInstanceGetInfo(one, info) == 0
    found.append((info[4], info[5]))
    if verb == "remove" and info[4] == slice:
        assert nvml.nvmlGpuInstanceDestroy(one) == 0
print(json.dumps(sorted(found)))
"""


class Machine:
    """The simulated H100 beside the plugin."""

    def __init__(self, agents):
        self.agents = agents

    def divide(self, verb, first=0):
        """Past the plugin. (first slice, slices) of each instance."""
        library = self.agents.build / "simgpu/libnvidia-ml.so.1"
        command = [sys.executable, "-c", DIVIDE, library, verb, str(first)]
        done = subprocess.run(command, env=self.agents.plugin.env, check=True, capture_output=True, text=True)
        return [tuple(place) for place in json.loads(done.stdout)]

    def instances(self):
        return self.divide("list")

    def undivided(self):
        wait_for("every instance to be gone", lambda: not self.instances(), 30)


@pytest.fixture(scope="module")
def machine(agents, node):
    """The node has another GPU for these tests."""
    usual, place = agents.plugin.env, agents.machine
    agents.plugin.stop()
    agents.machine = agents.folder / "h100"
    agents.machine.mkdir()
    agents.plugin.env = usual | {"SIMGPU": "1xH100", "SIMGPU_STATE": str(agents.machine / "state")}
    agents.use_mode("mig")
    agents.start_plugin_again()
    wait_for("seven slots of a divided GPU", lambda: node.gpus() == 7, 60)
    yield Machine(agents)
    agents.use_mode("hami-core")
    wait_for("ten slots of a shared GPU", lambda: node.gpus() == 10, 60)
    agents.plugin.stop()
    agents.plugin.env, agents.machine = usual, place
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
