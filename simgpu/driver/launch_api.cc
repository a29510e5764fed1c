// SPDX-License-Identifier: Apache-2.0
//
// The launching functions of the API.
#include <algorithm>
#include <utility>
#include <vector>

#include "simgpu/driver/capture.h"
#include "simgpu/driver/engine_state.h"
#include "simgpu/driver/event.h"
#include "simgpu/driver/graph.h"
#include "simgpu/driver/launch.h"

namespace simgpu {
namespace {

// Parameters of the launch at hand. One buffer a thread, kept for ever, so that launching allocates nothing.
std::vector<std::byte>& ParamBuffer() {
  static __thread std::vector<std::byte>* buffer = nullptr;
  if (buffer == nullptr) {
    buffer = new std::vector<std::byte>();
  }
  return *buffer;
}

struct LaunchRequest {
  CUfunction function = nullptr;
  LaunchShape shape;
  void** params = nullptr;
  void** extra = nullptr;
  CUevent completion = nullptr;    // recorded when the kernel starts
  CUevent programmatic = nullptr;  // recorded when it ends
};

// Checks everything that can be checked before the stream is touched.
CUresult Prepare(const LaunchRequest& request, Context& ctx, PreparedLaunch* out) {
  KernelRef kernel;
  SIMGPU_TRY(KernelForLaunch(request.function, ctx, &kernel));
  std::vector<std::byte>& packed = ParamBuffer();
  SIMGPU_TRY(PackParams(InfoOf(*kernel), request.params, request.extra, &packed));
  return PrepareLaunch(ctx, std::move(kernel), request.shape, packed, out);
}

CUresult FindLaunchEvent(CUevent handle, const Stream& s, EventObject** out) {
  *out = handle == nullptr ? nullptr : FindEvent(handle);
  const bool bad = handle != nullptr && (*out == nullptr || (*out)->ctx != s.ctx);
  return bad ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult CaptureLaunch(Stream& s, const LaunchRequest& request, PreparedLaunch&& prepared, EventObject* completion,
                       EventObject* programmatic) {
  if (completion != nullptr) {
    SIMGPU_TRY(CaptureRecord(s, *completion));
  }
  SIMGPU_TRY(
      CaptureNode(s, KernelNodeParams(*s.ctx, request.function, request.shape, ParamBuffer(), std::move(prepared))));
  return programmatic == nullptr ? CUDA_SUCCESS : CaptureRecord(s, *programmatic);
}

CUresult LaunchOn(Stream& s, const LaunchRequest& request) {
  EventObject* completion = nullptr;
  EventObject* programmatic = nullptr;
  SIMGPU_TRY(FindLaunchEvent(request.completion, s, &completion));
  SIMGPU_TRY(FindLaunchEvent(request.programmatic, s, &programmatic));
  PreparedLaunch prepared;
  SIMGPU_TRY(Prepare(request, *s.ctx, &prepared));
  if (IsCapturing(s)) {
    return CaptureLaunch(s, request, std::move(prepared), completion, programmatic);
  }
  SIMGPU_TRY(s.kind == StreamKind::kLegacy ? CheckLegacyUse(*s.ctx) : CUDA_SUCCESS);
  void* action = NewKernelAction(*s.ctx, prepared.kernel, ParamBuffer());
  EngineLock sched;
  EnterQueue(*sched, s);
  const Nanos now = Machine::Get().Now();
  if (completion != nullptr) {
    EnqueueRecord(*sched, s, *completion, now);
  }
  EnqueueKernel(*sched, s, prepared.sm_nanos, prepared.width, s.engine->share->profile.gap_ns, now);
  if (action != nullptr) {
    Op op;
    op.kind = OpKind::kCall;
    op.call = {RunKernelAction, action};
    Enqueue(*sched, s, op, now);
  }
  if (programmatic != nullptr) {
    EnqueueRecord(*sched, s, *programmatic, now);
  }
  LeaveQueue(*sched, s, now);
  return CUDA_SUCCESS;
}

CUresult Launch(CUstream stream, const LaunchRequest& request, bool per_thread) {
  SIMGPU_STREAM(s, stream, per_thread);
  if (request.function == nullptr) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  return LaunchOn(*s, request);
}

CUresult LaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                      unsigned shared, CUstream stream, void** params, void** extra, bool cooperative,
                      bool per_thread) {
  LaunchRequest request;
  request.function = f;
  request.shape.grid = {gx, gy, gz};
  request.shape.block = {bx, by, bz};
  request.shape.shared_bytes = shared;
  request.shape.cooperative = cooperative;
  request.params = params;
  request.extra = extra;
  return Launch(stream, request, per_thread);
}

CUresult LaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** params, void** extra, bool per_thread) {
  if (config == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  LaunchRequest request;
  request.function = f;
  request.shape.grid = {config->gridDimX, config->gridDimY, config->gridDimZ};
  request.shape.block = {config->blockDimX, config->blockDimY, config->blockDimZ};
  request.shape.shared_bytes = config->sharedMemBytes;
  request.params = params;
  request.extra = extra;
  SIMGPU_TRY(ApplyLaunchAttributes(config->attrs, config->numAttrs, &request.shape, &request.completion,
                                   &request.programmatic));
  return Launch(config->hStream, request, per_thread);
}

// cuLaunch and its relatives, whose block shape and parameters were set on the function before.
CUresult LaunchLegacy(CUfunction f, int width, int height, CUstream stream) {
  SIMGPU_STREAM(s, stream, false);
  if (width <= 0 || height <= 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  KernelRef kernel;
  SIMGPU_TRY(KernelForLaunch(f, *s->ctx, &kernel));
  const LegacyLaunch legacy = LegacyLaunchOf(*kernel);
  std::vector<std::byte> params = legacy.params;
  params.resize(std::max<std::size_t>(params.size(), InfoOf(*kernel).param_bytes));
  std::size_t size = params.size();
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, params.data(), CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  LaunchRequest request;
  request.function = f;
  request.shape.grid = {static_cast<unsigned>(width), static_cast<unsigned>(height), 1};
  request.shape.block = legacy.block;
  request.shape.shared_bytes = legacy.shared_bytes;
  request.extra = params.empty() ? nullptr : extra;
  return LaunchOn(*s, request);
}

// Every stream waits for what was submitted to all the others.
void JoinStreams(Scheduler& sched, const std::vector<Stream*>& streams, Nanos now) {
  std::vector<std::uint64_t> ends;
  ends.reserve(streams.size());
  for (const Stream* s : streams) {
    ends.push_back(s->submitted);
  }
  for (Stream* s : streams) {
    for (std::size_t i = 0; i < streams.size(); ++i) {
      EnqueueWait(sched, *s, *streams[i], ends[i], now);
    }
  }
  for (Stream* s : streams) {
    LeaveQueue(sched, *s, now);
  }
}

CUresult LaunchMultiDevice(CUDA_LAUNCH_PARAMS* list, unsigned count, unsigned flags) {
  constexpr unsigned kKnown = CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC |
                              CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_POST_LAUNCH_SYNC;
  if (list == nullptr || count == 0 || (flags & ~kKnown) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::vector<Stream*> streams;
  std::vector<LaunchRequest> requests;
  for (unsigned i = 0; i < count; ++i) {
    if (list[i].hStream == nullptr || list[i].hStream == CU_STREAM_LEGACY || list[i].hStream == CU_STREAM_PER_THREAD) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    SIMGPU_STREAM(s, list[i].hStream, false);
    if (std::any_of(streams.begin(), streams.end(),
                    [s](const Stream* o) { return o->ctx->device == s->ctx->device; })) {
      return CUDA_ERROR_INVALID_DEVICE;  // one launch a device
    }
    if (IsCapturing(*s)) {
      return RefuseOnCapture(*s);
    }
    LaunchRequest& request = requests.emplace_back();
    request.function = list[i].function;
    request.shape.grid = {list[i].gridDimX, list[i].gridDimY, list[i].gridDimZ};
    request.shape.block = {list[i].blockDimX, list[i].blockDimY, list[i].blockDimZ};
    request.shape.shared_bytes = list[i].sharedMemBytes;
    request.shape.cooperative = true;
    request.params = list[i].kernelParams;
    PreparedLaunch prepared;
    SIMGPU_TRY(Prepare(request, *s->ctx, &prepared));
    streams.push_back(s);
  }
  if ((flags & CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC) == 0) {
    EngineLock sched;
    JoinStreams(*sched, streams, Machine::Get().Now());
  }
  for (unsigned i = 0; i < count; ++i) {
    SIMGPU_TRY(LaunchOn(*streams[i], requests[i]));
  }
  if ((flags & CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_POST_LAUNCH_SYNC) == 0) {
    EngineLock sched;
    JoinStreams(*sched, streams, Machine::Get().Now());
  }
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace simgpu

#define SIMGPU_LAUNCH_KERNEL(NAME, PER_THREAD)                                                                     \
  CUresult NAME(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by, \
                unsigned int bz, unsigned int shared, CUstream stream, void** params, void** extra) {              \
    SIMGPU_ENTER(NAME);                                                                                            \
    return simgpu::LaunchKernel(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra, false, PER_THREAD);      \
  }

SIMGPU_LAUNCH_KERNEL(cuLaunchKernel, false)
SIMGPU_LAUNCH_KERNEL(cuLaunchKernel_ptsz, true)

#define SIMGPU_LAUNCH_COOPERATIVE(NAME, PER_THREAD)                                                                \
  CUresult NAME(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by, \
                unsigned int bz, unsigned int shared, CUstream stream, void** params) {                            \
    SIMGPU_ENTER(NAME);                                                                                            \
    return simgpu::LaunchKernel(f, gx, gy, gz, bx, by, bz, shared, stream, params, nullptr, true, PER_THREAD);     \
  }

SIMGPU_LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel, false)
SIMGPU_LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel_ptsz, true)

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** params, void** extra) {
  SIMGPU_ENTER(cuLaunchKernelEx);
  return simgpu::LaunchKernelEx(config, f, params, extra, false);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig* config, CUfunction f, void** params, void** extra) {
  SIMGPU_ENTER(cuLaunchKernelEx_ptsz);
  return simgpu::LaunchKernelEx(config, f, params, extra, true);
}

CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS* list, unsigned int count, unsigned int flags) {
  SIMGPU_ENTER(cuLaunchCooperativeKernelMultiDevice);
  return simgpu::LaunchMultiDevice(list, count, flags);
}

CUresult cuLaunch(CUfunction f) {
  SIMGPU_ENTER(cuLaunch);
  return simgpu::LaunchLegacy(f, 1, 1, nullptr);
}

CUresult cuLaunchGrid(CUfunction f, int width, int height) {
  SIMGPU_ENTER(cuLaunchGrid);
  return simgpu::LaunchLegacy(f, width, height, nullptr);
}

CUresult cuLaunchGridAsync(CUfunction f, int width, int height, CUstream stream) {
  SIMGPU_ENTER(cuLaunchGridAsync);
  return simgpu::LaunchLegacy(f, width, height, stream);
}
