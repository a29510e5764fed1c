#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Gets NVIDIA's cuda.h, cudaTypedefs.h and nvml.h of CUDA 12 and 13 from PyPI, for tools/abi_check.py to compare with.
#
#   tools/fetch_headers.sh [DIR]     default: build/clients/headers; fills DIR/12 and DIR/13
#
# The headers stay in the build folder: they are NVIDIA's, and never committed. What is there already is not fetched again.
# Exit status: 0 both are there, 3 the registry cannot be reached.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
target=${1:-$root/build/clients/headers}
python=${PYTHON:-python3}
# Headers only have to be newer than what src/abi declares; a fixed version is what makes the check repeatable.
declare -A wheels=(
  [12]="nvidia-cuda-runtime-cu12==12.9.79 nvidia-nvml-dev-cu12==12.9.79"
  [13]="nvidia-cuda-runtime==13.5.37 nvidia-nvml-dev==13.5.37"
)
wanted=(cuda.h cudaTypedefs.h cudaProfilerTypedefs.h nvml.h)

complete() { [[ -s $1/cuda.h && -s $1/cudaTypedefs.h && -s $1/nvml.h ]]; }

for major in 12 13; do
  place=$target/$major
  if complete "$place"; then
    echo "headers of CUDA $major: $place"
    continue
  fi
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  # shellcheck disable=SC2086  # a list of words
  if ! "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
      --dest "$scratch" ${wheels[$major]} 2>"$scratch/log"; then
    sed 's/^/  /' "$scratch/log" >&2
    echo "fetch_headers: cannot get NVIDIA's headers of CUDA $major from the package registry (is it reachable, is pip" \
      "installed?); the comparison with them is skipped" >&2
    exit 3
  fi
  mkdir -p "$place"
  "$python" - "$scratch" "$place" "${wanted[@]}" <<'PYTHON'
import pathlib, sys, zipfile

scratch, place, wanted = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), set(sys.argv[3:])
for wheel in scratch.glob("*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            base = name.rsplit("/", 1)[-1]
            if "/include/" in name and name.endswith("/include/" + base) and base in wanted:
                (place / base).write_bytes(archive.read(name))
PYTHON
  rm -rf "$scratch"
  complete "$place" || { echo "fetch_headers: the packages ${wheels[$major]} hold no cuda.h and nvml.h" >&2; exit 1; }
  echo "headers of CUDA $major: $place (fetched)"
done
