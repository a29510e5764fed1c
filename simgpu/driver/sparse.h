// SPDX-License-Identifier: Apache-2.0
//
// The memory that is mapped into sparse arrays, and into those whose mapping was deferred: which handle backs which
// tile. A tile that is backed is a use of its handle, from the call that maps it until the stream comes to what unmaps
// or replaces it, or until the array is gone.
//
// Only the books follow the tiles. What is copied into the array lies in the array's own addresses: it is there whether
// a tile is mapped or not, and does not move with the handle to another array.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <tuple>

#include "simgpu/driver/mem_vmm.h"
#include "simgpu/driver/sparse_layout.h"

namespace simgpu {

// Guarded by the memory lock, but for `layout` and `machine`, which stay.
struct SparseMemory {
  SparseLayout layout;
  int machine = -1;
  bool gone = false;                                                     // the array is
  using Tile = std::tuple<unsigned, unsigned, std::array<unsigned, 3>>;  // level, layer, place
  std::map<Tile, VmmHandle*> tiles;
};
using SparseMemoryPtr = std::shared_ptr<SparseMemory>;

// The array is gone, and its uses with it. Safe with null.
void EndSparseMemory(const SparseMemoryPtr& memory);

// What is behind an array. CUDA_ERROR_INVALID_HANDLE for no array; CUDA_ERROR_INVALID_VALUE for one with memory of its
// own and for a level of a mipmapped array. (array.cc)
CUresult FindSparseMemory(CUarray handle, SparseMemoryPtr* out);
CUresult FindSparseMemory(CUmipmappedArray handle, SparseMemoryPtr* out);

}  // namespace simgpu
