# SPDX-License-Identifier: Apache-2.0
"""A real node: containerd, runc, a CNI bridge and the kubelet, with images of our own. Lives only in run.py's room."""
import json
import os
import pathlib
import shutil

from rig import binaries, images
from rig.control_plane import answers
from rig.programs import Failed, free_ports, run, wait_for

NAME, ADDRESS, PODS = "e2e-node", "10.97.0.1", "10.98.0.0/24"
KUBELET = pathlib.Path("/var/lib/kubelet")  # the folder of device plugins is compiled in: it can not be elsewhere
PAUSE, GUEST, BARE = "local.test/pause:1", "local.test/guest:1", "local.test/bare:1"
CNI = pathlib.Path("/usr/lib/cni")
CGROUPS = pathlib.Path("/sys/fs/cgroup")


class Node:
    def __init__(self, plane):
        self.plane = plane
        self.folder = plane.folder / "node"
        self.folder.mkdir()
        self.bin = binaries.containerd().bin
        self.cgroup = f"e2e-{os.path.basename(plane.folder)}"
        self.environment = dict(os.environ, PATH=f"{self.bin}:/usr/sbin:/sbin:{os.environ['PATH']}")
        self.containerd = self.kubelet = None
        self.port, self.health_port = free_ports(2)

    def start(self, guest, bare):
        """Returns when the node is Ready. `guest` and `bare` are the layers of the images that tests run."""
        run(["ip", "address", "replace", f"{ADDRESS}/32", "dev", "lo"])
        self.start_containerd()
        self.add_image(PAUSE, self.pause_layer(), ["sleep", "2147483647"], {"PATH": "/bin"})
        self.add_image(GUEST, guest, ["sh"], {"PATH": "/bin", "LD_LIBRARY_PATH": "/usr/local/nvidia/lib64"})
        self.add_image(BARE, bare, ["sh"], {"PATH": "/bin:/usr/bin", "LD_LIBRARY_PATH": "/usr/lib64"})
        self.start_kubelet()

    # ---- containerd

    def start_containerd(self):
        if not shutil.which("runc", path=self.environment["PATH"]) or not (CNI / "bridge").exists():
            raise Failed("runc or the CNI plugins are missing: tools/setup --e2e installs them")
        network = self.folder / "cni"
        network.mkdir()
        (network / "10-e2e.conflist").write_text(json.dumps({
            "cniVersion": "1.0.0", "name": "e2e", "plugins": [{
                "type": "bridge", "bridge": "e2e0", "isGateway": True, "ipMasq": False,
                "ipam": {"type": "host-local", "dataDir": f"{self.folder}/ipam", "ranges": [[{"subnet": PODS}]],
                         "routes": [{"dst": "0.0.0.0/0"}]}}]}))  # fmt: skip
        self.socket = self.folder / "containerd.sock"
        config = self.folder / "containerd.toml"
        config.write_text(f"""\
version = 3
root = "{self.folder}/root"
state = "{self.folder}/state"
[grpc]
  address = "{self.socket}"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{PAUSE}"
[plugins."io.containerd.cri.v1.runtime"]
  disable_apparmor = true
  # Without CAP_SYS_RESOURCE nobody may lower an oom_score_adj, and runc fails with words that say nothing.
  restrict_oom_score_adj = true
  cdi_spec_dirs = ["/var/run/cdi"]
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{CNI}"]
    conf_dir = "{network}"
""")
        argv = [self.bin / "containerd", "-c", config]
        self.containerd = self.plane.programs.start("containerd", argv, env=self.environment)
        self.containerd.wait_until("answering", lambda: self.ctr("version"))

    def ctr(self, *words, check=True):
        return run([self.bin / "ctr", "-a", self.socket, "-n", "k8s.io", *words], check, env=self.environment)

    def add_image(self, name, layer, command, environment):
        path = self.folder / "image.tar"
        images.archive(path, name, layer, command, environment)
        self.ctr("images", "import", path)
        path.unlink()

    def pause_layer(self):
        layer = images.Layer()
        layer.busybox()
        return layer.done()

    # ---- kubelet

    def make_cgroup(self):
        """Pods live below a cgroup of this session, so that another kubelet's are not mistaken for ours."""
        for controller in self.controllers():
            (controller / self.cgroup).mkdir(exist_ok=True)
            for file in ("cpuset.cpus", "cpuset.mems"):  # v1: a new cpuset may use nothing until it is told
                if controller.name == "cpuset" and (controller / file).exists():
                    (controller / self.cgroup / file).write_text((controller / file).read_text())

    @staticmethod
    def controllers():
        if (CGROUPS / "cgroup.controllers").exists():
            return [CGROUPS]
        folders = [path for path in CGROUPS.iterdir() if path.is_dir() and not path.is_symlink()]
        return [path for path in folders if path.name != "unified"]

    def start_kubelet(self):
        plane, pki = self.plane, self.plane.pki
        names = ("DNS:localhost", f"DNS:{NAME}", "IP:127.0.0.1", f"IP:{ADDRESS}")
        pki.issue("kubelet", f"/O=system:nodes/CN=system:node:{NAME}", names)
        self.make_cgroup()
        KUBELET.mkdir(parents=True, exist_ok=True)
        config = self.folder / "kubelet.json"
        config.write_text(json.dumps({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "cgroupDriver": "cgroupfs", "cgroupRoot": f"/{self.cgroup}", "failSwapOn": False,
            "containerRuntimeEndpoint": f"unix://{self.socket}", "imageServiceEndpoint": f"unix://{self.socket}",
            "address": ADDRESS, "port": self.port, "readOnlyPort": 0,
            "healthzBindAddress": "127.0.0.1", "healthzPort": self.health_port,
            "authentication": {"anonymous": {"enabled": False}, "x509": {"clientCAFile": str(pki.cert("ca"))}},
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(pki.cert("kubelet")), "tlsPrivateKeyFile": str(pki.key("kubelet")),
            "podLogsDir": f"{self.folder}/logs", "makeIPTablesUtilChains": False,
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "imageGCHighThresholdPercent": 100, "nodeStatusUpdateFrequency": "2s", "syncFrequency": "5s",
            **self.of_newer_kubelets(),
        }, indent=1))  # fmt: skip
        self.kubelet = plane.programs.start("kubelet", [
            plane.bin / "kubelet", f"--config={config}", f"--kubeconfig={plane.kubeconfig('kubelet')}",
            f"--root-dir={KUBELET}", f"--cert-dir={self.folder}/kubelet-certs", f"--hostname-override={NAME}",
            f"--node-ip={ADDRESS}", "-v=2"], env=self.environment)  # fmt: skip
        self.wait_for_kubelet()

    def of_newer_kubelets(self):
        words = {}
        if self.plane.minor >= 31:
            words["failCgroupV1"] = False
        if self.plane.minor >= 32:  # a container that ended is started again after a second, not after ten
            words["featureGates"] = {"KubeletCrashLoopBackOffMax": True}
            words["crashLoopBackOff"] = {"maxContainerRestartPeriod": "1s"}
        return words

    def wait_for_kubelet(self):
        health = f"http://127.0.0.1:{self.health_port}/healthz"
        self.kubelet.wait_until("healthy", lambda: answers(health), 60)
        self.kubelet.wait_until("node Ready", self.ready, 60)

    def ready(self):
        node = self.read()
        if node is None or any(taint["key"].endswith("not-ready") for taint in node["spec"].get("taints", [])):
            return False
        return any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"].get("conditions", []))

    def read(self):
        return self.plane.admin.find(f"/api/v1/nodes/{NAME}")

    def gpus(self):
        """How many the kubelet says it has."""
        return int(self.read()["status"].get("allocatable", {}).get("nvidia.com/gpu", 0))

    def restart_kubelet(self):
        self.kubelet.kill()
        self.kubelet.start()
        self.wait_for_kubelet()

    # ---- the end

    def stop(self):
        """Containers first: they are nobody's children here, and their cgroups are not of this room."""
        if self.kubelet is not None:
            self.kubelet.stop()
        if self.containerd is not None and self.containerd.alive():
            wait_for("the containers to end", self.no_task_is_left)
            self.containerd.stop()
        for ours in [CGROUPS / self.cgroup, *CGROUPS.glob(f"*/{self.cgroup}")]:
            for folder, _, _ in os.walk(ours, topdown=False):
                os.rmdir(folder)

    def no_task_is_left(self):
        left = self.ctr("task", "ls", "-q").split()
        for task in left:
            self.ctr("task", "rm", "-f", task, check=False)  # it may be ending already
        return not left
