# SPDX-License-Identifier: Apache-2.0
"""Every vendor's cards on a real control plane: a node each with what its plugin tells of it, a pod each, and what the
plugin then finds on the pod. The plugins themselves are the vendors' and are not here."""
import json

from rig.annotations import LOCK, NODE, PHASE, of
from rig.programs import Failed, wait_for

OWN_LOCK = "cambricon.com/dsmlu.lock"


def registered(kind, memory, cores=100, **more):
    return json.dumps([{"id": "C0", "count": 4, "devmem": memory, "devcore": cores, "type": kind, "health": True} | more])


SGPU = json.dumps([{"uuid": "M0", "totalDevCount": 4, "totalCompute": 100, "totalVRam": 65536, "healthy": True}])
DRS = json.dumps({"devices": [{"index": 0, "minor": 5, "capacity": 6}], "profiles": {"3g.20gb": "1", "6g.40gb": "2"}})

# Name: the node's annotations, its capacity, what the pod asks, and what is on the pod. NODE is the node's full name.
VENDORS = {
    "amd": (
        {"hami.io/node-amd-register": registered("AMD Instinct", 65536, 304)},
        {"amd.com/gpu": "1"},
        {"amd.com/gpu": "1", "amd.com/gpumem": "1000", "amd.com/gpucores": "50"},
        {"hami.io/amd-devices-to-allocate": "C0,AMD Instinct,1000,152:;"},
    ),
    "ascend": (
        {"hami.io/node-register-Ascend910B4": registered("Ascend910B4", 32768, 20)},
        {},
        {"huawei.com/Ascend910B4": "1", "huawei.com/Ascend910B4-memory": "5000"},
        {
            "hami.io/Ascend910B4-devices-to-allocate": "C0,Ascend910B4,8192,0:;",
            "huawei.com/Ascend910B4": '[{"UUID":"C0","temp":"vir05_1c_8g","memory":8192,"core":0}]',
        },
    ),
    "biren": (
        {"hami.io/node-biren-register": registered("Biren", 1000)},
        {},
        {"birentech.com/gpu": "1"},
        {"hami.io/Biren-devices-to-allocate": "C0,Biren,0,0:;"},
    ),
    "cambricon": (
        {},
        {"cambricon.com/vmlu": "100", "cambricon.com/mlu.smlu.vmemory": "64", "cambricon.com/mlu.smlu.vcore": "100"},
        {"cambricon.com/vmlu": "1", "cambricon.com/mlu.smlu.vmemory": "4", "cambricon.com/mlu.smlu.vcore": "20"},
        {
            "hami.io/cambricon-mlu-devices-allocated": "NODE-cambricon-mlu-0,MLU,1024,20:;",
            "CAMBRICON_DSMLU_PROFILE": "0_20_4",
            "CAMBRICON_DSMLU_ASSIGNED": "false",
        },
    ),
    "gcu": (
        {},
        {"enflame.com/gcu": "2"},
        {"enflame.com/gcu": "1"},
        {"hami.io/enflame-gcu-devices-to-allocate": "NODE-GCU-1,GCU,100,100:;"},
    ),
    "drs": (
        {"enflame.com/gcu-drs-capacity": DRS},
        {},
        {"enflame.com/drs-gcu": "3"},
        {
            "hami.io/enflame-vgpu-devices-allocated": "NODE-enflame-drs-0,Enflame,20480,50:;",
            "enflame.com/gcu-assigned-minor": "5",
            "enflame.com/gcu-request-size": "3",
        },
    ),
    "hygon": (
        {"hami.io/node-dcu-register": "C0,4,16384,100,DCU-Z100,0,true:"},
        {"hygon.com/dcunum": "4"},
        {"hygon.com/dcunum": "1", "hygon.com/dcumem": "2000", "hygon.com/dcucores": "20"},
        {"hami.io/dcu-devices-to-allocate": "C0,DCU,2000,20:;"},
    ),
    "iluvatar": (
        {"hami.io/node-MR-V100-register": "C0,4,16384,100,Iluvatar MR-V100,0,true:"},
        {},
        {"iluvatar.ai/MR-V100-vgpu": "1", "iluvatar.ai/MR-V100.vMem": "4"},
        {"hami.io/MR-V100-devices-to-allocate": "C0,MR-V100,1024,0:;"},
    ),
    "kunlun": (
        {},
        {"kunlunxin.com/xpu": "8"},
        {"kunlunxin.com/xpu": "2"},
        {"hami.io/kunlun-allocated": "NODE-kunlun-4,kunlun,0,0:NODE-kunlun-5,kunlun,0,0:;", "BAIDU_COM_DEVICE_IDX": "4,5"},
    ),
    "vxpu": (
        {"hami.io/node-register-xpu": registered("KUNLUN-XPU", 98304)},
        {},
        {"kunlunxin.com/vxpu": "1", "kunlunxin.com/vxpu-memory": "30000"},
        {"hami.io/xpu-devices-to-allocate": "C0,XPU,49152,50:;"},
    ),
    "metax": (
        {},
        {"metax-tech.com/gpu": "1"},
        {"metax-tech.com/gpu": "1"},
        {"hami.io/metax-gpu-devices-to-allocate": "NODE-metax-0,Metax-GPU,65536,100:;"},
    ),
    "sgpu": (
        {"metax-tech.com/node-gpu-devices": SGPU},
        {},
        {"metax-tech.com/sgpu": "1", "metax-tech.com/vmemory": "4", "metax-tech.com/vcore": "20"},
        {
            "hami.io/metax-sgpu-devices-to-allocate": "M0,Metax-SGPU,4096,20:;",
            "metax-tech.com/gpu-devices-allocated": '[[{"uuid":"M0","compute":20,"vRam":4096}]]',
            "metax-tech.com/sgpu-qos-policy": "best-effort",
        },
    ),
    "mthreads": (
        {},
        {"mthreads.com/vgpu": "16", "mthreads.com/sgpu-memory": "96", "mthreads.com/sgpu-core": "16"},
        {"mthreads.com/vgpu": "1", "mthreads.com/sgpu-memory": "8"},
        {"hami.io/mthreads-vgpu-devices-allocated": "NODE-mthreads-0,Mthreads,4096,0:;", "mthreads.com/gpu-index": "0"},
    ),
    "neuron": (
        {},
        {"aws.amazon.com/neuron": "1", "aws.amazon.com/neuroncore": "2"},
        {"aws.amazon.com/neuroncore": "1"},
        {"hami.io/aws-neuron-devices-allocated": "NODE-AWSNeuron-0,AWSNeuron,0,1:;", "AWS_NEURON_IDS": "0"},
    ),
    "vastai": (
        {"hami.io/node-va-register": registered("Vastai", 1000)},
        {},
        {"vastaitech.com/va": "1"},
        {"hami.io/Vastai-devices-to-allocate": "C0,Vastai,0,0:;"},
    ),
}


# Name: what its quota is of. The others count cards, which Kubernetes itself limits.
QUOTAS = {
    "amd": "amd.com/gpumem", "ascend": "huawei.com/Ascend910B4-memory", "cambricon": "cambricon.com/mlu.smlu.vmemory",
    "hygon": "hygon.com/dcumem", "iluvatar": "iluvatar.ai/MR-V100.vMem", "vxpu": "kunlunxin.com/vxpu-memory",
    "sgpu": "metax-tech.com/vmemory", "mthreads": "mthreads.com/sgpu-memory",
}  # fmt: skip


def asks(amounts):
    return [{"name": "main", "image": "local.test/nothing:1", "resources": {"limits": amounts}}]


def bound(lab, name):
    pod = wait_for(f"{name} to be bound", lambda: (one := lab.read(name))["spec"].get("nodeName") and one, 60)
    assert of(pod)[NODE] == pod["spec"]["nodeName"] and of(pod)[PHASE] == "allocating"
    return pod


def given_back(lab, *names):
    for name in names:
        lab.annotate_node(name, {LOCK: None, OWN_LOCK: None})


def test_every_vendor_finds_what_its_plugin_reads(lab, actor):
    for name, (notes, capacity, _, _) in VENDORS.items():
        actor.paused.add(lab.full(name))
        lab.other_node(name, notes, capacity)
    for name in ("k0", "k1"):  # 0 and 1, then 2 and 3: the left wing is taken
        lab.apply(name, containers=asks({"kunlunxin.com/xpu": "2"}))
        bound(lab, name)
    for name, (_, _, amounts, _) in VENDORS.items():
        lab.apply(name, containers=asks(amounts))
    for name, (_, _, _, wanted) in VENDORS.items():
        pod = bound(lab, name)
        assert lab.short(pod["spec"]["nodeName"]) == name
        notes = of(pod)
        found = {key: notes.get(key) for key in wanted}
        assert found == {key: text.replace("NODE", lab.full(name)) for key, text in wanted.items()}
    given_back(lab, *VENDORS)


def test_locks_of_two_vendors_are_both_or_none(lab, actor):
    """A node with DCUs and MLUs: HAMi's lock for the ones, the plugin's own for the others."""
    hygon, mlu = VENDORS["hygon"], VENDORS["cambricon"]
    actor.paused.add(lab.full("a"))
    lab.other_node("a", hygon[0] | mlu[0], hygon[1] | mlu[1])
    both = asks(hygon[2] | mlu[2])
    lab.apply("p1", containers=both)
    notes = of(bound(lab, "p1"))
    assert notes["hami.io/dcu-devices-allocated"] and notes["hami.io/cambricon-mlu-devices-allocated"]
    told = of(lab.read_node("a"))
    assert told[LOCK].endswith(f",{lab.name},p1") and told[OWN_LOCK]

    lab.annotate_node("a", {LOCK: None})  # one of the plugins is done
    lab.apply("p2", containers=both)
    lab.event("p2", "BindingFailed", "within 2 minutes")
    assert LOCK not in of(lab.read_node("a"))

    lab.annotate_node("a", {LOCK: told[LOCK], OWN_LOCK: None})  # the other one is, and not the first
    lab.event("p2", "BindingFailed", "within 5m")
    assert OWN_LOCK not in of(lab.read_node("a"))

    given_back(lab, "a")
    bound(lab, "p2")
    given_back(lab, "a")


def test_quota_of_every_vendor_is_kept_at_admission(lab):
    hard = {f"limits.{resource}": "1" for resource in QUOTAS.values()}
    meta = {"name": "q", "namespace": lab.name}
    lab.kubectl.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": hard}})

    def turned_away(name):
        try:
            lab.apply(name, containers=asks(VENDORS[name][2]))
        except Failed as error:
            assert "exceeding resource quota" in str(error)
            return True
        lab.remove(name)  # the quota has not reached the scheduler yet
        return False

    for name in QUOTAS:
        wait_for(f"{name} to be turned away", lambda: turned_away(name), 20)


def test_init_container_of_a_vendor_has_a_row_of_its_own(lab, actor):
    """Its card is free again for the container that comes after it: together they would not fit."""
    notes, capacity, amounts, _ = VENDORS["hygon"]
    actor.paused.add(lab.full("a"))
    lab.other_node("a", notes, capacity)
    (first,), (later,) = (asks(amounts | {"hygon.com/dcumem": size}) for size in ("12000", "9000"))
    lab.apply("p", containers=[later], init=[first | {"name": "first"}])
    assert of(bound(lab, "p"))["hami.io/dcu-devices-to-allocate"] == "C0,DCU,12000,20:;C0,DCU,9000,20:;"
    given_back(lab, "a")
