# SPDX-License-Identifier: Apache-2.0
"""A lab whose pods run on the real node."""
import itertools
import os
import pathlib
import re
import signal

from rig import node
from rig.agents import INSIDE
from rig.lab import RESOURCES, Lab
from rig.programs import Failed, wait_for

MIB = 1 << 20
PIDS = itertools.count(100_000, 1000)
REPORTS = re.compile(r"^(\w+) (\d+)$", re.MULTILINE)


class Bench(Lab):
    def __init__(self, plane, actor, agents, name):
        super().__init__(plane, actor, name)
        self.agents = agents

    def guest(self, name, *command, image=node.GUEST, **asks):
        """A container that runs `command`. The driver knows its processes by the node's pids, not by its own, and shows
        the GPUs that NVIDIA's runtime lets in."""
        variables = {
            "SIMGPU_STATE": f"{INSIDE}/state", "SIMGPU_QUIET": "1", "SIMGPU_CONTAINER": "1",
            "SIMGPU_PID_OFFSET": str(next(PIDS)),
        }  # fmt: skip
        return {
            "name": name, "image": image, "imagePullPolicy": "Never", "command": list(command),
            "env": [{"name": key, "value": value} for key, value in variables.items()],
            "volumeMounts": [{"name": "simgpu", "mountPath": INSIDE}],
            "resources": {"limits": {RESOURCES[word]: str(amount) for word, amount in asks.items()}},
        }  # fmt: skip

    def on_node(self, name, *containers, policy="Never", notes=None):
        """The manifest of a pod for the real node."""
        machine = {"name": "simgpu", "hostPath": {"path": str(self.agents.machine), "type": "Directory"}}
        body = {"nodeSelector": {"kubernetes.io/hostname": node.NAME}, "volumes": [machine], "restartPolicy": policy}
        return self.manifest(name, list(containers), notes, spec=body)

    def pod(self, name, *containers, **features):
        self.kubectl.apply(self.on_node(name, *containers, **features))

    def logs(self, name, container):
        return self.kubectl("logs", "-n", self.name, name, "-c", container)

    def reports(self, name, container):
        """What the guest said, {key: value}; what it said last of each."""
        return {key: int(value) for key, value in REPORTS.findall(self.logs(name, container))}

    def variables(self, name, container):
        """The environment of a container that ran `env`."""
        return dict(line.split("=", 1) for line in self.logs(name, container).splitlines() if "=" in line)

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

    def processes(self, name, program):
        """Folders in /proc of the pod's processes that run the program."""
        uid = self.read(name)["metadata"]["uid"]
        ours = [one for one in pathlib.Path("/proc").glob("[0-9]*") if uid in (one / "cgroup").read_text()]
        return [one for one in ours if (one / "comm").read_text().strip() == program]

    def kill(self, name, program):
        """kill -9 to the container's process, as the kernel's OOM killer would."""
        for process in self.processes(name, program):
            os.kill(int(process.name), signal.SIGKILL)

    def restarts(self, name):
        """Of the first container, once the kubelet tells; its output can be read before."""
        statuses = wait_for(
            f"the containers of {name}", lambda: self.read(name)["status"].get("containerStatuses"), 30, every=0.2
        )
        return statuses[0]["restartCount"]

    def paths(self):
        return [f"/api/v1/nodes/{node.NAME}"]
