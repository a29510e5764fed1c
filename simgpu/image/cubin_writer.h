// SPDX-License-Identifier: Apache-2.0
//
// Writes an Image as a cubin that ParseCubin reads back as the same Image: what a link answers with. It has the
// sections that describe kernels and globals, and code sections of zeros; costs and host actions, which no real cubin
// has, go into a section of their own (kCostSection).
#pragma once

#include "simgpu/image/image.h"

namespace simgpu {

inline constexpr std::string_view kCostSection = ".simgpu.cost";

// One kernel's record in that section.
struct CostRecord {
  std::uint32_t symbol;
  std::uint32_t cost_kind;
  std::uint32_t param;
  std::uint32_t action;
  std::uint64_t sm_nanos;
};
static_assert(sizeof(CostRecord) == 24);

// Empty: a kernel's parameters do not fit the format (64 KiB), or a variable that is initialised is too large for it.
std::vector<std::byte> WriteCubin(const Image& image);

}  // namespace simgpu
