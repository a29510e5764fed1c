# SPDX-License-Identifier: Apache-2.0
"""hami-scheduler as a cluster would run it: its configuration, its rights and no more, its webhook."""
import json
import os
import urllib.request

from rig.control_plane import answers

NAME = "hami-scheduler"
RBAC = "rbac.authorization.k8s.io"

# What HAMi's chart grants; what is not in here must not be needed.
CLUSTER_RULES = [
    {"apiGroups": [""], "resources": ["pods", "configmaps"], "verbs": ["get", "list", "watch", "patch"]},
    {"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "patch", "watch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "get", "list"]},
    {"apiGroups": [""], "resources": ["resourcequotas"], "verbs": ["get", "list", "watch"]},
]
LEASE_RULES = [
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["create", "list", "watch", "get", "update", "patch"],
    }
]

DEVICE_CONFIG = """\
nvidia:
  resourceCountName: nvidia.com/gpu
  resourceMemoryName: nvidia.com/gpumem
  resourceMemoryPercentageName: nvidia.com/gpumem-percentage
  resourceCoreName: nvidia.com/gpucores
  resourcePriorityName: nvidia.com/priority
  overwriteEnv: false
  defaultMemory: 0
  defaultCores: 0
  defaultGPUNum: 1
  deviceSplitCount: 10
  deviceMemoryScaling: 1
  deviceCoreScaling: 1
"""


def rights():
    """ClusterRole, Role and their bindings for the user of hami-scheduler's certificate."""
    user = [{"kind": "User", "name": NAME, "apiGroup": RBAC}]

    def bound(kind, rules, **where):
        meta = {"name": f"e2e-{NAME}", **where}
        role = {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": meta, "rules": rules}
        reference = {"apiGroup": RBAC, "kind": kind, "name": meta["name"]}
        binding = {"apiVersion": f"{RBAC}/v1", "kind": kind + "Binding", "metadata": meta, "subjects": user}
        return [role, binding | {"roleRef": reference}]

    return bound("ClusterRole", CLUSTER_RULES) + bound("Role", LEASE_RULES, namespace="kube-system")


def webhook(url, authority, versions=("v1",)):
    """The webhook as HAMi's chart registers it, except that a pod is refused when it does not answer: the tests want to
    know."""
    not_ignored = {"matchExpressions": [{"key": "hami.io/webhook", "operator": "NotIn", "values": ["ignore"]}]}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "hami-webhook"},
        "webhooks": [
            {
                "name": "vgpu.hami.io",
                "admissionReviewVersions": list(versions),
                "clientConfig": {"url": url, "caBundle": authority},
                "failurePolicy": "Fail",
                "matchPolicy": "Equivalent",
                "reinvocationPolicy": "Never",
                "sideEffects": "None",
                "timeoutSeconds": 10,
                "namespaceSelector": not_ignored,
                "objectSelector": not_ignored,
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
            }
        ],
    }


class Extender:
    """The one hami-scheduler of the session; tests may kill and start it."""

    def __init__(self, plane, program):
        self.plane = plane
        config = plane.folder / "device-config.yaml"
        config.write_text(DEVICE_CONFIG)
        self.url = f"https://127.0.0.1:{plane.extender_port}"
        self.metrics_url = f"http://127.0.0.1:{plane.metrics_port}/metrics"
        pki = plane.pki
        environment = {"PATH": os.environ["PATH"], "KUBECONFIG": str(plane.kubeconfig(NAME)), "POD_NAME": NAME}
        environment |= {"POD_NAMESPACE": "kube-system", "HOME": str(plane.folder), "TZ": os.environ.get("TZ", "UTC")}
        plane.kubectl.apply(*rights())
        self.program = plane.programs.start(NAME, [
            program, f"--http_bind=127.0.0.1:{plane.extender_port}",
            f"--cert_file={pki.cert(NAME)}", f"--key_file={pki.key(NAME)}", f"--scheduler-name={NAME}",
            f"--metrics-bind-address=127.0.0.1:{plane.metrics_port}", f"--device-config-file={config}",
            "--node-lock-timeout=5m", "--legacy-metrics", "-v=4"], env=environment)  # fmt: skip
        self.wait()
        self.register_webhook()

    def register_webhook(self, versions=("v1",)):
        self.plane.kubectl.apply(webhook(self.url + "/webhook", self.plane.pki.bundle(), versions))

    def wait(self):
        self.program.wait_until("healthy", lambda: answers(self.url + "/healthz"))

    def start_again(self):
        self.program.start()
        self.wait()

    def scrape(self):
        with urllib.request.urlopen(self.metrics_url, timeout=10) as answer:
            return answer.read().decode()

    def post(self, route, body):
        """A call as kube-scheduler makes it, for what no pod of a user would do."""
        connection = self.plane.admin.connect(30)  # the same authority, the same TLS
        connection.port = self.plane.extender_port
        try:
            connection.request("POST", route, json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()
