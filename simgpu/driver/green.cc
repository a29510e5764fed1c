// SPDX-License-Identifier: Apache-2.0
// Green contexts: partitions of a device's SMs, split by count, and contexts on them. A resource remembers its device
// in the padding that the API reserves for the driver.
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "simgpu/driver/context.h"
#include "simgpu/driver/engine.h"
#include "simgpu/driver/event.h"

namespace simgpu {
namespace {

struct Stamp {
  std::uint32_t magic;
  std::int32_t ordinal;
};
constexpr std::uint32_t kMagic = 0x534d5231;  // "SMR1"

// The first words of the resource's union; CUDA 12 declares only the first of them.
struct SmFields {
  std::uint32_t count;
  std::uint32_t min_partition;
  std::uint32_t alignment;
};

struct Desc {
  int ordinal = 0;
  int sm_count = 0;
};

struct Descs {
  std::mutex lock;
  std::unordered_map<const void*, Desc*> live;
};

Descs& TheDescs() {
  static Descs& descs = *new Descs;
  return descs;
}

// How SMs are grouped in hardware: partitions are made of whole groups.
SmFields Granularity(const Device& device) {
  if (device.spec->cc_major >= 9) return {0, 8, 8};
  if (device.spec->cc_major == 8) return {0, 4, 2};
  return {0, 2, 2};
}

void Describe(const Device& device, int sm_count, CUdevResource* out) {
  *out = CUdevResource{};
  out->type = CU_DEV_RESOURCE_TYPE_SM;
  const Stamp stamp{kMagic, device.ordinal};
  std::memcpy(out->_internal_padding, &stamp, sizeof stamp);
  SmFields fields = Granularity(device);
  fields.count = static_cast<std::uint32_t>(sm_count);
  std::memcpy(static_cast<void*>(&out->sm), &fields, sizeof fields);
}

CUresult DeviceOf(const CUdevResource& resource, const Device** out) {
  if (resource.type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  Stamp stamp;
  std::memcpy(&stamp, resource._internal_padding, sizeof stamp);
  *out = stamp.magic == kMagic ? FindDevice(stamp.ordinal) : nullptr;
  if (*out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return resource.sm.smCount <= static_cast<unsigned>((*out)->sm_count) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult Resource(const Device& device, int sm_count, CUdevResource* out, CUdevResourceType type) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  Describe(device, sm_count, out);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace simgpu

using namespace simgpu;

CUresult cuDeviceGetDevResource(CUdevice dev, CUdevResource* resource, CUdevResourceType type) {
  SIMGPU_ENTER(cuDeviceGetDevResource);
  const Device* device = FindDevice(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  return Resource(*device, device->sm_count, resource, type);
}

CUresult cuCtxGetDevResource(CUcontext handle, CUdevResource* resource, CUdevResourceType type) {
  SIMGPU_ENTER(cuCtxGetDevResource);
  Context* ctx = nullptr;
  SIMGPU_TRY(handle == nullptr ? NeedContext(&ctx) : ContextOf(handle, &ctx));
  return Resource(*ctx->device, ctx->sm_count, resource, type);
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx handle, CUdevResource* resource, CUdevResourceType type) {
  SIMGPU_ENTER(cuGreenCtxGetDevResource);
  Context* ctx = nullptr;
  SIMGPU_TRY(GreenContextOf(handle, &ctx));
  return Resource(*ctx->device, ctx->sm_count, resource, type);
}

CUresult cuDevSmResourceSplitByCount(CUdevResource* result, unsigned int* groups, const CUdevResource* input,
                                     CUdevResource* remainder, unsigned int flags, unsigned int min_count) {
  SIMGPU_ENTER(cuDevSmResourceSplitByCount);
  if (groups == nullptr || input == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Device* device = nullptr;
  SIMGPU_TRY(DeviceOf(*input, &device));
  const unsigned total = input->sm.smCount;
  if (min_count > total) return CUDA_ERROR_INVALID_VALUE;
  SmFields grain = Granularity(*device);
  if ((flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING) != 0) grain.min_partition = grain.alignment = 2;
  unsigned size = min_count < grain.min_partition ? grain.min_partition : min_count;
  size = (size + grain.alignment - 1) / grain.alignment * grain.alignment;
  const unsigned possible = total / size;
  if (result == nullptr) {
    *groups = possible;
    return CUDA_SUCCESS;
  }
  if (possible == 0) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  if (*groups > possible) *groups = possible;
  for (unsigned i = 0; i < *groups; ++i) Describe(*device, static_cast<int>(size), &result[i]);
  if (remainder != nullptr) {
    const unsigned left = total - *groups * size;
    Describe(*device, static_cast<int>(left), remainder);
    if (left == 0) remainder->type = CU_DEV_RESOURCE_TYPE_INVALID;
  }
  return CUDA_SUCCESS;
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc* out, CUdevResource* resources, unsigned int count) {
  SIMGPU_ENTER(cuDevResourceGenerateDesc);
  if (out == nullptr || resources == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  Desc made;
  for (unsigned i = 0; i < count; ++i) {
    const Device* device = nullptr;
    SIMGPU_TRY(DeviceOf(resources[i], &device));
    if (i > 0 && device->ordinal != made.ordinal) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    made.ordinal = device->ordinal;
    made.sm_count += static_cast<int>(resources[i].sm.smCount);
    if (made.sm_count > device->sm_count) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  }
  // The API has no call that destroys a descriptor.
  auto* desc = new Desc(made);
  Descs& descs = TheDescs();
  const std::lock_guard<std::mutex> guard(descs.lock);
  descs.live.emplace(desc, desc);
  *out = reinterpret_cast<CUdevResourceDesc>(desc);
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxCreate(CUgreenCtx* out, CUdevResourceDesc handle, CUdevice dev, unsigned int flags) {
  SIMGPU_ENTER(cuGreenCtxCreate);
  const Device* device = FindDevice(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  // Without a default stream of its own the context could not be used through the API's null stream.
  if (out == nullptr || flags != CU_GREEN_CTX_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
  Desc desc;
  {
    Descs& descs = TheDescs();
    const std::lock_guard<std::mutex> guard(descs.lock);
    const auto found = descs.live.find(handle);
    if (found == descs.live.end() || found->second->ordinal != dev) return CUDA_ERROR_INVALID_VALUE;
    desc = *found->second;
  }
  // A green context keeps its device's primary context alive.
  Context* primary = nullptr;
  std::uint64_t life = 0;
  SIMGPU_TRY(RetainPrimary(dev, &primary, &life));
  Context* ctx = nullptr;
  if (const CUresult made = NewContext(*device, ContextKind::kGreen, 0, desc.sm_count, &ctx); made != CUDA_SUCCESS) {
    ReleasePrimary(dev, life);
    return made;
  }
  ctx->primary_life = life;
  *out = reinterpret_cast<CUgreenCtx>(ctx);
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxDestroy(CUgreenCtx handle) {
  SIMGPU_ENTER(cuGreenCtxDestroy);
  Context* ctx = nullptr;
  SIMGPU_TRY(GreenContextOf(handle, &ctx));
  if (!EndContext(*ctx)) return CUDA_ERROR_INVALID_HANDLE;
  ReleasePrimary(ctx->ordinal(), ctx->primary_life);
  return CUDA_SUCCESS;
}

CUresult cuCtxFromGreenCtx(CUcontext* out, CUgreenCtx handle) {
  SIMGPU_ENTER(cuCtxFromGreenCtx);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* ctx = nullptr;
  SIMGPU_TRY(GreenContextOf(handle, &ctx));
  *out = HandleOf(*ctx);
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxGetId(CUgreenCtx handle, unsigned long long* id) {
  SIMGPU_ENTER(cuGreenCtxGetId);
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* ctx = nullptr;
  SIMGPU_TRY(GreenContextOf(handle, &ctx));
  *id = ctx->id;
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxStreamCreate(CUstream* out, CUgreenCtx handle, unsigned int flags, int priority) {
  SIMGPU_ENTER(cuGreenCtxStreamCreate);
  if (out == nullptr || flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  Context* ctx = nullptr;
  SIMGPU_TRY(GreenContextOf(handle, &ctx));
  return CreateStream(*ctx, flags, priority, out);
}

// --- events of whole contexts

CUresult cuCtxRecordEvent(CUcontext handle, CUevent event) {
  SIMGPU_ENTER(cuCtxRecordEvent);
  Context* ctx = nullptr;
  SIMGPU_TRY(ContextOf(handle, &ctx));
  return RecordContext(*ctx, event);
}

CUresult cuCtxWaitEvent(CUcontext handle, CUevent event) {
  SIMGPU_ENTER(cuCtxWaitEvent);
  Context* ctx = nullptr;
  SIMGPU_TRY(ContextOf(handle, &ctx));
  return WaitInContext(*ctx, event);
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx handle, CUevent event) {
  SIMGPU_ENTER(cuGreenCtxRecordEvent);
  Context* ctx = nullptr;
  SIMGPU_TRY(GreenContextOf(handle, &ctx));
  return RecordContext(*ctx, event);
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx handle, CUevent event) {
  SIMGPU_ENTER(cuGreenCtxWaitEvent);
  Context* ctx = nullptr;
  SIMGPU_TRY(GreenContextOf(handle, &ctx));
  return WaitInContext(*ctx, event);
}
