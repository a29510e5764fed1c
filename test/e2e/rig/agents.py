# SPDX-License-Identifier: Apache-2.0
"""hami-device-plugin and hami-monitor on the real node, as processes with the rights they need and no more; and simgpu,
the machine whose GPUs they and the containers see."""
import json
import os
import shutil
import subprocess
import sys

from rig import images, node
from rig.control_plane import answers
from rig.extender import DEVICE_CONFIG
from rig.metrics import scrape
from rig.programs import free_ports, wait_for
from rig.rights import grant

PLUGIN, MONITOR = "hami-device-plugin", "hami-monitor"
CARDS = 8
SLOTS = 10 * CARDS  # what the kubelet counts
INSIDE = "/simgpu"  # where containers find the machine's state
# What docs/operate/device-plugin.md and docs/operate/monitor.md say that they need. RBAC can hold a list or watch to one node by its
# name, to the pods of one node it can not.
RULES = {
    PLUGIN: [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch", "patch"], "resourceNames": [node.NAME]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
    ],
    MONITOR: [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
    ],
}

DRIVER = ("libcuda.so.1", "libnvidia-ml.so.1")


def bare_layer(build):
    """An image without a driver: busybox and the guests."""
    return base_layer(build).done()


def guest_layer(build):
    """The same with simgpu in the place of the driver's libraries."""
    layer = base_layer(build)
    for library in DRIVER:
        layer.file(build / "simgpu" / library, f"/usr/local/nvidia/lib64/{library}")
    return layer.done()


def base_layer(build):
    layer = images.Layer()
    layer.busybox()
    for guest in ("steady", "greedy", "witness"):
        layer.program(build / f"test/demo/guest_{guest}", f"/bin/guest_{guest}")
    for library in DRIVER:
        layer.needs_of(build / "simgpu" / library)
    return layer


class Agents:
    def __init__(self, plane, host, build):
        self.plane, self.node, self.build = plane, host, build
        self.folder = plane.folder / "agents"
        self.folder.mkdir(mode=0o755)
        self.machine = self.folder / "simgpu"
        self.machine.mkdir()
        self.hook = self.folder / "hook"
        self.containers = self.hook / "vgpu/containers"
        self.containers.mkdir(parents=True)
        self.config = self.folder / "device-config.yaml"
        self.config.write_text(DEVICE_CONFIG)
        self.node_config = self.folder / "config.json"
        self.node_config.write_text(json.dumps({"nodeconfig": []}))
        # The plugin ships the library that lies beside it; a copy of both, so that a test can ship another one.
        self.library = self.folder / "lib/libvgpu.so"
        for place in ("lib/libvgpu.so", f"bin/{PLUGIN}"):
            (self.folder / place).parent.mkdir()
            shutil.copy(build / place, self.folder / place)
        self.plugin_port, self.monitor_port = free_ports(2)
        self.plugin = self.monitor = None
        self.usual, self.usual_monitor = [], []  # how they are started

    def environment(self, program=None):
        identity = {"KUBECONFIG": str(self.plane.kubeconfig(program))} if program else {}
        return identity | {
            "PATH": os.environ["PATH"], "HOME": str(self.folder), "NODE_NAME": node.NAME, "HAMI_RESYNC_INTERVAL": "10s",
            "LD_LIBRARY_PATH": str(self.build / "simgpu"),
            "SIMGPU": f"{CARDS}xT4", "SIMGPU_STATE": str(self.machine / "state"), "SIMGPU_QUIET": "1",
        }  # fmt: skip

    def start(self):
        for program, rules in RULES.items():
            self.plane.kubectl.apply(*grant(program, f"e2e-{program}", rules))
        self.plugin = self.plane.programs.start(PLUGIN, [
            self.folder / f"bin/{PLUGIN}", f"--config-file={self.config}",
            f"--node-config-file={self.node_config}", f"--metrics-bind-address=127.0.0.1:{self.plugin_port}", "-v=4",
        ], env=self.environment(PLUGIN) | {"HOOK_PATH": str(self.hook)})  # fmt: skip
        self.usual = self.plugin.argv
        self.monitor = self.plane.programs.start(MONITOR, [
            self.build / f"bin/{MONITOR}", f"--metrics-bind-address=127.0.0.1:{self.monitor_port}", "-v=4",
        ], env=self.environment(MONITOR) | {"HOOK_PATH": str(self.hook / "vgpu")})  # fmt: skip
        self.usual_monitor = self.monitor.argv
        self.wait()

    def use_mode(self, mode):
        """The node configuration says so from now on."""
        self.node_config.write_text(json.dumps({"nodeconfig": [{"name": node.NAME, "operatingmode": mode}]}))

    def start_plugin_again(self, *flags):
        """As usual, with these flags in addition; returns when the kubelet knows of it."""
        before = self.registrations()
        self.plugin.argv = [*self.usual, *flags]
        self.plugin.start()
        self.wait()
        self.plugin.wait_until("registered again", lambda: self.registrations() > before)

    def restart_plugin(self, *flags):
        """The same, and the kubelet counts its slots again."""
        self.plugin.stop()
        self.start_plugin_again(*flags)
        wait_for("the node's GPUs again", lambda: self.node.gpus() == SLOTS, 30)

    def start_monitor_again(self, *within):
        """Killed, and started again by the words `within`."""
        self.monitor.kill()
        health = f"http://127.0.0.1:{self.monitor_port}/healthz"
        wait_for("a child of what was killed to end, too", lambda: not answers(health))
        self.monitor.argv = [*within, *self.usual_monitor]
        self.monitor.start()
        self.wait()

    def registrations(self):
        """How often the plugin has registered with a kubelet so far; only its log tells."""
        return self.plugin.log.read_text().count("serving: registered")

    def wait(self):
        self.plugin.wait_until("ready", lambda: answers(f"http://127.0.0.1:{self.plugin_port}/readyz"))
        self.monitor.wait_until("ready", lambda: answers(f"http://127.0.0.1:{self.monitor_port}/readyz"))

    def scrape(self):
        return scrape(f"http://127.0.0.1:{self.monitor_port}/metrics")

    def used_bytes(self):
        """What the simulated GPUs have given out, by the machine's own books, seen from outside of every limit."""
        said = subprocess.run(
            [self.build / "bin/hami", "smi", "--output", "json"],
            env=self.environment() | {"HAMI_STATE_DIR": str(self.folder / "shares")},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return {gpu["uuid"]: gpu["used_bytes"] for gpu in json.loads(said.stdout)["gpus"]}

    def inject(self, fault):
        """Something happens to the simulated machine."""
        code = "import ctypes, sys; sys.exit(not ctypes.CDLL(sys.argv[1]).simgpu_inject(sys.argv[2].encode(), None, 0))"
        command = [sys.executable, "-c", code, self.build / "simgpu/libnvidia-ml.so.1", fault]
        subprocess.run(command, env=self.environment(), check=True)
