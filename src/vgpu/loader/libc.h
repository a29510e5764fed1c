// SPDX-License-Identifier: Apache-2.0
//
// The dynamic linker's functions, found by elf_lookup.h instead of by reference. They live in libdl on glibc
// before 2.34 and in libc since, under another version; a reference would make every process of a container load libdl
// for us. Where they can not be found the answers are those of a linker that finds nothing.
#pragma once

#include <dlfcn.h>

namespace hami::vgpu::libc {

void* Open(const char* soname, int flags);
// Drops the message of a failed Open or look-up, so that the program's own dlerror does not show it.
void ForgetError();
int Locate(const void* address, Dl_info* out);

}  // namespace hami::vgpu::libc
