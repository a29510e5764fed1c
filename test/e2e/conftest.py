# SPDX-License-Identifier: Apache-2.0
"""One real control plane for all tests, started once; each test gets a Lab, its own namespace and nodes in it."""
import collections
import os
import pathlib
import re
import signal

import pytest

from rig import binaries
from rig.actor import Actor
from rig.control_plane import ControlPlane
from rig.extender import Extender
from rig.lab import Lab

TALLY = pytest.StashKey[collections.Counter]()  # test: 1 passed, 2 skipped, 3 failed
PASSED = pytest.StashKey[bool]()  # of a test: did its body pass?
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def pytest_addoption(parser):
    parser.addoption("--build", default=str(ROOT / "build"), help="build folder with our programs")
    parser.addoption("--folder", help="where the session lives; run.py makes and removes it", default="")
    parser.addoption("--keep", action="store_true", help="leave the folder as it is")
    parser.addoption("--no-node", action="store_true", help="skip what needs a kubelet")
    parser.addoption("--no-kubelet-because", help="why there can be no kubelet here")


def pytest_configure(config):
    def interrupted(*_):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupted)  # so that fixtures are torn down then, too
    config.stash[TALLY] = collections.Counter()


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
    verdicts = collections.Counter(config.stash[TALLY].values())
    skipped = f", {verdicts[2]} skipped" if verdicts[2] else ""
    print(f"{verdicts[1]} passed, {verdicts[3]} failed{skipped}")


@pytest.fixture(scope="session")
def folder(request):
    return pathlib.Path(request.config.option.folder)


@pytest.fixture(scope="session")
def build(request):
    return pathlib.Path(request.config.option.build).resolve()


@pytest.fixture(scope="session")
def plane(folder):
    one = ControlPlane(folder, binaries.kubernetes().bin)
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


@pytest.fixture(scope="session")
def actor(plane):
    one = Actor(plane.admin)
    yield one
    one.stop()


@pytest.fixture
def lab(request, plane, extender, actor):
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower()).strip("-")
    one = Lab(plane, actor, words[:40].strip("-"))
    yield one
    part(request, one)


def part(request, lab):
    """The end of a test with its lab. What holds for every test is asked only of those that did not fail already."""
    try:
        if request.node.stash.get(PASSED, False):
            lab.verdict()
    finally:
        lab.close()
