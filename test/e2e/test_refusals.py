# SPDX-License-Identifier: Apache-2.0
"""What a user reads when a pod stays pending, and what when it does not."""


def test_reasons_of_every_node(lab):
    """One event line per kind of failure with its nodes, the counts per card in the pod's condition."""
    lab.node("full", [lab.card("F0"), lab.card("F1")])
    lab.node("small", [lab.card("S0", memory=4000)])
    lab.run("p1", gpu=2, mem=10000, notes={"nvidia.com/nouse-gpuuuid": lab.full("S0")})
    said = lab.refused("p2", gpu=1, mem=8000)
    assert "2/2 CardInsufficientMemory" in said and "1/1 CardInsufficientMemory" in said
    lab.event("p2", "FilteringFailed", f"2 nodes CardInsufficientMemory({lab.full('full')},{lab.full('small')})")
    lab.event("p2", "FilteringFailed", "no available node, 2 nodes do not meet")


def test_two_kinds_of_reasons(lab):
    lab.node("a", [lab.card("A0", memory=1000), lab.card("A1", health=False)])
    said = lab.refused("p", gpu=1, mem=2000)
    assert "1/2 CardInsufficientMemory, 1/2 CardNotHealth" in said
    lab.event("p", "FilteringFailed", f"1 nodes CardNotHealth({lab.full('a')})")


def test_success_is_told(lab):
    lab.node("a", [lab.card("A0")])
    lab.run("p", gpu=1, mem=1000)
    lab.event("p", "FilteringSucceed", f"find fit node({lab.full('a')}), 0 nodes not fit, 1 nodes fit")
    lab.event("p", "BindingSucceed", f"Successfully binding node [{lab.full('a')}] to {lab.name}/p")


def test_what_is_written_on_the_pod(lab):
    lab.node("a", [lab.card("A0")])
    lab.run("p", gpu=1, mem=1000, cores=30)
    pod = lab.read("p")
    notes, node = pod["metadata"]["annotations"], lab.full("a")
    assert notes["hami.io/vgpu-node"] == node and pod["metadata"]["labels"]["hami.io/vgpu-node"] == node
    assert notes["hami.io/vgpu-devices-allocated"] == f"{lab.full('A0')},NVIDIA,1000,30:;"
    assert notes["hami.io/vgpu-time"].isdigit() and notes["hami.io/bind-time"].isdigit()
