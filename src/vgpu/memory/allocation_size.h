// SPDX-License-Identifier: Apache-2.0
//
// Sizes that have to be worked out: pitched memory (the driver picks the pitch) and arrays (the driver picks the
// layout). Both are reserved by the layout that GPUs use, pitched rows padded to 512 bytes, arrays in blocks of 64
// bytes by 8 rows, and settled where the driver tells more.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "abi/cuda_abi.h"
#include "vgpu/memory/charge.h"

namespace hami::vgpu {

inline constexpr uint64_t kRowAlignment = 512;

// Saturating, so that an absurd request is refused instead of wrapping into a small one.
constexpr uint64_t Times(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

// Bytes of an array; 0 for one that holds no memory of its own (sparse, deferred mapping) or is not valid.
uint64_t ArrayBytes(const CUDA_ARRAY3D_DESCRIPTOR& shape);
// Bytes of all levels.
uint64_t MipmapBytes(const CUDA_ARRAY3D_DESCRIPTOR& shape, unsigned levels);

struct PitchRequest {
  CUdeviceptr* out;
  size_t* pitch;
  size_t width;
  size_t height;
};

template <typename Allocate>
CUresult ChargedPitch(const ContextRef& context, const PitchRequest& request, Allocate allocate) {
  const size_t pitch_before = *request.pitch;
  const uint64_t expected = Times(RoundUp(request.width, kRowAlignment), request.height);
  const CUresult result = ChargedPointer({context, expected, request.out}, [&](PointerRequest* r) {
    const CUresult allocated = allocate();
    if (allocated == CUDA_SUCCESS) r->bytes = Times(*request.pitch, request.height);
    return allocated;
  });
  if (result == CUDA_ERROR_OUT_OF_MEMORY) *request.pitch = pitch_before;
  return result;
}

}  // namespace hami::vgpu
