# SPDX-License-Identifier: Apache-2.0
"""One H100 in mode mps: containers are clients of one control daemon, which is started anew when it dies."""
import json
import os
import signal

import pytest

from rig import annotations
from rig.agents import SLOTS
from rig.metrics import parse, scrape, select
from rig.programs import wait_for

MPS = {"nvidia.com/vgpu-mode": "mps"}


class Daemon:
    """The control daemon of the node's only GPU."""

    def __init__(self, agents):
        self.agents, self.root = agents, agents.folder / "mps"

    def pid(self):
        (uuid,) = annotations.cards(self.agents.node.read())
        written = self.root / uuid / "pipe/nvidia-cuda-mps-control.pid"
        return int(written.read_text()) if written.exists() else 0

    def shows(self, name):
        """The value of the plugin's metric of the GPU; nothing while no daemon is known."""
        text = scrape(f"http://127.0.0.1:{self.agents.plugin_port}/metrics")
        return next(iter(select(parse(text), name).values()), None)

    def kill(self):
        os.kill(self.pid(), signal.SIGKILL)


@pytest.fixture(scope="module")
def daemon(agents, node):
    """The node has another GPU for these tests, and the mode from its start on."""
    usual, place = agents.plugin.env, agents.machine
    agents.plugin.stop()
    one = Daemon(agents)
    agents.machine = agents.folder / "mps-h100"
    agents.machine.mkdir()
    agents.plugin.env = usual | {
        "SIMGPU": "1xH100", "SIMGPU_STATE": str(agents.machine / "state"),
        "MPS_CONTROL": str(agents.build / "simgpu/simgpu-mps-control"), "MPS_ROOT": str(one.root),
    }  # fmt: skip
    mode = agents.hook / "vgpu/mode"
    before = mode.read_text() if mode.exists() else None
    mode.write_text("mps\n")
    agents.use_mode("mps")
    agents.start_plugin_again()
    wait_for("ten slots of a GPU in mode mps", lambda: node.gpus() == 10, 60)
    yield one
    # The node gets its GPUs back as after a reboot: nothing is left of the mode.
    agents.plugin.stop()
    if one.pid():
        one.kill()
    mode.write_text(before or "hami-core\n")
    agents.plugin.env, agents.machine = usual, place
    agents.node_config.write_text(json.dumps({"nodeconfig": []}))
    agents.start_plugin_again()
    wait_for("the usual GPUs again", lambda: node.gpus() == SLOTS, 60)


def start(bench, name, *command):
    bench.pod(name, bench.guest("c", *command, gpu=1, mem=4000, cores=25), notes=MPS)


def test_four_quarters_are_clients_of_one_daemon(bench, daemon):
    names = [f"p{number}" for number in range(4)]
    for name in names:
        start(bench, name, "sh", "-c", "env; exec guest_witness 300 1000")
    for name in names:
        bench.phase(name, "Running")
    wait_for("four clients", lambda: daemon.shows("hami_mps_clients") == 4, 60)
    for name in names:
        variables = bench.variables(name, "c")
        assert variables["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
        assert variables["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=4000M"
    bench.remove(*names)
    wait_for("no clients", lambda: daemon.shows("hami_mps_clients") == 0, 30)


def test_killed_daemon_is_back_for_the_next_pod(bench, daemon, node):
    start(bench, "first", "guest_witness", "300", "1000")
    bench.phase("first", "Running")
    wait_for("a client", lambda: daemon.shows("hami_mps_clients") == 1, 60)
    before, restarts = daemon.pid(), daemon.shows("hami_mps_daemon_restarts_total")
    daemon.kill()
    wait_for("another daemon", lambda: daemon.pid() not in (0, before), 30)
    wait_for("its restart", lambda: daemon.shows("hami_mps_daemon_restarts_total") == restarts + 1, 30)
    wait_for("the slots again", lambda: node.gpus() == 10, 30)
    start(bench, "second", "guest_steady", "1", "1000", "100")
    bench.phase("second", "Succeeded")
    assert bench.phase("first", "Running") and bench.restarts("first") == 0  # its server outlives the daemon
