// SPDX-License-Identifier: Apache-2.0
//
// simgpu's own image format: a few lines of text that declare kernels with their cost and globals with their size
// (docs/develop/simgpu-image.md), so that tests and demos need no compiler. Refuses any word it does not know, by line
// number.
#pragma once

#include "simgpu/image/image.h"

namespace simgpu {

inline constexpr std::string_view kSimgpuTextMark = "simgpu-image 1";

ParseStatus ParseSimgpuText(std::string_view text, const Target& target, Image* out, std::string* log);

}  // namespace simgpu
