# SPDX-License-Identifier: Apache-2.0
"""ResourceQuota over memory and cores of GPUs: asked at admission, and again at every card."""
import pytest

from rig.programs import Failed, wait_for


@pytest.fixture
def card(lab):
    lab.node("a", [lab.card("A0")])


def limit(lab, name="q", scopes=None, **hard):
    names = {"mem": "limits.nvidia.com/gpumem", "cores": "limits.nvidia.com/gpucores"}
    spec = {"hard": {names[word]: str(amount) for word, amount in hard.items()}}
    if scopes:
        spec["scopes"] = scopes
    meta = {"name": name, "namespace": lab.name}
    lab.kubectl.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": spec})


def refused_at_admission(lab, name, **asks):
    """Until the quota has reached the scheduler's books, pods pass: they are taken away again."""

    def turned_away():
        try:
            lab.apply(name, **asks)
        except Failed as error:
            assert "exceeding resource quota" in str(error)
            return True
        lab.remove(name)
        return False

    wait_for(f"{name} to be turned away", turned_away, 20)


def test_memory_beyond_the_quota_is_not_admitted(lab, card):
    limit(lab, mem=4000)
    refused_at_admission(lab, "p0", gpu=1, mem=4001)
    lab.run("p1", gpu=1, mem=3000)
    refused_at_admission(lab, "p2", gpu=1, mem=1001)
    lab.run("p3", gpu=1, mem=1000)


def test_a_quota_has_units_too(lab, card):
    limit(lab, mem="2Gi")
    refused_at_admission(lab, "p0", gpu=1, mem=2049)
    lab.run("p1", gpu=1, mem="2Gi")


def test_a_quota_that_cannot_be_read_blocks(lab, card):
    limit(lab, mem="20G")
    refused_at_admission(lab, "p0", gpu=1, mem=1)


def test_a_quota_is_about_the_pods_of_its_scopes(lab, card):
    limit(lab, mem=1000, scopes=["Terminating"])
    refused_at_admission(lab, "p0", gpu=1, mem=1001, spec={"activeDeadlineSeconds": 600})
    lab.run("p1", gpu=1, mem=4000)
    lab.run("p2", gpu=1, mem=1000, spec={"activeDeadlineSeconds": 600})
    refused_at_admission(lab, "p3", gpu=1, mem=1, spec={"activeDeadlineSeconds": 600})


def test_cores_beyond_the_quota_are_not_admitted(lab, card):
    limit(lab, cores=50)
    refused_at_admission(lab, "p1", gpu=1, mem=1000, cores=51)
    lab.run("p2", gpu=1, mem=1000, cores=50)


def test_percentage_is_refused_at_the_card(lab, card):
    """How much a percentage is, only the card knows."""
    limit(lab, mem=4000)
    refused_at_admission(lab, "p0", gpu=1, mem=4001)  # the quota is in force
    assert "1/1 ResourceQuotaNotFit" in lab.refused("p1", gpu=1, percent=50)
    lab.run("p2", gpu=1, percent=20)


def test_two_quotas_and_the_smaller_one_holds(lab, card):
    limit(lab, "large", mem=9000)
    limit(lab, "small", mem=2000)
    refused_at_admission(lab, "p1", gpu=1, mem=2001)
    lab.kubectl("delete", "resourcequota", "-n", lab.name, "large")
    refused_at_admission(lab, "p2", gpu=1, mem=2001)


def test_deletion_gives_the_quota_back(lab, card):
    limit(lab, mem=4000)
    lab.run("p1", gpu=1, mem=4000)
    refused_at_admission(lab, "p2", gpu=1, mem=1)
    lab.remove("p1")
    lab.run("p3", gpu=1, mem=4000)


def test_other_namespaces_are_not_concerned(lab, card, plane):
    limit(lab, mem=1000)
    refused_at_admission(lab, "p1", gpu=1, mem=2000)
    other = lab.name + "-2"
    plane.kubectl("create", "namespace", other)
    try:
        wait_for("its service account", lambda: plane.has_account(other))
        thing = lab.manifest("p", gpu=1, mem=2000)
        thing["metadata"]["namespace"] = other
        plane.kubectl.apply(thing)
    finally:
        plane.kubectl("delete", "namespace", other, "--wait=false")
