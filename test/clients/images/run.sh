#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Compiles kernels with NVIDIA's own nvcc into every form of image and loads each on the simulated driver, bare and then
# under `hami run` with a limit.
#   run.sh BUILD_DIR VENV_DIR [WORD...]
# BUILD_DIR is built; VENV_DIR is a Python environment with nvidia-cuda-nvcc, nvidia-cuda-crt, nvidia-nvvm and
# nvidia-cuda-runtime; WORD... stands between `hami run --` and the program. Prints `ok NAME` or `FAIL NAME why` for each
# check; 77 when there is no nvcc.
# HAMI_CUDA_HEADERS: folder of a cuda.h to compile the checking program against instead of the repository's own.
set -u

if [ $# -lt 2 ]; then
  echo "usage: $0 BUILD_DIR VENV_DIR [WORD...]" >&2
  exit 2
fi
build=$(cd "$1" && pwd) || exit 2
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
venv=$2
toolkit=$(ls -d "$venv"/lib/python3*/site-packages/nvidia/cu13 2>/dev/null | head -n 1)
nvcc=$toolkit/bin/nvcc
shift 2
between=("$@")
limit=3072 # MiB
if [ ! -x "$nvcc" ]; then
  echo "no nvcc in $venv: skipped"
  exit 77
fi

work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
export HAMI_STATE_DIR=$work/shares LD_LIBRARY_PATH=$build/simgpu
failed=0

fail() {
  echo "FAIL $*"
  failed=1
}

headers=()
if [ -n "${HAMI_CUDA_HEADERS:-}" ]; then
  headers=(-isystem "$HAMI_CUDA_HEADERS" -DHAMI_OFFICIAL_CUDA_H)
fi
if ! "${CXX:-c++}" -std=c++20 -Wall -Wextra -I"$root/src" "${headers[@]}" "$here/images.cc" -o "$work/images" -ldl; then
  fail "images/program does not compile"
  exit 1
fi

# compile OUTPUT SOURCE OPTIONS...
compile() {
  local out=$1 source=$2
  shift 2
  "$nvcc" -I"$toolkit/include" "$@" "$here/$source" -o "$work/$out" 2>"$work/log" && return 0
  fail "compile/$out $(head -n 1 "$work/log")"
  return 1
}

# check MACHINE KIND FILE
check() {
  export SIMGPU=$1 SIMGPU_PROFILE=ideal SIMGPU_STATE=$work/machine-$1
  "$work/images" "bare, $3" "$2" "$work/$3" 0 || failed=1
  "$build/bin/hami" run --mem ${limit}m -- "${between[@]}" \
    "$work/images" "limited, $3" "$2" "$work/$3" $limit || failed=1
  [ -z "$(ls -A "$HAMI_STATE_DIR/shares")" ] || fail "limited, $3/share is left behind"
  rm -f "$SIMGPU_STATE"
}

both=(-gencode arch=compute_90,code=sm_90 -gencode arch=compute_75,code=compute_75)

compile sm75.cubin kernels.cu -cubin -arch=sm_75 && check 1xT4 cubin sm75.cubin
compile sm90.cubin kernels.cu -cubin -arch=sm_90 && check 1xH100 cubin sm90.cubin
compile sm100.cubin kernels.cu -cubin -arch=sm_100 && check 1xB200 cubin sm100.cubin
compile rdc.cubin kernels.cu -cubin -rdc=true -arch=sm_90 && check 1xH100 cubin rdc.cubin
compile kernels.ptx kernels.cu -ptx -arch=compute_75 && check 1xH100 ptx kernels.ptx
compile plain.fatbin kernels.cu -fatbin "${both[@]}" && check 1xH100 cubin plain.fatbin
compile zstd.fatbin kernels.cu -fatbin -Xfatbin -compress-all "${both[@]}" && check 1xH100 cubin zstd.fatbin
compile lz4.fatbin kernels.cu -fatbin -Xfatbin -compress-all -compress-mode=speed "${both[@]}" &&
  check 1xH100 cubin lz4.fatbin
# The same files on a GPU that only their PTX fits, which is compressed in all three.
for name in plain zstd lz4; do
  [ -f "$work/$name.fatbin" ] && mv "$work/$name.fatbin" "$work/$name-ptx.fatbin" &&
    check 1xA100-40 ptx $name-ptx.fatbin
done
compile huge90.cubin huge.cu -cubin -arch=sm_90 && check 1xH100 huge huge90.cubin
compile huge100.cubin huge.cu -cubin -arch=sm_100 && check 1xB200 huge huge100.cubin

# The sections of host objects, as a program has them in memory.
compile wrapped.o wrapped.cu -c -arch=sm_90 &&
  objcopy -O binary --only-section=.nv_fatbin "$work/wrapped.o" "$work/wrapped" && check 1xH100 wrapper wrapped
compile wrapped-rdc.o wrapped.cu -c -rdc=true -arch=sm_90 &&
  objcopy -O binary --only-section=__nv_relfatbin "$work/wrapped-rdc.o" "$work/wrapped-rdc" &&
  check 1xH100 rdc-wrapper wrapped-rdc

exit $failed
