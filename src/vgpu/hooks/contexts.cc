// SPDX-License-Identifier: Apache-2.0
//
// Contexts: made between reserving and settling their memory, and everything in them given back when they go.

#include "vgpu/memory/context_memory.h"

#include "vgpu/loader/driver.h"
#include "vgpu/memory/pools.h"
#include "vgpu/runtime/process.h"

using namespace hami::vgpu;  // NOLINT: this file only exports

namespace {

// Makes `create` and its undoing into what MakeContext takes. `Handle` is what the driver's function gives out.
template <typename Handle, typename Make, typename Undo>
class Maker {
 public:
  Maker(Handle* out, Make make, Undo undo) : out_(out), before_(*out), make_(make), undo_(undo) {}
  ContextMaker get() {
    return {[](void* self) { return static_cast<Maker*>(self)->make_(); },
            [](void* self) {
              static_cast<Maker*>(self)->undo_();
              *static_cast<Maker*>(self)->out_ = static_cast<Maker*>(self)->before_;
            },
            [](void* self) { return reinterpret_cast<CUcontext>(*static_cast<Maker*>(self)->out_); }, this};
  }

 private:
  Handle* out_;
  Handle before_;
  Make make_;
  Undo undo_;
};

template <typename Make>
CUresult Create(CUcontext* out, CUdevice ordinal, Make make) {
  if (!Active() || out == nullptr) return make();
  Maker maker(out, make, [out] { real::cuCtxDestroy_v2(*out); });
  return MakeContext(ordinal, ContextKind::kCreated, maker.get());
}

template <typename Destroy>
CUresult Destroyed(CUcontext context, Destroy destroy) {
  if (!Active()) return destroy();
  MeasureLock measure_lock(LockMode::kShared);
  const ContextEnd end(context);
  const CUresult result = destroy();
  if (result == CUDA_SUCCESS) ContextGone(context, &measure_lock);
  return result;
}

template <typename Release>
CUresult PrimaryLeft(CUdevice ordinal, bool resets, Release release) {
  if (!Active()) return release();
  const Locked locked(PrimaryLock());
  if (resets || LastOfPrimary(ordinal)) TellPrimaryMayEnd(ordinal);
  MeasureLock measure_lock(LockMode::kShared);
  const ContextEnd end(ordinal);
  const CUresult result = release();
  if (result == CUDA_SUCCESS) PrimaryLetGo(ordinal, &measure_lock);
  return result;
}

}  // namespace

HAMI_EXPORT CUresult cuCtxCreate(CUcontext* out, unsigned flags, CUdevice ordinal) {
  return Create(out, ordinal, [&] { return real::cuCtxCreate(out, flags, ordinal); });
}

HAMI_EXPORT CUresult cuCtxCreate_v2(CUcontext* out, unsigned flags, CUdevice ordinal) {
  return Create(out, ordinal, [&] { return real::cuCtxCreate_v2(out, flags, ordinal); });
}

HAMI_EXPORT CUresult cuCtxCreate_v3(CUcontext* out, CUexecAffinityParam* params, int count, unsigned flags,
                                    CUdevice ordinal) {
  return Create(out, ordinal, [&] { return real::cuCtxCreate_v3(out, params, count, flags, ordinal); });
}

HAMI_EXPORT CUresult cuCtxCreate_v4(CUcontext* out, CUctxCreateParams* params, unsigned flags, CUdevice ordinal) {
  return Create(out, ordinal, [&] { return real::cuCtxCreate_v4(out, params, flags, ordinal); });
}

HAMI_EXPORT CUresult cuCtxDestroy(CUcontext context) {
  if (Active()) TellContextMayEnd(context);
  return Destroyed(context, [&] { return real::cuCtxDestroy(context); });
}
HAMI_EXPORT CUresult cuCtxDestroy_v2(CUcontext context) {
  if (Active()) TellContextMayEnd(context);
  return Destroyed(context, [&] { return real::cuCtxDestroy_v2(context); });
}

// Ends the context when it was the last reference; which it was, only the driver knows.
HAMI_EXPORT CUresult cuCtxDetach(CUcontext context) {
  if (!Active()) return real::cuCtxDetach(context);
  TellContextMayEnd(context);
  MeasureLock measure_lock(LockMode::kShared);
  const ContextEnd end(context);
  const CUresult result = real::cuCtxDetach(context);
  unsigned version = 0;
  if (result == CUDA_SUCCESS && real::cuCtxGetApiVersion(context, &version) != CUDA_SUCCESS) {
    ContextGone(context, &measure_lock);
  }
  return result;
}

HAMI_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice ordinal) {
  const auto retain = [&] { return real::cuDevicePrimaryCtxRetain(out, ordinal); };
  if (!Active() || out == nullptr) return retain();
  Maker maker(out, retain, [ordinal] { real::cuDevicePrimaryCtxRelease_v2(ordinal); });
  return RetainPrimary(ordinal, maker.get());
}

HAMI_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice ordinal) {
  return PrimaryLeft(ordinal, false, [&] { return real::cuDevicePrimaryCtxRelease(ordinal); });
}
HAMI_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal) {
  return PrimaryLeft(ordinal, false, [&] { return real::cuDevicePrimaryCtxRelease_v2(ordinal); });
}
HAMI_EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice ordinal) {
  return PrimaryLeft(ordinal, true, [&] { return real::cuDevicePrimaryCtxReset(ordinal); });
}
HAMI_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal) {
  return PrimaryLeft(ordinal, true, [&] { return real::cuDevicePrimaryCtxReset_v2(ordinal); });
}

HAMI_EXPORT CUresult cuGreenCtxCreate(CUgreenCtx* out, CUdevResourceDesc resources, CUdevice ordinal, unsigned flags) {
  const auto create = [&] { return real::cuGreenCtxCreate(out, resources, ordinal, flags); };
  if (!Active() || out == nullptr) return create();
  Maker maker(out, create, [out] { real::cuGreenCtxDestroy(*out); });
  return MakeContext(ordinal, ContextKind::kGreen, maker.get());
}

// What was allocated while the green context was current is known by its CUcontext, the context itself by its own
// handle.
HAMI_EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx green) {
  CUcontext as_context = nullptr;
  if (!Active()) return real::cuGreenCtxDestroy(green);
  MeasureLock measure_lock(LockMode::kShared);
  const bool known = real::cuCtxFromGreenCtx(&as_context, green) == CUDA_SUCCESS;
  if (known) TellContextMayEnd(as_context);
  PoolsLoseStream(nullptr);  // its streams are those of the context that it is part of, for all we are told
  const ContextEnd end(as_context);
  const CUresult result = real::cuGreenCtxDestroy(green);
  if (result != CUDA_SUCCESS) return result;
  ContextGone(reinterpret_cast<CUcontext>(green), &measure_lock);
  if (known) ContextGone(as_context, &measure_lock);
  return result;
}
