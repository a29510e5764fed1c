// SPDX-License-Identifier: Apache-2.0
//
// Oversubscription (CUDA_OVERSUBSCRIBE=true, or the region says so): what does not fit into the physical memory becomes
// managed memory that prefers the host and that the device reaches; it is charged like any other. Plain and
// stream-ordered allocations spill; pitched ones, arrays and VMM memory do not, and meet the driver's own out of
// memory.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "vgpu/memory/charge.h"

namespace hami::vgpu {

// Reserve, then device memory or, failing that, managed memory.
CUresult ChargedOrSpilled(const PointerRequest& request, Allocator allocate, void* arg);
template <typename Allocate>
CUresult ChargedOrSpilled(const PointerRequest& request, Allocate allocate) {
  return ChargedOrSpilled(
      request, [](PointerRequest*, void* arg) { return (*static_cast<Allocate*>(arg))(); }, &allocate);
}

}  // namespace hami::vgpu
