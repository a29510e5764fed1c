# SPDX-License-Identifier: Apache-2.0
"""What may change while containers run: their limits, the monitor, and the health of a card."""
import json

import pytest

from rig import annotations, metrics
from rig.agents import CARDS, SLOTS
from rig.bench import MIB
from rig.node import NAME
from rig.programs import wait_for

RESIZE = "hami-cpp/resize"
OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY


@pytest.fixture
def witness(bench):
    """A program with 1000 MiB that tells whenever it sees another limit, granted 4000 MiB and 50 % of a card."""
    bench.pod("p", bench.guest("c", "guest_witness", "600", "1000", gpu=1, mem=4000, cores=50))
    sees(bench, 4000)
    return bench


def sees(bench, size):
    """Waits until the program has seen that limit, in CUDA's words and in NVML's, and was refused more than that."""

    def seen():
        said = bench.reports("p", "c")
        sizes = (said.get("cuda_total"), said.get("nvml_total"))
        return sizes == (size * MIB, size * MIB) and said.get("beyond") == OUT_OF_MEMORY

    wait_for(f"the program to see {size} MiB", seen, 60, every=0.2)
    assert bench.restarts("p") == 0, "by the same process"


def limits(bench):
    """(MiB, percent) of the container by the monitor's metrics."""
    samples = metrics.parse(bench.agents.scrape())
    mine = {"namespace": bench.name, "pod": "p", "container": "c"}
    memory = metrics.select(samples, "hami_vgpu_memory_limit_bytes", "pod", **mine)
    cores = metrics.select(samples, "hami_vgpu_core_limit_ratio", "pod", **mine)
    return memory.get(("p",), 0) / MIB, cores.get(("p",))


def resize(bench, **wish):
    bench.kubectl("annotate", "pod", "-n", bench.name, "p", "--overwrite", f"{RESIZE}={json.dumps({'c': wish})}")


def test_running_program_is_resized(witness):
    """Smaller, larger again, and back to the grant when the annotation is taken away."""
    wait_for("the metrics to tell the grant", lambda: limits(witness) == (4000, 50), 30)
    resize(witness, memory=2000, cores=20)
    sees(witness, 2000)
    wait_for("the metrics to tell the same", lambda: limits(witness) == (2000, 20), 30)
    witness.event("p", "Resized", "20 % of the cores")
    resize(witness, memory="3000Mi")
    sees(witness, 3000)
    wait_for("the metrics to tell the same", lambda: limits(witness) == (3000, 50), 30)
    witness.kubectl("annotate", "pod", "-n", witness.name, "p", f"{RESIZE}-")
    sees(witness, 4000)


def test_nobody_is_resized_beyond_the_grant(witness):
    """The rest of the card is promised to others."""
    resize(witness, memory=5000)
    witness.event("p", "ResizeRefused", "")
    sees(witness, 4000)
    assert limits(witness) == (4000, 50)


def test_resize_outlives_the_monitor(witness, agents):
    """Limits are in the region; who reads the annotation again changes nothing."""
    resize(witness, memory=2000)
    sees(witness, 2000)
    agents.start_monitor_again()
    wait_for("the metrics to tell the same", lambda: limits(witness) == (2000, 50), 30)
    sees(witness, 2000)


@pytest.fixture
def apart(agents):
    """The monitor sees no process but its own, as in a pod without hostPID."""
    agents.start_monitor_again("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    yield agents
    agents.start_monitor_again()


def test_utilization_without_the_hosts_pids(bench, apart):
    """It is known where the driver lists a container's processes by the host's pids; else it is said to be unknown."""
    busy = ("guest_witness", "600", "500", "20000")
    listed, hidden = bench.guest("c", *busy, gpu=1, mem=1000), bench.guest("c", *busy, gpu=1, mem=1000)
    for variable in hidden["env"]:
        if variable["name"] == "SIMGPU_PID_OFFSET":
            variable["value"] = "0"  # some drivers list by the container's own
    bench.pod("listed", listed)
    bench.pod("hidden", hidden)

    def told(pod, name):
        samples = metrics.select(metrics.parse(apart.scrape()), name, "pod", namespace=bench.name, pod=pod)
        return samples.get((pod,))

    utilization, nameless = "hami_container_device_utilization_ratio", "hami_vgpu_processes_without_pid"
    wait_for("the utilization of the one", lambda: (told("listed", utilization) or 0) >= 10, 60)
    assert told("listed", nameless) == 0
    wait_for("the other's process to be missed", lambda: told("hidden", nameless) == 1, 60)
    assert told("hidden", utilization) is None
    assert apart.monitor.log.read_text().count("hostPID: true") == 1


@pytest.fixture
def repaired(node, agents):
    """Whatever the test did to the cards, they are as new afterwards."""
    yield
    agents.plugin.stop()
    agents.plane.kubectl("annotate", "node", NAME, "hami-cpp/gpu-health-")
    agents.start_plugin_again()
    wait_for("all of the node's GPUs", lambda: node.gpus() == SLOTS, 30)


def test_card_that_reports_an_error(bench, node, agents, repaired):  # pylint: disable=unused-argument
    """XID 48: the card takes no more pods, by the kubelet's count and by the scheduler's; whoever runs goes on."""
    sick = next(uuid for uuid, card in annotations.cards(node.read()).items() if card.get("index", 0) == CARDS - 1)
    bench.pod("p1", bench.guest("c", "guest_steady", "600", "1000", "100", gpu=1, mem=2000), notes=on(sick))
    bench.phase("p1", "Running")
    agents.inject(f"xid device={CARDS - 1} code=48")
    wait_for("the card to be registered as sick", lambda: not annotations.cards(node.read())[sick].get("health"), 30)
    wait_for("the kubelet to count without it", lambda: node.gpus() == SLOTS - 10, 30)
    bench.pod("p2", bench.guest("c", "true", gpu=1, mem=2000), notes=on(sick))
    assert "1/8 CardNotHealth" in bench.unschedulable("p2")
    bench.pod("p3", bench.guest("c", "true", gpu=1, mem=2000))
    bench.phase("p3", "Succeeded")
    assert bench.read("p1")["status"]["phase"] == "Running" and bench.restarts("p1") == 0


def on(uuid):
    """Annotations that put a pod on that card."""
    return {"nvidia.com/use-gpuuuid": uuid}
