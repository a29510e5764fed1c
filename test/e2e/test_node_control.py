# SPDX-License-Identifier: Apache-2.0
"""CUDA_DISABLE_CONTROL in real containers: it counts as with HAMi, or only where the operator lets it."""
import os

import pytest

from rig import annotations
from rig.bench import MIB

GRANTED = 2000
SIGN = "/.hami-cpp-control"
PLACE = os.path.dirname(SIGN)
# As root of the container, by the means of a shell: away with the sign, or with what it stands in, or out of sight.
TAMPER = "; ".join([
    f"busybox rm -f {SIGN}", f"busybox umount {SIGN}", f"busybox mv {SIGN} /elsewhere", f"echo no > {SIGN}",
    f"busybox chmod 0 {SIGN}", f"busybox mount -t tmpfs none {PLACE}", f"busybox mv {PLACE} {PLACE}-elsewhere",
    f"busybox rm -rf {PLACE}-elsewhere"])


@pytest.fixture
def policy(agents):
    """Lets a test say where control may be switched off; everywhere again at its end."""
    yield lambda *namespaces: agents.restart_plugin(f"--disable-control-in={','.join(namespaces)}")
    agents.restart_plugin()


def run(bench, name, script, in_the_pod=True):
    """What a program sees that has CUDA_DISABLE_CONTROL from its pod, or else from its own shell only."""
    if not in_the_pod:
        script = "export CUDA_DISABLE_CONTROL=true; " + script
    thing = bench.guest("c", "sh", "-c", f"ls {SIGN}; {script}; exec guest_greedy 1", gpu=1, mem=GRANTED)
    if in_the_pod:
        thing["env"].append({"name": "CUDA_DISABLE_CONTROL", "value": "true"})
    bench.pod(name, thing)
    bench.phase(name, "Succeeded")
    return bench.reports(name, "c")


def whole_card(bench, name):
    """MiB of the card that the pod is on."""
    (uuid,) = annotations.cards_of(bench.read(name))
    return annotations.cards(bench.agents.node.read())[uuid]["devmem"]


def is_free(bench, name, seen):
    """It saw all of the card and got more than its share, and nothing told the library not to look away."""
    assert SIGN not in bench.logs(name, "c").splitlines()
    assert seen["nvml_total"] == whole_card(bench, name) * MIB
    assert seen["cuda_total"] > 2 * GRANTED * MIB
    assert seen["most_bytes"] > 2 * GRANTED * MIB


def is_kept(bench, name, seen):
    assert SIGN in bench.logs(name, "c").splitlines()
    assert (seen["cuda_total"], seen["nvml_total"]) == (GRANTED * MIB, GRANTED * MIB)
    assert seen["refused"] > 0 and seen["most_bytes"] <= GRANTED * MIB


def test_control_may_be_switched_off_as_with_hami(bench):
    for name, in_the_pod in {"pod": True, "shell": False}.items():
        is_free(bench, name, run(bench, name, "true", in_the_pod))


def test_operator_forbids_it_everywhere(bench, policy):
    """Whoever sets the variable, and whatever a shell does about the sign."""
    policy()
    for name, in_the_pod in {"pod": True, "shell": False}.items():
        is_kept(bench, name, run(bench, name, TAMPER, in_the_pod))


def test_operator_lets_some_namespaces(bench, policy):
    """Also while several pods may be on their way to the node at once, when nobody knows yet which one it is."""
    policy("kube-*", bench.name)
    is_free(bench, "here", run(bench, "here", "true"))
    policy("kube-*", bench.name + "-else")
    is_kept(bench, "elsewhere", run(bench, "elsewhere", "true"))
