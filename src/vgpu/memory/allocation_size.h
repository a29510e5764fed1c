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
CUresult ChargedPitch(const Place& place, const PitchRequest& request, Allocate allocate) {
  const CUdeviceptr out_before = *request.out;
  const size_t pitch_before = *request.pitch;
  const Charging charging(place.device);  // until the size is settled, too
  const uint64_t expected = Times(RoundUp(request.width, kRowAlignment), request.height);
  const CUresult result = Charged(place, Space::kPointer, expected, request.out, allocate);
  if (result != CUDA_SUCCESS || place.device == kUnlimited) return result;
  const uint64_t actual = RoundUp(Times(*request.pitch, request.height), kAllocationUnit);
  if (actual == expected) return result;
  return ResizeCharge(*request.out, actual, [&] {
    *request.out = out_before;
    *request.pitch = pitch_before;
  });
}

}  // namespace hami::vgpu
