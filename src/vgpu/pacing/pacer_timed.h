// SPDX-License-Identifier: Apache-2.0
//
// A launch that is timed, between the two files that know of it: pacer_samples.cc makes and frees them, pacer_settle.cc
// learns from them and settles. All of it is guarded by the samples' lock, but for one that is being recorded.
#pragma once

#include <atomic>

#include "vgpu/pacing/pacer.h"
#include "vgpu/pacing/pacer_shared.h"
#include "vgpu/pacing/pacer_trail.h"

namespace hami::vgpu {

enum class Stage : uint8_t { kFree, kRecording, kPending };

struct TimedLaunch {
  std::atomic<Stage> stage{Stage::kFree};
  LaunchName name;
  bool unknown = false;  // of a kind that was never measured, nor guessed
  bool guessed = false;  // never measured
  bool holds = false;    // the next launches wait for it
  Gap gap = Gap::kUnsure;
  int64_t host_gap = 0;
  int64_t host_span = 0;
  int device = 0;  // zeros: nothing of a free place counts, and none of it is in the file
  CUcontext context = nullptr;
  CUdevice ordinal = 0;
  CUevent start = nullptr;
  CUevent end = nullptr;
  LaunchKind* kind = nullptr;
  uint64_t kind_id = 0;
  int64_t charged = 0;
  int64_t launched_at = 0;
  int64_t recorded_at = 0;  // the first event
  LaunchQueueKey on{};
  int64_t begun_at = 0;   // of kinds that are not known; 0 = not yet, as far as is known
  bool patience = false;  // what comes behind it on its stream waits for its end,
  bool held = false;      // and something did
  int64_t charged_until = 0;
  int64_t sampled_before = 0;  // when one of its kind was; 0: all are to be
  int64_t stands_for = 0;      // what the kind was charged on the slow path since then, this one included
  Running running;             // since it was launched
  SharedTime shared;           // the same, of what may be long; zeros of all else
  int64_t told = 0;            // others know so many ns of it, as of something short
  bool long_told = false;      // or that it is under way, and long
  bool covers = false;         // others went beside it, and cost nothing
};

inline constexpr int kTimedPlaces = 64;
extern TimedLaunch g_timed[kTimedPlaces];

void Free(TimedLaunch* t, bool events_live);

// Looks whether it has ended, and then settles and frees it; else others are told, and what passed is paid for.
void Collect(TimedLaunch* t, int64_t now);
// Nobody will come by again. What has not ended is paid for by the time that it had.
void CollectLast(TimedLaunch* t, int64_t now);
// A fast host has launched all it may before that shows, so it is looked at again.
void LookAhead(TimedLaunch* t, int64_t now);
// Another one of a kind that was never seen goes: those under way may pay for more of what passes.
void MakeRoomForUnknown(int device);
// Whether it will show what of its time was this process's, whatever it launched meanwhile.
bool OwnIsKnown(const TimedLaunch& t, int64_t now);
void LookAtSiblings(int device, int64_t now);
void ResetSettled();

}  // namespace hami::vgpu
