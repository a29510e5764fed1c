// SPDX-License-Identifier: Apache-2.0
//
// How the memory files resolve the two ends of a copy. mem.h has what the rest of the driver uses.
#pragma once

#include "simgpu/driver/mem.h"

namespace simgpu {

struct FlatMemory {
  int machine = -1;
  bool pageable = false;
};

Route RouteOf(int dst_machine, int src_machine);

// Who holds [address, address + size). Memory that the driver does not know is pageable host memory, or
// CUDA_ERROR_INVALID_VALUE if it must be known.
CUresult ResolveFlat(CUdeviceptr address, std::size_t size, bool must_be_known, FlatMemory* out);

CUresult MakeFlatCopy(CUdeviceptr dst, bool dst_known, CUdeviceptr src, bool src_known, std::size_t size, CopyOp* out);

CUresult MakeCopy2D(const CUDA_MEMCPY2D& copy, CopyOp* out);

}  // namespace simgpu
