// SPDX-License-Identifier: Apache-2.0
//
// cuOccupancy*: how many blocks of a kernel an SM or the device holds.
#include <algorithm>

#include "simgpu/driver/core.h"
#include "simgpu/driver/kernel.h"
#include "simgpu/driver/launch.h"
#include "simgpu/machine/machine.h"

namespace simgpu {
namespace {

constexpr int kPortableCluster = 8;
constexpr int kLargestCluster = 16;

// The kernel, and the context whose SMs are meant: its own, or the current one for a library's kernel. A MIG instance
// and a green context have fewer than the GPU.
CUresult Find(CUfunction function, KernelRef* kernel, const DeviceSpec** spec, int* sms = nullptr) {
  *kernel = FromHandle(function);
  if (*kernel == nullptr) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  Context* ctx = ContextOf(**kernel);
  if (ctx == nullptr) {
    SIMGPU_TRY(NeedContext(&ctx));
  }
  *spec = ctx->device->spec;
  if (sms != nullptr) {
    *sms = ctx->sm_count;
  }
  return CUDA_SUCCESS;
}

CUresult BlocksPerSm(int* out, CUfunction function, int threads, std::size_t shared, unsigned flags) {
  if (out == nullptr || threads <= 0 || flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  KernelRef kernel;
  const DeviceSpec* spec = nullptr;
  SIMGPU_TRY(Find(function, &kernel, &spec));
  *out = std::max(MaxBlocksPerSm(*kernel, threads, shared), 0);
  return CUDA_SUCCESS;
}

// The block size with the most resident threads; of equals the largest.
CUresult BestBlock(int* min_grid, int* block, CUfunction function, CUoccupancyB2DSize shared_of, std::size_t shared,
                   int limit, unsigned flags) {
  if (min_grid == nullptr || block == nullptr || limit < 0 || flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  KernelRef kernel;
  const DeviceSpec* spec = nullptr;
  int sms = 0;
  SIMGPU_TRY(Find(function, &kernel, &spec, &sms));
  const KernelLimits limits = LimitsOf(*kernel);
  const int warp = static_cast<int>(spec->warp_size);
  int largest = static_cast<int>(std::min(limits.max_threads_per_block, spec->max_threads_per_block));
  if (limit > 0) {
    largest = std::min(largest, limit);
  }
  int best = 0;
  int best_threads = 0;
  int best_blocks = 0;
  for (int size = (largest + warp - 1) / warp * warp; size > 0; size -= warp) {
    const int threads = std::min(size, largest);
    const int blocks = MaxBlocksPerSm(*kernel, threads, shared_of != nullptr ? shared_of(threads) : shared);
    if (blocks * threads > best_threads) {
      best = threads;
      best_threads = blocks * threads;
      best_blocks = blocks;
    }
  }
  *block = best;
  *min_grid = best_blocks * sms;
  return CUDA_SUCCESS;
}

CUresult AvailableShared(std::size_t* out, CUfunction function, int blocks, int threads) {
  if (out == nullptr || blocks <= 0 || threads <= 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  KernelRef kernel;
  const DeviceSpec* spec = nullptr;
  SIMGPU_TRY(Find(function, &kernel, &spec));
  if (MaxBlocksPerSm(*kernel, threads, 0) < blocks) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const KernelLimits limits = LimitsOf(*kernel);
  const std::size_t per_block = spec->shared_per_sm / static_cast<unsigned>(blocks);
  const std::size_t taken = spec->shared_reserved_per_block + limits.static_shared;
  *out = std::min<std::size_t>(per_block > taken ? per_block - taken : 0, limits.max_dynamic_shared);
  return CUDA_SUCCESS;
}

CUresult ShapeOf(const CUlaunchConfig* config, LaunchShape* shape) {
  if (config == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  shape->block = {config->blockDimX, config->blockDimY, config->blockDimZ};
  shape->shared_bytes = config->sharedMemBytes;
  CUevent unused = nullptr;
  return ApplyLaunchAttributes(config->attrs, config->numAttrs, shape, &unused, &unused);
}

CUresult ClusterSize(int* out, CUfunction function, const CUlaunchConfig* config) {
  LaunchShape shape;
  SIMGPU_TRY(ShapeOf(config, &shape));
  if (out == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  KernelRef kernel;
  const DeviceSpec* spec = nullptr;
  SIMGPU_TRY(Find(function, &kernel, &spec));
  const KernelLimits limits = LimitsOf(*kernel);
  *out = spec->cc_major < 9 ? 1 : (limits.non_portable_cluster ? kLargestCluster : kPortableCluster);
  return CUDA_SUCCESS;
}

CUresult ActiveClusters(int* out, CUfunction function, const CUlaunchConfig* config) {
  LaunchShape shape;
  SIMGPU_TRY(ShapeOf(config, &shape));
  if (out == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  KernelRef kernel;
  const DeviceSpec* spec = nullptr;
  int sms = 0;
  SIMGPU_TRY(Find(function, &kernel, &spec, &sms));
  const KernelLimits limits = LimitsOf(*kernel);
  int blocks_per_cluster = 1;
  for (std::size_t i = 0; i < 3; ++i) {
    const unsigned side = shape.cluster[i] != 0 ? shape.cluster[i] : limits.required_cluster[i];
    blocks_per_cluster *= static_cast<int>(std::max(side, 1U));
  }
  const int threads = static_cast<int>(shape.block[0] * shape.block[1] * shape.block[2]);
  const int blocks = MaxBlocksPerSm(*kernel, threads, shape.shared_bytes) * sms;
  *out = std::max(blocks, 0) / blocks_per_cluster;
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace simgpu

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int threads, size_t shared) {
  SIMGPU_ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor);
  return simgpu::BlocksPerSm(blocks, function, threads, shared, 0);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction function, int threads,
                                                              size_t shared, unsigned int flags) {
  SIMGPU_ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags);
  return simgpu::BlocksPerSm(blocks, function, threads, shared, flags);
}

CUresult cuOccupancyMaxPotentialBlockSize(int* min_grid, int* block, CUfunction function, CUoccupancyB2DSize shared_of,
                                          size_t shared, int limit) {
  SIMGPU_ENTER(cuOccupancyMaxPotentialBlockSize);
  return simgpu::BestBlock(min_grid, block, function, shared_of, shared, limit, 0);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* min_grid, int* block, CUfunction function,
                                                   CUoccupancyB2DSize shared_of, size_t shared, int limit,
                                                   unsigned int flags) {
  SIMGPU_ENTER(cuOccupancyMaxPotentialBlockSizeWithFlags);
  return simgpu::BestBlock(min_grid, block, function, shared_of, shared, limit, flags);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* shared, CUfunction function, int blocks, int threads) {
  SIMGPU_ENTER(cuOccupancyAvailableDynamicSMemPerBlock);
  return simgpu::AvailableShared(shared, function, blocks, threads);
}

CUresult cuOccupancyMaxPotentialClusterSize(int* size, CUfunction function, const CUlaunchConfig* config) {
  SIMGPU_ENTER(cuOccupancyMaxPotentialClusterSize);
  return simgpu::ClusterSize(size, function, config);
}

CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction function, const CUlaunchConfig* config) {
  SIMGPU_ENTER(cuOccupancyMaxActiveClusters);
  return simgpu::ActiveClusters(clusters, function, config);
}
