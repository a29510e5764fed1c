# SPDX-License-Identifier: Apache-2.0
"""Two H100, one of them divided beforehand into two MIG devices: --mig-strategy mixed, and then single."""
import json

import pytest

from rig import annotations
from rig.agents import SLOTS
from rig.bench import MIB
from rig.mig import ONE, Machine
from rig.node import NAME
from rig.programs import wait_for

SMALL = "nvidia.com/mig-1g.10gb"


@pytest.fixture(scope="module")
def machine(agents, node):
    """The node has other GPUs for these tests."""
    agents.plugin.stop()
    one = Machine(agents, "2xH100")
    one.divide("on")
    for place in (0, 1):
        one.divide("part", place)
    yield one
    agents.plugin.stop()
    one.give_back()
    agents.node_config.write_text(json.dumps({"nodeconfig": []}))
    agents.start_plugin_again()
    wait_for("the usual GPUs again", lambda: node.gpus() == SLOTS, 60)


def use(agents, strategy, *excluded):
    """The node configuration says so from now on."""
    entry = {"name": NAME, "migstrategy": strategy, "filterdevices": {"uuid": [], "index": list(excluded)}}
    agents.node_config.write_text(json.dumps({"nodeconfig": [entry]}))


def counted(host):
    """(shares, MIG devices) as the kubelet counts them."""
    allocatable = host.read()["status"]["allocatable"]
    return int(allocatable.get("nvidia.com/gpu", 0)), int(allocatable.get(SMALL, 0))


def registered(agents):
    return annotations.cards(agents.node.read())


def test_mixed_then_single(bench, machine, agents, node):
    """mixed: the devices are a resource of their own, placed by kube-scheduler; the other GPU is shared. single: they are
    what is shared, each by one container under libvgpu's limit."""
    use(agents, "mixed")
    agents.start_plugin_again()
    wait_for("ten shares and two MIG devices", lambda: counted(node) == (10, 2), 30)
    assert len(registered(agents)) == 1, "the scheduler knows the GPU that is not divided"
    part = bench.guest("c", "sh", "-c", "env; exec guest_greedy 2")
    part["resources"]["limits"] = {SMALL: "1"}
    bench.pod("part", part)
    bench.pod("share", bench.guest("c", "sh", "-c", "env; exec guest_greedy 2", gpu=1, mem=4000))
    for name, total in (("part", ONE), ("share", 4000)):
        bench.phase(name, "Succeeded")
        assert bench.reports(name, "c")["cuda_total"] == total * MIB
    assert bench.read("part")["spec"]["schedulerName"] == "default-scheduler"
    first = bench.variables("part", "c")
    assert first["NVIDIA_VISIBLE_DEVICES"].startswith("MIG-") and "HAMI_DEVICE_LIMITS" not in first
    assert bench.variables("share", "c")["NVIDIA_VISIBLE_DEVICES"] in registered(agents)
    bench.remove("part", "share")

    use(agents, "single", 1)
    wait_for("two shares", lambda: counted(node) == (2, 0), 30)
    for name in ("a", "b"):
        bench.pod(name, bench.guest("c", "sh", "-c", "env; exec guest_greedy 2", gpu=1, mem=5000))
    for name in ("a", "b"):
        bench.phase(name, "Succeeded")
        variables, greedy = bench.variables(name, "c"), bench.reports(name, "c")
        assert variables["HAMI_DEVICE_LIMITS"] == f"{variables['NVIDIA_VISIBLE_DEVICES']}=5000m:0"
        assert variables["NVIDIA_VISIBLE_DEVICES"].startswith("MIG-")
        assert greedy["cuda_total"] == 5000 * MIB and greedy["refused"] > 0
    assert set(registered(agents)) >= {bench.variables(name, "c")["NVIDIA_VISIBLE_DEVICES"] for name in ("a", "b")}
