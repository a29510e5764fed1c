// SPDX-License-Identifier: Apache-2.0
//
// Loads under a limit: kernels of known lengths, and every way to launch them.
#pragma once

#include <functional>
#include <string>

#include "test/preload/guest_kernels.h"

namespace guest {

constexpr unsigned kWide = 264;  // blocks of 1024 threads, two an SM

// Of the image of guest_shapes.cc: us5, us20, us500, ms50, ms300 (when they fill the SMs of an H100), and others.
CUfunction Kernel(const char* name);
void LaunchWide(CUfunction function, CUstream stream, unsigned blocks = kWide, void** params = nullptr);

// A graph that does so many ns of work and is updated before each launch, or destroyed and made anew.
std::function<void()> UpdatedGraph(CUstream stream, std::function<uint64_t()> ns, bool anew = false);

// What one step of each shape is.
std::function<void()> Shape(const std::string& name);

}  // namespace guest
