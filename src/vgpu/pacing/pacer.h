// SPDX-License-Identifier: Apache-2.0
//
// The gate that every launch passes. Without a limit on GPU time it costs one load and one predicted branch. Under a
// limit a launch is paid from a lease of its thread (a look-up of the expected cost and a subtraction: no lock, no
// clock, no shared write; where there are several devices a look-up of the stream, too); a thread whose lease is used
// up goes to the container's account (region/gpu_time.h), waits there while that is overdrawn, and now and then has a
// launch timed on the GPU (pacer_samples.h).
//
// Launches into a stream that is being captured are not touched. The words the fast path reads are zero in the child of
// a fork, so that a new process always starts on the slow path.
#pragma once

#ifdef HAMI_GPU_TIME_ANEW  // the successor, in a library of its own for as long as it is measured beside this one
#include "vgpu/time/pacer.h"
#else

#include <stdint.h>

#include "abi/cuda_abi.h"
#include "region/common_area.h"
#include "region/gpu_time.h"
#include "vgpu/pacing/pacer_model.h"
#include "vgpu/runtime/contexts.h"
#include "vgpu/runtime/handle_cache.h"
#include "vgpu/runtime/process.h"

namespace hami::vgpu {

// What is known of one kind of launch. Read by all threads, written when a measurement comes in.
struct alignas(64) LaunchKind {
  uint64_t id = 0;
  int64_t price = 0;  // the expected cost, which a lease may pay; 0: the slow path is to look at it
  Estimate estimate;
  int64_t sampled_at = 0;
  int64_t unsampled = 0;  // ns that it was charged on the slow path since then
  int64_t share = 0;      // of all launches on the device, of kAllThereIs; looked at
  int64_t issued = 0;     // when all that was ever charged was so much,
  int64_t charged = 0;    // and the kind was charged so much since then
};
static_assert(sizeof(LaunchKind) == 128);
inline constexpr size_t kLaunchKinds = 8192;
extern LaunchKind g_launch_kinds[kLaunchKinds];

// Two places for each id; nullptr when it has none.
inline LaunchKind* FindKind(uint64_t id) {
  LaunchKind* kind = &g_launch_kinds[id % kLaunchKinds];
  if (__atomic_load_n(&kind->id, __ATOMIC_RELAXED) == id) return kind;
  kind = &g_launch_kinds[(id ^ 1) % kLaunchKinds];
  return __atomic_load_n(&kind->id, __ATOMIC_RELAXED) == id ? kind : nullptr;
}

// What this thread may still launch on one device, in ns of expected cost. Valid while `epoch` is the process's.
struct Lease {
  uint32_t epoch = 0;
  int32_t device = -1;
  int64_t credit = 0;
  bool only_device = false;  // whatever it launches is for this one
  HandleCache places = {};   // else only what goes there
};
extern constinit thread_local Lease t_lease;

// Whether a launch on the stream is known to be for the device of the lease, where there are several.
bool GoesToDeviceOf(const Lease& lease, CUstream stream);

struct TimedLaunch;

// A launch between its admission and its return from the driver.
struct Ticket {
  TimedLaunch* sample = nullptr;
  CUstream stream = nullptr;
  int64_t cost = 0;     // as charged to the lease; 0 = not charged
  int64_t spacing = 0;  // ns of work between marks
  int32_t device = -1;
  bool per_thread = false;
  bool in_window = false;
  bool elsewhere = false;  // the stream's context is not the current one
  bool marks = false;      // an event goes behind it (pacer_trail.h)
};

// The slow path, before and after the driver's own function.
void BeginLaunch(const LaunchName& name, CUstream stream, bool per_thread, Ticket* ticket);
void EndLaunch(Ticket* ticket, CUresult result);
// Waits as the first of them would, and begins nothing: for launches of which several go at once.
void AwaitLaunch(const LaunchName& name, CUstream stream);

// Launches need no look. Hooks with many parameters test this first and leave the rest to a function of its own, so
// that the way through is a load, a branch and a jump.
inline bool LaunchesOpen() {
  return __builtin_expect(__atomic_load_n(&g_words.launches_open, __ATOMIC_RELAXED) != 0, 1);
}

// Calls `launch`, which does on `stream` what `what` names: by its Kind() while that is paid from a lease, else by its
// whole Name().
template <typename What, typename Launch>
inline CUresult PacedLaunch(const What& what, CUstream stream, bool per_thread, Launch launch) {
  if (LaunchesOpen()) return launch();
  const uint32_t epoch = __atomic_load_n(&g_words.lease_epoch, __ATOMIC_RELAXED);
  Lease& lease = t_lease;
  if (epoch != 0 && lease.epoch == epoch) {
    const LaunchKind* const kind = FindKind(what.Kind());
    const int64_t cost = kind == nullptr ? 0 : __atomic_load_n(&kind->price, __ATOMIC_RELAXED);
    if (cost > 0 && cost <= lease.credit && (lease.only_device || GoesToDeviceOf(lease, stream))) {
      lease.credit -= cost;
      return launch();
    }
  }
  Ticket ticket;
  BeginLaunch(what.Name(), stream, per_thread, &ticket);
  const CUresult result = launch();
  EndLaunch(&ticket, result);
  return result;
}

// While a capture is under way anywhere in the process, every launch looks whether it is part of it.
void CaptureBegan();
void CaptureEnded();

// An executable graph does something else from now on, or is gone: what was learnt of it is void.
void GraphChanged(CUgraphExec exec);
void ForgetGraph(CUgraphExec exec);
struct ExecutableGraph {
  CUgraphExec exec;

  uint64_t Kind() const { return LaunchId(reinterpret_cast<uintptr_t>(exec), 0, ~uint64_t{0}, 0); }
  LaunchName Name() const { return {Kind(), reinterpret_cast<uintptr_t>(exec), 1}; }
};

// There is a context on the device: who has one will launch, and others are told so before.
void PacerEnterContext(int device);
// Before a context may end: nothing of ours may be left in it.
void PacerLeaveContext(CUcontext context);
void PacerLeavePrimary(CUdevice ordinal);
inline void PacerLeaveStream(CUstream) {}

void ResetPacer();

// --- between the files of the pacer; what it may have: pacer_limits.cc ---

// The rate of a device in 1/10000 of its time; 0 = not limited. Live.
uint32_t RateOf(int device);
// The same without what is idle and may be used besides; kSpare: what those who have a limit leave.
inline constexpr uint32_t kSpare = region::kCommonAll;
uint32_t LimitOf(int device);
bool AnyRate();
// Somebody may want this task to stop: the monitor, or a container that is more important.
bool GivesWay(int device);
// Others want to know when this task is at work.
bool TellsOthers(int device);
bool AnyWatched();
bool Blocked();
// The monitor did make it stop: it may again.
void WasBlocked();
void ResetLimits();
region::GpuTimeDevice* AccountOf(int device);
void Charge(int device, int64_t gpu, int64_t now, uint32_t rate);
// How many processes of this container launch, or wait to: this one does.
int64_t WorkersOf(int device, int64_t now);
// What other processes of this container were charged so far, ns.
int64_t ChargedToOthers(int device);
int64_t MonotonicNanos();
// Whether other containers used the device since then; by NVML that is a second late, or false, where they do not tell.
bool ContendedSince(int device, int64_t since, int64_t now);
void SetOrdinal(int device, CUdevice ordinal);
// Leases of all threads become void, and whether there is a fast path is decided anew.
void VoidLeases();
void SetWindowOpen(bool open);
bool WindowOpen();
// The helper thread: started by the first launch, sleeps while nothing is launched.
void KeepHelperAwake();
void ResetHelper();
// What is left of the lease of this thread goes back when it ends.
void WhenThreadEnds(void (*give_back)(void* lease), Lease* lease);

}  // namespace hami::vgpu

#endif  // HAMI_GPU_TIME_ANEW
