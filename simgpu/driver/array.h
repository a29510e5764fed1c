// SPDX-License-Identifier: Apache-2.0
//
// Arrays and mipmapped arrays: handles to storage that no device pointer reaches. A mipmapped array owns its levels.
#pragma once

#include "abi/cuda_abi.h"
#include "simgpu/driver/array_desc.h"
#include "simgpu/driver/mem.h"

namespace simgpu {

// What copies and textures need of an array.
struct ArrayView {
  std::byte* storage = nullptr;
  ArrayLayout layout;
  int machine = -1;
  unsigned flags = 0;  // CUDA_ARRAY3D_*
};

// False for a handle that is no live array.
bool FindArray(CUarray handle, ArrayView* out);
bool IsMipmap(CUmipmappedArray handle);

}  // namespace simgpu
