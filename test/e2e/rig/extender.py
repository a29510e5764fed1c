# SPDX-License-Identifier: Apache-2.0
"""hami-scheduler as a cluster would run it: its configuration, its rights and no more, its webhook."""
import json
import os
import pathlib

from rig.control_plane import answers
from rig.metrics import scrape
from rig.programs import Failed
from rig.rights import grant

NAME = "hami-scheduler"

# Who writes HAMi's annotations here: our programs' certificates, and `admin`, as which the rig stands in for plugins and
# for HAMi's own scheduler.
WRITERS = (NAME, "hami-device-plugin", "hami-monitor", "admin")
POLICY = pathlib.Path(__file__).resolve().parents[3] / "deploy/policy/hami-annotations.yaml"
POLICY_SINCE = 30

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


# The other vendors, as HAMi's chart configures them.
VENDORS = (pathlib.Path(__file__).resolve().parents[2] / "golden/vendors/device-config.yaml").read_text()
VENDORS = VENDORS[VENDORS.index("cambricon:") :]


def rights():
    """Those of hami-scheduler's certificate."""
    name = f"e2e-{NAME}"
    return grant(NAME, name, CLUSTER_RULES) + grant(NAME, name, LEASE_RULES, "kube-system")


NOT_IGNORED = {"matchExpressions": [{"key": "hami.io/webhook", "operator": "NotIn", "values": ["ignore"]}]}


def policy():
    """The admission policy as it is delivered, with the writers of this cluster."""
    text = POLICY.read_text()
    delivered = "['system:serviceaccount:kube-system:hami-*']"
    if delivered not in text:
        raise Failed(f"{POLICY} does not name its writers as {delivered}")
    return text.replace(delivered, repr(list(WRITERS)))


def webhook(name, where, chosen, versions=("v1",)):
    """The webhook as the chart registers it, except that a new pod is refused when it does not answer: the tests want to
    know. A change goes on without it. `chosen` selects namespaces and pods."""

    def one(what, operation, failure):
        return {
            "name": what,
            "admissionReviewVersions": list(versions),
            "clientConfig": where,
            "failurePolicy": failure,
            "matchPolicy": "Equivalent",
            "reinvocationPolicy": "Never",
            "sideEffects": "None",
            "timeoutSeconds": 10,
            "namespaceSelector": NOT_IGNORED,
            "objectSelector": chosen,
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": ["pods"]}],
        }

    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [one("vgpu.hami.io", "CREATE", "Fail"), one("changes.vgpu.hami.io", "UPDATE", "Ignore")],
    }


def start(plane, program, name, address, metrics_port, *flags, pod=(NAME, "kube-system"), tls=NAME, within=()):
    """A hami-scheduler at that address; `pod` is (name, namespace) of the pod that it thinks it runs in."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(plane.folder), "TZ": os.environ.get("TZ", "UTC")}
    environment |= {"KUBECONFIG": str(plane.kubeconfig(NAME)), "POD_NAME": pod[0], "POD_NAMESPACE": pod[1]}
    config = plane.folder / "device-config.yaml"
    config.write_text(DEVICE_CONFIG + VENDORS)
    return plane.programs.start(name, [
        *within, program, f"--http_bind={address}", f"--cert_file={plane.pki.cert(tls)}",
        f"--key_file={plane.pki.key(tls)}", f"--metrics-bind-address=127.0.0.1:{metrics_port}",
        f"--device-config-file={config}", f"--trusted-writers={','.join(WRITERS)}", "--node-lock-timeout=5m", "--legacy-metrics", "-v=4",
        "--enable-ascend", "--enable-iluvatar", *flags,
    ], env=environment)  # fmt: skip


class Extender:
    """The one hami-scheduler of the session; tests may kill and start it."""

    def __init__(self, plane, program):
        self.plane = plane
        self.url = f"https://127.0.0.1:{plane.extender_port}"
        self.metrics_url = f"http://127.0.0.1:{plane.metrics_port}/metrics"
        plane.kubectl.apply(*rights())
        if plane.minor >= POLICY_SINCE:
            plane.kubectl("apply", "-f", "-", stdin=policy())
        address = f"127.0.0.1:{plane.extender_port}"
        self.program = start(plane, program, NAME, address, plane.metrics_port, f"--scheduler-name={NAME}")
        self.wait()
        self.register_webhook()

    def register_webhook(self, versions=("v1",)):
        where = {"url": self.url + "/webhook", "caBundle": self.plane.pki.bundle()}
        self.plane.kubectl.apply(webhook("hami-webhook", where, NOT_IGNORED, versions))

    def wait(self):
        self.program.wait_until("healthy", lambda: answers(self.url + "/healthz"))

    def start_again(self):
        self.program.start()
        self.wait()

    def scrape(self):
        return scrape(self.metrics_url)

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
