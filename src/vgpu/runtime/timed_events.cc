// SPDX-License-Identifier: Apache-2.0
#include "vgpu/runtime/timed_events.h"

#include "vgpu/loader/driver.h"
#include "vgpu/runtime/capture.h"
#include "vgpu/runtime/runtime.h"

namespace hami::vgpu {
namespace {

TimedEvents& Events() { return g_runtime.events; }

template <typename Call>
auto Relaxed(Call call) {
  if (!AnyCapture()) return call();
  const RelaxedCapture relaxed;
  return call();
}

TimedEvent* Take(CUcontext context) {
  TimedEvents& all = Events();
  if (all.ended.load(std::memory_order_relaxed)) return nullptr;
  const Locked locked(all.lock);
  TimedEvent* unused = nullptr;
  for (int i = 0; i < all.used; ++i) {
    TimedEvent& own = all.events[i];
    if (own.taken) continue;
    if (own.context == context) {
      own.taken = true;
      return &own;
    }
    if (own.context == nullptr) unused = &own;
  }
  if (unused == nullptr && all.used < TimedEvents::kRoom) unused = &all.events[all.used++];
  if (unused == nullptr || real::cuEventCreate(&unused->event, CU_EVENT_DEFAULT) != CUDA_SUCCESS) return nullptr;
  unused->context = context;
  unused->taken = true;
  return unused;
}

__attribute__((destructor)) void End() { Events().ended.store(true); }

}  // namespace

TimedEvent* RecordTimedEvent(CUcontext context, CUstream stream, bool per_thread) {
  TimedEvent* const own = Take(context);
  if (own == nullptr) return nullptr;
  const CUresult result =
      per_thread ? real::cuEventRecord_ptsz(own->event, stream) : real::cuEventRecord(own->event, stream);
  if (result == CUDA_SUCCESS) return own;
  ReleaseTimedEvent(own);
  return nullptr;
}

void ReleaseTimedEvent(TimedEvent* event) {
  const Locked locked(Events().lock);
  event->taken = false;
}

void DropTimedEvents(CUcontext context) {
  const Locked locked(Events().lock);
  for (int i = 0; i < Events().used; ++i) {
    TimedEvent& own = Events().events[i];
    if (own.context != context || own.context == nullptr) continue;
    real::cuEventDestroy_v2(own.event);
    own = {};
  }
}

void ResetTimedEvents() {
  TimedEvents& all = Events();
  all.lock.Reset();
  for (int i = 0; i < all.used; ++i) all.events[i] = {};
  all.used = 0;
  all.captures.store(0);
}

CUresult QueryTimedEvent(const TimedEvent* event) {
  return Relaxed([&] { return real::cuEventQuery(event->event); });
}

CUresult Elapsed(const TimedEvent* from, const TimedEvent* to, int64_t* ns) {
  float ms = 0;
  const CUresult result = Relaxed([&] { return real::cuEventElapsedTime(&ms, from->event, to->event); });
  *ns = static_cast<int64_t>(static_cast<double>(ms) * 1e6);
  return result;
}

bool StreamIsBusy(CUstream stream) {
  return Relaxed([&] { return real::cuStreamQuery(stream); }) == CUDA_ERROR_NOT_READY;
}

bool AnyCapture() { return Events().captures.load(std::memory_order_relaxed) > 0; }

bool Capturing(CUstream stream, bool per_thread) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result =
      per_thread ? real::cuStreamIsCapturing_ptsz(stream, &status) : real::cuStreamIsCapturing(stream, &status);
  return result != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

}  // namespace hami::vgpu
