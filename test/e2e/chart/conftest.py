# SPDX-License-Identifier: Apache-2.0
"""A cluster that has nothing of ours but what helm installs."""
import pytest

from rig import binaries
from rig.agents import bare_layer, guest_layer
from rig.audit import Audit
from rig.control_plane import ControlPlane
from rig.door import Door
from rig.node import Node
from rig.release import Release


@pytest.fixture(scope="session")
def audit(folder):
    return Audit(folder)


@pytest.fixture(scope="session")
def plane(folder, audit):
    one = ControlPlane(folder, binaries.kubernetes())
    one.apiserver_flags = audit.flags
    try:
        one.start(extended=False)
        yield one
    finally:
        one.stop()


@pytest.fixture(scope="session")
def helm(plane, build, folder):
    """Helm and the control plane; no node yet."""
    place = folder / "release"
    place.mkdir()
    return Release(plane, build, place)


@pytest.fixture(scope="session")
def release(request, helm, plane, build):
    if request.config.option.no_node:
        pytest.skip("--no-node")
    request.getfixturevalue("room")
    door = Door(plane.api_port)
    host = Node(plane)
    try:
        host.start(guest_layer(build), bare_layer(build))
        helm.prepare(host)
        for name, size in helm.sizes.items():
            print(f"image {name}: {size / 1e6:.0f} MB")
        yield helm
    finally:
        host.stop()
        door.close()
