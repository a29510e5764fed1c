// SPDX-License-Identifier: Apache-2.0
#include "simgpu/driver/event.h"

#include "simgpu/driver/capture.h"
#include "simgpu/driver/engine_state.h"
#include "simgpu/driver/graph.h"

namespace simgpu {
namespace {

using EventArena = HandleArena<EventObject, std::size_t{1} << 20>;

// Taking and giving is done with the engine's lock held.
EventArena& Events() {
  static EventArena* const arena = new EventArena();
  return *arena;
}

void GiveIfUnused(EventObject& event) {
  if (event.destroyed && event.pending == 0) {
    event.destroyed = false;
    Events().Give(&event);
  }
}

// With the engine's lock held. Null when there are too many.
EventObject* NewEvent(Context& ctx, unsigned flags) {
  EventObject* event = Events().Take();
  if (event == nullptr) {
    return nullptr;
  }
  event->ctx = &ctx;
  event->flags = flags;
  event->shared = nullptr;
  event->imported = false;
  event->stream = nullptr;
  event->seq = 0;
  event->reached = event->serial;
  event->capture = nullptr;
  return event;
}

// The handle means nothing from now on; the object lives until what is queued has come to it.
void Retire(EventObject& event) {
  event.live.store(false, std::memory_order_release);
  event.destroyed = true;
  if (event.shared != nullptr && !event.imported) {
    FreeSharedEvent(event.shared);
  }
  GiveIfUnused(event);
}

CUresult CreateEvent(CUevent* out, unsigned flags) {
  constexpr unsigned kKnown = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  if (out == nullptr || (flags & ~kKnown) != 0 ||
      ((flags & CU_EVENT_INTERPROCESS) != 0 && (flags & CU_EVENT_DISABLE_TIMING) == 0)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  EngineLock lock;
  SharedEvent* shared = (flags & CU_EVENT_INTERPROCESS) != 0 ? NewSharedEvent() : nullptr;
  EventObject* event = nullptr;
  if (shared != nullptr || (flags & CU_EVENT_INTERPROCESS) == 0) {
    event = NewEvent(*ctx, flags);
  }
  if (event == nullptr) {
    if (shared != nullptr) {
      FreeSharedEvent(shared);
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  event->shared = shared;
  *out = HandleOf(*event);
  return CUDA_SUCCESS;
}

CUresult DestroyEvent(CUevent handle) {
  EventObject* event = FindEvent(handle);
  if (event == nullptr) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  EngineLock lock;
  Retire(*event);
  return CUDA_SUCCESS;
}

CUresult GetIpcHandle(CUipcEventHandle* out, CUevent handle) {
  const EventObject* event = FindEvent(handle);
  if (out == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (event == nullptr || event->shared == nullptr || event->imported) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  EngineLock lock;
  ExportEvent(*event->shared, event->ctx->machine(), out);
  return CUDA_SUCCESS;
}

CUresult OpenIpcHandle(CUevent* out, const CUipcEventHandle& handle) {
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  if (out == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  SharedEvent* shared = nullptr;
  SIMGPU_TRY(ImportEvent(handle, &shared));
  EngineLock lock;
  EventObject* event = NewEvent(*ctx, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
  if (event == nullptr) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  event->shared = shared;
  event->imported = true;
  *out = HandleOf(*event);
  return CUDA_SUCCESS;
}

CUresult Record(CUevent handle, CUstream stream, unsigned flags, bool per_thread) {
  EventObject* event = FindEvent(handle);
  if (event == nullptr) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  const CallTime call((event->flags & CU_EVENT_DISABLE_TIMING) != 0 ? kEventRecordUntimed : kEventRecordTimed);
  SIMGPU_STREAM(s, stream, per_thread);
  if ((flags & ~static_cast<unsigned>(CU_EVENT_RECORD_EXTERNAL)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (event->ctx != s->ctx) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  const bool capturing = IsCapturing(*s);
  if ((flags & CU_EVENT_RECORD_EXTERNAL) != 0) {
    if (!capturing) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    return CaptureNode(*s, EventNodeParams(CU_GRAPH_NODE_TYPE_EVENT_RECORD, *event));
  }
  if (capturing) {
    return CaptureRecord(*s, *event);
  }
  SIMGPU_TRY(s->kind == StreamKind::kLegacy ? CheckLegacyUse(*s->ctx) : CUDA_SUCCESS);
  EngineLock sched;
  EnterQueue(*sched, *s);
  const Nanos now = Machine::Get().Now();
  EnqueueRecord(*sched, *s, *event, now);
  LeaveQueue(*sched, *s, now);
  return CUDA_SUCCESS;
}

CUresult StreamWaitEvent(CUstream stream, CUevent handle, unsigned flags, bool per_thread) {
  SIMGPU_STREAM(s, stream, per_thread);
  EventObject* event = FindEvent(handle);
  if (event == nullptr) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if ((flags & ~static_cast<unsigned>(CU_EVENT_WAIT_EXTERNAL)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool capturing = IsCapturing(*s);
  if ((flags & CU_EVENT_WAIT_EXTERNAL) != 0) {
    return capturing ? CaptureNode(*s, EventNodeParams(CU_GRAPH_NODE_TYPE_WAIT_EVENT, *event))
                     : CUDA_ERROR_INVALID_VALUE;
  }
  if (event->capture != nullptr) {
    return CaptureWait(*s, *event);
  }
  if (capturing) {
    if (!event->Recorded()) {
      return CUDA_SUCCESS;
    }
    RefuseOnCapture(*s);  // the captured work would depend on work outside of it
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  EngineLock sched;
  EnterQueue(*sched, *s);
  const Nanos now = Machine::Get().Now();
  EnqueueEventWait(*sched, *s, *event, now);
  LeaveQueue(*sched, *s, now);
  return CUDA_SUCCESS;
}

CUresult Elapsed(float* milliseconds, CUevent start_handle, CUevent end_handle) {
  if (milliseconds == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  EventObject* start = FindEvent(start_handle);
  EventObject* end = FindEvent(end_handle);
  if (start == nullptr || end == nullptr || ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (start->capture != nullptr || end->capture != nullptr) {
    return CUDA_ERROR_CAPTURED_EVENT;
  }
  EngineLock sched;
  if (!start->Recorded() || !end->Recorded() || start->ctx->device != end->ctx->device) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  sched->Commit(Machine::Get().Now());
  if (start->reached != start->serial || end->reached != end->serial) {
    return CUDA_ERROR_NOT_READY;
  }
  *milliseconds = static_cast<float>(static_cast<double>(end->time - start->time) * 1e-6);
  return CUDA_SUCCESS;
}

}  // namespace

EventObject* FindEvent(CUevent handle) { return Events().Find(handle); }

namespace {

std::byte* AddressOf(std::atomic<std::uint64_t>& word) { return reinterpret_cast<std::byte*>(&word); }

}  // namespace

void EnqueueRecord(Scheduler& sched, Stream& s, EventObject& event, Nanos now) {
  Op op;
  event.capture = nullptr;
  if (event.shared != nullptr) {
    op.kind = OpKind::kRaiseValue;
    op.memop = {AddressOf(event.shared->reached), event.shared->recorded.fetch_add(1) + 1};
    Enqueue(sched, s, op, now);
    return;
  }
  op.kind = OpKind::kRecord;
  if ((event.flags & CU_EVENT_DISABLE_TIMING) == 0) {
    op.lead = static_cast<std::int64_t>(s.engine->share->profile.event_ns);
  }
  op.event = {&event, ++event.serial};
  ++event.pending;
  event.stream = &s;
  Enqueue(sched, s, op, now);
  event.seq = s.submitted;
}

void EnqueueEventWait(Scheduler& sched, Stream& s, EventObject& event, Nanos now) {
  if (!event.Recorded()) {
    return;
  }
  if (event.shared == nullptr) {
    EnqueueWait(sched, s, *event.stream, event.seq, now);
    return;
  }
  Op op;
  op.kind = OpKind::kWaitValue;
  op.wide = true;
  op.compare = CU_STREAM_WAIT_VALUE_GEQ;
  op.memop = {AddressOf(event.shared->reached), event.shared->recorded.load()};
  Enqueue(sched, s, op, now);
}

void RecordReached(Scheduler&, EventObject& event, std::uint64_t serial, Nanos t) {
  --event.pending;
  if (serial == event.serial) {
    event.reached = serial;
    event.time = t;
  }
  GiveIfUnused(event);
}

void DestroyEventsOf(Scheduler&, Context& ctx) {
  Events().ForEach([&ctx](EventObject& event) {
    if (event.ctx == &ctx) {
      Retire(event);
    }
  });
}

CUresult RecordContext(Context& ctx, CUevent handle) {
  EventObject* event = FindEvent(handle);
  if (event == nullptr || event->ctx != &ctx) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  SIMGPU_TRY(CheckContextWait(ctx));
  EngineLock sched;
  // In a stream of its own, so that it holds up nothing.
  Stream* lane = TakeLane(*sched, *ctx.engine);
  if (lane == nullptr) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const Nanos now = Machine::Get().Now();
  for (Stream* s : ctx.engine->streams) {
    EnqueueWait(*sched, *lane, *s, s->submitted, now);
  }
  EnqueueRecord(*sched, *lane, *event, now);
  LeaveQueue(*sched, *lane, now);
  GiveStream(*sched, *lane);
  return CUDA_SUCCESS;
}

CUresult WaitInContext(Context& ctx, CUevent handle) {
  EventObject* event = FindEvent(handle);
  if (event == nullptr) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  SIMGPU_TRY(CheckContextWait(ctx));
  EngineLock sched;
  const Nanos now = Machine::Get().Now();
  for (Stream* s : ctx.engine->streams) {
    EnqueueEventWait(*sched, *s, *event, now);
    LeaveQueue(*sched, *s, now);
  }
  return CUDA_SUCCESS;
}

namespace {

CUresult QueryEvent(CUevent handle) {
  EventObject* event = FindEvent(handle);
  if (event == nullptr) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (event->capture != nullptr) {
    return CUDA_ERROR_CAPTURED_EVENT;
  }
  SIMGPU_TRY(CheckUnsafeCall());
  EngineLock sched;
  sched->Commit(Machine::Get().Now());
  const bool done = event->shared != nullptr ? event->shared->Done() : event->reached == event->serial;
  return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

// Waits for the last record. What another process does is waited for in a stream of its own. `ended` as WaitSeq has it.
CUresult AwaitRecord(EventObject& event, Nanos* ended) {
  EngineLock sched;
  if (!event.Recorded()) {
    return CUDA_SUCCESS;
  }
  if (event.shared == nullptr) {
    sched->WaitSeq(*event.stream, event.seq, Patience::kForEver, ended);
    return CUDA_SUCCESS;
  }
  Stream* lane = TakeLane(*sched, *event.ctx->engine);
  if (lane == nullptr) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const Nanos now = Machine::Get().Now();
  EnqueueEventWait(*sched, *lane, event, now);
  LeaveQueue(*sched, *lane, now);
  sched->WaitSeq(*lane, lane->submitted, Patience::kForEver, ended);
  GiveStream(*sched, *lane);
  return CUDA_SUCCESS;
}

CUresult WaitEvent(CUevent handle) {
  EventObject* event = FindEvent(handle);
  if (event == nullptr) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (event->capture != nullptr) {
    return CUDA_ERROR_CAPTURED_EVENT;
  }
  SIMGPU_TRY(CheckUnsafeCall());
  Context& ctx = *event->ctx;
  Nanos ended = kNever;
  SIMGPU_TRY(AwaitRecord(*event, &ended));
  if (ended != kNever) SpendWake(ended);
  TrimPoolsAtSync(ctx.ordinal());
  return static_cast<CUresult>(ctx.sticky_error.load(std::memory_order_relaxed));
}

}  // namespace
}  // namespace simgpu

// --- the API
// ------------------------------------------------------------------------------------------------------------

CUresult cuEventCreate(CUevent* event, unsigned int flags) {
  SIMGPU_ENTER(cuEventCreate);
  return simgpu::CreateEvent(event, flags);
}

CUresult cuEventDestroy(CUevent event) {
  SIMGPU_ENTER(cuEventDestroy);
  return simgpu::DestroyEvent(event);
}

CUresult cuEventDestroy_v2(CUevent event) {
  SIMGPU_ENTER(cuEventDestroy_v2);
  return simgpu::DestroyEvent(event);
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  SIMGPU_ENTER(cuEventRecord);
  return simgpu::Record(event, stream, 0, false);
}

CUresult cuEventRecord_ptsz(CUevent event, CUstream stream) {
  SIMGPU_ENTER(cuEventRecord_ptsz);
  return simgpu::Record(event, stream, 0, true);
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags) {
  SIMGPU_ENTER(cuEventRecordWithFlags);
  return simgpu::Record(event, stream, flags, false);
}

CUresult cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned int flags) {
  SIMGPU_ENTER(cuEventRecordWithFlags_ptsz);
  return simgpu::Record(event, stream, flags, true);
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
  SIMGPU_ENTER(cuStreamWaitEvent);
  return simgpu::StreamWaitEvent(stream, event, flags, false);
}

CUresult cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned int flags) {
  SIMGPU_ENTER(cuStreamWaitEvent_ptsz);
  return simgpu::StreamWaitEvent(stream, event, flags, true);
}

CUresult cuEventQuery(CUevent event) {
  SIMGPU_ENTER(cuEventQuery);
  return simgpu::QueryEvent(event);
}

CUresult cuEventSynchronize(CUevent event) {
  SIMGPU_ENTER(cuEventSynchronize);
  return simgpu::WaitEvent(event);
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  SIMGPU_ENTER(cuEventElapsedTime);
  return simgpu::Elapsed(milliseconds, start, end);
}

CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
  SIMGPU_ENTER(cuEventElapsedTime_v2);
  return simgpu::Elapsed(milliseconds, start, end);
}

CUresult cuIpcGetEventHandle(CUipcEventHandle* handle, CUevent event) {
  SIMGPU_ENTER(cuIpcGetEventHandle);
  return simgpu::GetIpcHandle(handle, event);
}

CUresult cuIpcOpenEventHandle(CUevent* event, CUipcEventHandle handle) {
  SIMGPU_ENTER(cuIpcOpenEventHandle);
  return simgpu::OpenIpcHandle(event, handle);
}
