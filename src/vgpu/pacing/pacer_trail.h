// SPDX-License-Identifier: Apache-2.0
//
// How far the GPU has come: events laid behind launches now and then. They answer two questions without waiting: how
// much of what the process launched is still ahead of it on the device, and whether one stream had work enough ahead
// that what is launched now follows without a gap. Marks of all streams are in one row, oldest first: those of streams
// side by side end at about the same time.
//
// Everything named …Locked is guarded by the samples' lock.
#pragma once

#include <stdint.h>

#include "abi/cuda_abi.h"

namespace hami::vgpu {

// ns; a driver takes less to hand a launch to an idle GPU.
inline constexpr int64_t kBehind = 10'000;

// Which stream is meant: the default stream of a thread is another one for each thread.
struct LaunchQueueKey {
  CUstream stream;
  const void* thread;

  bool operator==(const LaunchQueueKey&) const = default;
};
LaunchQueueKey NameOf(CUstream stream, bool per_thread);

// A launch takes the slow path; and since when all did on one stream: of streams side by side, one is in the way of the
// other's measurements.
void LaunchesOn(int device, CUstream stream, bool per_thread, int64_t now);
int64_t OneStreamSince(int device);

// `cost` (ns of busy time) was let go.
void Issued(int device, int64_t cost);
// All that ever was.
int64_t IssuedSoFar(int device);

// The event to record behind the launch at hand; nullptr when none is to be had, or one was laid on this stream
// less than `spacing` ns of work ago.
CUevent LayMarkLocked(int device, CUstream stream, bool per_thread, int64_t spacing, int64_t now);
void MarkLaidLocked(int device, CUevent event, bool recorded);

// Work that is not known to be done, in ns. What no mark lies behind is taken for done when its time is over. To be
// called before work is issued, as this is where an idle device is noticed.
int64_t InFlightLocked(int device, int64_t now);
// Whether the first mark is not reached though what lies before it should have been done `by` ns ago: there is more
// ahead than is known of, or it takes longer.
bool OverdueLocked(int device, int64_t by, int64_t now);
// As others are at work, what is issued while nothing is in flight begins no sooner, unless it is known to have begun.
void BeginsAtLocked(int device, int64_t at);
struct Progress {
  int64_t reached_at;  // when a mark was last seen to be; 0 = never
  int64_t to_next;     // ns of work before the next one
};
Progress ProgressLocked(int device);
// Streams that lag behind others are left out: what was issued before the last mark that is reached counts as done.
void SkipLaggingLocked(int device, int64_t now);
// True when the GPU is known to be some way behind on this stream, so that it will go from launch to launch.
bool BackloggedLocked(int device, CUstream stream, bool per_thread, int64_t now);

// Whether a mark on this stream is not reached yet, or none could be laid there.
bool MarkedAheadLocked(int device, const LaunchQueueKey& name);

// Whatever is under way counts as done.
void DropTrailLocked(int device, bool events_live);
void DropTrailsOf(CUcontext context, CUdevice ordinal);  // either may be null / -1
void ResetTrails();

}  // namespace hami::vgpu
