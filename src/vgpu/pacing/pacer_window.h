// SPDX-License-Identifier: Apache-2.0
//
// Windows: how long the process's launches of one on-phase kept the GPU, all streams together, beside what they cost
// one by one. A window has two phases, each ended by a launcher that has to wait for the account. Phase one only learns
// which streams there are and when their work ends; phase two counts. Busy is then
//   last end of phase two − max(first start of phase two, last end of phase one)
// which holds whether or not the GPU ran dry in between. Launches mark the end on their own stream, so no stream is
// touched that its owner may have destroyed; fewer of them the more there are, and what comes behind the last mark is
// reckoned from the pace before it. Beside others that can be asked (pacer_common.h), phase two has the GPU to itself
// now and then.
//
// Everything named …Locked is guarded by the samples' lock.
#pragma once

#include <stdint.h>

#include "abi/cuda_abi.h"
#include "vgpu/pacing/pacer_trail.h"

namespace hami::vgpu {

// The cost of a kind moves that has `share`, of kAllThereIs, of all that is launched.
void CostMovesLocked(int device, int64_t from, int64_t to, int64_t share);

void TurnWindowLocked(int device, bool runs_dry, int64_t now);
// Who is charged too little never waits, and then no window opens. While little is known one does all the same.
void BeginWindowLocked(int device, int64_t now);
// Whether phase two waits to have the GPU alone, with `first`: and none had so far. One caller is told so, and then
// begins it, drained or not.
bool WindowSeeksQuietLocked(int device, bool first, int64_t* since);
// Whether the first phase that others are quiet for is too short so far to say anything, and there is time.
bool WindowGoesOnLocked(int device, int64_t now);
void CountWindowLocked(int device, int64_t quiet_until, int64_t now);
// Of who may have little in flight: streams that are let go one by one do not overlap, so now and then a launch of each
// goes together. How long a launch that would wait for `wait` with `ahead` in flight is to wait for that.
int64_t WindowWaitLocked(int device, const LaunchQueueKey& on, int64_t ahead, int64_t charge, int64_t wait,
                         int64_t now);
// The event to record before the launch, nullptr when none is due.
CUevent WindowStartLocked(int device);
// The event to record after it, nullptr when none is due; counts its cost.
CUevent WindowMarkLocked(int device, CUstream stream, bool per_thread, int64_t cost);
void WindowRecordedLocked(int device, bool recorded);
void CollectWindows(int64_t now);
// ns of balance, up to which comes back what was charged before anything had the GPU alone: that time is gone, others
// had it.
inline constexpr int64_t kMostBack = 16'000'000;
// What a window cost beyond what was charged for it; of the samples. Unless `most` is 0, what comes back makes no
// balance above it.
void SettleWindow(int device, int64_t gpu, int64_t most, int64_t now);
// Of what could not be used so far no more is kept than a balance of `most`.
void ForgoUnused(int device, int64_t most, int64_t now);
int PendingWindows();
void AbortWindows();
void SkipWindowLocked(int device, int64_t until);  // none is measured until then
void ResetWindows();

}  // namespace hami::vgpu
