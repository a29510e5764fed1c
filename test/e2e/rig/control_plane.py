# SPDX-License-Identifier: Apache-2.0
"""A control plane on loopback: etcd, kube-apiserver, kube-controller-manager, kube-scheduler; no root needed."""
import json
import pathlib
import re
import shutil
import ssl
import urllib.error
import urllib.request

from rig.api import Api, Kubectl
from rig.pki import Pki
from rig.programs import Failed, Programs, free_ports, wait_for

GANGS_SINCE = 35  # the minor version of the first Kubernetes with gangs
PROFILES = ("default-scheduler", "hami-scheduler")
RESOURCES = ("gpu", "gpumem", "gpumem-percentage", "gpucores", "priority")
VENDORS = pathlib.Path(__file__).resolve().parents[2] / "golden/vendors/device-config.yaml"


def resources():
    """Every resource that the extender decides upon."""
    others = re.findall(r"resource\w+: ([^\s,}]+/[^\s,}]+)", VENDORS.read_text())
    return sorted({*(f"nvidia.com/{name}" for name in RESOURCES), *others})


def answers(url):
    """True when that address answers 200; certificates are not what is asked here."""
    careless = ssl._create_unverified_context()  # pylint: disable=protected-access
    try:
        with urllib.request.urlopen(url, timeout=5, context=careless) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


class ControlPlane:
    """Knows every port and file of the session. `start()` returns when pods could be created and scheduled."""

    def __init__(self, folder, kubernetes):
        self.folder, self.bin, self.minor = folder, kubernetes.bin, kubernetes.minor()
        self.programs = Programs(folder / "log")
        self.etcd_port, self.etcd_peer_port, self.api_port, self.manager_port, self.scheduler_port = free_ports(5)
        self.extender_port, self.metrics_port = free_ports(2)
        self.pki = Pki(folder / "pki")
        self.identities()
        self.server = f"https://127.0.0.1:{self.api_port}"
        self.admin = Api(self.api_port, self.pki, "admin")
        self.kubectl = Kubectl(self.bin / "kubectl", self.pki.kubeconfig("admin", self.server))
        self.apiserver = None
        self.apiserver_flags = []  # in addition to the usual

    def identities(self):
        local = ("DNS:localhost", "IP:127.0.0.1")
        issue = self.pki.issue
        issue("apiserver", "/CN=kube-apiserver", (*local, "DNS:kubernetes.default.svc", "IP:10.96.0.1"))
        issue("admin", "/O=system:masters/CN=admin")
        issue("kube-scheduler", "/CN=system:kube-scheduler")
        issue("manager", "/CN=system:kube-controller-manager")
        issue("kubelet-client", "/O=system:masters/CN=kube-apiserver-kubelet-client")
        issue("hami-scheduler", "/CN=hami-scheduler", local)
        issue("hami-device-plugin", "/CN=hami-device-plugin")
        issue("hami-monitor", "/CN=hami-monitor")
        issue("tenant", "/CN=tenant")

    def kubeconfig(self, identity):
        return self.pki.kubeconfig(identity, self.server)

    # ---- one program after the other

    def start(self, extended=True):
        """Not `extended`: as in a cluster that has nothing of ours yet."""
        self.start_etcd()
        self.start_apiserver()
        self.start_manager()
        profiles = PROFILES if extended else PROFILES[:1]
        extender = f"https://127.0.0.1:{self.extender_port}" if extended else None
        self.start_scheduler("kube-scheduler", profiles, extender, self.scheduler_port)
        wait_for("the default service account", lambda: self.has_account("default"), 60)

    def start_etcd(self):
        program = shutil.which("etcd")
        if not program:
            raise Failed("etcd is missing: tools/setup --e2e installs it")
        client, peer = f"http://127.0.0.1:{self.etcd_port}", f"http://127.0.0.1:{self.etcd_peer_port}"
        etcd = self.programs.start("etcd", [
            program, "--name=e2e", f"--data-dir={self.folder}/etcd", f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=e2e={peer}"])  # fmt: skip
        etcd.wait_until("healthy", lambda: answers(client + "/health"))

    def start_apiserver(self):
        cert, key = self.pki.cert, self.pki.key
        self.apiserver = self.programs.start("kube-apiserver", [
            self.bin / "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{self.etcd_port}",
            "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", f"--secure-port={self.api_port}",
            f"--tls-cert-file={cert('apiserver')}", f"--tls-private-key-file={key('apiserver')}",
            f"--client-ca-file={cert('ca')}", f"--cert-dir={self.folder}/apiserver-certs",
            f"--service-account-key-file={self.pki.folder}/service-accounts.pub",
            f"--service-account-signing-key-file={key('service-accounts')}",
            "--service-account-issuer=https://kubernetes.default.svc", "--service-cluster-ip-range=10.96.0.0/16",
            "--authorization-mode=Node,RBAC", "--allow-privileged=true", "--endpoint-reconciler-type=none",
            # A webhook's Service is resolved here, as there is no kube-proxy.
            "--enable-aggregator-routing=true",
            # Node names do not resolve here.
            "--kubelet-preferred-address-types=InternalIP", f"--kubelet-certificate-authority={cert('ca')}",
            f"--kubelet-client-certificate={cert('kubelet-client')}", f"--kubelet-client-key={key('kubelet-client')}",
            *self.apiserver_flags])  # fmt: skip
        self.wait_for_apiserver()

    def wait_for_apiserver(self):
        self.apiserver.wait_until("ready", lambda: self.admin.get("/version") and answers(self.server + "/readyz"), 90)

    def start_manager(self):
        config, year = self.kubeconfig("manager"), "8760h"
        self.programs.start("kube-controller-manager", [
            self.bin / "kube-controller-manager", f"--kubeconfig={config}", f"--authentication-kubeconfig={config}",
            f"--authorization-kubeconfig={config}", "--bind-address=127.0.0.1", f"--secure-port={self.manager_port}",
            f"--cert-dir={self.folder}/manager-certs", "--leader-elect=false", "--use-service-account-credentials=true",
            f"--service-account-private-key-file={self.pki.key('service-accounts')}",
            f"--root-ca-file={self.pki.cert('ca')}",
            # Nodes that exist only as objects send no heartbeat.
            f"--node-monitor-grace-period={year}", f"--node-startup-grace-period={year}"])  # fmt: skip

    def start_scheduler(self, name, profiles, extender, port, election=None, within=(), verbs=None, flags=()):
        """A kube-scheduler with these profiles and our extender at that address, configured as HAMi's chart does, with
        `verbs` in addition."""
        identity = self.kubeconfig("kube-scheduler")
        config = self.folder / f"{name}.yaml"
        config.write_text(json.dumps({
            "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
            "leaderElection": election or {"leaderElect": False}, "clientConnection": {"kubeconfig": str(identity)},
            # A refused pod is tried again after 1 s, then 2 s: tests do not wait for the usual 10.
            "podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 2,
            "profiles": [{"schedulerName": profile} for profile in profiles],
            "extenders": [] if extender is None else [{
                "urlPrefix": extender, "filterVerb": "filter", "bindVerb": "bind", "nodeCacheCapable": True, **(verbs or {}),
                "weight": 1, "httpTimeout": "30s", "enableHTTPS": extender.startswith("https"),
                **({"tlsConfig": {"insecure": True}} if extender.startswith("https") else {}),
                "managedResources": [
                    {"name": resource, "ignoredByScheduler": True} for resource in resources()
                ],
            }],
        }, indent=1))  # fmt: skip
        scheduler = self.programs.start(name, [
            *within, self.bin / "kube-scheduler", f"--config={config}", f"--authentication-kubeconfig={identity}",
            f"--authorization-kubeconfig={identity}", "--bind-address=127.0.0.1", f"--secure-port={port}",
            f"--cert-dir={self.folder}/{name}-certs", "-v=2", *flags])  # fmt: skip
        scheduler.wait_until("healthy", lambda: answers(f"https://127.0.0.1:{port}/healthz"))
        return scheduler

    def has_account(self, namespace):
        return self.admin.find(f"/api/v1/namespaces/{namespace}/serviceaccounts/default")

    def stop(self):
        self.programs.stop_all(grace=2)  # what they would still put in order is thrown away
