// SPDX-License-Identifier: Apache-2.0
//
// Time as the GPU sees it: pairs of events around single launches, and windows over a whole on-phase of the process.
// Nothing here waits for the GPU; whoever comes by (a launcher on its slow path, the helper thread) collects what is
// done. Events are made on demand, kept per context and given back before the context goes. Nothing is recorded into a
// capture, and the thread's capture mode is relaxed meanwhile, so that no capture is spoilt.
#pragma once

#include <stdint.h>

#include "abi/cuda_abi.h"
#include "vgpu/pacing/pacer.h"
#include "vgpu/pacing/pacer_trail.h"

namespace hami::vgpu {

// Whether the stream is being captured, as the driver says: the capture may have begun where nobody saw it.
bool Capturing(CUstream stream, bool per_thread);
// Whether there is host's time for measuring once more what is known, and for another event that shows whether a stream
// has work ahead.
bool TimeToSpare(int64_t now);
bool MarkToSpare(int64_t now);
// Starts timing the launch at hand; nullptr when all places are taken or the driver has no event. `gapless` says that
// the stream has work ahead of it; `quiet` that others hold their launches for it, so that it is to be collected before
// they go on.
TimedLaunch* StartTiming(LaunchKind* kind, const LaunchName& name, const Ticket& ticket, bool gapless, bool quiet);
// After the launch, `launched` when it went well.
void StopTiming(TimedLaunch* timed, CUstream stream, bool per_thread, bool launched);

// The next launch of the kind is measured as if none had been, and those under way are not taken for it. That it was
// measured alone before stays: others are not asked to be quiet again and again for a graph that often changes.
void ForgetKind(LaunchKind* kind);

// What is expected of a kind that was never measured, ns, from others of its kernel or graph (pacer_guess.h); 0: nobody
// knows.
int64_t GuessFor(const LaunchName& name);
// The graph is gone, or code is: its handle may come to be another's.
void ForgetGuess(const LaunchName& name);
void ForgetGuesses();

// Collects what is done, learns and settles. Returns at once when somebody else is at it.
void Harvest(int64_t now);
// The same for the last time, as the process ends while the driver is still there.
void HarvestLast();
uint32_t Harvests();  // so far
int PendingSamples();

// Until when launches on the device wait for the measurement of one that was never seen before, or for which others are
// quiet; 0 = none is awaited.
int64_t HoldUntil(int device);

// How long to sleep before looking again, for a launch on a stream where one of a kind that was never seen is at work;
// 0 when there is none that is to be waited for.
int64_t BehindUnknown(int device, CUstream stream, bool per_thread, int64_t now);

// Whether a launch that has ended by `end` may go beside one on another stream of this process that is under way until
// then: the GPU is busy anyhow. Were it held until that is paid for, a program with one long launch after another on
// one stream would come to nothing on all others. The long one is paid by the time that it really takes: if there is no
// room for both, that is longer. What goes must also be done by its end, so nothing goes before the last is known to
// have begun.
enum class Cover : uint8_t { kNone, kSoon, kGoes };
Cover TakeCover(int device, CUstream stream, bool per_thread, int64_t end, int64_t now);

// The trail (pacer_trail.h).
int64_t InFlight(int device, int64_t now);
bool Overdue(int device, int64_t by, int64_t now);
void BeginsAt(int device, int64_t at);
Progress ProgressOf(int device);
void SkipLagging(int device, int64_t now);
bool Backlogged(int device, CUstream stream, bool per_thread, int64_t now);
void LayMark(int device, CUstream stream, bool per_thread, int64_t spacing, int64_t now);
void DropTrail(int device);

// The process's overlap factor on a device.
int64_t ScaleFor(int device, int64_t cost);
// How many streams were side by side when it was last measured.
int StreamsOf(int device);

// Windows. A launcher that has to wait closes the phase; a launch while a window is open passes through both others.
// `runs_dry`: the wait is long enough for the GPU to finish what it has.
void TurnWindow(int device, bool runs_dry, int64_t now);
// Whether the phase that is counted next is to have the GPU alone, for which somebody has to see now; and since when
// the window is open. Whoever is told so begins the phase, with others quiet until then, 0 if they are not.
bool WindowSeeksQuiet(int device, bool first, int64_t* since);
bool WindowGoesOn(int device, int64_t now);
void BeginWindow(int device, int64_t now);
void CountWindow(int device, int64_t quiet_until, int64_t now);
int64_t WindowWait(int device, CUstream stream, bool per_thread, int64_t ahead, int64_t charge, int64_t wait,
                   int64_t now);
void EnterWindow(int device, CUstream stream, bool per_thread);
void LeaveWindow(int device, CUstream stream, bool per_thread, int64_t cost);

// Before a context ends, what was never measured is waited for, and paid; either may be null / -1.
void ForgetSamplesOf(CUcontext context, CUdevice ordinal);
void ResetSamples();
void StopSampling();  // the process ends

}  // namespace hami::vgpu
