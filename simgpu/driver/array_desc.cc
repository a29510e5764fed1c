// SPDX-License-Identifier: Apache-2.0
#include "simgpu/driver/array_desc.h"

#include <algorithm>
#include <bit>

namespace simgpu {
namespace {

constexpr std::size_t kGroupBytes = 64;
constexpr std::size_t kGroupRows = 8;
constexpr std::size_t kMax1D = 131072, kMax2DWidth = 131072, kMax2DHeight = 65536, kMax3D = 16384;
constexpr std::size_t kMaxLayeredExtent = 32768, kMaxLayers = 2048;
constexpr unsigned kKnownFlags = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP |
                                 CUDA_ARRAY3D_TEXTURE_GATHER | CUDA_ARRAY3D_DEPTH_TEXTURE |
                                 CUDA_ARRAY3D_COLOR_ATTACHMENT | CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING;
constexpr unsigned kMappedFlags = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING;

std::size_t RoundTo(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }

struct Format {
  std::size_t channel_bytes;  // 0: unknown
  unsigned channels;          // 0: any of 1, 2, 4
  bool blocks;                // compressed, 4x4 texels
};

Format FormatOf(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return {1, 0, false};
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return {2, 0, false};
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return {4, 0, false};
    case CU_AD_FORMAT_UNORM_INT8X1:
    case CU_AD_FORMAT_SNORM_INT8X1:
      return {1, 1, false};
    case CU_AD_FORMAT_UNORM_INT8X2:
    case CU_AD_FORMAT_SNORM_INT8X2:
      return {1, 2, false};
    case CU_AD_FORMAT_UNORM_INT8X4:
    case CU_AD_FORMAT_SNORM_INT8X4:
      return {1, 4, false};
    case CU_AD_FORMAT_UNORM_INT16X1:
    case CU_AD_FORMAT_SNORM_INT16X1:
      return {2, 1, false};
    case CU_AD_FORMAT_UNORM_INT16X2:
    case CU_AD_FORMAT_SNORM_INT16X2:
      return {2, 2, false};
    case CU_AD_FORMAT_UNORM_INT16X4:
    case CU_AD_FORMAT_SNORM_INT16X4:
      return {2, 4, false};
    case CU_AD_FORMAT_BC1_UNORM:
    case CU_AD_FORMAT_BC1_UNORM_SRGB:
    case CU_AD_FORMAT_BC4_UNORM:
    case CU_AD_FORMAT_BC4_SNORM:
      return {8, 1, true};
    case CU_AD_FORMAT_BC2_UNORM:
    case CU_AD_FORMAT_BC2_UNORM_SRGB:
    case CU_AD_FORMAT_BC3_UNORM:
    case CU_AD_FORMAT_BC3_UNORM_SRGB:
    case CU_AD_FORMAT_BC5_UNORM:
    case CU_AD_FORMAT_BC5_SNORM:
    case CU_AD_FORMAT_BC6H_UF16:
    case CU_AD_FORMAT_BC6H_SF16:
    case CU_AD_FORMAT_BC7_UNORM:
    case CU_AD_FORMAT_BC7_UNORM_SRGB:
      return {16, 1, true};
    default:
      return {0, 0, false};
  }
}

CUresult CheckExtents(const CUDA_ARRAY3D_DESCRIPTOR& desc) {
  const bool layered = (desc.Flags & CUDA_ARRAY3D_LAYERED) != 0;
  const bool cube = (desc.Flags & CUDA_ARRAY3D_CUBEMAP) != 0;
  if (desc.Width == 0) return CUDA_ERROR_INVALID_VALUE;
  // Memory is mapped into two and three dimensions only, in one of two ways.
  const unsigned mapped = desc.Flags & kMappedFlags;
  if (mapped == kMappedFlags || (mapped != 0 && (desc.Height == 0 || cube))) return CUDA_ERROR_INVALID_VALUE;
  if (cube) {
    const bool whole = layered ? desc.Depth % 6 == 0 && desc.Depth > 0 : desc.Depth == 6;
    if (desc.Width != desc.Height || !whole) return CUDA_ERROR_INVALID_VALUE;
  }
  if (layered || cube) {
    const bool fits = desc.Depth > 0 && desc.Depth <= kMaxLayers && desc.Width <= kMaxLayeredExtent &&
                      desc.Height <= kMaxLayeredExtent;
    return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  if (desc.Height == 0) return desc.Depth == 0 && desc.Width <= kMax1D ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  if (desc.Depth == 0) {
    return desc.Width <= kMax2DWidth && desc.Height <= kMax2DHeight ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  return std::max({desc.Width, desc.Height, desc.Depth}) <= kMax3D ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult LayOut(const CUDA_ARRAY3D_DESCRIPTOR& desc, ArrayLayout* out) {
  if ((desc.Flags & ~kKnownFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  const Format format = FormatOf(desc.Format);
  if (format.channel_bytes == 0) return CUDA_ERROR_NOT_SUPPORTED;
  const unsigned channels = desc.NumChannels;
  if (!format.blocks && channels != 1 && channels != 2 && channels != 4) return CUDA_ERROR_INVALID_VALUE;
  if (format.channels != 0 && !format.blocks && channels != format.channels) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult fits = CheckExtents(desc); fits != CUDA_SUCCESS) return fits;

  const std::size_t side = out->side = format.blocks ? 4 : 1;
  out->element = format.blocks ? format.channel_bytes : format.channel_bytes * channels;
  out->row_bytes = (desc.Width + side - 1) / side * out->element;
  out->rows = std::max<std::size_t>(1, (desc.Height + side - 1) / side);
  out->slices = std::max<std::size_t>(1, desc.Depth);
  out->pitch = RoundTo(out->row_bytes, kGroupBytes);
  out->slice_bytes = out->pitch * (desc.Height == 0 ? 1 : RoundTo(out->rows, kGroupRows));
  out->bytes = out->slice_bytes * out->slices;
  return CUDA_SUCCESS;
}

CUDA_ARRAY3D_DESCRIPTOR LevelOf(const CUDA_ARRAY3D_DESCRIPTOR& desc, unsigned level) {
  const auto halve = [level](std::size_t extent) {
    return extent == 0 ? 0 : std::max<std::size_t>(1, level < 64 ? extent >> level : 0);
  };
  CUDA_ARRAY3D_DESCRIPTOR reduced = desc;
  reduced.Width = halve(desc.Width);
  reduced.Height = halve(desc.Height);
  if ((desc.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) == 0) reduced.Depth = halve(desc.Depth);
  return reduced;
}

unsigned MaxLevels(const CUDA_ARRAY3D_DESCRIPTOR& desc) {
  const bool layers = (desc.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
  const std::size_t largest = std::max({desc.Width, desc.Height, layers ? 0 : desc.Depth});
  return static_cast<unsigned>(std::bit_width(largest));
}

}  // namespace simgpu
