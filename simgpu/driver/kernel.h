// SPDX-License-Identifier: Apache-2.0
//
// Kernels as the launch code sees them: what a CUfunction or a CUkernel handle means, its limits and attributes, its
// parameters and its cost. A handle is looked up, never dereferenced, so a stale or foreign one is an error and not a
// crash; a KernelRef keeps what it names alive after its module was unloaded. Launching is the engine's business.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "abi/cuda_abi.h"
#include "simgpu/image/image.h"

namespace simgpu {

struct Context;
struct Kernel;

using KernelRef = std::shared_ptr<const Kernel>;

// The function behind `handle`, ready to be launched in `ctx`. A CUkernel cast to CUfunction is accepted, as the driver
// does, and loads its library into `ctx` on first use (which charges memory). Errors: CUDA_ERROR_INVALID_HANDLE for an
// unknown handle or a function of another context (green contexts and their device's primary context share functions),
// CUDA_ERROR_OUT_OF_MEMORY or CUDA_ERROR_NO_BINARY_FOR_GPU from the load.
CUresult KernelForLaunch(CUfunction handle, Context& ctx, KernelRef* out);

// The same without a load: what the handle names, be it a function or a library's kernel. Null when unknown.
KernelRef FromHandle(CUfunction handle);

const KernelInfo& InfoOf(const Kernel& kernel);
Context* ContextOf(const Kernel& kernel);  // null for a library's kernel, which belongs to none
CUfunction HandleOf(const Kernel& kernel);

// What a launch must respect, on the device of the kernel's context.
struct KernelLimits {
  std::uint32_t max_threads_per_block = 0;
  std::uint32_t registers = 0;
  std::uint32_t static_shared = 0;
  std::uint32_t max_dynamic_shared = 0;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES; 48 KiB with the static part
  std::array<std::uint32_t, 3> required_cluster{};  // 0: none required
  bool non_portable_cluster = false;
};
KernelLimits LimitsOf(const Kernel& kernel);

// One attribute as cuFuncGetAttribute tells it. CUDA_ERROR_INVALID_VALUE for an attribute that is not known.
CUresult GetKernelAttribute(const Kernel& kernel, CUfunction_attribute attribute, int* value);

// How many blocks of that shape one SM holds at a time; 0 when not even one fits.
int MaxBlocksPerSm(const Kernel& kernel, int threads_per_block, std::size_t dynamic_shared);

// Gathers the launch parameters, from `kernel_params` (one pointer each) or `extra` (CU_LAUNCH_PARAM_*), into one
// buffer laid out as the kernel declares. Exactly one of both may be given, neither when there are no parameters; else
// CUDA_ERROR_INVALID_VALUE.
CUresult PackParams(const KernelInfo& info, void** kernel_params, void** extra, std::vector<std::byte>* out);

// The value of parameter `index` in a packed buffer, zero-extended; 0 when it is not there.
std::uint64_t ParamU64(const KernelInfo& info, const std::vector<std::byte>& packed, std::size_t index);

// SM-nanoseconds of the whole grid. `default_block_nanos` is what a block costs when the image does not say
// (Options::kernel_ns). Saturates instead of overflowing.
std::uint64_t KernelCost(const KernelInfo& info, const std::vector<std::byte>& packed, std::uint64_t blocks,
                         std::uint64_t default_block_nanos);

// The memory that a kernel of simgpu's own images changes, done now on the host; called when the kernel's time is over.
// CUDA_ERROR_ILLEGAL_ADDRESS when a range is not wholly inside live allocations. Kernels of real images do nothing.
CUresult RunHostAction(const KernelInfo& info, const std::vector<std::byte>& packed);

// What cuFuncSetBlockShape, cuFuncSetSharedSize and cuParamSet* left for cuLaunch and cuLaunchGrid.
struct LegacyLaunch {
  std::array<unsigned, 3> block{1, 1, 1};
  unsigned shared_bytes = 0;
  std::vector<std::byte> params;  // as packed
};
LegacyLaunch LegacyLaunchOf(const Kernel& kernel);

// Forgets every module of a context that is going away, and gives their memory back. Called by the context's destroyer
// while the context can still free memory.
void ReleaseModulesOf(Context& ctx);

}  // namespace simgpu
