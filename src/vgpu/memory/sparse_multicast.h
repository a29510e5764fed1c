// SPDX-License-Identifier: Apache-2.0
//
// What keeps physical memory in use without an address: tiles of sparse arrays, and parts of multicast objects.
// Invariant: each tile is a use of the memory that was mapped there last, however many of them one call maps or unmaps;
// a use that a call on a stream ends lasts until a wait of the program has proved that the stream got there
// (pending_frees.h says what is proved), because the driver holds the memory until then.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "abi/cuda_abi.h"
#include "vgpu/memory/flags.h"
#include "vgpu/memory/pending_frees.h"
#include "vgpu/memory/vmm.h"
#include "vgpu/memory/vmm_handles.h"

namespace hami::vgpu {

// Part of a sparse array, in tiles.
struct TileBox {
  unsigned level;  // or one of those below
  unsigned layer;
  unsigned first[3];
  unsigned count[3];
  uint64_t whole = 0;  // bytes of an array that is mapped as a whole

  uint64_t tiles() const { return uint64_t{count[0]} * count[1] * count[2]; }
  // What memory from another container is charged for it.
  uint64_t bytes() const;
};
inline constexpr unsigned kTailLevel = 62;   // of the levels that are smaller than a tile; a row
inline constexpr unsigned kWholeLevel = 63;  // the array has no tiles, and is mapped as a whole
inline constexpr uint64_t kTileBytes = uint64_t{64} << 10;

// `tile` is what the driver says of the array; all 0 where it says nothing, and then `whole` is how large it is.
TileBox BoxOf(const CUarrayMapInfo& map, const CUDA_ARRAY_SPARSE_PROPERTIES::Extent& tile, uint64_t whole);

// After the driver has taken a list of mappings for the stream. `use` began before that, and becomes the box's.
void VmmTilesMapped(uint64_t array, const TileBox& box, const VmmUse& use, const StreamId& stream);
void VmmTilesUnmapped(uint64_t array, const TileBox& box, const StreamId& stream);
void VmmArrayGone(uint64_t array);

// Bytes that are charged as data, and that the stream has just been asked to free.
void VmmFreedLater(int device, uint64_t bytes, const StreamId& stream);

// True while uses wait for a stream to get to their end.
inline bool VmmUsesEndLater() { return g_memory_flags.uses_end_later.load(std::memory_order_relaxed); }
void VmmReached(const Waited& waited);
// The context and all its streams have ended.
void VmmLostContext(CUcontext context);

// A multicast object has a handle like memory, but no memory of its own; what is bound to it ends with it.
void VmmMulticastCreated(CUmemGenericAllocationHandle handle);
struct MulticastRange {
  CUmemGenericAllocationHandle multicast;
  uint64_t offset;
  uint64_t bytes;
};
// After the driver's call; `use` began before it, and becomes the object's if the driver agreed.
void VmmMulticastBound(const MulticastRange& at, const VmmUse& use, bool bound);
void VmmMulticastBoundAddress(const MulticastRange& at, CUdeviceptr address);
void VmmMulticastUnbound(const MulticastRange& at, int device);
// Neither references nor mappings are left; `id` is its number as physical memory. The caller holds the book's lock.
void EndMulticastObject(uint64_t id);

}  // namespace hami::vgpu
