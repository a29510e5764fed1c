# SPDX-License-Identifier: Apache-2.0
"""The chart, from `helm install` to `helm uninstall`, in the order of a cluster's life: each test goes on where the one
before it stopped."""
import base64
import copy
import http.client
import json
import pathlib
import ssl
import threading

import pytest

from rig import annotations, fake_nodes, node
from rig.agents import CARDS
from rig.annotations import PHASE, of
from rig.programs import Failed, wait_for
from rig.release import HOOK, NAME, NAMESPACE, ROOT

MIB = 1 << 20


def guest(release, name, *command, limits):
    """A pod that runs `command` with those limits and simgpu's state."""
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
            "volumes": [{"name": "simgpu", "hostPath": {"path": str(release.machine), "type": "Directory"}}],
            "containers": [{
                "name": "c", "image": node.GUEST, "imagePullPolicy": "Never", "command": list(command),
                "env": [{"name": "SIMGPU_STATE", "value": "/simgpu/state"}, {"name": "SIMGPU_QUIET", "value": "1"},
                        {"name": "SIMGPU_CONTAINER", "value": "1"}, {"name": "SIMGPU_PID_OFFSET", "value": "100000"}],
                "volumeMounts": [{"name": "simgpu", "mountPath": "/simgpu"}],
                "resources": {"limits": limits},
            }],
        },
    }  # fmt: skip


def read(release, name):
    return release.plane.kubectl.json("get", "pod", name)


def phase(release, name, wanted, timeout=60):
    try:
        wait_for(f"{name} to be {wanted}", lambda: read(release, name)["status"]["phase"] == wanted, timeout)
    except Failed as error:
        events = release.plane.kubectl("get", "events")
        raise Failed(f"{error}\n{events}\n{release.state()}") from None


# Those that need no kinds of others (cert-manager's, Prometheus').
PRESETS = ("default", "strict", "hami-defaults", "hami-like", "by-hand", "no-webhook", "node")


def dry_run(helm, objects):
    said = helm.plane.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", str(objects))
    return said.count("(server dry run)")


@pytest.mark.parametrize("preset", PRESETS)
def test_every_object_passes_a_server_side_dry_run(helm, preset):
    """Before anything is there."""
    assert dry_run(helm, helm.template(f"--values={ROOT}/test/deploy/values/{preset}.yaml")) > 10


@pytest.mark.since(32)  # what they hold: lifecycle.preStop.sleep, admission policies
def test_the_manifests_pass_a_server_side_dry_run(helm):
    for manifests in ("deploy/manifests/hami.yaml", "deploy/manifests/before-1.32/hami.yaml"):
        assert dry_run(helm, ROOT / manifests) > 30


READER = {"kind": "ServiceAccount", "name": "reader", "namespace": "default"}
BEFORE = "before"  # a release of HAMi beside ours, as `hami upgrade` wants it


def first_values(release, **scheduler):
    """Those of the first revision: the page for a reader with a token, beside HAMi."""
    page = {"enabled": True, "readers": [READER]}
    often = {"extraArgs": ["--page-sample-interval=1s"]}
    return release.values(scheduler={"page": page, "extender": often} | scheduler, compat={"besideRelease": BEFORE})


def test_helm_install_brings_every_program_up_as_pods(release):
    release.install(first_values(release))
    release.wait_for_gpus()

    def ready():
        """How many pods of each component have all their containers ready."""
        counts = {}
        for pod in release.pods():
            if pod["status"]["phase"] != "Running":
                continue
            statuses = pod["status"]["containerStatuses"]
            assert all(one["restartCount"] == 0 for one in statuses), pod
            component = pod["metadata"]["labels"]["app.kubernetes.io/component"]
            counts[component] = counts.get(component, 0) + all(one["ready"] for one in statuses)
        return counts

    wanted = {"hami-scheduler": 2, "hami-device-plugin": 1, "hami-monitor": 1}
    wait_for("every program to be ready", lambda: ready() == wanted, 30)
    assert len(annotations.cards(release.node.read())) == CARDS


def test_a_gpu_pod_keeps_to_its_share(release):
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"}
    release.plane.kubectl.apply(guest(release, "greedy", "guest_greedy", "4", limits=limits))
    phase(release, "greedy", "Succeeded")
    pod = read(release, "greedy")
    assert pod["spec"]["schedulerName"] == "hami-scheduler"
    assert of(pod)[PHASE] == "success"
    said = dict(line.split(" ", 1) for line in release.plane.kubectl("logs", "greedy").splitlines() if " " in line)
    assert int(said["cuda_total"]) == 3000 * MIB
    assert int(said["most_bytes"]) <= 3000 * MIB
    assert int(said["refused"]) > 0


def ask_page(pod, target, token=""):
    """The status, and the document."""
    context = ssl._create_unverified_context()  # no name of the certificate is an address
    connection = http.client.HTTPSConnection(pod["status"]["podIP"], 9396, timeout=5, context=context)
    connection.request("GET", target, headers={"Authorization": f"Bearer {token}"} if token else {})
    answer = connection.getresponse()
    text = answer.read()
    return answer.status, json.loads(text) if answer.status == 200 else text


def test_the_page_shows_what_a_pod_uses_under_its_limit(release):
    kubectl = release.plane.kubectl
    kubectl("create", "serviceaccount", READER["name"])
    token = kubectl("create", "token", READER["name"]).strip()
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"}
    kubectl.apply(guest(release, "shown", "guest_steady", "600", "1000", "200", limits=limits))
    phase(release, "shown", "Running")
    for scheduler in release.pods("hami-scheduler"):
        assert ask_page(scheduler, "/v1/state")[0] == 401

        def use(scheduler=scheduler):
            """The last sample: time, used, limit, percent, its limit."""
            status, document = ask_page(scheduler, f"/v1/use?node={node.NAME}", token)
            assert status == 200, document
            shares = [share for share in document["shares"] if share["pod"] == "shown"]
            return shares[0]["samples"][-1] if shares else [document["problem"], 0]

        try:
            wait_for("1000 MiB in use", lambda: use()[1] >= 1000, 10)
        except Failed as error:
            raise Failed(f"{error}: {use()}") from None
        _, used, limit, _, core_limit = use()
        assert (used <= limit, limit, core_limit) == (True, 3000, 30)
    kubectl("delete", "pod", "shown", "--grace-period=0", "--force")


def as_writer(release, name, result="failed"):
    """Writes a result on a pod as that service account."""
    user = f"system:serviceaccount:{NAMESPACE}:{name}"
    meta = {"name": f"e2e-{name}"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding"}
    release.plane.kubectl.apply(kind | {"metadata": meta, "roleRef": role, "subjects": subjects})
    release.plane.kubectl("annotate", "pod", "greedy", f"hami.io/bind-phase={result}", "--overwrite", f"--as={user}")


def test_what_the_release_beside_ours_writes_is_believed(release):
    """compat.besideRelease: HAMi's plugin may say what became of a pod, and nobody else may."""
    as_writer(release, f"{BEFORE}-hami-device-plugin")
    assert of(read(release, "greedy"))[PHASE] == "failed"
    for stranger in ("other-hami-device-plugin", f"{BEFORE}-other"):
        with pytest.raises(Failed, match="by HAMi's own programs alone"):
            as_writer(release, stranger, "success")


def test_helm_test_passes(release):
    release.helm("test", NAME, "--timeout=120s")


def test_a_certificate_is_renewed_under_load_without_a_refusal(release):
    """`hami cert` as the CronJob runs it, while pods are admitted by a webhook that must answer."""
    kubectl = release.plane.kubectl
    values = first_values(release, admissionWebhook={"failurePolicy": "Fail"})
    release.upgrade(values)
    before = kubectl.json("get", "secret", "-n", NAMESPACE, f"{NAME}-scheduler-tls")["data"]["tls.crt"]
    job = kubectl.json("get", "cronjob", "-n", NAMESPACE, f"{NAME}-cert")["spec"]["jobTemplate"]["spec"]
    job["template"]["spec"]["containers"][0]["args"] += ["--days=800", "--renew-before=700", "--settle=2"]
    meta = {"name": "renew", "namespace": NAMESPACE}
    kubectl.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": job})

    def serves_another():
        """The kubelet brings a Secret's change to a pod within a minute or two."""
        secret = kubectl.json("get", "secret", "-n", NAMESPACE, f"{NAME}-scheduler-tls")["data"]["tls.crt"]
        return secret != before and all(served(pod) == secret for pod in release.pods("hami-scheduler"))

    with Admissions(release) as admissions:
        wait_for("every replica to serve another certificate", serves_another, 180, every=1)
        more = admissions.admitted + 20
        wait_for("20 more admissions", lambda: admissions.admitted > more)
    assert admissions.failures == []
    kubectl("delete", "job", "-n", NAMESPACE, "renew")


def served(pod):
    """The certificate that a replica serves, as the Secret has it."""
    pem = ssl.get_server_certificate((pod["status"]["podIP"], 8443), timeout=5)
    return base64.b64encode(pem.encode()).decode()


@pytest.mark.since(32)
def test_a_plugin_changes_its_own_node_alone(release):
    """With the token of the plugin's pod, as an intruder would have it."""
    plane = release.plane
    fake_nodes.create(plane.admin, "another", "others", [])
    where = {"nodeName": "another", "containers": [{"name": "c", "image": "local.test/nothing:1"}]}
    plane.admin.create("/api/v1/namespaces/default/pods", {"metadata": {"name": "theirs"}, "spec": where})
    plugin = release.pods("hami-device-plugin")[0]["metadata"]["name"]
    path = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    token = plane.kubectl("exec", "-n", NAMESPACE, plugin, "--", "cat", path).strip()

    def patch(what):
        """The status, and what the API server said."""
        connection = http.client.HTTPSConnection("127.0.0.1", plane.api_port, timeout=10,
                                                 context=ssl.create_default_context(cafile=plane.pki.cert("ca")))  # fmt: skip
        body = json.dumps({"metadata": {"annotations": {"e2e/by": "plugin"}}})
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/merge-patch+json"}
        connection.request("PATCH", what, body, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read()).get("message", "")

    assert patch(f"/api/v1/nodes/{node.NAME}")[0] == 200
    for theirs in ("/api/v1/nodes/another", "/api/v1/namespaces/default/pods/theirs"):
        status, said = patch(theirs)
        assert (status, "may not change what is on node another" in said) == (403, True), said
    for theirs in ("pod/theirs", "node/another"):
        plane.kubectl("delete", theirs, "--grace-period=0", "--force")


class Admissions:
    """Admits a GPU pod that never comes to be, again and again, as if pods were created all the time."""

    def __init__(self, release):
        self.release = release
        self.over, self.admitted, self.failures = threading.Event(), 0, []
        self.thread = threading.Thread(target=self.go_on, name="admissions", daemon=True)

    def once(self):
        thing = guest(self.release, "probe", "true", limits={"nvidia.com/gpu": "1"})
        answer = self.release.plane.admin.create("/api/v1/namespaces/default/pods?dryRun=All", thing)
        assert answer["spec"]["schedulerName"] == "hami-scheduler"

    def go_on(self):
        while not self.over.wait(0.02):
            try:
                self.once()
                self.admitted += 1
            except (OSError, Failed, AssertionError) as error:
                self.failures.append(str(error))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join(30)


def test_a_rollout_refuses_no_pod(release):
    """Replicas go one by one under a webhook that must answer: no admission meets one that is gone."""
    kubectl = release.plane.kubectl
    with Admissions(release) as admissions:
        for _ in range(2):
            kubectl("rollout", "restart", "-n", NAMESPACE, f"deployment/{NAME}-scheduler")
            kubectl("rollout", "status", "-n", NAMESPACE, f"deployment/{NAME}-scheduler", "--timeout=120s", timeout=130)
    assert admissions.failures == []
    assert admissions.admitted > 100


# Rights for what seldom happens: (account, verb, resource).
SELDOM = {
    ("scheduler", "get", "pods"): "a Binding that was not answered",
    ("scheduler", "get", "nodes"): "a node of which the watch has not told yet",
    ("scheduler", "patch", "events"): "an event that repeats",
    ("device-plugin", "get", "pods"): "the owner of a lock that its watch does not show",
    ("device-plugin", "create", "events"): "a GPU that fails, a bad configuration",
    ("device-plugin", "patch", "events"): "the same again",
    ("monitor", "create", "events"): "a resize",
    ("monitor", "patch", "events"): "the same again",
}


def granted(release, account):
    """{(verb, resource)} of our own roles for that account; kube-scheduler's are Kubernetes' own."""
    name, rights = f"{NAME}-{account}", set()
    for kind in ("roles", "clusterroles"):
        for role in release.plane.kubectl.json("get", kind, "-A", "-l", f"app.kubernetes.io/instance={NAME}")["items"]:
            if role["metadata"]["name"] in (name, f"{name}-bind-lease", f"{name}-page"):
                rights |= {(verb, resource) for rule in role["rules"] for verb in rule["verbs"] for resource in rule["resources"]}
    return rights


def test_no_right_is_missing_and_none_is_idle(release, audit):
    """By the API server's own log: what was denied, and what is granted and was never asked for."""
    for account in ("scheduler", "device-plugin", "monitor", "cert"):
        asked = audit.of(NAMESPACE, f"{NAME}-{account}")
        denied = {key for key, codes in asked.items() if 403 in codes and key[2] not in ("another", "theirs")}
        assert not denied, (account, denied)
        rights, used = granted(release, account), {(verb, resource) for verb, resource, _ in asked}
        assert rights and used
        idle = {(account, *right) for right in rights - used} - set(SELDOM)
        assert not idle, idle


def test_an_upgrade_to_other_values_rolls_out(release):
    kubectl = release.plane.kubectl
    before = {pod["metadata"]["uid"] for pod in release.pods("hami-device-plugin")}
    values = copy.deepcopy(release.values())
    values["devicePlugin"]["deviceSplitCount"] = 5
    values["compat"] = {"hamiDefaults": True}
    values["scheduler"] = {"kubeScheduler": {"image": {"repository": "kube-scheduler"}}}
    release.upgrade(values)
    release.wait_for_gpus(5 * CARDS)
    assert before.isdisjoint({pod["metadata"]["uid"] for pod in release.pods("hami-device-plugin")})
    assert len(release.pods("hami-scheduler")) == 1
    hook = kubectl.json("get", "mutatingwebhookconfiguration", f"{NAME}-webhook")
    assert hook["webhooks"][0]["clientConfig"]["caBundle"], "the upgrade kept what hami cert wrote"


def test_a_change_of_the_nodes_configuration_rolls_out(release):
    before = {pod["metadata"]["uid"] for pod in release.pods("hami-device-plugin")}
    values = copy.deepcopy(release.values())
    config = {"nodeconfig": [{"name": node.NAME, "devicesplitcount": 4}]}
    values["devicePlugin"]["nodeConfiguration"] = {"config": json.dumps(config)}
    # With what a node needs for another mode, which it may have later.
    values["devicePlugin"] |= {"mig": {"enabled": True}, "mps": {"enabled": True, "root": f"{HOOK}/mps"}}
    release.upgrade(values)
    release.wait_for_gpus(4 * CARDS)
    (pod,) = release.pods("hami-device-plugin")
    assert pod["spec"]["hostPID"] and pathlib.Path(f"{HOOK}/mps/shm").is_dir()
    with pytest.raises(Failed, match="by HAMi's own programs alone"):  # no release is beside ours any more
        as_writer(release, f"{BEFORE}-hami-device-plugin", "allocating")
    assert before.isdisjoint({pod["metadata"]["uid"] for pod in release.pods("hami-device-plugin")})


def test_a_rollback_brings_the_first_values_back(release):
    release.helm("rollback", NAME, "1", "--wait", "--timeout=180s")
    release.wait_for_gpus()
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"}
    release.plane.kubectl.apply(guest(release, "again", "guest_steady", "1", "500", "100", limits=limits))
    phase(release, "again", "Succeeded")


def test_uninstall_leaves_running_pods_and_nothing_of_its_own(release):
    kubectl = release.plane.kubectl
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"}
    kubectl.apply(guest(release, "stays", "guest_steady", "600", "500", "100", limits=limits))
    phase(release, "stays", "Running")
    release.remove()
    wait_for("the release's pods to go", lambda: not release.plane.admin.pods(NAMESPACE), 60)
    kinds = "all,configmap,secret,serviceaccount,role,rolebinding,networkpolicy,poddisruptionbudget,lease"
    left = kubectl("get", kinds, "-n", NAMESPACE, "-o", "name").split()
    # Kubernetes' own, and kube-scheduler's lease, which no chart made.
    assert set(left) <= {"configmap/kube-root-ca.crt", "serviceaccount/default", "lease.coordination.k8s.io/hami-scheduler"}
    cluster = "clusterrole,clusterrolebinding,mutatingwebhookconfiguration"
    assert not [name for name in kubectl("get", cluster, "-o", "name").split() if f"/{NAME}-" in name]
    assert read(release, "stays")["status"]["phase"] == "Running"
    library = f"{HOOK}/vgpu/libvgpu.so"
    assert kubectl("exec", "stays", "--", "ls", library).strip() == library, "its library is still there"
    # Without the release GPU pods are ordinary pods of a resource that is not offered any more.
    wait_for("a pod that is not mutated", lambda: plain(release), 30)


def plain(release):
    """Is a GPU pod left as it was sent?"""
    thing = guest(release, "probe", "true", limits={"nvidia.com/gpu": "1"})
    answer = release.plane.admin.create("/api/v1/namespaces/default/pods?dryRun=All", thing)
    return answer["spec"]["schedulerName"] == "default-scheduler"
