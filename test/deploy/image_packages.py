#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does the image install what its programs are linked with, and nothing else?

    image_packages.py BUILD

deploy/images/runtime-packages against the libraries that the programs name (DT_NEEDED) and Debian's packages of them.
"""
import functools
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIST = ROOT / "deploy/images/runtime-packages"
PROGRAMS = ("bin/hami", "bin/hami-scheduler", "bin/hami-device-plugin", "bin/hami-monitor", "lib/libvgpu.so")
# In every Debian image.
ALWAYS = {"libc6", "libgcc-s1", "libstdc++6"}
# Loaded by name, and done without where it is missing.
BY_NAME = {"libgoogle-perftools4": "profiles of hami-scheduler"}


@functools.cache
def output(*words):
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def needed(build):
    """{package: a library of it that a program names}"""
    found = {}
    for program in PROGRAMS:
        path = str(build / program)
        named = set(re.findall(r"\(NEEDED\).*\[(\S+)\]", output("readelf", "-d", path)))
        for name, place in re.findall(r"(\S+) => (/\S+)", output("ldd", path)):
            if name in named:
                # By its end: whether /lib is a link to /usr/lib is not what dpkg knows.
                owner = output("dpkg", "-S", "*/" + "/".join(pathlib.Path(place).resolve().parts[-2:])).split(":")[0]
                found[owner] = f"{program} needs {name}"
    return found


def main(argv):
    if len(argv) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    wanted = needed(pathlib.Path(argv[0]))
    listed = {line.strip() for line in LIST.read_text().splitlines() if line.strip() and not line.startswith("#")}
    wrong = [f"{name} is missing: {why}" for name, why in sorted(wanted.items()) if name not in listed | ALWAYS]
    wrong += [f"{name} is listed, and no program needs it" for name in sorted(listed - set(wanted) - set(BY_NAME))]
    for line in wrong:
        print(f"{LIST.relative_to(ROOT)}: {line}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
