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

// True when the container already holds all of the physical memory, so that asking the driver for more is pointless.
bool PastPhysical(const Place& place, uint64_t bytes);

// Managed memory in place of device memory.
CUresult AllocateSpilled(const Place& place, CUdeviceptr* out, size_t bytes);

// Reserve, then device memory or, failing that, managed memory.
template <typename Allocate>
CUresult ChargedOrSpilled(const Place& place, uint64_t charge, size_t bytes, CUdeviceptr* out, Allocate allocate) {
  if (!settings().oversubscribe) return Charged(place, Space::kPointer, charge, out, allocate);
  if (place.device == kUnlimited) return allocate();
  const Charging charging(place.device);
  if (!Reserve(place.device, charge, Kind::kData)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = PastPhysical(place, charge) ? CUDA_ERROR_OUT_OF_MEMORY : allocate();
  const bool spill = result == CUDA_ERROR_OUT_OF_MEMORY;
  if (spill) result = AllocateSpilled(place, out, bytes);
  if (result != CUDA_SUCCESS) {
    Refund(place.device, charge, Kind::kData);
    return result;
  }
  if (spill) region::NoteSpilled(attachment(), static_cast<uint32_t>(place.device), charge);
  Entry entry;
  entry.key = *out;
  entry.bytes = charge;
  entry.context = place.context;
  entry.space = Space::kPointer;
  entry.device = static_cast<int8_t>(place.device);
  entry.flags = spill ? kSpilled : uint16_t{0};
  Record(entry);
  return result;
}

}  // namespace hami::vgpu
