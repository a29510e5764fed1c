# SPDX-License-Identifier: Apache-2.0
"""Container Device Interface: containerd gives a container its GPU by the name and the specification that we wrote.

The image has no driver: libraries, device nodes and programs that the container sees can only have come this way.
"""
import pathlib
import signal

import pytest

from rig import annotations, driver_root
from rig.agents import INSIDE
from rig.bench import MIB
from rig.driver_root import DriverRoot
from rig.node import BARE
from rig.programs import wait_for

SPEC = pathlib.Path("/var/run/cdi/k8s.device-plugin.nvidia.com-gpu.json")
LOOK = "env; ls -1 /dev/nvidia*; nvidia-smi; ls -1 /usr/lib64; cat /proc/mounts"


@pytest.fixture(scope="module")
def driver(agents, build):
    return DriverRoot(agents.folder / "driver", build)


@pytest.fixture(params=["cdi-cri", "cdi-annotations"])
def cdi(request, agents, driver):
    """The plugin names devices in this way."""
    agents.restart_plugin(f"--device-list-strategy={request.param}", *driver.flags())
    wait_for("the specification", SPEC.exists)  # the kubelet may not have noticed that the plugin was away
    yield request.param
    agents.restart_plugin()
    SPEC.unlink()


def test_container_gets_its_gpu(bench, cdi, node):  # pylint: disable=unused-argument
    bench.pod("p", bench.guest("c", "sh", "-c", f"{LOOK}; exec guest_greedy 2", image=BARE, gpu=1, mem=3000))
    bench.phase("p", "Succeeded")
    said = bench.logs("p", "c")
    lines = said.splitlines()
    (uuid,) = annotations.cards_of(bench.read("p"))
    minor = annotations.cards(node.read())[uuid].get("index", 0)

    assert [line for line in lines if line.startswith("/dev/nvidia")] == [
        "/dev/nvidia-uvm", f"/dev/nvidia{minor}", "/dev/nvidiactl"]  # fmt: skip
    assert "NVIDIA_VISIBLE_DEVICES=void" in lines
    assert driver_root.SAYS in lines
    (mount,) = [line for line in lines if f" /usr/lib64/libcuda.so.{driver_root.VERSION} " in line]
    assert {"ro", "nosuid", "nodev"} <= set(mount.split()[3].split(","))
    assert {"libcuda.so", "libcuda.so.1", "libnvidia-ml.so.1"} <= set(lines), "links that the hooks made"

    greedy = bench.reports("p", "c")
    assert (greedy["cuda_total"], greedy["nvml_total"]) == (3000 * MIB, 3000 * MIB)
    assert greedy["refused"] > 0 and greedy["most_bytes"] <= 3000 * MIB


def test_file_is_what_counts(bench, cdi, agents):  # pylint: disable=unused-argument
    """Without the file containerd knows no such device, and a container that starts again there does not get on without
    its GPU; the plugin, which is held meanwhile, writes the file anew, and the container runs."""
    mark = f"{INSIDE}/{bench.name}"
    twice = f"[ -e {mark} ] && exec guest_greedy 2; touch {mark}; exec guest_steady 120 1000 100"
    bench.pod("p", bench.guest("c", "sh", "-c", twice, image=BARE, gpu=1, mem=3000), policy="OnFailure")
    wait_for("the container's first life", lambda: bench.processes("p", "guest_steady"), 60)
    written = SPEC.read_text()
    agents.plugin.signal(signal.SIGSTOP)
    try:
        SPEC.unlink()
        bench.kill("p", "guest_steady")
        bench.event("p", "Failed", "unresolvable CDI devices", timeout=60)
        assert not SPEC.exists()
    finally:
        agents.plugin.signal(signal.SIGCONT)
    wait_for("the specification to be back", SPEC.exists, 40)  # looked at every 30 s
    assert SPEC.read_text() == written
    bench.phase("p", "Succeeded", timeout=90)  # the kubelet tries again after 10 s, then after 20
    assert bench.reports("p", "c")["cuda_total"] == 3000 * MIB


def test_removed_file_is_back(bench, cdi):  # pylint: disable=unused-argument
    """A cleaned /var/run/cdi costs no pod its start."""
    SPEC.unlink()
    bench.pod("p", bench.guest("c", "true", image=BARE, gpu=1, mem=3000))
    bench.phase("p", "Succeeded")
    assert SPEC.exists()
