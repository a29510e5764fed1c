// SPDX-License-Identifier: Apache-2.0
//
// Physical memory as this process knows it: which handles name it, how many references and uses it has. What begins and
// ends uses is elsewhere: mappings in vmm.cc, parts of sparse arrays and of multicast objects in sparse_multicast.cc.
// Invariant: memory without references and uses is forgotten, and its charge given back, in the same moment, unless a
// descriptor that this process exported or imported keeps it: then when that is seen to be closed, which nobody tells
// us. The caller holds g_vmm_lock; nothing here calls the driver.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "abi/cuda_abi.h"
#include "vgpu/memory/table.h"
#include "vgpu/runtime/lock.h"

namespace hami::vgpu {

// A piece of physical memory. Numbered from 1; a number is never reused, a handle's value may be.
struct Physical {
  uint64_t id;
  uint64_t bytes;  // 0 where it is not known: another container's
  int device;
  uint32_t references;
  uint32_t uses;
  bool imported;
  bool shared;  // with others of the container, and charged once for all; see shared_memory.h

  // But for descriptors.
  bool ended() const { return references == 0 && uses == 0; }
  // Somebody else's, whom this process knows nothing of: its uses are charged.
  bool foreign() const { return imported && !shared; }
};

extern Lock g_vmm_lock;
// Handles, mapped addresses, bindings and the physical memory behind them. Apart from the process's table because an
// entry here is a name and not a charge.
extern Table g_vmm_names;

void StoreName(Space space, uint64_t key, uint64_t id, uint64_t bytes);
bool LoadPhysical(uint64_t id, Physical* out);
void StorePhysical(const Physical& physical);
bool ByHandle(CUmemGenericAllocationHandle handle, Physical* out);
bool ByAddress(CUdeviceptr address, Entry* mapping);
// New, with one reference. The number it got.
uint64_t AddPhysical(CUmemGenericAllocationHandle handle, uint64_t bytes, int device, bool imported, bool shared);
// New, without a name, and with one use.
uint64_t AddNameless(uint64_t bytes, int device);
// `bytes` is what these uses were charged if the memory is foreign.
void EndUses(uint64_t id, uint64_t uses, uint64_t bytes);

// The descriptor is the memory's, so whatever else had its number is closed.
void NoteDescriptor(uint64_t id, int fd);
// Looks at descriptors that keep memory, at no more than so many, and ends what the closed ones kept.
void SweepDescriptors(size_t most);
bool DescriptorsKeepMemory();  // no lock needed

// How many imported pieces this process holds, or that only descriptors keep; of these, the imported ones without a
// use, and those shared within the container.
struct Imports {
  uint32_t all;
  uint32_t unused;
  uint32_t shared;
};
Imports HeldImports();  // no lock needed

void ResetPhysical();

}  // namespace hami::vgpu
