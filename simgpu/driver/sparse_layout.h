// SPDX-License-Identifier: Apache-2.0
//
// How a sparse array is cut into tiles: 64 KiB each, of the shapes that graphics APIs call standard (two dimensions as
// square, three as cubic as powers of two allow). The levels of a mipmapped array that no whole tile fits into are its
// mip tail, one for each layer. Pure; refuses a map entry that does not lie on tiles of the array.
#pragma once

#include <array>
#include <cstddef>

#include "abi/cuda_abi.h"

namespace simgpu {

inline constexpr std::size_t kTileBytes = std::size_t{64} << 10;

struct SparseLayout {
  CUDA_ARRAY3D_DESCRIPTOR desc{};  // of level 0
  unsigned levels = 1;
  bool mipmap = false;
  bool sparse = false;                    // or else mapped as a whole
  std::array<unsigned, 3> tile{1, 1, 1};  // texels
  unsigned first_tail_level = 0;
  std::size_t tail_bytes = 0;  // of a layer, in whole tiles
  std::size_t bytes = 0;       // all of it, in whole tiles

  bool layered() const { return (desc.Flags & CUDA_ARRAY3D_LAYERED) != 0; }
  unsigned layers() const { return layered() ? static_cast<unsigned>(desc.Depth) : 1; }
};

// `desc` is one that LayOut accepts.
CUresult LayOutTiles(const CUDA_ARRAY3D_DESCRIPTOR& desc, unsigned levels, bool mipmap, SparseLayout* out);

CUDA_ARRAY_SPARSE_PROPERTIES PropertiesOf(const SparseLayout& layout);

// A box of tiles in one level and layer. The mip tail counts as a level of its own, in a row; so does an array that is
// mapped as a whole, as one tile.
struct TileBox {
  static constexpr unsigned kTail = ~0U, kWhole = ~1U;
  unsigned level = 0, layer = 0;
  std::array<unsigned, 3> first{}, count{1, 1, 1};
  std::size_t bytes = 0;  // of tile pool memory behind it

  bool Contains(unsigned in_level, unsigned in_layer, const std::array<unsigned, 3>& at) const;
};

// CUDA_ERROR_INVALID_VALUE for what lies not on tiles, or outside.
CUresult BoxOf(const SparseLayout& layout, const CUarrayMapInfo& entry, TileBox* out);

}  // namespace simgpu
