// SPDX-License-Identifier: Apache-2.0
// cuMemAlloc, cuMemAllocPitch, cuMemFree, cuMemGetInfo, cuMemGetAddressRange.
#include "simgpu/driver/engine.h"
#include "simgpu/driver/mem_internal.h"

namespace simgpu {
namespace {

CUresult FreeAny(CUdeviceptr address, Context& current) {
  Range range;
  if (!FindRange(address, &range) || range.base != address || !range.in_use) return CUDA_ERROR_INVALID_VALUE;
  DrainContext(current);
  DrainUsersOf(range);
  switch (range.kind) {
    case MemKind::kGraph:
      if (!GraphSettle(address)) return CUDA_ERROR_INVALID_VALUE;
      GraphUnback(address);
      return CUDA_SUCCESS;
    case MemKind::kDevice:
      return FreeDevice(address);
    case MemKind::kManaged:
    case MemKind::kAsync:
    case MemKind::kExternal:
    case MemKind::kPoolImport:
      Destroy(address);
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

std::uint32_t DevicesOf(const Range& range) {
  if (range.kind == MemKind::kHost || range.kind == MemKind::kRegistered) return ~0U;
  const Device* device = DeviceOfMachine(range.machine);
  std::uint32_t mask = device != nullptr ? 1U << device->ordinal : 0;
  if (range.ctx != nullptr) mask |= 1U << range.ctx->ordinal();
  return mask;
}

}  // namespace

void DrainDevices(std::uint32_t ordinals) {
  const auto drain = [](Context& ctx, void* mask) {
    if ((*static_cast<std::uint32_t*>(mask) >> ctx.ordinal() & 1U) != 0) DrainContext(ctx);
  };
  ForEachContext(-1, drain, &ordinals);
}

void DrainUsersOf(const Range& range) {
  if (range.kind != MemKind::kDevice || range.ctx == nullptr) return DrainDevices(DevicesOf(range));
  if (range.ctx->kind == ContextKind::kCreated) return DrainContext(*range.ctx);
  const auto drain = [](Context& ctx, void*) {
    if (ctx.kind != ContextKind::kCreated) DrainContext(ctx);
  };
  ForEachContext(range.ctx->ordinal(), drain, nullptr);
}

}  // namespace simgpu

using namespace simgpu;

CUresult cuMemAlloc_v2(CUdeviceptr* out, size_t size) {
  SIMGPU_ENTER(cuMemAlloc_v2);
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (size > (std::size_t{2} << 20)) SpendHost(static_cast<std::int64_t>(size >> 20) * kAllocNanosPerMiB);
  return AllocDevice(*ctx, size, MemKind::kDevice, out);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* out, size_t* pitch, size_t width, size_t height, unsigned int element) {
  SIMGPU_ENTER(cuMemAllocPitch_v2);
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  if (out == nullptr || pitch == nullptr || width == 0 || height == 0) return CUDA_ERROR_INVALID_VALUE;
  if (element != 4 && element != 8 && element != 16) return CUDA_ERROR_INVALID_VALUE;
  if (!Plausible(width)) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::size_t row = RoundUp(width, kPitchAlignment);
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(row, height, &bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  SIMGPU_TRY(AllocDevice(*ctx, bytes, MemKind::kDevice, out));
  *pitch = row;
  return CUDA_SUCCESS;
}

// Waits for the work that may use it, as every driver does before it takes memory away.
CUresult cuMemFree_v2(CUdeviceptr address) {
  SIMGPU_ENTER(cuMemFree_v2);
  if (address == 0) return CUDA_SUCCESS;
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  SIMGPU_TRY(CheckUnsafeCall());
  return FreeAny(address, *ctx);
}

CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
  SIMGPU_ENTER(cuMemGetInfo_v2);
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  Machine& machine = Machine::Get();
  if (free_bytes != nullptr) *free_bytes = machine.FreeBytes(ctx->machine());
  if (total != nullptr) *total = machine.TotalBytes(ctx->machine());
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size, CUdeviceptr address) {
  SIMGPU_ENTER(cuMemGetAddressRange_v2);
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  Range range;
  if (!FindRange(address, &range)) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = range.base;
  if (size != nullptr) *size = range.size;
  return CUDA_SUCCESS;
}
