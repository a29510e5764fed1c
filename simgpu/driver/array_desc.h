// SPDX-License-Identifier: Apache-2.0
//
// How large an array is: from the API's descriptor to bytes. Storage is rows of 64 byte groups, and in two and three
// dimensions rows come in groups of 8, as in a GPU's block-linear layout; that padding is what arrays cost beyond their
// texels. Refuses planar video formats and descriptors beyond the hardware's limits.
#pragma once

#include <cstddef>

#include "abi/cuda_abi.h"

namespace simgpu {

struct ArrayLayout {
  std::size_t element = 0;    // bytes of a texel, or of a compressed 4x4 block
  std::size_t side = 1;       // texels along an edge of an element: 1, or 4
  std::size_t row_bytes = 0;  // without padding
  std::size_t rows = 1;       // texel rows, or rows of blocks
  std::size_t slices = 1;     // depth or layers
  std::size_t pitch = 0;
  std::size_t slice_bytes = 0;
  std::size_t bytes = 0;
};

// False when its memory is mapped into it by cuMemMapArrayAsync, in tiles or as a whole.
inline bool HasOwnMemory(const CUDA_ARRAY3D_DESCRIPTOR& desc) {
  return (desc.Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) == 0;
}

// CUDA_ERROR_INVALID_VALUE for what the API forbids, CUDA_ERROR_NOT_SUPPORTED for what simgpu has not.
CUresult LayOut(const CUDA_ARRAY3D_DESCRIPTOR& desc, ArrayLayout* out);

// The descriptor of a mipmap level: every extent halved `level` times, but for layers.
CUDA_ARRAY3D_DESCRIPTOR LevelOf(const CUDA_ARRAY3D_DESCRIPTOR& desc, unsigned level);
// How many levels there can be.
unsigned MaxLevels(const CUDA_ARRAY3D_DESCRIPTOR& desc);

}  // namespace simgpu
