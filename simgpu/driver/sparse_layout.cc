// SPDX-License-Identifier: Apache-2.0
#include "simgpu/driver/sparse_layout.h"

#include <bit>

#include "simgpu/driver/array_desc.h"

namespace simgpu {
namespace {

std::size_t WholeTiles(std::size_t bytes) { return (bytes + kTileBytes - 1) / kTileBytes * kTileBytes; }

bool Flat(const CUDA_ARRAY3D_DESCRIPTOR& desc) { return desc.Depth == 0 || (desc.Flags & CUDA_ARRAY3D_LAYERED) != 0; }

// A power of two of elements, dealt out to the dimensions as evenly as can be, the first one first.
std::array<unsigned, 3> TileOf(const ArrayLayout& layout, bool flat) {
  const auto elements = static_cast<unsigned>(std::countr_zero(kTileBytes / std::bit_ceil(layout.element)));
  const auto side = static_cast<unsigned>(layout.side);
  if (flat) return {side << ((elements + 1) / 2), side << (elements / 2), 1};
  return {side << ((elements + 2) / 3), side << ((elements + 1) / 3), 1U << (elements / 3)};
}

std::array<std::size_t, 3> ExtentOf(const CUDA_ARRAY3D_DESCRIPTOR& desc) {
  return {desc.Width, desc.Height, Flat(desc) ? 1 : desc.Depth};
}

bool FitsATile(const SparseLayout& layout, unsigned level) {
  const auto extent = ExtentOf(LevelOf(layout.desc, level));
  for (std::size_t i = 0; i < extent.size(); ++i) {
    if (extent[i] < layout.tile[i]) return false;
  }
  return true;
}

CUresult TailBox(const SparseLayout& layout, const CUarrayMapInfo& entry, TileBox* out) {
  const auto& tail = entry.subresource.miptail;
  if (tail.size == 0 || (tail.offset | tail.size) % kTileBytes != 0 || tail.layer >= layout.layers() ||
      tail.offset > layout.tail_bytes || tail.size > layout.tail_bytes - tail.offset) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  out->level = TileBox::kTail;
  out->layer = tail.layer;
  out->first[0] = static_cast<unsigned>(tail.offset / kTileBytes);
  out->count[0] = static_cast<unsigned>(tail.size / kTileBytes);
  out->bytes = tail.size;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult LayOutTiles(const CUDA_ARRAY3D_DESCRIPTOR& desc, unsigned levels, bool mipmap, SparseLayout* out) {
  *out = {};
  out->desc = desc;
  out->levels = levels;
  out->mipmap = mipmap;
  out->sparse = (desc.Flags & CUDA_ARRAY3D_SPARSE) != 0;
  ArrayLayout base;
  if (const CUresult result = LayOut(desc, &base); result != CUDA_SUCCESS) return result;
  out->tile = TileOf(base, Flat(desc));
  // An array that is no mipmapped one has no tail, however small it is.
  if (mipmap) {
    while (out->first_tail_level < levels && FitsATile(*out, out->first_tail_level)) ++out->first_tail_level;
  }
  std::size_t tail = 0;
  for (unsigned level = 0; level < levels; ++level) {
    ArrayLayout one;
    if (const CUresult result = LayOut(LevelOf(desc, level), &one); result != CUDA_SUCCESS) return result;
    out->bytes += one.bytes;
    if (mipmap && level >= out->first_tail_level) tail += one.bytes / out->layers();
  }
  out->tail_bytes = WholeTiles(tail);
  out->bytes = WholeTiles(out->bytes);
  return CUDA_SUCCESS;
}

CUDA_ARRAY_SPARSE_PROPERTIES PropertiesOf(const SparseLayout& layout) {
  CUDA_ARRAY_SPARSE_PROPERTIES properties{};
  properties.tileExtent = {layout.tile[0], layout.tile[1], layout.tile[2]};
  properties.miptailFirstLevel = layout.first_tail_level;
  properties.miptailSize = layout.tail_bytes;
  return properties;
}

bool TileBox::Contains(unsigned in_level, unsigned in_layer, const std::array<unsigned, 3>& at) const {
  if (in_level != level || in_layer != layer) return false;
  for (std::size_t i = 0; i < at.size(); ++i) {
    if (at[i] - first[i] >= count[i]) return false;
  }
  return true;
}

CUresult BoxOf(const SparseLayout& layout, const CUarrayMapInfo& entry, TileBox* out) {
  *out = {};
  if (!layout.sparse) {
    out->level = TileBox::kWhole;
    out->bytes = layout.bytes;
    return CUDA_SUCCESS;
  }
  if (entry.subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL) return TailBox(layout, entry, out);
  if (entry.subresourceType != CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL) return CUDA_ERROR_INVALID_VALUE;
  const auto& part = entry.subresource.sparseLevel;
  const unsigned levels = layout.mipmap ? layout.first_tail_level : 1;
  if (part.level >= levels || part.layer >= layout.layers()) return CUDA_ERROR_INVALID_VALUE;
  out->level = part.level;
  out->layer = part.layer;
  const auto whole = ExtentOf(LevelOf(layout.desc, part.level));
  const std::array<unsigned, 3> offset{part.offsetX, part.offsetY, part.offsetZ};
  const std::array<unsigned, 3> extent{part.extentWidth, part.extentHeight, part.extentDepth};
  std::size_t tiles = 1;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const std::size_t tile = layout.tile[i];
    const std::size_t end = std::size_t{offset[i]} + extent[i];
    const std::size_t limit = (whole[i] + tile - 1) / tile * tile;
    // What reaches the edge may end there, in the middle of a tile.
    if (extent[i] == 0 || offset[i] % tile != 0 || end > limit) return CUDA_ERROR_INVALID_VALUE;
    if (end % tile != 0 && end != whole[i]) return CUDA_ERROR_INVALID_VALUE;
    out->first[i] = static_cast<unsigned>(offset[i] / tile);
    out->count[i] = static_cast<unsigned>((extent[i] + tile - 1) / tile);
    tiles *= out->count[i];
  }
  out->bytes = tiles * kTileBytes;
  return CUDA_SUCCESS;
}

}  // namespace simgpu
