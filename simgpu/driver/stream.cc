// SPDX-License-Identifier: Apache-2.0
//
// The streams of the API: creation, questions, waiting, host functions, attributes.
#include <new>

#include "simgpu/driver/capture.h"
#include "simgpu/driver/context.h"
#include "simgpu/driver/engine_state.h"
#include "simgpu/driver/graph.h"

namespace simgpu {
namespace {

CUresult DestroyStream(CUstream handle) {
  if (handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  CUresult err = CUDA_SUCCESS;
  Stream* s = ResolveStream(handle, false, &err);
  if (s == nullptr) {
    return err;
  }
  EndCaptureOf(*s);
  StreamEnds(*s->ctx);
  EngineLock sched;
  sched->Commit(Machine::Get().Now());
  GiveStream(*sched, *s);
  return CUDA_SUCCESS;
}

CUresult QueryStream(CUstream handle, bool per_thread) {
  SIMGPU_STREAM(s, handle, per_thread);
  if (IsCapturing(*s)) {
    return RefuseOnCapture(*s);
  }
  if (s->kind == StreamKind::kLegacy) {
    SIMGPU_TRY(CheckLegacyUse(*s->ctx));
    EngineLock sched;
    sched->Commit(Machine::Get().Now());
    for (const Stream* other : s->engine->streams) {
      if (other->blocking() && !other->Empty()) {
        return CUDA_ERROR_NOT_READY;
      }
    }
    return CUDA_SUCCESS;
  }
  return StreamIdle(*s) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult SynchronizeStream(CUstream handle, bool per_thread) {
  SIMGPU_STREAM(s, handle, per_thread);
  return WaitStream(*s);
}

template <typename T, typename Get>
CUresult Tell(CUstream handle, bool per_thread, T* out, Get get) {
  if (out == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  SIMGPU_STREAM(s, handle, per_thread);
  *out = get(*s);
  return CUDA_SUCCESS;
}

CUresult GetPriority(CUstream stream, int* out, bool per_thread) {
  return Tell(stream, per_thread, out, [](const Stream& s) { return s.priority; });
}
CUresult GetFlags(CUstream stream, unsigned* out, bool per_thread) {
  return Tell(stream, per_thread, out, [](const Stream& s) { return s.flags; });
}
CUresult GetId(CUstream stream, unsigned long long* out, bool per_thread) {
  return Tell(stream, per_thread, out, [](const Stream& s) { return static_cast<unsigned long long>(s.id); });
}
CUresult GetDevice(CUstream stream, CUdevice* out, bool per_thread) {
  return Tell(stream, per_thread, out, [](const Stream& s) { return s.ctx->ordinal(); });
}
CUresult GetCtx(CUstream stream, CUcontext* out, bool per_thread) {
  return Tell(stream, per_thread, out, [](const Stream& s) { return HandleOf(*s.ctx); });
}

CUgreenCtx GreenOf(const Stream& s) {
  return s.ctx->kind == ContextKind::kGreen ? reinterpret_cast<CUgreenCtx>(s.ctx) : nullptr;
}

CUresult GetCtx2(CUstream stream, CUcontext* ctx, CUgreenCtx* green, bool per_thread) {
  if (ctx == nullptr || green == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  SIMGPU_STREAM(s, stream, per_thread);
  *green = GreenOf(*s);
  *ctx = *green == nullptr ? HandleOf(*s->ctx) : nullptr;
  return CUDA_SUCCESS;
}

CUresult LaunchHost(CUstream stream, CUhostFn fn, void* user_data, bool per_thread) {
  if (fn == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  SIMGPU_STREAM(s, stream, per_thread);
  if (IsCapturing(*s)) {
    return CaptureNode(*s, HostNodeParams(fn, user_data));
  }
  SIMGPU_TRY(s->kind == StreamKind::kLegacy ? CheckLegacyUse(*s->ctx) : CUDA_SUCCESS);
  EngineLock sched;
  EnterQueue(*sched, *s);
  const Nanos now = Machine::Get().Now();
  Op op;
  op.kind = OpKind::kHost;
  op.call = {fn, user_data};
  Enqueue(*sched, *s, op, now);
  LeaveQueue(*sched, *s, now);
  return CUDA_SUCCESS;
}

struct Callback {
  CUstreamCallback fn;
  const Context* ctx;  // never deleted
  CUstream stream;
  void* user_data;
};

void RunCallback(void* arg) {
  auto* callback = static_cast<Callback*>(arg);
  const auto status = static_cast<CUresult>(callback->ctx->sticky_error.load(std::memory_order_relaxed));
  callback->fn(callback->stream, status, callback->user_data);
  delete callback;
}

CUresult AddCallback(CUstream stream, CUstreamCallback fn, void* user_data, unsigned flags, bool per_thread) {
  if (fn == nullptr || flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  SIMGPU_STREAM(s, stream, per_thread);
  if (IsCapturing(*s)) {
    return RefuseOnCapture(*s);
  }
  auto* callback = new (std::nothrow) Callback{fn, s->ctx, stream, user_data};
  if (callback == nullptr) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const CUresult launched = LaunchHost(stream, RunCallback, callback, per_thread);
  if (launched != CUDA_SUCCESS) delete callback;
  return launched;  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): RunCallback frees it
}

// Who may touch managed memory makes no difference here: host and device see the same bytes.
CUresult AttachMem(CUstream stream, CUdeviceptr address, std::size_t length, unsigned flags, bool per_thread) {
  SIMGPU_STREAM(s, stream, per_thread);
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (IsCapturing(*s)) {
    return RefuseOnCapture(*s);
  }
  Range range;
  if (!FindRange(address, &range) || range.kind != MemKind::kManaged || range.base != address ||
      (length != 0 && length != range.size) || (flags == CU_MEM_ATTACH_SINGLE && s->kind == StreamKind::kLegacy)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

// Where an attribute of streams is kept; -1 for one that streams do not have.
int AttributeIndex(CUstreamAttrID attribute) {
  switch (static_cast<int>(attribute)) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      return 0;
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
      return 1;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      return 2;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      return 3;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      return 4;
    default:
      return -1;
  }
}

CUresult GetAttribute(CUstream stream, CUstreamAttrID attribute, CUstreamAttrValue* out, bool per_thread) {
  SIMGPU_STREAM(s, stream, per_thread);
  const int index = AttributeIndex(attribute);
  if (out == nullptr || index < 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  EngineLock lock;
  *out = s->attributes[index];
  if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
    out->priority = s->priority;
  }
  return CUDA_SUCCESS;
}

CUresult SetAttribute(CUstream stream, CUstreamAttrID attribute, const CUstreamAttrValue* value, bool per_thread) {
  SIMGPU_STREAM(s, stream, per_thread);
  const int index = AttributeIndex(attribute);
  if (value == nullptr || index < 0 || attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  EngineLock lock;
  s->attributes[index] = *value;
  return CUDA_SUCCESS;
}

CUresult CopyAttributes(CUstream to, CUstream from, bool per_thread) {
  SIMGPU_STREAM(dst, to, per_thread);
  SIMGPU_STREAM(src, from, per_thread);
  EngineLock lock;
  for (std::size_t i = 0; i < std::size(src->attributes); ++i) {
    dst->attributes[i] = src->attributes[i];
  }
  return CUDA_SUCCESS;
}

CUresult Create(CUstream* out, unsigned flags, int priority) {
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  return CreateStream(*ctx, flags, priority, out);
}

}  // namespace
}  // namespace simgpu

CUresult cuStreamCreate(CUstream* stream, unsigned int flags) {
  SIMGPU_ENTER(cuStreamCreate);
  return simgpu::Create(stream, flags, simgpu::kLowestStreamPriority);
}

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned int flags, int priority) {
  SIMGPU_ENTER(cuStreamCreateWithPriority);
  return simgpu::Create(stream, flags, priority);
}

CUresult cuStreamDestroy(CUstream stream) {
  SIMGPU_ENTER(cuStreamDestroy);
  return simgpu::DestroyStream(stream);
}

CUresult cuStreamDestroy_v2(CUstream stream) {
  SIMGPU_ENTER(cuStreamDestroy_v2);
  return simgpu::DestroyStream(stream);
}

// Defines an API function and its twin for per-thread default streams over one implementation, which takes the same
// arguments and whether it is the twin. PARAMS and ARGS are in parentheses.
#define SIMGPU_STREAM_API(NAME, IMPLEMENTATION, PARAMS, ARGS) \
  CUresult NAME PARAMS {                                      \
    SIMGPU_ENTER(NAME);                                       \
    constexpr bool per_thread = false;                        \
    return simgpu::IMPLEMENTATION ARGS;                       \
  }                                                           \
  CUresult NAME##_ptsz PARAMS {                               \
    SIMGPU_ENTER(NAME##_ptsz);                                \
    constexpr bool per_thread = true;                         \
    return simgpu::IMPLEMENTATION ARGS;                       \
  }

SIMGPU_STREAM_API(cuStreamQuery, QueryStream, (CUstream stream), (stream, per_thread))
SIMGPU_STREAM_API(cuStreamSynchronize, SynchronizeStream, (CUstream stream), (stream, per_thread))
SIMGPU_STREAM_API(cuStreamGetPriority, GetPriority, (CUstream stream, int* out), (stream, out, per_thread))
SIMGPU_STREAM_API(cuStreamGetFlags, GetFlags, (CUstream stream, unsigned int* out), (stream, out, per_thread))
SIMGPU_STREAM_API(cuStreamGetId, GetId, (CUstream stream, unsigned long long* out), (stream, out, per_thread))
SIMGPU_STREAM_API(cuStreamGetDevice, GetDevice, (CUstream stream, CUdevice* out), (stream, out, per_thread))
SIMGPU_STREAM_API(cuStreamGetCtx, GetCtx, (CUstream stream, CUcontext* out), (stream, out, per_thread))
SIMGPU_STREAM_API(cuStreamGetCtx_v2, GetCtx2, (CUstream stream, CUcontext* ctx, CUgreenCtx* green),
                  (stream, ctx, green, per_thread))
SIMGPU_STREAM_API(cuLaunchHostFunc, LaunchHost, (CUstream stream, CUhostFn fn, void* user_data),
                  (stream, fn, user_data, per_thread))
SIMGPU_STREAM_API(cuStreamAddCallback, AddCallback,
                  (CUstream stream, CUstreamCallback fn, void* user_data, unsigned int flags),
                  (stream, fn, user_data, flags, per_thread))
SIMGPU_STREAM_API(cuStreamAttachMemAsync, AttachMem,
                  (CUstream stream, CUdeviceptr address, size_t length, unsigned int flags),
                  (stream, address, length, flags, per_thread))
SIMGPU_STREAM_API(cuStreamGetAttribute, GetAttribute,
                  (CUstream stream, CUstreamAttrID attribute, CUstreamAttrValue* out),
                  (stream, attribute, out, per_thread))
SIMGPU_STREAM_API(cuStreamSetAttribute, SetAttribute,
                  (CUstream stream, CUstreamAttrID attribute, const CUstreamAttrValue* value),
                  (stream, attribute, value, per_thread))
SIMGPU_STREAM_API(cuStreamCopyAttributes, CopyAttributes, (CUstream dst, CUstream src), (dst, src, per_thread))

#if CUDA_VERSION >= 13000
// Host functions run on a thread of the driver whatever the mode; both modes are honoured by that.
SIMGPU_STREAM_API(cuLaunchHostFunc_v2, LaunchHost,
                  (CUstream stream, CUhostFn fn, void* user_data, unsigned int /*sync_mode*/),
                  (stream, fn, user_data, per_thread))
#endif

CUresult cuStreamGetGreenCtx(CUstream stream, CUgreenCtx* green) {
  SIMGPU_ENTER(cuStreamGetGreenCtx);
  return simgpu::Tell(stream, false, green, simgpu::GreenOf);
}
