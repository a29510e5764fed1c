# SPDX-License-Identifier: Apache-2.0
"""Container images made of files of this machine, as archives that containerd imports: nothing is pulled."""
import hashlib
import io
import json
import os
import pathlib
import platform
import re
import tarfile

from rig.programs import Failed, run

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
BUSYBOX = pathlib.Path("/bin/busybox")
APPLETS = ("sh", "sleep", "env", "cat", "ls", "echo", "true", "test", "kill", "touch", "head", "tail")


class Layer:
    """One layer, file by file; folders appear as they are needed."""

    def __init__(self):
        self.bytes = io.BytesIO()
        self.tar = tarfile.open(fileobj=self.bytes, mode="w")
        self.made = set()

    def folder(self, path, mode=0o755):
        parts = pathlib.PurePosixPath(path.lstrip("/")).parts
        for depth in range(1, len(parts) + 1):
            name = "/".join(parts[:depth])
            if name not in self.made:
                self.made.add(name)
                entry = tarfile.TarInfo(name)
                entry.type, entry.mode = tarfile.DIRTYPE, mode if depth == len(parts) else 0o755
                self.tar.addfile(entry)

    def file(self, source, path):
        """A copy of `source` (of what it points to) at `path`; twice the same path is once the file."""
        self.write(pathlib.Path(source).read_bytes(), path)

    def write(self, data, path):
        if path in self.made:
            return
        self.made.add(path)
        self.folder(os.path.dirname(path))
        entry = tarfile.TarInfo(path.lstrip("/"))
        entry.size, entry.mode = len(data), 0o755
        self.tar.addfile(entry, io.BytesIO(data))

    def link(self, target, path):
        self.folder(os.path.dirname(path))
        entry = tarfile.TarInfo(path.lstrip("/"))
        entry.type, entry.linkname = tarfile.SYMTYPE, target
        self.tar.addfile(entry)

    def busybox(self):
        if not BUSYBOX.exists() or "dynamically" in run(["ldd", BUSYBOX], check=False):
            raise Failed("busybox-static is missing: tools/setup --e2e installs it")
        self.file(BUSYBOX, "/bin/busybox")
        for applet in APPLETS:
            self.link("busybox", f"/bin/{applet}")
        self.folder("/tmp", 0o1777)
        for place in ("/etc", "/proc", "/sys", "/dev"):
            self.folder(place)

    def program(self, source, path):
        """A program with the libraries it is linked with, each where its loader looks for it."""
        self.file(source, path)
        self.needs_of(source)

    def needs_of(self, source):
        for library in re.findall(r"(?:=> )?(/\S+) \(0x", run(["ldd", source])):
            self.file(library, library)

    def done(self):
        self.tar.close()
        return self.bytes.getvalue()


def archive(path, name, layer, command, environment):
    """Writes an OCI archive of one layer, named for `ctr images import`."""
    blobs = {}

    def blob(data, kind):
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    def document(value, kind):
        return blob(json.dumps(value, sort_keys=True).encode(), kind)

    layers = [blob(layer, "layer.v1.tar")]
    system = {"architecture": ARCHITECTURES[platform.machine()], "os": "linux"}
    config = {"Cmd": command, "Env": [f"{key}={value}" for key, value in environment.items()]}
    root = {"type": "layers", "diff_ids": [layers[0]["digest"]]}
    description = document(system | {"config": config, "rootfs": root}, "config.v1+json")
    manifest = document({"schemaVersion": 2, "config": description, "layers": layers}, "manifest.v1+json")
    index = {"schemaVersion": 2, "manifests": [manifest | {"annotations": {"io.containerd.image.name": name}}]}
    files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index).encode()}
    files |= {f"blobs/sha256/{digest}": data for digest, data in blobs.items()}
    with tarfile.open(path, "w") as tar:
        for inside, data in files.items():
            entry = tarfile.TarInfo(inside)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
