// SPDX-License-Identifier: Apache-2.0
//
// Physical memory as this process knows it: which handles name it, how many references and uses it has. What begins and
// ends uses is elsewhere: mappings in vmm.cc, parts of sparse arrays and of multicast objects in sparse_multicast.cc.
// Invariant: memory without references and uses is forgotten, and its charge given back, in the same moment, unless a
// descriptor that this process exported or imported keeps it: then when that is seen to be closed, which nobody tells
// us. The caller holds the book's lock; nothing here calls the driver.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "abi/cuda_abi.h"
#include "vgpu/memory/pending_frees.h"
#include "vgpu/memory/shared_memory.h"
#include "vgpu/memory/table.h"
#include "vgpu/runtime/lock.h"
#include "vgpu/runtime/mapped_vector.h"

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

// A descriptor of some memory: the last one of each number, so there are no more than the process may have open.
struct VmmDescriptor {
  uint64_t id;  // of the memory
  FileName file;
  int fd;
};

// Uses whose end is queued on a stream.
struct VmmEndingUse {
  uint64_t id;
  uint64_t uses;
  uint64_t bytes;
  uint64_t last;  // number of the youngest of the calls that end them
  StreamId on;
};

// All that this process knows of physical memory. All zeros while that is nothing.
struct VmmBook {
  Lock lock{LockRank::kVmm};  // guards what is not atomic
  // Handles, mapped addresses, bindings and the physical memory behind them. Apart from the process's table because an
  // entry here is a name and not a charge.
  Table names;
  uint64_t last_id = 0;
  uint32_t last_owner = 0;  // of sparse arrays and multicast objects
  MappedVector<VmmDescriptor> descriptors;
  size_t looked_down_to = 0;  // where the next look at them goes on
  MappedVector<VmmEndingUse> ending;

  std::atomic<uint32_t> imports{0};
  std::atomic<uint32_t> unused_imports{0};
  std::atomic<uint32_t> shared_imports{0};
  std::atomic<uint32_t> kept{0};  // by descriptors alone

  void Reset();
};

void StoreName(HandleKind kind, uint64_t key, uint64_t id, uint64_t bytes);
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

}  // namespace hami::vgpu
