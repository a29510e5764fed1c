# SPDX-License-Identifier: Apache-2.0
"""The chart in a cluster: images of our build, helm, and what a user would look at."""
import json
import os

from rig import images, node, oci
from rig.agents import CARDS
from rig.oci import CHART, ROOT
from rig.programs import Failed, run, wait_for

NAMESPACE, NAME = "gpu-system", "hami"
REGISTRY = "local.test"
IMAGE = f"{REGISTRY}/hami-cpp/hami:{oci.VERSION}"
HOOK = "/var/lib/hami-e2e"  # the usual /usr/local would be this machine's own
DRIVER = "/usr/local/nvidia/lib64"
LOOK = """\
export CUDA_VISIBLE_DEVICES="$NVIDIA_VISIBLE_DEVICES"
said=$(/guests/guest_steady 1 100 100); echo "$said"
case "$said" in *"cuda_total 536870912"*) ;; *) exit 1 ;; esac
"""


def program_layer(program, path):
    layer = images.Layer()
    layer.program(program, path)
    return layer.done()


class Release:
    def __init__(self, plane, build, folder):
        self.plane, self.build, self.folder = plane, build, folder
        self.node = None
        self.helm_program = run([ROOT / "tools/helm"], timeout=600).strip()
        self.kubeconfig = plane.kubeconfig("admin")
        self.machine = folder / "simgpu"
        self.driver = folder / "driver"
        self.sizes = {}
        plane.kubectl("create", "namespace", NAMESPACE)

    def prepare(self, host):
        """On a node that is there."""
        self.node = host
        for place in (self.machine, self.driver):
            place.mkdir()
        for library in ("libcuda.so.1", "libnvidia-ml.so.1"):
            (self.driver / library).write_bytes((self.build / "simgpu" / library).read_bytes())
        self.add(IMAGE, oci.layer_of(self.build))
        kube = self.plane.bin / "kube-scheduler"
        tag = os.path.basename(self.plane.bin).removeprefix("kubernetes-")
        self.add(f"{REGISTRY}/kube-scheduler:{tag}", program_layer(kube, "/usr/local/bin/kube-scheduler"))
        self.plane.kubectl("label", "node", node.NAME, "gpu=on")

    def add(self, name, layer):
        self.sizes[name] = len(layer)
        self.node.add_image(name, layer, ["true"], {"PATH": oci.PATH})

    def values(self, **more):
        """What is special here: images of this machine, and simgpu in the place of the driver."""
        environment = {
            "SIMGPU": f"{CARDS}xT4", "SIMGPU_STATE": "/simgpu/state", "SIMGPU_QUIET": "1", "LD_LIBRARY_PATH": DRIVER,
        }  # fmt: skip
        volumes = [
            {"name": "simgpu", "hostPath": {"path": str(self.machine), "type": "Directory"}},
            {"name": "driver", "hostPath": {"path": str(self.driver), "type": "Directory"}},
        ]
        guests = {"name": "guests", "hostPath": {"path": str(self.build / "test/demo"), "type": "Directory"}}
        mounts = [
            {"name": "simgpu", "mountPath": "/simgpu"},
            {"name": "driver", "mountPath": DRIVER, "readOnly": True},
        ]
        return {
            "global": {"imageRegistry": REGISTRY, "gpuHookPath": HOOK},
            "devicePlugin": {
                "libPath": f"{HOOK}/vgpu", "extraEnvs": environment, "extraVolumes": volumes, "extraVolumeMounts": mounts,
                "monitor": {"ctrPath": f"{HOOK}/vgpu/containers", "extraEnvs": environment},
            },
            # Without the driver's nvidia-smi a program of ours looks at the share.
            "tests": {
                "gpu": True, "command": ["sh", "-c", LOOK], "extraVolumes": volumes + [guests],
                "extraEnvs": [{"name": key, "value": value} for key, value in environment.items()],
                "extraVolumeMounts": mounts + [{"name": "guests", "mountPath": "/guests", "readOnly": True}],
            },
        } | more  # fmt: skip

    def template(self, *words, values=None):
        """A file with every object of a release with these values, as the server's version gets them."""
        text = self.helm("template", NAME, CHART, "--validate", "--skip-tests", *words, values=values)
        path = self.folder / "objects.yaml"
        path.write_text(text)
        return path

    def helm(self, *words, values=None, timeout=300):
        if values is not None:
            path = self.folder / "values.json"
            path.write_text(json.dumps(values))
            words = (*words, f"--values={path}")
        command = [self.helm_program, *words, "--namespace", NAMESPACE, "--kubeconfig", self.kubeconfig]
        try:
            return run(command, timeout=timeout, env=os.environ | {"HOME": str(self.folder)})
        except Failed as error:
            raise Failed(f"{error}\n{self.state()}") from None

    def install(self, values):
        return self.helm("install", NAME, CHART, "--wait", "--timeout=180s", values=values)

    def upgrade(self, values):
        return self.helm("upgrade", NAME, CHART, "--wait", "--timeout=180s", values=values)

    def pods(self, component=None):
        query = {"labelSelector": f"app.kubernetes.io/component={component}"} if component else {}
        return [pod for pod in self.plane.admin.pods(NAMESPACE, **query) if "deletionTimestamp" not in pod["metadata"]]

    def state(self):
        """For the reader of a failure."""
        kubectl = self.plane.kubectl
        text = kubectl("get", "pods,jobs", "-n", NAMESPACE, "-o", "wide") + kubectl("get", "events", "-n", NAMESPACE)
        for pod in self.pods():
            for container in pod["spec"]["containers"]:
                words = ("logs", "-n", NAMESPACE, pod["metadata"]["name"], "-c", container["name"], "--tail=8")
                try:
                    text += f"--- {pod['metadata']['name']} {container['name']}\n" + kubectl(*words)
                except Failed as error:
                    text += f"{error}\n"
        return text

    def wait_for_gpus(self, count=10 * CARDS):
        try:
            wait_for("the node's GPUs", lambda: self.node.gpus() == count, 60)
        except Failed as error:
            raise Failed(f"{error}\n{self.state()}") from None

    def remove(self):
        self.helm("uninstall", NAME, "--wait", "--ignore-not-found")
