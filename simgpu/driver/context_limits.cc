// SPDX-License-Identifier: Apache-2.0
// cuCtx*Limit and the cache and bank configurations. Stack and heaps grow in device memory: growth is charged at once.
#include <algorithm>
#include <mutex>

#include "simgpu/driver/context.h"
#include "simgpu/driver/mem_internal.h"

namespace simgpu {
namespace {

constexpr std::size_t kMaxStack = std::size_t{512} << 10;  // per thread
constexpr std::size_t kDefaultStack = 1024;
constexpr std::size_t kDefaultPrintf = std::size_t{1} << 20;
constexpr std::size_t kDefaultHeap = std::size_t{8} << 20;

constinit std::mutex g_limits_lock;

std::uint64_t Beyond(std::size_t value, std::size_t included) { return value > included ? value - included : 0; }

// What the limits cost beyond what every context's cost includes: every thread the GPU can hold has a stack.
std::uint64_t LimitBytes(const Context& ctx, std::size_t stack, std::size_t printf_bytes, std::size_t heap,
                         std::size_t local) {
  const std::uint64_t threads =
      std::uint64_t{ctx.device->spec->max_threads_per_sm} * static_cast<std::uint64_t>(ctx.device->sm_count);
  return Beyond(std::max(stack, local), kDefaultStack) * threads + Beyond(printf_bytes, kDefaultPrintf) +
         Beyond(heap, kDefaultHeap);
}

CUresult Grow(Context& ctx, std::size_t stack, std::size_t printf_bytes, std::size_t heap) {
  const std::lock_guard<std::mutex> guard(g_limits_lock);
  const std::uint64_t now = LimitBytes(ctx, ctx.stack_bytes, ctx.printf_bytes, ctx.heap_bytes, ctx.local_bytes);
  const std::uint64_t then = LimitBytes(ctx, stack, printf_bytes, heap, ctx.local_bytes);
  if (then > now && !ChargeBytes(ctx.machine(), then - now, true)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (then < now) RefundBytes(ctx.machine(), now - then, true);
  ctx.charged += then - now;
  ctx.stack_bytes = stack;
  ctx.printf_bytes = printf_bytes;
  ctx.heap_bytes = heap;
  return CUDA_SUCCESS;
}

CUresult SetLimit(Context& ctx, CUlimit limit, std::size_t value) {
  switch (limit) {
    case CU_LIMIT_STACK_SIZE: {
      if (value > kMaxStack) return CUDA_ERROR_INVALID_VALUE;
      const std::size_t rounded = (value + 15) / 16 * 16;
      return Grow(ctx, rounded == 0 ? 16 : rounded, ctx.printf_bytes, ctx.heap_bytes);
    }
    case CU_LIMIT_PRINTF_FIFO_SIZE:
      return Grow(ctx, ctx.stack_bytes, value, ctx.heap_bytes);
    case CU_LIMIT_MALLOC_HEAP_SIZE:
      return Grow(ctx, ctx.stack_bytes, ctx.printf_bytes, value);
    case CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH:
      ctx.sync_depth = value;
      return CUDA_SUCCESS;
    case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT:
      ctx.pending_launches = value;
      return CUDA_SUCCESS;
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
      ctx.max_l2_granularity = value > 128 ? 128 : value;
      return CUDA_SUCCESS;
    case CU_LIMIT_PERSISTING_L2_CACHE_SIZE:
      ctx.persisting_l2 = value;
      return CUDA_SUCCESS;
    default:
      return limit < CU_LIMIT_MAX ? CUDA_ERROR_UNSUPPORTED_LIMIT : CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult GetLimit(const Context& ctx, CUlimit limit, std::size_t* value) {
  switch (limit) {
    case CU_LIMIT_STACK_SIZE:
      *value = ctx.stack_bytes;
      return CUDA_SUCCESS;
    case CU_LIMIT_PRINTF_FIFO_SIZE:
      *value = ctx.printf_bytes;
      return CUDA_SUCCESS;
    case CU_LIMIT_MALLOC_HEAP_SIZE:
      *value = ctx.heap_bytes;
      return CUDA_SUCCESS;
    case CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH:
      *value = ctx.sync_depth;
      return CUDA_SUCCESS;
    case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT:
      *value = ctx.pending_launches;
      return CUDA_SUCCESS;
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
      *value = ctx.max_l2_granularity;
      return CUDA_SUCCESS;
    case CU_LIMIT_PERSISTING_L2_CACHE_SIZE:
      *value = ctx.persisting_l2;
      return CUDA_SUCCESS;
    default:
      return limit < CU_LIMIT_MAX ? CUDA_ERROR_UNSUPPORTED_LIMIT : CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

CUresult NeedLocalMemory(Context& ctx, std::size_t bytes) {
  if (ctx.device->spec->profile.blocks == 0) return CUDA_SUCCESS;
  const std::lock_guard<std::mutex> guard(g_limits_lock);
  if (bytes <= ctx.local_bytes) return CUDA_SUCCESS;
  const std::uint64_t now = LimitBytes(ctx, ctx.stack_bytes, ctx.printf_bytes, ctx.heap_bytes, ctx.local_bytes);
  const std::uint64_t then = LimitBytes(ctx, ctx.stack_bytes, ctx.printf_bytes, ctx.heap_bytes, bytes);
  if (then > now && !ChargeBytes(ctx.machine(), then - now, true)) return CUDA_ERROR_OUT_OF_MEMORY;
  ctx.charged += then - now;
  ctx.local_bytes = bytes;
  return CUDA_SUCCESS;
}

CUresult NeedDeviceHeap(Context& ctx) {
  const std::lock_guard<std::mutex> guard(g_limits_lock);
  if (ctx.device_heap) return CUDA_SUCCESS;
  const std::uint64_t bytes = ctx.device->spec->profile.device_heap_bytes;
  if (bytes != 0 && !ChargeBytes(ctx.machine(), bytes, true)) return CUDA_ERROR_OUT_OF_MEMORY;
  ctx.charged += bytes;
  ctx.device_heap = true;
  return CUDA_SUCCESS;
}

namespace {

// `count` more things of `each` bytes, all together in blocks, of which none is given back.
CUresult Begins(Context& ctx, std::uint64_t count, std::uint64_t each, std::uint64_t* live, std::uint64_t* charged) {
  const std::lock_guard<std::mutex> guard(g_limits_lock);
  const std::uint64_t wanted = RoundUp((*live + count) * each, kGranule);
  if (wanted > *charged) {
    if (!ChargeBytes(ctx.machine(), wanted - *charged, true)) return CUDA_ERROR_OUT_OF_MEMORY;
    ctx.charged += wanted - *charged;
    *charged = wanted;
  }
  *live += count;
  return CUDA_SUCCESS;
}

void Ends(std::uint64_t count, std::uint64_t* live) {
  const std::lock_guard<std::mutex> guard(g_limits_lock);
  *live -= std::min(count, *live);
}

}  // namespace

CUresult StreamBegins(Context& ctx) {
  return Begins(ctx, 1, ctx.device->spec->profile.stream_bytes, &ctx.streams, &ctx.streams_charged);
}

void StreamEnds(Context& ctx) { Ends(1, &ctx.streams); }

CUresult GraphNodesBegin(Context& ctx, std::size_t count) {
  return Begins(ctx, count, ctx.device->spec->profile.graph_node_bytes, &ctx.graph_nodes, &ctx.graph_nodes_charged);
}

void GraphNodesEnd(Context& ctx, std::size_t count) { Ends(count, &ctx.graph_nodes); }

}  // namespace simgpu

using namespace simgpu;

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  SIMGPU_ENTER(cuCtxSetLimit);
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  return SetLimit(*ctx, limit, value);
}

CUresult cuCtxGetLimit(size_t* value, CUlimit limit) {
  SIMGPU_ENTER(cuCtxGetLimit);
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  return GetLimit(*ctx, limit, value);
}

CUresult cuCtxGetCacheConfig(CUfunc_cache* config) {
  SIMGPU_ENTER(cuCtxGetCacheConfig);
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  *config = static_cast<CUfunc_cache>(ctx->cache_config.load());
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
  SIMGPU_ENTER(cuCtxSetCacheConfig);
  if (config > CU_FUNC_CACHE_PREFER_EQUAL) return CUDA_ERROR_INVALID_VALUE;
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  ctx->cache_config = static_cast<int>(config);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig* config) {
  SIMGPU_ENTER(cuCtxGetSharedMemConfig);
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  // The bank size has been fixed since Maxwell; four bytes is what every driver says of it.
  *config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) {
  SIMGPU_ENTER(cuCtxSetSharedMemConfig);
  if (config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE) return CUDA_ERROR_INVALID_VALUE;
  Context* ctx = nullptr;
  return NeedContext(&ctx);
}

CUresult cuCtxResetPersistingL2Cache() {
  SIMGPU_ENTER(cuCtxResetPersistingL2Cache);
  Context* ctx = nullptr;
  return NeedContext(&ctx);
}
