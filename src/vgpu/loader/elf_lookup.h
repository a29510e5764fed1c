// SPDX-License-Identifier: Apache-2.0
//
// Finds a function of the C library by reading the dynamic symbol tables of the loaded objects. libvgpu.so exports
// dlsym and dlvsym itself, so every reference by name, whatever its version, would come back to it; this look-up can
// not. Only objects that are part of the C library are read; nothing is loaded, locked or called: dl_iterate_phdr,
// which would list the objects, is among the functions that programs replace.
#pragma once

namespace hami::vgpu {

// The address of `name` in libc, libdl or musl's loader; nullptr when none of them defines it.
void* FindInLibc(const char* name);

}  // namespace hami::vgpu
