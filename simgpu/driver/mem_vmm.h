// SPDX-License-Identifier: Apache-2.0
//
// Virtual memory management: the handles behind mappings, for what else may use them. Invariant: a handle's memory
// lives as long as anything refers to it, in whatever order the references go: handles given out, mappings, parts of
// sparse arrays, bindings to multicast objects, descriptors that were exported (the last is noticed when memory is
// asked for the next time). A multicast object is a handle, too, but has no memory of its own.
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

// --- descriptors that were given out (mem_vmm_file.cc)

// The file of a descriptor, opened anew; -1 when that can not be done.
int OpenAgain(int fd);
// A descriptor for others. It says by a lock, which its copies in any process share, that somebody has it.
int GiveOut(int fd);
// Whether anybody has one. `fd` is of OpenAgain, or the file's first one.
bool IsGivenOut(int fd);
// Ends exported memory that was kept for descriptors alone, where those are closed now. True when there was any.
bool SweepExported(const MemLock& held);

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
