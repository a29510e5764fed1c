#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What libvgpu.so promises to whatever loads it: abi_gate.sh LIBVGPU [API_LIST_FOLDER]
# Needs nothing but libc, libdl and libpthread; no glibc symbol above 2.17; exports exactly the replaced functions and
# dlsym, dlvsym; no text relocation, no executable stack; at most 256 KB (arm64: 352); no function in which a thread can be cancelled.
set -eu
lib=$1
abi=${2:-$(dirname "$0")/../src/abi}
max_bytes=262144
case $(readelf -h "$lib" | sed -n 's/ *Machine: *//p') in
  AArch64) max_bytes=360448 ;; # every instruction has four bytes: a quarter more code; relocations of calls by address beside
esac
failed=0
fail() { echo "abi_gate: $*" >&2; failed=1; }

for needed in $(readelf -W -d "$lib" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
  case $needed in
    libc.so.6|libdl.so.2|libpthread.so.0|ld-linux-*) ;;
    *) fail "needs $needed" ;;
  esac
done

newest=$(readelf -W --dyn-syms "$lib" | sed -n 's/.*@\{1,2\}GLIBC_\([0-9.]*\).*/\1/p' | sort -V | tail -1)
highest=$(printf '%s\n2.17\n' "$newest" | sort -V | tail -1)
[ "$highest" = 2.17 ] || fail "needs GLIBC_$newest"
readelf -W --dyn-syms "$lib" | grep -q GLIBC_PRIVATE && fail "uses a private symbol of glibc"

# See src/vgpu/system_calls.cc. pthreads(7) has them all; of those that only may be such places, what glibc makes one.
for point in accept accept4 clock_nanosleep close connect creat fallocate fdatasync fsync lockf msync nanosleep open open64 \
             openat pause poll ppoll pread pread64 pselect pthread_cond_timedwait pthread_cond_wait pthread_join \
             pthread_testcancel pwrite pwrite64 read readv recv recvfrom recvmsg select sem_timedwait sem_wait send sendmsg \
             sendto sigsuspend sigtimedwait sigwait sigwaitinfo sleep system tcdrain usleep wait wait4 waitid waitpid write \
             writev; do
  readelf -W --dyn-syms "$lib" | grep -q " UND $point\(@\|\$\)" && fail "calls $point, in which a thread can be cancelled"
done

# See src/vgpu/own_functions.cc: what programs define themselves, and find the real one of by our dlsym.
for replaced in access calloc dl_iterate_phdr dladdr dlerror dlopen dlsym free getenv getpid malloc memcmp memcpy memmove memset \
                realloc strcasecmp strchr strcmp strcpy strlen strncasecmp strncmp strrchr strspn strstr syscall; do
  readelf -W --dyn-syms "$lib" | grep -q " UND $replaced\(@\|\$\)" && fail "calls $replaced, which programs replace"
done
# musl has no such symbol, and a program with it would not start.
readelf -W --dyn-syms "$lib" | grep " UND __register_atfork" | grep -vq " WEAK " && fail "needs __register_atfork"

expected=$( { sed -n 's/^HAMI_CUDA_HOOK(\([A-Za-z0-9_]*\),.*/\1/p' "$abi/cuda_api.inc"
              sed -n 's/^HAMI_NVML_HOOK(\([A-Za-z0-9_]*\)).*/\1/p' "$abi/nvml_api.inc"
              printf 'dlsym\ndlvsym\n'; } | LC_ALL=C sort)
[ "$(printf '%s\n' "$expected" | wc -l)" -gt 50 ] || fail "the list of hooks in $abi is not readable"
exported=$(readelf -W --dyn-syms "$lib" | awk '$7 != "UND" && ($5 == "GLOBAL" || $5 == "WEAK") {print $8}' |
           sed 's/@.*//' | LC_ALL=C sort)
if [ "$expected" != "$exported" ]; then
  fail "exports differ from the list of hooks:"
  printf '%s\n' "$expected" > "${TMPDIR:-/tmp}/abi_gate.$$"
  printf '%s\n' "$exported" | diff "${TMPDIR:-/tmp}/abi_gate.$$" - >&2 || true
  rm -f "${TMPDIR:-/tmp}/abi_gate.$$"
fi

readelf -W -d "$lib" | grep -q TEXTREL && fail "has text relocations"
readelf -W -l "$lib" | grep GNU_STACK | grep -q RWE && fail "wants an executable stack"
readelf -W -d "$lib" | grep -q '(RPATH)\|(RUNPATH)' && fail "has a search path of its own"
readelf -W -d "$lib" | grep -q BIND_NOW || fail "is not bound at load"

bytes=$(wc -c < "$lib")
[ "$bytes" -le "$max_bytes" ] || fail "$bytes bytes is more than $max_bytes"

[ "$failed" = 0 ] && echo "abi_gate: $lib: $bytes bytes, glibc $newest, $(printf '%s\n' "$exported" | wc -l) exports: ok"
exit "$failed"
