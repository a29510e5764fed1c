# SPDX-License-Identifier: Apache-2.0
"""hami-device-plugin and hami-monitor on the real node, as processes with the rights they need and no more; and simgpu,
the machine whose GPUs they and the containers see."""
import json
import os
import shutil
import subprocess
import urllib.request

from rig import images, node
from rig.control_plane import answers
from rig.extender import DEVICE_CONFIG, RBAC
from rig.programs import free_ports

USER = "hami-node"
PLUGIN, MONITOR = "hami-device-plugin", "hami-monitor"
GPUS = "2xT4"
INSIDE = "/simgpu"  # where containers find the machine's state
RULES = [
    {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch", "patch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
]


def rights():
    meta = {"name": f"e2e-{USER}"}
    role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": meta, "rules": RULES}
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": meta["name"]}
    user = [{"kind": "User", "name": USER, "apiGroup": RBAC}]
    binding = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRoleBinding", "metadata": meta, "subjects": user}
    return [role, binding | {"roleRef": reference}]


# What NVIDIA's container runtime does with the variable, as far as a program can tell: only these GPUs are there.
VISIBLE = b"""#!/bin/sh
export CUDA_VISIBLE_DEVICES="$NVIDIA_VISIBLE_DEVICES"
exec "$@"
"""


def guest_layer(build):
    """The image that tests run: busybox, the guests of the demo, and simgpu in the place of the driver's libraries."""
    layer = images.Layer()
    layer.busybox()
    for guest in ("steady", "greedy"):
        layer.program(build / f"test/demo/guest_{guest}", f"/bin/guest_{guest}")
    layer.write(VISIBLE, "/bin/visible")
    for library in ("libcuda.so.1", "libnvidia-ml.so.1"):
        layer.program(build / "simgpu" / library, f"/usr/local/nvidia/lib64/{library}")
    return layer.done()


class Agents:
    def __init__(self, plane, build):
        self.plane, self.build = plane, build
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

    def environment(self):
        return {
            "PATH": os.environ["PATH"], "HOME": str(self.folder), "NODE_NAME": node.NAME, "HAMI_RESYNC_INTERVAL": "10s",
            "KUBECONFIG": str(self.plane.kubeconfig(USER)), "LD_LIBRARY_PATH": str(self.build / "simgpu"),
            "SIMGPU": GPUS, "SIMGPU_STATE": str(self.machine / "state"), "SIMGPU_QUIET": "1",
        }  # fmt: skip

    def start(self):
        self.plane.kubectl.apply(*rights())
        self.plugin = self.plane.programs.start(PLUGIN, [
            self.folder / f"bin/{PLUGIN}", f"--config-file={self.config}",
            f"--node-config-file={self.node_config}", f"--metrics-bind-address=127.0.0.1:{self.plugin_port}", "-v=4",
        ], env=self.environment() | {"HOOK_PATH": str(self.hook)})  # fmt: skip
        self.monitor = self.plane.programs.start(MONITOR, [
            self.build / f"bin/{MONITOR}", f"--metrics-bind-address=127.0.0.1:{self.monitor_port}", "-v=4",
        ], env=self.environment() | {"HOOK_PATH": str(self.hook / "vgpu")})  # fmt: skip
        self.wait()

    def start_plugin_again(self):
        self.plugin.start()
        self.wait()

    def registrations(self):
        """How often the plugin has registered with a kubelet so far; only its log tells."""
        return self.plugin.log.read_text().count("serving: registered")

    def wait(self):
        self.plugin.wait_until("ready", lambda: answers(f"http://127.0.0.1:{self.plugin_port}/readyz"))
        self.monitor.wait_until("ready", lambda: answers(f"http://127.0.0.1:{self.monitor_port}/readyz"))

    def scrape(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.monitor_port}/metrics", timeout=10) as answer:
            return answer.read().decode()

    def used_bytes(self):
        """What the simulated GPUs have given out, by the machine's own books, seen from outside of every limit."""
        said = subprocess.run(
            [self.build / "bin/hami", "smi", "--output", "json"],
            env=self.environment() | {"HAMI_STATE_DIR": str(self.folder / "shares")},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return {gpu["uuid"]: gpu["used_bytes"] for gpu in json.loads(said.stdout)["gpus"]}
