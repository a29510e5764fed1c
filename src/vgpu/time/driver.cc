// SPDX-License-Identifier: Apache-2.0
//
// The driver as the meters see it: timed events, kept to be used again. What is asked here must not end a capture.
#include <string.h>

#include "region/process.h"
#include "vgpu/loader/driver.h"
#include "vgpu/runtime/capture.h"
#include "vgpu/time/runtime.h"

namespace hami::vgpu::time {
namespace {

constexpr int kEvents = 1024;

struct OwnEvent {
  CUevent event;
  CUcontext context;
  bool taken;
};
constinit Lock g_lock{LockRank::kTimeEvents};
constinit OwnEvent g_events[kEvents]{};
constinit int g_used = 0;

template <typename Call>
auto Relaxed(Call call) {
  if (g_captures.load(std::memory_order_relaxed) == 0) return call();
  const RelaxedCapture relaxed;
  return call();
}

CUevent Of(Event event) { return static_cast<OwnEvent*>(event)->event; }

int64_t Reached(void*, Event event) {
  const CUresult result = Relaxed([&] { return real::cuEventQuery(Of(event)); });
  return result == CUDA_SUCCESS ? region::MonotonicNanos() : result == CUDA_ERROR_NOT_READY ? 0 : -1;
}

int64_t Between(void*, Event from, Event to) {
  float ms = 0;
  const CUresult result = Relaxed([&] { return real::cuEventElapsedTime(&ms, Of(from), Of(to)); });
  return result == CUDA_SUCCESS ? static_cast<int64_t>(static_cast<double>(ms) * 1e6) : kUnknownTime;
}

void Release(void*, Event event) {
  const Locked locked(g_lock);
  static_cast<OwnEvent*>(event)->taken = false;
}

bool Busy(void*, const StreamRef& ref) {
  auto* const stream = static_cast<CUstream>(const_cast<void*>(ref.stream));
  return Relaxed([&] { return real::cuStreamQuery(stream); }) == CUDA_ERROR_NOT_READY;
}

}  // namespace

constinit std::atomic<int32_t> g_captures{0};
constinit const DriverPort kDriver{nullptr, &Reached, &Between, &Release, &Busy};

bool Capturing(CUstream stream, bool per_thread) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result =
      per_thread ? real::cuStreamIsCapturing_ptsz(stream, &status) : real::cuStreamIsCapturing(stream, &status);
  return result != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

Event TakeEvent(CUcontext context) {
  if (ProcessEnds()) return nullptr;
  const Locked locked(g_lock);
  OwnEvent* unused = nullptr;
  for (int i = 0; i < g_used; ++i) {
    OwnEvent& own = g_events[i];
    if (own.taken) continue;
    if (own.context == context) {
      own.taken = true;
      return &own;
    }
    if (own.context == nullptr) unused = &own;
  }
  if (unused == nullptr && g_used < kEvents) unused = &g_events[g_used++];
  if (unused == nullptr || real::cuEventCreate(&unused->event, CU_EVENT_DEFAULT) != CUDA_SUCCESS) return nullptr;
  unused->context = context;
  unused->taken = true;
  return unused;
}

bool RecordEvent(Event event, CUstream stream, bool per_thread) {
  return (per_thread ? real::cuEventRecord_ptsz(Of(event), stream) : real::cuEventRecord(Of(event), stream)) ==
         CUDA_SUCCESS;
}

void DropEvents(CUcontext context) {
  const Locked locked(g_lock);
  for (int i = 0; i < g_used; ++i) {
    OwnEvent& own = g_events[i];
    if (own.context != context || own.context == nullptr) continue;
    real::cuEventDestroy_v2(own.event);
    own = OwnEvent{};
  }
}

void ResetEvents() {
  g_lock.Reset();
  g_captures.store(0);
  memset(g_events, 0, sizeof g_events);
  g_used = 0;
}

}  // namespace hami::vgpu::time
