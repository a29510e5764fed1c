# SPDX-License-Identifier: Apache-2.0
"""Annotations are claims: what a tenant writes on pods, with the webhook and while it is down, and what it costs others."""
import json

import pytest

from rig.annotations import ALLOCATED, NODE, PHASE, TO_ALLOCATE, of
from rig.api import Api, ApiError
from rig.extender import POLICY, POLICY_SINCE
from rig.lab import container
from rig.programs import wait_for
from rig.rights import grant

CPU = [{"name": "main", "image": "local.test/nothing:1"}]
SEAL = "hami-cpp/grant-seal"
ELSEWHERE = {"schedulerName": "somebody-else"}


@pytest.fixture(name="tenant")
def a_tenant(lab, plane):
    """Somebody with every right to pods of this namespace, and to nodes, which tenants never have."""
    pods = ["pods", "pods/binding", "pods/status", "bindings"]
    plane.kubectl.apply(*grant("tenant", "e2e-tenant", [{"apiGroups": [""], "resources": pods, "verbs": ["*"]}], lab.name))
    nodes = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]}]
    plane.kubectl.apply(*grant("tenant", "e2e-tenant-nodes", nodes))
    one = Tenant(plane, lab)
    wait_for("the tenant's rights", lambda: one.api.pods(lab.name) is not None)
    return one


class Tenant:
    def __init__(self, plane, lab):
        self.lab, self.api = lab, Api(plane.api_port, plane.pki, "tenant")
        self.path = f"/api/v1/namespaces/{lab.name}/pods"

    def forged(self, card="A0", mem=16384):
        row = f"{self.lab.full(card)},NVIDIA,{mem},100:;"
        return {NODE: self.lab.full("a"), ALLOCATED: row, TO_ALLOCATE: row, PHASE: "allocating"}

    def create(self, name, notes, **asks):
        """The warnings of the answer."""
        connection = self.api.connect(30)
        try:
            thing = json.dumps(self.lab.manifest(name, notes=notes, **asks))
            connection.request("POST", self.path, thing, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = json.loads(answer.read())
            if answer.status >= 400:
                raise ApiError(name, answer.status, text.get("message"))
            return answer.headers.get_all("Warning") or []
        finally:
            connection.close()

    def annotate(self, name, notes, below=""):
        self.api.patch(f"{self.path}/{name}{below}", {"metadata": {"annotations": notes}})

    def refused(self, call, *words):
        with pytest.raises(ApiError) as caught:
            call()
        assert caught.value.status == 403
        for word in words:
            assert word in str(caught.value)


@pytest.fixture
def card(lab):
    lab.node("a", [lab.card("A0")])


@pytest.fixture(name="no_webhook")
def without_the_webhook(lab, extender):
    """The webhook is not there, as with failurePolicy Ignore while no scheduler answers."""
    lab.kubectl("delete", "mutatingwebhookconfiguration", "hami-webhook")
    unmutated = iter(range(1000))

    def gone():
        name = f"w{next(unmutated)}"
        lab.apply(name, gpu=1, spec=ELSEWHERE, notes={"hami.io/vgpu-time": "1"})
        return "hami.io/vgpu-time" in of(lab.read(name))

    wait_for("the webhook to be gone", gone, 20)
    yield
    extender.register_webhook()

    def back():
        name = f"w{next(unmutated)}"
        lab.apply(name, gpu=1)
        return lab.read(name)["spec"]["schedulerName"] == "hami-scheduler"

    wait_for("the webhook to be back", back, 20)


def test_results_are_taken_off_new_pods(lab, card, tenant):
    warnings = tenant.create("p", tenant.forged() | {"note": "mine"}, containers=CPU)
    notes = of(lab.read("p"))
    assert notes["note"] == "mine" and not [key for key in notes if "hami" in key]
    assert len(warnings) == 4 and all("was taken off" in warning for warning in warnings)
    assert lab.run("q", gpu=1) == ("a", ["A0"]), "the forged pod holds nothing"


def test_pod_from_another_pods_text_is_its_own(lab, card, tenant):
    lab.run("p", gpu=1, mem=4000)
    granted = {key: value for key, value in of(lab.read("p")).items() if key.startswith("hami")}
    tenant.create("q", granted, gpu=1, mem=5000)
    assert lab.placed("q") == ("a", ["A0"])
    assert ",5000," in of(lab.read("q"))[ALLOCATED]


def test_pod_that_goes_round_the_scheduler_is_refused(lab, card, tenant):
    for spec in (ELSEWHERE, {"nodeName": lab.full("a")}):
        tenant.refused(lambda spec=spec: tenant.create("p", tenant.forged(), gpu=1, spec=spec), "hami.io/", "remove it")


def test_changes_of_results_are_refused(lab, card, tenant):
    lab.run("p", gpu=1, mem=9000)
    for notes in ({ALLOCATED: None}, {ALLOCATED: ""}, {NODE: "elsewhere"}, {SEAL: "v1:00"}, {"hami-cpp/x": "1"}):
        tenant.refused(lambda notes=notes: tenant.annotate("p", notes), "HAMi's own programs alone", "tenant")
    tenant.annotate("p", {"note": "mine", "hami-cpp/resize": "main:mem=1000"})


@pytest.mark.since(POLICY_SINCE)
def test_policy_refuses_what_no_webhook_sees(lab, card, tenant, no_webhook):
    tenant.refused(lambda: tenant.create("p", tenant.forged(), containers=CPU), "hami-annotations", "the writer is tenant")
    tenant.create("p", {"note": "mine", "hami.io/gpu-scheduler-policy": "spread"}, containers=CPU)
    tenant.refused(lambda: tenant.annotate("p", {NODE: lab.full("a")}), NODE)
    tenant.refused(lambda: tenant.annotate("p", {NODE: lab.full("a")}, "/status"), NODE)
    tenant.annotate("p", {"hami-cpp/resize": "main:mem=1000"})
    labelled = {"metadata": {"labels": {NODE: lab.full("a")}}}
    tenant.refused(lambda: tenant.api.patch(f"{tenant.path}/p", labelled), NODE)


@pytest.mark.since(POLICY_SINCE)
def test_policy_refuses_pods_that_shun_the_webhook(lab, card, tenant):
    thing = lab.manifest("p", notes=tenant.forged(), gpu=1)
    thing["metadata"]["labels"] = {"hami.io/webhook": "ignore"}
    tenant.refused(lambda: tenant.api.create(tenant.path, thing), "hami-annotations")


@pytest.mark.since(POLICY_SINCE)
@pytest.mark.parametrize("below", ["pods/p/binding", "bindings"])
def test_policy_refuses_bindings_with_a_grant(lab, card, tenant, below):
    tenant.create("p", {}, containers=CPU, spec=ELSEWHERE)
    where = f"/api/v1/namespaces/{lab.name}/{below}"
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p", "annotations": tenant.forged()}}
    binding["target"] = {"apiVersion": "v1", "kind": "Node", "name": lab.full("a")}
    tenant.refused(lambda: tenant.api.create(where, binding), "hami-annotations")
    del binding["metadata"]["annotations"]
    tenant.api.create(where, binding)
    assert lab.read("p")["spec"]["nodeName"] == lab.full("a")


@pytest.mark.since(POLICY_SINCE)
def test_policy_guards_nodes(lab, card, tenant):
    node = f"/api/v1/nodes/{lab.full('a')}"
    for key in ("hami.io/mutex.lock", "hami.io/node-nvidia-register", "hami-cpp/concurrent-allocate"):
        change = {"metadata": {"annotations": {key: "1"}}}
        tenant.refused(lambda change=change: tenant.api.patch(node, change), key)
    tenant.api.patch(node, {"metadata": {"annotations": {"hami.io/device-cordon": lab.full("A0"), "note": "mine"}}})


def test_policy_lets_the_scheduler_bind(lab, card, no_webhook):
    """Nothing but kube-scheduler, hami-scheduler and the policy: the way of every pod."""
    lab.run("p", gpu=1, mem=4000, spec={"schedulerName": "hami-scheduler"})


def test_forged_pods_cost_nobody_anything(lab, card, alive):
    """Before there was webhook or policy: the writer is trusted here, which is as if there were none."""
    notes = {NODE: lab.full("a"), PHASE: "success"}
    lab.apply("whole", containers=CPU, notes=notes | {ALLOCATED: f"{lab.full('A0')},NVIDIA,16384,100:;"})
    lab.apply("garbage", containers=CPU, notes=notes | {ALLOCATED: "nonsense"})
    lab.run("p", gpu=1, mem=16384)
    alive.program.kill()
    alive.start_again()
    lab.remove("p")
    lab.run("q", gpu=1, mem=16384)
    lab.remove("whole", "garbage")


def test_running_pod_gives_nothing_back(lab, card):
    lab.run("p", gpu=1, mem=9000)
    for notes in ({ALLOCATED: None}, {ALLOCATED: ""}, {NODE: "elsewhere"}):
        lab.annotate_pod("p", notes)
        assert "CardInsufficientMemory" in lab.refused(f"q{len(lab.pods())}", gpu=1, mem=9000)
    lab.remove("p")


def test_claim_counts_for_no_more_than_its_request(lab, card, alive):
    lab.run("p", gpu=1, mem=4000, cores=30)
    lab.annotate_pod("p", {ALLOCATED: f"{lab.full('A0')},NVIDIA,16384,100:;"})
    alive.program.kill()
    alive.start_again()
    lab.run("q", containers=[container(gpu=1, mem=12000, cores=70)])
    lab.remove("p")


def test_policy_names_its_writers_once():
    assert POLICY.read_text().count("system:serviceaccount:kube-system:hami-*") == 1
