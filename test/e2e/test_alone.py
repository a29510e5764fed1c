# SPDX-License-Identifier: Apache-2.0
"""A scheduler that is alone binds with one write; one that is not writes tickets; and the change from one to the other,
in good order or after a kill, loses no pod and gives no card twice."""
import signal

import pytest
from rig import annotations, extender as rig, metrics
from rig.annotations import TICKET, of
from rig.lab import everybody_runs
from rig.programs import free_ports, wait_for

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/hami-scheduler-bind"


def alone(url):
    samples = metrics.parse(metrics.scrape(url))
    return set(metrics.select(samples, "hami_scheduler_binds_alone").values()) == {1}


@pytest.fixture
def second(plane, extender):
    """Another hami-scheduler, without leader election and without a kube-scheduler that would ask it."""
    port, metrics_port = free_ports(2)
    address = f"127.0.0.1:{port}"
    program = rig.start(plane, extender.program.argv[0], "hami-second", address, metrics_port, "--scheduler-name=second")
    program.url = f"http://127.0.0.1:{metrics_port}/metrics"
    yield program
    if program.alive():
        program.stop()


@pytest.fixture
def nodes(lab, extender):
    """Two nodes whose plugin needs no lock; and nobody else binds at the begin."""
    lab.nodes_of(2, cards_each=2, memory=16000)
    for name in ("n00", "n01"):
        lab.annotate_node(name, annotations.concurrent(lab.read_node(name)))
    wait_for("the scheduler to be alone", lambda: alone(extender.metrics_url), 30)


def crowd(lab, prefix, count=10):
    lab.kubectl.apply(*[lab.manifest(f"{prefix}{index:02}", gpu=1, mem=1600, cores=10) for index in range(count)])


def tickets(lab):
    return [of(lab.read_node(name)).get(TICKET) for name in ("n00", "n01")]


def full(lab):
    uses = annotations.books(lab.pods())
    return set(uses.values()) == {annotations.Use(10, 16000, 100)} and len(uses) == 4


def test_one_alone_writes_no_tickets(lab, nodes, plane):
    crowd(lab, "p", 40)
    wait_for("40 pods to run", lambda: everybody_runs(lab, 40), 60)
    assert full(lab) and tickets(lab) == [None, None]
    lease = plane.admin.get(LEASE)
    assert lease["metadata"]["annotations"]["hami-cpp/binders"].startswith(lease["spec"]["holderIdentity"] + "=")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def test_second_scheduler_comes_and_goes(lab, nodes, extender, second, number):
    """In the middle of the work. While it is there tickets are written, afterwards none is needed again."""
    crowd(lab, "a", 20)
    wait_for("both to know of each other", lambda: not alone(extender.metrics_url), 20)
    crowd(lab, "b", 10)
    wait_for("30 pods to run", lambda: everybody_runs(lab, 30), 60)
    assert any(tickets(lab))
    second.signal(number)
    second.child.wait(30)
    crowd(lab, "c", 10)
    wait_for("40 pods to run", lambda: everybody_runs(lab, 40), 60)
    assert full(lab)
    wait_for("the first to be alone again", lambda: alone(extender.metrics_url), 30)


def test_one_alone_is_killed(lab, nodes, alive):
    """What it may still have had on its way is refused, and its successor goes on within seconds."""
    crowd(lab, "p", 40)
    wait_for("some pods to run", lambda: [pod for pod in lab.pods() if pod["status"]["phase"] == "Running"], 30)
    alive.program.kill()
    alive.start_again()
    wait_for("40 pods to run", lambda: everybody_runs(lab, 40), 90)
    assert full(lab)
