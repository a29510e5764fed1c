# SPDX-License-Identifier: Apache-2.0
"""A driver's installation as the plugin finds it on a node, made of simgpu: libraries with a version, a program, device
nodes, and the program that CDI hooks call."""
import os
import stat

from rig.agents import CARDS, DRIVER

VERSION = "999.1"
SAYS = "nvidia-smi of the driver"

# What NVIDIA's program of this name does in these two hooks: links in the container's root, and the loader's names.
HOOK = """#!/usr/bin/python3
import json, os, subprocess, sys
root = os.path.join(json.load(sys.stdin)["bundle"], "rootfs")
hook, words = sys.argv[1], sys.argv[2:]
for flag, value in zip(words[::2], words[1::2]):
    if (hook, flag) == ("create-symlinks", "--link"):
        target, link = value.split("::")
        os.symlink(target, root + link)
    elif (hook, flag) == ("update-ldcache", "--folder"):
        subprocess.run(["/sbin/ldconfig", "-n", root + value], check=True)
    else:
        sys.exit(f"{hook} {flag} {value}?")
"""


class DriverRoot:
    def __init__(self, folder, build):
        self.folder = folder
        self.hook = folder / "usr/bin/nvidia-cdi-hook"
        for place in ("dev", "usr/bin", "usr/lib64"):
            (folder / place).mkdir(parents=True)
        for library in DRIVER:
            name = library.removesuffix("1") + VERSION
            (folder / "usr/lib64" / name).write_bytes((build / "simgpu" / library).read_bytes())
        self.program(self.hook, HOOK)
        self.program(folder / "usr/bin/nvidia-smi", f"#!/bin/sh\necho {SAYS}\n")
        # /dev/null under other names: whether a device may be used is the kernel's business, not the driver's.
        for name in ("nvidiactl", "nvidia-uvm", *(f"nvidia{minor}" for minor in range(CARDS))):
            os.mknod(folder / "dev" / name, 0o666 | stat.S_IFCHR, os.makedev(1, 3))

    @staticmethod
    def program(path, text):
        path.write_text(text)
        path.chmod(0o755)

    def flags(self):
        """That show it to the plugin."""
        return [
            f"--nvidia-driver-root={self.folder}",
            f"--driver-root-ctr-path={self.folder}",
            f"--nvidia-cdi-hook-path={self.hook}",
        ]
