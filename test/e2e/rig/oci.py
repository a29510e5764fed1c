# SPDX-License-Identifier: Apache-2.0
"""The project's image as an OCI archive; see tools/image."""
import argparse
import pathlib
import re
import sys
import tempfile

from rig import images
from rig.programs import Failed, run

ROOT = pathlib.Path(__file__).resolve().parents[3]
CHART = ROOT / "deploy/chart"
VERSION = re.search(r"^appVersion: (\S+)$", (CHART / "Chart.yaml").read_text(), re.MULTILINE)[1]
PATH = "/opt/hami/bin:/usr/local/bin:/bin"
ENVIRONMENT = {"PATH": PATH, "NVIDIA_VISIBLE_DEVICES": "void", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}


def layer_of(build):
    """What deploy/images/Dockerfile makes: the tree of `tools/package --stage`, and the libraries that it needs."""
    layer = images.Layer()
    layer.busybox()
    with tempfile.TemporaryDirectory() as folder:
        stage = pathlib.Path(folder) / "stage"
        run([ROOT / "tools/package", "--stage", stage, "--build", build], timeout=300)
        for path in sorted(stage.rglob("*")):
            if path.is_file():
                layer.file(path, f"/opt/hami/{path.relative_to(stage)}")
        for program in sorted((stage / "bin").iterdir()):
            layer.needs_of(program)
    return layer.done()


def main(argv):
    parser = argparse.ArgumentParser(prog="tools/image")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--name", default=f"docker.io/hami-cpp/hami:{VERSION}")
    asked = parser.parse_args(argv)
    try:
        layer = layer_of(asked.build.resolve())
        images.archive(asked.out, asked.name, layer, ["hami", "--help"], ENVIRONMENT)
    except (Failed, OSError) as error:
        print(f"tools/image: {error}", file=sys.stderr)
        return 1
    print(f"{asked.out}: {asked.name}, {asked.out.stat().st_size / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
