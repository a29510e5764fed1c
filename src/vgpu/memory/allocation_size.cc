// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/allocation_size.h"

namespace hami::vgpu {
namespace {

constexpr uint64_t kBlockRowBytes = 64;
constexpr uint64_t kBlockRows = 8;

#ifndef CUDA_ARRAY3D_DEFERRED_MAPPING
#define CUDA_ARRAY3D_DEFERRED_MAPPING 0x80
#endif
#ifndef CUDA_ARRAY3D_SPARSE
#define CUDA_ARRAY3D_SPARSE 0x40
#endif

// Bytes of one channel of a format that has channels.
uint64_t ChannelBytes(CUarray_format format) {
  switch (static_cast<unsigned>(format)) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
    case 0xb0:  // NV12: one byte of luma; chroma is added by ArrayBytes
    case 0xc0:
    case 0xc1:
    case 0xc2:
    case 0xc3:
    case 0xc4:
    case 0xc5:  // (U|S)NORM_INT8X1, X2, X4
      return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
    case 0xc6:
    case 0xc7:
    case 0xc8:
    case 0xc9:
    case 0xca:
    case 0xcb:  // (U|S)NORM_INT16X1, X2, X4
      return 2;
    default:
      return 4;  // 32-bit formats, and the largest that any packed or planar format takes a texel and channel
  }
}

uint64_t AtLeastOne(uint64_t n) { return n == 0 ? 1 : n; }

// What a format stores as one: a texel, or a square of compressed ones.
struct Element {
  uint64_t bytes;
  uint64_t side;  // texels
};

Element ElementOf(const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  const auto format = static_cast<unsigned>(shape.Format);
  if (format >= CU_AD_FORMAT_BC1_UNORM && format <= CU_AD_FORMAT_BC7_UNORM_SRGB) {
    const bool half =
        format <= CU_AD_FORMAT_BC1_UNORM_SRGB || format == CU_AD_FORMAT_BC4_UNORM || format == CU_AD_FORMAT_BC4_SNORM;
    return {half ? 8U : 16U, 4};
  }
  if (format == CU_AD_FORMAT_UNORM_INT_101010_2) return {4, 1};  // all channels together
  return {ChannelBytes(shape.Format) * AtLeastOne(shape.NumChannels), 1};
}

uint64_t LayerBytes(const CUDA_ARRAY3D_DESCRIPTOR& shape, uint64_t width, uint64_t height, uint64_t depth) {
  const Element element = ElementOf(shape);
  const uint64_t columns = RoundUp(width, element.side) / element.side;
  uint64_t rows = AtLeastOne(RoundUp(height, element.side) / element.side);
  if (static_cast<unsigned>(shape.Format) == 0xb0) rows += rows / 2;
  // Textures are stored in blocks of 64 bytes by 8 rows; a one-dimensional array has a single row.
  if (height != 0) rows = RoundUp(rows, kBlockRows);
  return Times(Times(RoundUp(Times(columns, element.bytes), kBlockRowBytes), rows), AtLeastOne(depth));
}

bool HoldsMemory(const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  return (shape.Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) == 0;
}

}  // namespace

uint64_t ArrayBytes(const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  if (!HoldsMemory(shape)) return 0;
  return RoundUp(LayerBytes(shape, shape.Width, shape.Height, shape.Depth), kAllocationUnit);
}

uint64_t MipmapBytes(const CUDA_ARRAY3D_DESCRIPTOR& shape, unsigned levels) {
  if (!HoldsMemory(shape)) return 0;
  // Layers and cube faces do not shrink with the level, the slices of a volume do.
  const bool layered = (shape.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
  // A level that would be less than one texel in every direction does not exist; drivers cut the count there.
  uint64_t largest = shape.Width > shape.Height ? shape.Width : shape.Height;
  if (!layered && shape.Depth > largest) largest = shape.Depth;
  uint64_t total = 0;
  for (unsigned level = 0; level < levels && level < 64 && largest >> level != 0; ++level) {
    const uint64_t depth = layered ? shape.Depth : shape.Depth >> level;
    const uint64_t height = shape.Height == 0 ? 0 : AtLeastOne(shape.Height >> level);
    const uint64_t bytes = LayerBytes(shape, AtLeastOne(shape.Width >> level), height, AtLeastOne(depth));
    if (__builtin_add_overflow(total, RoundUp(bytes, kAllocationUnit), &total)) return UINT64_MAX;
  }
  return total;
}

}  // namespace hami::vgpu
