# SPDX-License-Identifier: Apache-2.0
"""One real control plane for all tests, started once; each test gets a Lab, its own namespace and nodes in it."""
import collections
import os
import pathlib
import re
import signal

import pytest

from rig import binaries
from run import COUNTS, FAILED, HALVES, counted
from rig.actor import Actor
from rig.agents import MONITOR, PLUGIN, SLOTS, Agents, bare_layer, guest_layer
from rig.bench import Bench
from rig.control_plane import GANGS_SINCE, ControlPlane
from rig.extender import Extender
from rig.gate import GATED, Gate
from rig.lab import Lab
from rig.node import Node
from rig.programs import free_ports, wait_for

TALLY = pytest.StashKey[collections.Counter]()  # test: 1 passed, 2 skipped, 3 failed
PASSED = pytest.StashKey[bool]()  # of a test: did its body pass?
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def pytest_addoption(parser):
    parser.addoption("--build", default=str(ROOT / "build"), help="build folder with our programs")
    parser.addoption("--folder", help="where the session lives; run.py makes and removes it", default="")
    parser.addoption("--keep", action="store_true", help="leave the folder as it is")
    parser.addoption("--chart", action="store_true", help="the chart's tests, and no others")
    parser.addoption("--no-node", action="store_true", help="skip what needs a kubelet")
    parser.addoption("--half", choices=HALVES, help="only the tests without a kubelet, or with one")
    parser.addoption("--failed", metavar="FILE", help="run only the tests whose names FILE holds, a line each")
    parser.addoption("--no-kubelet-because", help="why there can be no kubelet here")


def pytest_configure(config):
    def interrupted(*_):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupted)  # so that fixtures are torn down then, too
    config.stash[TALLY] = collections.Counter()


def pytest_ignore_collect(collection_path, config):
    """The chart brings its own programs into a cluster: a session has either it or the rig's."""
    if collection_path.is_dir() or collection_path.name == "conftest.py":
        return None
    return (collection_path.parent.name == "chart") != config.option.chart or None


def pytest_collection_modifyitems(config, items):
    if config.option.failed:
        wanted = set(pathlib.Path(config.option.failed).read_text().splitlines())
        items[:] = [item for item in items if item.nodeid in wanted]
    if config.option.half:
        items[:] = [item for item in items if ("node" in item.fixturenames) == (config.option.half == "node")]
    kubernetes = binaries.kubernetes()
    for item in items:
        for mark in item.iter_markers("since"):
            if kubernetes.minor() < mark.args[0]:
                item.add_marker(pytest.mark.skip(reason=f"Kubernetes 1.{mark.args[0]} is the first with it; this is {kubernetes.version}"))
    items.sort(key=lambda item: "node" in item.fixturenames)  # the kubelet starts when all others are done


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.when == "call":
        item.stash[PASSED] = report.passed
    if report.when == "call" or report.outcome != "passed":
        item.config.stash[TALLY][report.nodeid] = max(
            item.config.stash[TALLY][report.nodeid], {"passed": 1, "skipped": 2, "failed": 3}[report.outcome]
        )


def pytest_unconfigure(config):
    if config.option.collectonly:
        return
    failed = [name for name, verdict in config.stash[TALLY].items() if verdict == 3]
    verdicts = collections.Counter(config.stash[TALLY].values())
    if config.option.folder:
        (pathlib.Path(config.option.folder) / FAILED).write_text("".join(f"{name}\n" for name in failed))
        (pathlib.Path(config.option.folder) / COUNTS).write_text(f"{verdicts[1]} {verdicts[3]} {verdicts[2]}")
    if not config.option.half:  # else run.py adds the other half's
        print(counted(verdicts[1], verdicts[3], verdicts[2]))


@pytest.fixture(scope="session")
def folder(request):
    return pathlib.Path(request.config.option.folder)


@pytest.fixture(scope="session")
def build(request):
    return pathlib.Path(request.config.option.build).resolve()


@pytest.fixture(scope="session")
def plane(folder):
    one = ControlPlane(folder, binaries.kubernetes())
    if one.minor >= GANGS_SINCE:
        one.apiserver_flags += ["--feature-gates=GenericWorkload=true", "--runtime-config=scheduling.k8s.io/v1alpha1=true"]
    try:
        one.start()
        yield one
    finally:
        one.stop()


@pytest.fixture(scope="session")
def extender(plane, build):
    program = build / "bin/hami-scheduler"
    if not os.access(program, os.X_OK):
        pytest.fail(f"{program} is not there; tools/e2e builds it")
    return Extender(plane, program)


@pytest.fixture
def alive(extender):
    """Whatever the test did to it, the scheduler runs again afterwards."""
    yield extender
    if not extender.program.alive():
        extender.start_again()


@pytest.fixture
def gate(plane, extender):
    """A second kube-scheduler between which and hami-scheduler calls can be held back."""
    door, health = free_ports(2)
    one = Gate(door, plane.extender_port)
    second = plane.start_scheduler("kube-scheduler-gated", [GATED], f"http://127.0.0.1:{door}", health)
    yield one
    second.stop()
    one.stop()


@pytest.fixture(scope="session")
def actor(plane):
    one = Actor(plane.admin)
    yield one
    one.stop()


@pytest.fixture(scope="session")
def room(request):
    """Network and names of our own."""
    if request.config.option.no_kubelet_because:
        pytest.skip(f"this needs root and namespaces of its own: {request.config.option.no_kubelet_because}")


@pytest.fixture(scope="session")
def node(request, plane, build):
    """The node with nothing of ours on it."""
    if request.config.option.no_node:
        pytest.skip("--no-node")
    request.getfixturevalue("room")
    one = Node(plane)
    try:
        one.start(guest_layer(build), bare_layer(build))
        yield one
    finally:
        one.stop()


@pytest.fixture(scope="session")
def agents(node, plane, extender, build):  # pylint: disable=unused-argument
    for name in (PLUGIN, MONITOR):
        if not os.access(build / "bin" / name, os.X_OK):
            pytest.fail(f"{build}/bin/{name} is not there; tools/e2e builds it")
    one = Agents(plane, node, build)
    one.start()
    wait_for("the node's GPUs", lambda: node.gpus() == SLOTS, 30)
    return one


@pytest.fixture
def lab(request, plane, extender, actor):
    one = Lab(plane, actor, name_of(request))
    yield one
    part(request, one)


@pytest.fixture
def bench(request, plane, actor, agents):
    one = Bench(plane, actor, agents, name_of(request))
    yield one
    part(request, one)


def name_of(request):
    """The test's name as a namespace."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower()).strip("-")
    return words[:40].strip("-")


def part(request, lab):
    """The end of a test with its lab. What holds for every test is asked only of those that did not fail already."""
    try:
        if request.node.stash.get(PASSED, False):
            lab.verdict()
    finally:
        lab.close()
