# SPDX-License-Identifier: Apache-2.0
"""The webhook as the API server sees it: what a pod looks like after `kubectl apply`, and who is turned away."""
import pytest

from rig.lab import container
from rig.programs import Failed, wait_for


def limits(pod, index=0):
    return pod["spec"]["containers"][index]["resources"]["limits"]


def warned(lab, name, **asks):
    """The warnings that come with the pod's creation."""
    path = f"/api/v1/namespaces/{lab.name}/pods"
    return lab.api.warnings(path, lab.manifest(name, **asks))


@pytest.fixture
def card(lab):
    lab.node("a", [lab.card("A0")])


def test_gpu_pod_gets_our_scheduler_and_a_whole_card(lab, card):
    lab.apply("p", gpu=1)
    pod = lab.read("p")
    assert pod["spec"]["schedulerName"] == "hami-scheduler"
    assert limits(pod)["nvidia.com/gpucores"] == "100", "who asks for no part of a card gets all of it"


def test_memory_alone_asks_for_one_card(lab, card):
    lab.apply("p", mem=3000)
    assert limits(lab.read("p"))["nvidia.com/gpu"] == "1"


def test_priority_becomes_a_variable(lab, card):
    lab.apply("p", gpu=1, mem=1000, priority=0)
    assert {"name": "CUDA_TASK_PRIORITY", "value": "0"} in lab.read("p")["spec"]["containers"][0]["env"]


def test_init_containers_are_mutated_too(lab, card):
    lab.apply("p", containers=[container(gpu=1, mem=1000)], init=[container("first", mem=500)])
    assert lab.read("p")["spec"]["initContainers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"


def test_pod_without_gpu_is_left_alone(lab, card):
    lab.apply("p", containers=[{"name": "main", "image": "local.test/nothing:1"}])
    pod = lab.read("p")
    assert pod["spec"]["schedulerName"] == "default-scheduler"
    assert "env" not in pod["spec"]["containers"][0]


def test_other_scheduler_is_left_alone(lab, card):
    lab.apply("p", gpu=1, spec={"schedulerName": "somebody-else"})
    pod = lab.read("p")
    assert pod["spec"]["schedulerName"] == "somebody-else"
    assert "nvidia.com/gpucores" not in limits(pod)


def test_the_largest_pod_is_seen(lab, card):
    # The API server writes each of these characters as six, so that the review has 8 MB.
    thing = lab.manifest("p", gpu=1)
    thing["spec"]["containers"][0]["env"] = [{"name": "TEXT", "value": "<" * 1_350_000}]
    lab.api.create(f"/api/v1/namespaces/{lab.name}/pods", thing)
    assert lab.read("p")["spec"]["schedulerName"] == "hami-scheduler"
    assert limits(lab.read("p"))["nvidia.com/gpucores"] == "100"


def test_ignored_pod_never_reaches_the_webhook(lab, card):
    thing = lab.manifest("p", gpu=1)
    thing["metadata"]["labels"] = {"hami.io/webhook": "ignore"}
    thing["spec"]["schedulerName"] = "nobody"
    lab.kubectl.apply(thing)
    assert "nvidia.com/gpucores" not in limits(lab.read("p"))


@pytest.mark.parametrize(
    "why, change, words",
    [
        ("privileged", {"securityContext": {"privileged": True}}, "container main is privileged"),
        ("giga", {"resources": {"limits": {"nvidia.com/gpumem": "20G"}}}, "write 19073Mi"),
        ("bytes", {"resources": {"limits": {"nvidia.com/gpumem": "2147483648"}}}, "write 2048Mi"),
        ("kibi", {"resources": {"limits": {"nvidia.com/gpumem": "2Ki"}}}, "less than 1 MiB"),
        ("percent", {"resources": {"limits": {"nvidia.com/gpumem-percentage": "101"}}}, "between 0 and 100"),
    ],
)
def test_refused(lab, card, why, change, words):
    with pytest.raises(Failed, match=words):
        lab.apply(why, containers=[container(gpu=1, mem=1000) | change])


def test_bytes_are_written_out_with_a_warning(lab, card):
    """kubectl prints warnings of an answer."""
    said = warned(lab, "p", gpu=1, mem="2Gi")
    assert "nvidia.com/gpumem 2Gi is taken as 2048 MiB" in said
    resources = lab.read("p")["spec"]["containers"][0]["resources"]
    assert resources["limits"]["nvidia.com/gpumem"] == "2048" == resources["requests"]["nvidia.com/gpumem"]


def test_what_gives_nothing_is_said(lab, card):
    said = warned(lab, "p", gpu=1, notes={"nvidia.com/gpumem": "3000"})
    assert "annotation nvidia.com/gpumem gives nothing" in said
    assert "gpucores 150 is taken as 100" in warned(lab, "q", gpu=1, mem=1000, cores=150)


def test_node_name_is_refused(lab, card):
    with pytest.raises(Failed, match="pod has node assigned"):
        lab.apply("p", gpu=1, spec={"nodeName": lab.full("a")})


def test_v1beta1_reviews_are_answered_in_kind(lab, card, extender):
    """HAMi's chart registers its webhook for v1beta1 alone."""
    lab.kubectl("delete", "mutatingwebhookconfiguration", "hami-webhook")
    try:
        # The API server learns of both changes through a watch. When nobody mutates any more, the next one that does
        # can only be the v1beta1 webhook.
        wait_for("the webhook to be gone", lambda: not mutated(lab), 20)
        extender.register_webhook(versions=("v1beta1",))
        wait_for("a pod mutated after a v1beta1 review", lambda: mutated(lab), 20)
    finally:
        extender.register_webhook()


def mutated(lab):
    """Was this moment's new pod given our scheduler?"""
    name = f"p{len(lab.pods())}"
    lab.apply(name, gpu=1)
    return lab.read(name)["spec"]["schedulerName"] == "hami-scheduler"
