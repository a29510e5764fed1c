// SPDX-License-Identifier: Apache-2.0
//
// From the driver's answer to cuGetProcAddress to ours: the replacement of exactly that function, if there is one.
// Decided by the address first, because the driver knows best what a name means at a version; by the rules of the
// name, version and flags only if the driver answers with an address that it does not export.
#pragma once

#include <stdint.h>

namespace hami::vgpu {

// `driver_answer` unless it is a function we replace.
void* ReplaceAddress(const char* name, void* driver_answer, int version, uint64_t flags);

}  // namespace hami::vgpu
