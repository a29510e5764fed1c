// SPDX-License-Identifier: Apache-2.0
#include "simgpu/driver/launch.h"

#include <algorithm>
#include <new>
#include <utility>

#include "simgpu/driver/context.h"
#include "simgpu/driver/engine_state.h"
#include "simgpu/driver/mps_client.h"

namespace simgpu {
namespace {

constexpr unsigned kMaxGridYZ = 65535;
constexpr unsigned kMaxGridX = 0x7fffffff;
constexpr unsigned kMaxBlockZ = 64;
constexpr unsigned kPortableCluster = 8;
constexpr unsigned kLargestCluster = 16;
constexpr int kLastLaunchAttribute = 18;  // of CUDA 13

struct KernelAction {
  Context* ctx;
  KernelRef kernel;
  std::vector<std::byte> packed;
};

CUresult CheckDims(const LaunchShape& shape, const DeviceSpec& spec) {
  for (std::size_t i = 0; i < 3; ++i) {
    if (shape.grid[i] == 0 || shape.block[i] == 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  const unsigned most = spec.max_threads_per_block;
  const bool fits = shape.grid[0] <= kMaxGridX && shape.grid[1] <= kMaxGridYZ && shape.grid[2] <= kMaxGridYZ &&
                    shape.block[0] <= most && shape.block[1] <= most && shape.block[2] <= kMaxBlockZ &&
                    std::uint64_t{shape.block[0]} * shape.block[1] * shape.block[2] <= most;
  return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CheckCluster(const LaunchShape& shape, const KernelLimits& limits, const DeviceSpec& spec) {
  std::array<unsigned, 3> cluster = shape.cluster;
  for (std::size_t i = 0; i < 3; ++i) {
    const unsigned required = limits.required_cluster[i];
    if (required != 0 && cluster[i] != 0 && cluster[i] != required) {
      return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    }
    cluster[i] = std::max(required != 0 ? required : cluster[i], 1U);
  }
  const std::uint64_t size = std::uint64_t{cluster[0]} * cluster[1] * cluster[2];
  if (size == 1) {
    return CUDA_SUCCESS;
  }
  if (spec.cc_major < 9 || size > (limits.non_portable_cluster ? kLargestCluster : kPortableCluster)) {
    return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  }
  for (std::size_t i = 0; i < 3; ++i) {
    if (shape.grid[i] % cluster[i] != 0) {
      return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult PrepareLaunch(const Context& ctx, KernelRef kernel, const LaunchShape& shape,
                       const std::vector<std::byte>& packed, PreparedLaunch* out) {
  const DeviceSpec& spec = *ctx.device->spec;
  SIMGPU_TRY(CheckDims(shape, spec));
  const KernelLimits limits = LimitsOf(*kernel);
  const unsigned threads = shape.block[0] * shape.block[1] * shape.block[2];
  if (threads > limits.max_threads_per_block) {
    return std::uint64_t{limits.registers} * threads > spec.regs_per_block ? CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
                                                                           : CUDA_ERROR_INVALID_VALUE;
  }
  if (shape.shared_bytes > limits.max_dynamic_shared) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  SIMGPU_TRY(CheckCluster(shape, limits, spec));
  const int per_sm = MaxBlocksPerSm(*kernel, static_cast<int>(threads), shape.shared_bytes);
  if (per_sm <= 0) {
    return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  }
  const auto sms = static_cast<std::uint64_t>(std::max(ctx.sm_count, 1));
  const std::uint64_t blocks = shape.blocks();
  if (shape.cooperative && blocks > sms * static_cast<std::uint64_t>(per_sm)) {
    return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  }
  SIMGPU_TRY(NeedLocalMemory(const_cast<Context&>(ctx), InfoOf(*kernel).local_bytes));
  if (InfoOf(*kernel).allocates) SIMGPU_TRY(NeedDeviceHeap(const_cast<Context&>(ctx)));
  const auto resident = static_cast<std::uint64_t>(per_sm);
  out->width = static_cast<std::uint32_t>(std::min(sms, (blocks + resident - 1) / resident));
  out->sm_nanos = KernelCost(InfoOf(*kernel), packed, blocks, Machine::Get().options().kernel_ns);
  out->acts = InfoOf(*kernel).action != HostAction::kNone;
  out->kernel = std::move(kernel);
  return CUDA_SUCCESS;
}

void* NewKernelAction(Context& ctx, const KernelRef& kernel, const std::vector<std::byte>& packed) {
  if (InfoOf(*kernel).action == HostAction::kNone) {
    return nullptr;
  }
  return new KernelAction{&ctx, kernel, packed};
}

void RunKernelAction(void* arg) {
  auto* action = static_cast<KernelAction*>(arg);
  const CUresult result = RunHostAction(InfoOf(*action->kernel), action->packed);
  if (result != CUDA_SUCCESS) {
    int none = 0;  // the first fault is the one that is told
    action->ctx->sticky_error.compare_exchange_strong(none, static_cast<int>(result));
    TellMpsFault();
  }
  delete action;
}

CUresult ApplyLaunchAttributes(const CUlaunchAttribute* attributes, unsigned count, LaunchShape* shape,
                               CUevent* completion, CUevent* programmatic) {
  if (count > 0 && attributes == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (unsigned i = 0; i < count; ++i) {
    const CUlaunchAttributeValue& value = attributes[i].value;
    switch (static_cast<int>(attributes[i].id)) {
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        shape->cooperative = value.cooperative != 0;
        break;
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        if (value.clusterDim.x == 0 || value.clusterDim.y == 0 || value.clusterDim.z == 0) {
          return CUDA_ERROR_INVALID_CLUSTER_SIZE;
        }
        shape->cluster = {value.clusterDim.x, value.clusterDim.y, value.clusterDim.z};
        break;
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
        *programmatic = value.programmaticEvent.event;
        break;
      case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        *completion = value.launchCompletionEvent.event;
        break;
      default:  // what is left changes nothing that is simulated
        if (attributes[i].id < 0 || static_cast<int>(attributes[i].id) > kLastLaunchAttribute) {
          return CUDA_ERROR_INVALID_VALUE;
        }
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace simgpu
