// SPDX-License-Identifier: Apache-2.0
//
// Virtual memory management: the handles behind mappings, for what else may use them. Invariant: a handle's memory
// lives as long as anything refers to it, in whatever order the references go: handles given out, mappings, parts of
// sparse arrays, bindings to multicast objects. A multicast object is a handle, too, but has no memory of its own.
#pragma once

#include <cstddef>

#include "abi/cuda_abi.h"
#include "simgpu/driver/mem_internal.h"

namespace simgpu {

struct Multicast;

struct VmmHandle {
  int fd = -1;               // its own file, or -1: in the arena
  CUdeviceptr physical = 0;  // its place in the arena
  std::size_t size = 0;
  CUmemAllocationProp prop{};
  int machine = 0;
  SharedId shared = 0;             // exported or imported: several processes may hold it
  std::size_t references = 0;      // handles
  std::size_t uses = 0;            // mappings, and whatever AddUse was called for
  Multicast* multicast = nullptr;  // see multicast.h
};

// The handle that a value given out names; null when it names none.
VmmHandle* FindHandle(CUmemGenericAllocationHandle value, const MemLock& held);
inline CUmemGenericAllocationHandle ToApi(const VmmHandle* handle) { return reinterpret_cast<std::uintptr_t>(handle); }

// Enters a new handle, made with `new`, with one reference.
CUmemGenericAllocationHandle AddHandle(VmmHandle* handle, const MemLock& held);

inline void AddUse(VmmHandle* handle, const MemLock&) { ++handle->uses; }
// Ends the memory when nothing holds it any more.
void DropUse(VmmHandle* handle, const MemLock& held);

// The reservation that contains `address`. False when there is none.
bool FindReservation(CUdeviceptr address, CUdeviceptr* base, std::size_t* size);

inline CUmemAllocationHandleType HandleTypesOf(const VmmHandle& handle) { return handle.prop.requestedHandleTypes; }

}  // namespace simgpu
