# SPDX-License-Identifier: Apache-2.0
"""HAMi's annotations as an outsider reads them: from the protocol, not from our C++, so that both can not err alike."""
import collections
import json
import time

ALLOCATED = "hami.io/vgpu-devices-allocated"
TO_ALLOCATE = "hami.io/vgpu-devices-to-allocate"
NODE = "hami.io/vgpu-node"
PHASE = "hami.io/bind-phase"
LOCK = "hami.io/mutex.lock"
CONCURRENT = "hami-cpp/concurrent-allocate"
ALIVE = "hami-cpp/plugin-alive"
TICKET = "hami-cpp/bind-ticket"
REGISTER = "hami.io/node-nvidia-register"

Share = collections.namedtuple("Share", "uuid kind memory cores")  # memory in MiB, cores in percent of the card
Use = collections.namedtuple("Use", "shares memory cores")


def of(thing):
    return thing["metadata"].get("annotations") or {}


def concurrent(node):
    """What our plugin writes on a node that takes several pods at once: that, and that it lives."""
    mark = 0xCBF29CE484222325
    for byte in of(node).get(REGISTER, "").encode():
        mark = ((mark ^ byte) * 0x100000001B3) % 2**64
    return {CONCURRENT: "1", ALIVE: f"{int(time.time())},{mark:016x}"}


def decode(text):
    """`UUID,type,MiB,cores:` per card, `;` after each container: a list of shares per container."""
    if not text.endswith(";"):
        raise ValueError(f"{text!r} does not end with ';'")
    grants = []
    for row in text[:-1].split(";"):
        shares = []
        for entry in filter(None, row.split(":")):
            uuid, kind, memory, cores = entry.split(",")
            shares.append(Share(uuid, kind, int(memory), int(cores)))
        grants.append(shares)
    return grants


def grants(pod):
    """The pod's grant, a list of shares per container; None when it has none."""
    text = of(pod).get(ALLOCATED)
    return None if text is None else decode(text)


def shares(pod):
    return [share for container in grants(pod) or [] for share in container]


def cards_of(pod):
    return [share.uuid for share in shares(pod)]


def cards(node):
    """The cards that a node registered, by UUID; none when nobody can read what it says."""
    try:
        return {card["id"]: card for card in json.loads(of(node).get(REGISTER, "[]"))}
    except ValueError:
        return {}


def ended(pod):
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def use_of(pod):
    """{uuid: Use} when the pod needs most: its sidecars and, beside them, one init container or all the others."""
    spec = pod["spec"]
    before = [container.get("restartPolicy") == "Always" for container in spec.get("initContainers", [])]
    beside, alone, together = (collections.defaultdict(lambda: Use(0, 0, 0)) for _ in range(3))
    for index, row in enumerate(grants(pod) or []):
        for share in row:
            one = Use(1, share.memory, share.cores)
            if index >= len(before):
                together[share.uuid] = plus(together[share.uuid], one)
            elif before[index]:
                beside[share.uuid] = plus(beside[share.uuid], one)
            else:
                alone[share.uuid] = Use(*map(max, alone[share.uuid], one))
    cards_used = {*beside, *alone, *together}
    return {uuid: plus(beside[uuid], Use(*map(max, alone[uuid], together[uuid]))) for uuid in cards_used}


def plus(one, other):
    return Use(*(a + b for a, b in zip(one, other)))


def books(pods):
    """What live pods hold: {(node, uuid): Use}."""
    held = collections.defaultdict(lambda: Use(0, 0, 0))
    for pod in pods:
        if not ended(pod):
            for uuid, use in use_of(pod).items():
                held[of(pod)[NODE], uuid] = plus(held[of(pod)[NODE], uuid], use)
    return dict(held)


def overcommitted(nodes, pods):
    """Every card that was given away more often, more memory or more cores than it has; [] when all is well."""
    registered = {node["metadata"]["name"]: cards(node) for node in nodes}
    wrong = []
    for (name, uuid), use in books(pods).items():
        card = registered.get(name, {}).get(uuid)
        if card is None:
            wrong.append(f"{name}: card {uuid} was given away and is not registered")
        elif use.shares > card["count"] or use.memory > card["devmem"] or use.cores > card["devcore"]:
            wrong.append(f"{name}: {uuid} has {card['count']} shares, {card['devmem']} MiB, {card['devcore']} %; {use}")
    return wrong
