#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Compiles kernels with NVIDIA's own nvcc into every form of image and loads each on the simulated driver.
#   run.sh BUILD_DIR VENV_DIR
# BUILD_DIR holds simgpu/libcuda.so.1; VENV_DIR a Python environment with nvidia-cuda-nvcc, nvidia-cuda-crt, nvidia-nvvm
# and nvidia-cuda-runtime. Prints `ok NAME` or `FAIL NAME why` for each check; 77 when there is no nvcc.
# HAMI_CUDA_HEADERS: folder of a cuda.h to compile the checking program against instead of the repository's own.
set -u

if [ $# -ne 2 ]; then
  echo "usage: $0 BUILD_DIR VENV_DIR" >&2
  exit 2
fi
build=$(cd "$1" && pwd) || exit 2
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
toolkit=$(ls -d "$2"/lib/python3*/site-packages/nvidia/cu13 2>/dev/null | head -n 1)
nvcc=$toolkit/bin/nvcc
if [ ! -x "$nvcc" ]; then
  echo "no nvcc in $2: skipped"
  exit 77
fi

work=$(mktemp -d) || exit 2
state=/dev/shm/simgpu-images-$$
trap 'rm -rf "$work" "$state"-*' EXIT
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
  LD_LIBRARY_PATH=$build/simgpu SIMGPU=$1 SIMGPU_STATE=$state-$1 "$work/images" "$3" "$2" "$work/$3" || failed=1
  rm -f "$state-$1"
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
  [ -f "$work/$name.fatbin" ] && mv "$work/$name.fatbin" "$work/$name-ptx.fatbin" && check 1xA100-40 ptx $name-ptx.fatbin
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
