# SPDX-License-Identifier: Apache-2.0
"""The verbs of kube-scheduler's extender protocol beside filter and bind, asked by a real kube-scheduler."""
import pytest
from rig import extender as rig
from rig.control_plane import GANGS_SINCE, answers
from rig.lab import container
from rig.programs import free_ports, wait_for
from rig.rights import grant

CHOOSES = "hami-chooses"  # the profile of a kube-scheduler that knows all the verbs, and gangs
CHOSEN = {"schedulerName": CHOOSES}
EVICTIONS = [{"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]}]


@pytest.fixture(scope="module")
def chooser(plane, extender):
    """A hami-scheduler with --extender-mode=prioritize and --preemption, and a kube-scheduler that asks it."""
    address, metrics_port, health = (f"127.0.0.1:{port}" for port in free_ports(3))
    plane.kubectl.apply(*grant(rig.NAME, "e2e-hami-evictions", EVICTIONS))
    program = rig.start(plane, extender.program.argv[0], CHOOSES, address, metrics_port.rpartition(":")[2],
                        f"--scheduler-name={CHOOSES}", "--extender-mode=prioritize", "--preemption")  # fmt: skip
    program.wait_until("healthy", lambda: answers(f"https://{address}/healthz"))
    scheduler = plane.start_scheduler(
        f"kube-scheduler-{CHOOSES}", [CHOOSES], f"https://{address}", int(health.rpartition(":")[2]),
        verbs={"prioritizeVerb": "prioritize", "preemptVerb": "preempt"},
        flags=["--feature-gates=GenericWorkload=true,GangScheduling=true"] if plane.minor >= GANGS_SINCE else [])  # fmt: skip
    yield program
    scheduler.stop()
    program.stop()


@pytest.fixture(scope="module")
def urgent(plane):
    """A class of pods of higher priority."""
    plane.kubectl.apply({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                         "metadata": {"name": "e2e-urgent"}, "value": 1000})  # fmt: skip
    return CHOSEN | {"priorityClassName": "e2e-urgent"}


def preferring(lab, node, weight):
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [lab.full(node)]}]}
    preferred = [{"weight": weight, "preference": term}]
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}


def test_kube_scheduler_weighs_our_scores_with_its_own(lab, chooser):
    lab.nodes_of(3)
    notes = {"hami.io/gpu-scheduler-policy": "binpack"}
    assert lab.run("p1", gpu=1, mem=1000, notes=notes, spec=CHOSEN)[0] == "n00", "equal nodes: ours alone says which"
    liked = CHOSEN | preferring(lab, "n02", 100)
    assert lab.run("p2", gpu=1, mem=1000, notes=notes, spec=liked)[0] == "n02", "preferred by the pod"
    assert lab.run("p3", gpu=1, mem=1000, notes=notes, spec=preferring(lab, "n02", 100))[0] == "n00", "by default not"
    full = lab.run("p4", gpu=1, mem=16000, notes=notes, spec=liked)
    assert full[0] == "n01", "where it does not fit it is not liked"


def test_pods_at_once_share_no_capacity(lab, chooser):
    """Each wants half of a card, and all like the same node best."""
    lab.nodes_of(3, cards_each=2, memory=16000)
    liked = CHOSEN | preferring(lab, "n01", 100)
    lab.kubectl.apply(*[lab.manifest(f"p{index:02}", gpu=1, mem=8000, spec=liked) for index in range(12)])
    places = [lab.placed(f"p{index:02}") for index in range(12)]
    assert sorted(node for node, _ in places) == ["n00"] * 4 + ["n01"] * 4 + ["n02"] * 4


def gone(lab, name):
    return not lab.api.find(f"/api/v1/namespaces/{lab.name}/pods/{name}")


def test_an_urgent_pod_gets_its_place_from_the_fewest(lab, chooser, urgent):
    """kube-scheduler sees no shortage, as GPUs are none of its business."""
    lab.nodes_of(2)
    for index in range(4):
        lab.run(f"small{index}", gpu=1, mem=4000, notes={"nvidia.com/use-gpuuuid": lab.full("n00-0")})
    lab.run("large", gpu=1, mem=15000, notes={"nvidia.com/use-gpuuuid": lab.full("n01-0")})
    assert lab.run("urgent", gpu=1, mem=16000, spec=urgent)[0] == "n01"
    assert gone(lab, "large")
    assert all(lab.read(f"small{index}")["status"]["phase"] == "Running" for index in range(4))
    lab.event("urgent", "Preempting", "eviction of 1 pods of lower priority")


def test_what_kube_scheduler_would_evict_is_checked(lab, chooser, urgent):
    """Both nodes lack CPU. On one the card is held by a pod that nothing evicts, and so nothing is evicted there."""
    lab.nodes_of(2, memory=16000)
    for node, spec in (("n00", urgent), ("n01", {})):
        lab.run(f"card-{node}", gpu=1, mem=16000, notes={"nvidia.com/use-gpuuuid": lab.full(f"{node}-0")}, spec=spec)
        busy = {"name": "main", "image": "local.test/nothing:1", "resources": {"requests": {"cpu": "60"}}}
        lab.apply(f"cpu-{node}", containers=[busy], spec={"nodeName": lab.full(node)})
    needs = container(gpu=1, mem=8000)
    needs["resources"]["requests"] = {"cpu": "30"} | needs["resources"]["limits"]
    assert lab.run("urgent", containers=[needs], spec=urgent)[0] == "n01"
    assert gone(lab, "cpu-n01") and gone(lab, "card-n01")
    assert not gone(lab, "cpu-n00") and not gone(lab, "card-n00")


def gang(lab, name, count):
    """A Workload of kube-scheduler's own gang support, and the spec by which its pods say so."""
    groups = [{"name": "all", "policy": {"gang": {"minCount": count}}}]
    lab.kubectl.apply({"apiVersion": "scheduling.k8s.io/v1alpha1", "kind": "Workload", "spec": {"podGroups": groups},
                       "metadata": {"name": name, "namespace": lab.name}})  # fmt: skip
    spec = CHOSEN | {"workloadRef": {"name": name, "podGroup": "all"}}
    lab.kubectl.apply(*[lab.manifest(f"{name}{index}", gpu=1, mem=16000, spec=spec) for index in range(count)])


@pytest.mark.since(GANGS_SINCE)
def test_a_group_is_placed_as_a_whole_or_not_at_all(lab, chooser):
    lab.nodes_of(2, memory=16000)
    gang(lab, "half", 3)
    wait_for("two to wait for the third", lambda: len(waiting(lab, "half")) == 2, 30)
    assert not [pod for pod in lab.pods() if pod["spec"].get("nodeName")]
    lab.remove("half0", "half1", "half2")
    gang(lab, "pair", 2)
    assert sorted(lab.placed(f"pair{index}")[0] for index in range(2)) == ["n00", "n01"], "what the half held is free"
    gang(lab, "late", 2)
    lab.node("n02", [lab.card("n02-0", memory=16000)])
    wait_for("one to wait for the other", lambda: len(waiting(lab, "late")) == 1, 30)
    lab.node("n03", [lab.card("n03-0", memory=16000)])
    assert sorted(lab.placed(f"late{index}")[0] for index in range(2)) == ["n02", "n03"]


def waiting(lab, name):
    """Members of the group that we found a place for."""
    return [pod for pod in lab.pods() if pod["metadata"]["name"].startswith(name)
            and any(reason == "FilteringSucceed" for reason, _ in lab.events(pod["metadata"]["name"]))]  # fmt: skip
