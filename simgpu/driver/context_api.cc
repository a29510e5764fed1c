// SPDX-License-Identifier: Apache-2.0
// cuCtx* and cuDevicePrimaryCtx*.
#include "simgpu/driver/context.h"
#include "simgpu/driver/engine.h"

namespace simgpu {
namespace {

constexpr unsigned kCreateFlags = CU_CTX_FLAGS_MASK;
constexpr int kLeastPriority = 0;
constexpr int kGreatestPriority = -5;

CUresult CheckFlags(unsigned flags) {
  if ((flags & ~kCreateFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  const unsigned schedule = flags & CU_CTX_SCHED_MASK;
  return (schedule & (schedule - 1)) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Makes a context and pushes it.
CUresult Create(CUcontext* out, unsigned flags, CUdevice dev, int sm_count, unsigned api_version) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIMGPU_TRY(CheckFlags(flags));
  const Device* device = FindDevice(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  Context* ctx = nullptr;
  SIMGPU_TRY(NewContext(*device, ContextKind::kCreated, flags, sm_count == 0 ? device->sm_count : sm_count, &ctx));
  ctx->api_version = api_version;
  PushCurrent(ctx);
  *out = HandleOf(*ctx);
  return CUDA_SUCCESS;
}

// Execution affinity limits SMs only under MPS, which simgpu has not; the driver then refuses any parameter.
CUresult CheckAffinity(const CUexecAffinityParam* params, int count) {
  if (count < 0 || (count > 0) != (params != nullptr)) return CUDA_ERROR_INVALID_VALUE;
  return count > 0 ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : CUDA_SUCCESS;
}

CUresult Destroy(CUcontext handle) {
  Context* ctx = nullptr;
  SIMGPU_TRY(ContextOf(handle, &ctx));
  if (ctx->kind != ContextKind::kCreated) return CUDA_ERROR_INVALID_CONTEXT;
  if (CurrentContext() == ctx) PopCurrent();
  return EndContext(*ctx) ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

// A primary context may become current while it is inactive; calls then answer CONTEXT_IS_DESTROYED until it is
// retained.
CUresult ForCurrent(CUcontext handle, Context** out) {
  const CUresult found = ContextOf(handle, out);
  if (found == CUDA_ERROR_CONTEXT_IS_DESTROYED && (*out)->kind == ContextKind::kPrimary) return CUDA_SUCCESS;
  return found;
}

CUresult Push(CUcontext handle) {
  Context* ctx = nullptr;
  SIMGPU_TRY(ForCurrent(handle, &ctx));
  PushCurrent(ctx);
  return CUDA_SUCCESS;
}

CUresult Pop(CUcontext* out) {
  Context* ctx = PopCurrent();
  if (ctx == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (out != nullptr) *out = HandleOf(*ctx);
  return CUDA_SUCCESS;
}

// The context that an argument means where null stands for the current one.
CUresult ContextOrCurrent(CUcontext handle, Context** out) {
  return handle == nullptr ? NeedContext(out) : ContextOf(handle, out);
}

CUresult Retain(CUcontext* out, CUdevice dev) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (FindDevice(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  Context* ctx = nullptr;
  SIMGPU_TRY(RetainPrimary(dev, &ctx));
  *out = HandleOf(*ctx);
  return CUDA_SUCCESS;
}

CUresult Release(CUdevice dev) { return FindDevice(dev) == nullptr ? CUDA_ERROR_INVALID_DEVICE : ReleasePrimary(dev); }

CUresult Reset(CUdevice dev) {
  if (FindDevice(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  ResetPrimary(dev);
  return CUDA_SUCCESS;
}

CUresult SetFlags(CUdevice dev, unsigned flags) {
  if (FindDevice(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  SIMGPU_TRY(CheckFlags(flags));
  SetPrimaryFlags(dev, flags);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace simgpu

using namespace simgpu;

// --- creation
// -----------------------------------------------------------------------------------------------------------

CUresult cuCtxCreate(CUcontext* out, unsigned int flags, CUdevice dev) {
  SIMGPU_ENTER(cuCtxCreate);
  return Create(out, flags, dev, 0, 3010);
}

CUresult cuCtxCreate_v2(CUcontext* out, unsigned int flags, CUdevice dev) {
  SIMGPU_ENTER(cuCtxCreate_v2);
  return Create(out, flags, dev, 0, 3020);
}

CUresult cuCtxCreate_v3(CUcontext* out, CUexecAffinityParam* params, int count, unsigned int flags, CUdevice dev) {
  SIMGPU_ENTER(cuCtxCreate_v3);
  SIMGPU_TRY(CheckAffinity(params, count));
  return Create(out, flags, dev, 0, 3020);
}

CUresult cuCtxCreate_v4(CUcontext* out, CUctxCreateParams* params, unsigned int flags, CUdevice dev) {
  SIMGPU_ENTER(cuCtxCreate_v4);
  if (params != nullptr) {
    if (params->cigParams != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    SIMGPU_TRY(CheckAffinity(params->execAffinityParams, params->numExecAffinityParams));
  }
  return Create(out, flags, dev, 0, 3020);
}

CUresult cuCtxDestroy(CUcontext ctx) {
  SIMGPU_ENTER(cuCtxDestroy);
  return Destroy(ctx);
}

CUresult cuCtxDestroy_v2(CUcontext ctx) {
  SIMGPU_ENTER(cuCtxDestroy_v2);
  return Destroy(ctx);
}

// --- the current context
// ------------------------------------------------------------------------------------------------

CUresult cuCtxPushCurrent(CUcontext ctx) {
  SIMGPU_ENTER(cuCtxPushCurrent);
  return Push(ctx);
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
  SIMGPU_ENTER(cuCtxPushCurrent_v2);
  return Push(ctx);
}

CUresult cuCtxPopCurrent(CUcontext* out) {
  SIMGPU_ENTER(cuCtxPopCurrent);
  return Pop(out);
}

CUresult cuCtxPopCurrent_v2(CUcontext* out) {
  SIMGPU_ENTER(cuCtxPopCurrent_v2);
  return Pop(out);
}

CUresult cuCtxSetCurrent(CUcontext handle) {
  SIMGPU_ENTER(cuCtxSetCurrent);
  Context* ctx = nullptr;
  if (handle != nullptr) SIMGPU_TRY(ForCurrent(handle, &ctx));
  SetCurrent(ctx);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* out) {
  SIMGPU_ENTER(cuCtxGetCurrent);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* ctx = CurrentContext();
  *out = ctx != nullptr ? HandleOf(*ctx) : nullptr;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* out) {
  SIMGPU_ENTER(cuCtxGetDevice);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* ctx = CurrentContext();
  if (ctx == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *out = ctx->ordinal();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice_v2(CUdevice* out, CUcontext handle) {
  SIMGPU_ENTER(cuCtxGetDevice_v2);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* ctx = CurrentContext();
  if (handle != nullptr) {
    SIMGPU_TRY(ForCurrent(handle, &ctx));
  } else if (ctx == nullptr) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  *out = ctx->ordinal();
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize() {
  SIMGPU_ENTER(cuCtxSynchronize);
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  return WaitContext(*ctx);
}

CUresult cuCtxSynchronize_v2(CUcontext handle) {
  SIMGPU_ENTER(cuCtxSynchronize_v2);
  Context* ctx = nullptr;
  SIMGPU_TRY(ContextOrCurrent(handle, &ctx));
  return WaitContext(*ctx);
}

CUresult cuCtxGetFlags(unsigned int* flags) {
  SIMGPU_ENTER(cuCtxGetFlags);
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  *flags = ctx->flags;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags) {
  SIMGPU_ENTER(cuCtxSetFlags);
  SIMGPU_TRY(CheckFlags(flags));
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  ctx->flags = flags;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long* id) {
  SIMGPU_ENTER(cuCtxGetId);
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* ctx = nullptr;
  SIMGPU_TRY(ContextOrCurrent(handle, &ctx));
  *id = ctx->id;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext handle, unsigned int* version) {
  SIMGPU_ENTER(cuCtxGetApiVersion);
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* ctx = nullptr;
  SIMGPU_TRY(ContextOrCurrent(handle, &ctx));
  *version = ctx->api_version;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  SIMGPU_ENTER(cuCtxGetStreamPriorityRange);
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  if (least != nullptr) *least = kLeastPriority;
  if (greatest != nullptr) *greatest = kGreatestPriority;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetExecAffinity(CUexecAffinityParam* out, CUexecAffinityType type) {
  SIMGPU_ENTER(cuCtxGetExecAffinity);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  if (type != CU_EXEC_AFFINITY_TYPE_SM_COUNT) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  out->type = type;
  out->param.smCount.val = static_cast<unsigned>(ctx->sm_count);
  return CUDA_SUCCESS;
}

// Deprecated since CUDA 4: references to a context. Letting go of a created one's last ends it; a primary context is
// nobody's to end here.
CUresult cuCtxAttach(CUcontext* out, unsigned int flags) {
  SIMGPU_ENTER(cuCtxAttach);
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  ++ctx->attached;
  *out = HandleOf(*ctx);
  return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext handle) {
  SIMGPU_ENTER(cuCtxDetach);
  Context* ctx = nullptr;
  SIMGPU_TRY(ContextOf(handle, &ctx));
  const int held = ctx->attached.load();
  if (held == 1 && ctx->kind == ContextKind::kCreated) return Destroy(handle);
  if (held == 1) return CUDA_ERROR_INVALID_CONTEXT;
  --ctx->attached;
  return CUDA_SUCCESS;
}

// --- peers
// --------------------------------------------------------------------------------------------------------------

CUresult cuCtxEnablePeerAccess(CUcontext peer_handle, unsigned int flags) {
  SIMGPU_ENTER(cuCtxEnablePeerAccess);
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Context* ctx = nullptr;
  Context* peer = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  SIMGPU_TRY(ContextOf(peer_handle, &peer));
  if (peer == ctx || peer->machine() == ctx->machine()) return CUDA_ERROR_INVALID_DEVICE;
  if (!CanAccessPeer(*ctx->device, *peer->device)) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  const std::uint64_t bit = std::uint64_t{1} << peer->ordinal();
  return (ctx->peers.fetch_or(bit) & bit) != 0 ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_SUCCESS;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer_handle) {
  SIMGPU_ENTER(cuCtxDisablePeerAccess);
  Context* ctx = nullptr;
  Context* peer = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  SIMGPU_TRY(ContextOf(peer_handle, &peer));
  const std::uint64_t bit = std::uint64_t{1} << peer->ordinal();
  return (ctx->peers.fetch_and(~bit) & bit) != 0 ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

// --- primary contexts
// ---------------------------------------------------------------------------------------------------

CUresult cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice dev) {
  SIMGPU_ENTER(cuDevicePrimaryCtxRetain);
  return Retain(out, dev);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev) {
  SIMGPU_ENTER(cuDevicePrimaryCtxRelease);
  return Release(dev);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  SIMGPU_ENTER(cuDevicePrimaryCtxRelease_v2);
  return Release(dev);
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev) {
  SIMGPU_ENTER(cuDevicePrimaryCtxReset);
  return Reset(dev);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  SIMGPU_ENTER(cuDevicePrimaryCtxReset_v2);
  return Reset(dev);
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags) {
  SIMGPU_ENTER(cuDevicePrimaryCtxSetFlags);
  return SetFlags(dev, flags);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
  SIMGPU_ENTER(cuDevicePrimaryCtxSetFlags_v2);
  return SetFlags(dev, flags);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int* flags, int* active) {
  SIMGPU_ENTER(cuDevicePrimaryCtxGetState);
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (FindDevice(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *active = PrimaryReferences(dev) > 0 ? 1 : 0;
  *flags = PrimaryContext(dev)->flags;
  return CUDA_SUCCESS;
}
