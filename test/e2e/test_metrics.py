# SPDX-License-Identifier: Apache-2.0
"""The scheduler's metrics tell what the annotations in the cluster tell."""
from rig import annotations, metrics
from rig.programs import wait_for

MIB = 1 << 20


def test_metrics_agree_with_annotations(lab, extender):
    lab.nodes_of(2, cards_each=2)
    spread = {"hami.io/node-scheduler-policy": "spread"}
    for index in range(6):
        lab.run(f"p{index}", gpu=1, mem=1000 + index, cores=5 + index, notes=spread)
    lab.remove("p3")
    books = annotations.books(lab.pods())
    assert len(books) >= 3
    uses = {key: (use.shares, use.memory * MIB, use.cores) for key, use in books.items()}

    def node_metrics():
        samples = metrics.parse(extender.scrape())
        seen = {}
        for name in lab.nodes:
            columns = [
                metrics.select(samples, f"hami_gpu_{word}", "node", "device_uuid", node=name)
                for word in ("shared_count", "memory_allocated_bytes", "core_allocated_ratio")
            ]
            seen |= {key: tuple(column[key] for column in columns) for key in columns[0]}
        busy = {key: values for key, values in seen.items() if any(values)}
        assert busy == uses
        assert len(seen) == 4, "idle cards are told, too"
        return True

    wait_for("the metrics of the nodes", node_metrics, 30)

    samples = metrics.parse(extender.scrape())
    told = metrics.select(samples, "hami_vgpu_memory_allocated_bytes", "pod", "device_uuid", namespace=lab.name)
    expected = {
        (pod["metadata"]["name"], share.uuid): share.memory * MIB
        for pod in lab.pods()
        for share in annotations.shares(pod)
    }
    assert told == expected
    limits = metrics.select(samples, "hami_gpu_memory_limit_bytes", "device_uuid", node=lab.full("n00"))
    assert set(limits.values()) == {16384 * MIB}
    assert {labels.get("zone") for name, labels, _ in samples if name.startswith("hami_gpu_")} == {"vGPU"}


def test_legacy_names_tell_the_same(lab, extender):
    lab.node("a", [lab.card("A0")])
    lab.run("p", gpu=1, mem=1000, cores=10)

    def agree():
        samples = metrics.parse(extender.scrape())
        node = lab.full("a")
        new = metrics.select(samples, "hami_gpu_memory_allocated_bytes", "device_uuid", node=node)
        old = metrics.select(samples, "GPUDeviceMemoryAllocated", "deviceuuid", nodeid=node)
        return new == old == {(lab.full("A0"),): 1000 * MIB}

    wait_for("both names with the same value", agree, 30)


def test_quota_metrics(lab, extender):
    lab.node("a", [lab.card("A0")])
    spec = {"hard": {"limits.nvidia.com/gpumem": "4000"}}
    meta = {"name": "q", "namespace": lab.name}
    lab.kubectl.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": spec})
    lab.run("p", gpu=1, mem=3000)

    def told():
        samples = metrics.parse(extender.scrape())
        resource = {"namespace": lab.name, "quota_name": "nvidia.com/gpumem"}
        used = metrics.select(samples, "hami_resource_quota_used", **resource)
        limit = metrics.select(samples, "hami_resource_quota_limit", **resource)
        return used == {(): 3000} and limit == {(): 4000}

    wait_for("the quota's metrics", told, 30)
