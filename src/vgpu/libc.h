// SPDX-License-Identifier: Apache-2.0
//
// Pins the C library functions whose default symbol version is newer than the oldest system this library must load on.
// Invariant: no object of libvgpu.so refers to a glibc symbol above GLIBC_2.17 (tools/abi_gate.sh proves it). Include it
// wherever one of the functions below is called.
#pragma once

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>

#if defined(HAMI_FREESTANDING) && defined(__GLIBC__)
#if defined(__x86_64__)
#define HAMI_GLIBC_BASE "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define HAMI_GLIBC_BASE "GLIBC_2.17"
#else
#error "no glibc base version is known for this architecture"
#endif

// These moved from libdl and libpthread to libc in 2.34 and got a new version there; the old one stays valid for ever.
__asm__(".symver dlopen,dlopen@" HAMI_GLIBC_BASE);
__asm__(".symver dladdr,dladdr@" HAMI_GLIBC_BASE);
__asm__(".symver dlerror,dlerror@" HAMI_GLIBC_BASE);
#endif
