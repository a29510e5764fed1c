// SPDX-License-Identifier: Apache-2.0
#include "vgpu/pacing/pacer_locked.h"

#include <atomic>

#include "vgpu/pacing/pacer_events.h"
#include "vgpu/pacing/pacer_samples.h"
#include "vgpu/pacing/pacer_trail.h"
#include "vgpu/pacing/pacer_window.h"

namespace hami::vgpu {

constinit Lock g_samples_lock{LockRank::kPacerSamples};

namespace {

constinit std::atomic<bool> g_stopped{false};
constinit std::atomic<int64_t> g_marks_from{0};

}  // namespace

bool SamplingStopped() { return g_stopped.load(std::memory_order_relaxed); }

void StopSampling() { g_stopped.store(true); }

bool MarkToSpare(int64_t now) { return now >= g_marks_from.load(std::memory_order_relaxed); }

void ResetMarkRest() { g_marks_from.store(0); }

int64_t InFlight(int device, int64_t now) {
  const Locked locked(g_samples_lock);
  return InFlightLocked(device, now);
}

[[gnu::cold]] bool Overdue(int device, int64_t by, int64_t now) {
  const Locked locked(g_samples_lock);
  return OverdueLocked(device, by, now);
}

void BeginsAt(int device, int64_t at) {
  const Locked locked(g_samples_lock);
  BeginsAtLocked(device, at);
}

void SkipLagging(int device, int64_t now) {
  const Locked locked(g_samples_lock);
  SkipLaggingLocked(device, now);
}

Progress ProgressOf(int device) {
  const Locked locked(g_samples_lock);
  return ProgressLocked(device);
}

bool Backlogged(int device, CUstream stream, bool per_thread, int64_t now) {
  const Locked locked(g_samples_lock);
  return BackloggedLocked(device, stream, per_thread, now);
}

void LayMark(int device, CUstream stream, bool per_thread, int64_t spacing, int64_t now) {
  if (SamplingStopped()) return;
  CUevent event = nullptr;
  {
    const Locked locked(g_samples_lock);
    event = LayMarkLocked(device, stream, per_thread, spacing, now);
  }
  if (event == nullptr) return;
  const int64_t begin = MonotonicNanos();
  const bool recorded = RecordEvent(event, stream, per_thread) == CUDA_SUCCESS;
  const int64_t end = MonotonicNanos();
  g_marks_from.store(end + RestAfter(end - begin), std::memory_order_relaxed);
  const Locked locked(g_samples_lock);
  MarkLaidLocked(device, event, recorded);
}

void DropTrail(int device) {
  const Locked locked(g_samples_lock);
  DropTrailLocked(device, true);
}

void TurnWindow(int device, bool runs_dry, int64_t now) {
  const Locked locked(g_samples_lock);
  TurnWindowLocked(device, runs_dry, now);
}

void BeginWindow(int device, int64_t now) {
  const Locked locked(g_samples_lock);
  BeginWindowLocked(device, now);
}

bool WindowSeeksQuiet(int device, bool first, int64_t* since) {
  const Locked locked(g_samples_lock);
  return WindowSeeksQuietLocked(device, first, since);
}

bool WindowGoesOn(int device, int64_t now) {
  const Locked locked(g_samples_lock);
  return WindowGoesOnLocked(device, now);
}

void CountWindow(int device, int64_t quiet_until, int64_t now) {
  const Locked locked(g_samples_lock);
  CountWindowLocked(device, quiet_until, now);
}

int64_t WindowWait(int device, CUstream stream, bool per_thread, int64_t ahead, int64_t charge, int64_t wait,
                   int64_t now) {
  const Locked locked(g_samples_lock);
  return WindowWaitLocked(device, NameOf(stream, per_thread), ahead, charge, wait, now);
}

// An event of the window, if one is due; a stream that is captured by now has none.
static void RecordForWindow(int device, CUevent event, CUstream stream, bool per_thread) {
  if (event == nullptr) return;
  const bool recorded = !Capturing(stream, per_thread) && RecordEvent(event, stream, per_thread) == CUDA_SUCCESS;
  const Locked locked(g_samples_lock);
  WindowRecordedLocked(device, recorded);
}

void EnterWindow(int device, CUstream stream, bool per_thread) {
  CUevent start = nullptr;
  {
    const Locked locked(g_samples_lock);
    start = WindowStartLocked(device);
  }
  RecordForWindow(device, start, stream, per_thread);
}

void LeaveWindow(int device, CUstream stream, bool per_thread, int64_t cost) {
  CUevent end = nullptr;
  {
    const Locked locked(g_samples_lock);
    end = WindowMarkLocked(device, stream, per_thread, cost);
  }
  RecordForWindow(device, end, stream, per_thread);
}

}  // namespace hami::vgpu
