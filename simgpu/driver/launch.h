// SPDX-License-Identifier: Apache-2.0
//
// What a launch is once it was checked: the kernel, its work and how many SMs it can fill. Streams and graphs launch
// the same thing. Refuses, with the driver's own error codes, what the device or the kernel can not hold.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "abi/cuda_abi.h"
#include "simgpu/driver/kernel.h"

namespace simgpu {

struct Context;

struct LaunchShape {
  std::array<unsigned, 3> grid{1, 1, 1};
  std::array<unsigned, 3> block{1, 1, 1};
  std::array<unsigned, 3> cluster{0, 0, 0};  // 0: none asked for
  unsigned shared_bytes = 0;
  bool cooperative = false;

  std::uint64_t blocks() const { return std::uint64_t{grid[0]} * grid[1] * grid[2]; }
};

struct PreparedLaunch {
  KernelRef kernel;
  std::uint64_t sm_nanos = 0;
  std::uint32_t width = 1;
  bool acts = false;  // it does something to memory: NewKernelAction
};

// Checks the shape against device and kernel and finds out what it costs; `packed` holds the parameters (PackParams).
// CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, CUDA_ERROR_INVALID_CLUSTER_SIZE,
// CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE.
CUresult PrepareLaunch(const Context& ctx, KernelRef kernel, const LaunchShape& shape,
                       const std::vector<std::byte>& packed, PreparedLaunch* out);

// What a kernel of simgpu's own images does to memory, as a call for the end of its time; null when it does nothing.
// RunKernelAction consumes the argument.
void* NewKernelAction(Context& ctx, const KernelRef& kernel, const std::vector<std::byte>& packed);
void RunKernelAction(void* action);

// Reads what a launch's attributes ask of the shape. Events to be recorded go to `completion` (when the kernel started)
// and `programmatic` (when it ended). CUDA_ERROR_INVALID_VALUE for an attribute that launches do not have.
CUresult ApplyLaunchAttributes(const CUlaunchAttribute* attributes, unsigned count, LaunchShape* shape,
                               CUevent* completion, CUevent* programmatic);

}  // namespace simgpu
