// SPDX-License-Identifier: Apache-2.0
//
// What hooks see of GPU time: the gate that every launch passes. Without a limit, and with nobody else on the GPU, it
// costs one load and one branch. Else a launch is paid from a lease of its thread: a look-up and a subtraction, no
// lock, no clock, no shared write. A thread whose lease is used up takes the slow path (gate.h), and may wait there.
//
// Launches into a stream that is being captured are not touched. The words the fast path reads are zero in the child of
// a fork, so that a new process always starts on the slow path.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "abi/cuda_abi.h"
#include "vgpu/runtime/handle_cache.h"
#include "vgpu/runtime/process.h"
#include "vgpu/time/book.h"
#include "vgpu/time/meter.h"

namespace hami::vgpu {

// A name for a kind of launch, well mixed; never 0.
constexpr uint64_t LaunchId(uint64_t handle, uint64_t a, uint64_t b, uint64_t c) {
  constexpr uint64_t kMultiplier = 0x9e37'79b9'7f4a'7c15;
  uint64_t h = (handle ^ a) * kMultiplier;
  h = (h ^ h >> 29 ^ b) * kMultiplier;
  h = (h ^ h >> 31 ^ c) * kMultiplier;
  return (h ^ h >> 32) | 1;
}
struct LaunchName {
  uint64_t kind = 0;
  uint64_t handle = 0;
};

HAMI_HOT extern time::CostBook g_book;

// What this thread may still launch on one device, in ns of expected cost. Valid while `epoch` is the process's. What a
// launch on one stream reads and writes lies in one cache line: the driver's own work leaves little in the nearest one.
struct alignas(64) Lease {
  static constexpr unsigned kStreams = 8;
  static constexpr uint32_t kNoEpoch = 2;  // epochs are odd
  struct Spent {
    CUstream stream;
    uint64_t kind;  // 0: several
    int64_t cost;
    CUcontext context;
    int launches;
    bool open;  // the meter saw a launch on the stream since the thread was held
  };
  uint32_t sole_epoch = kNoEpoch;  // `epoch`, where no context is known on another device
  int64_t credit = 0;
  Spent spent[kStreams] = {};  // since the meter was told
  int64_t scale = 0;           // as it was taken from the account
  uint32_t epoch = 0;          // 0: it never had anything
  int16_t device = -1;
  unsigned next = 0;
  HandleCache places = {};

  void Open(CUstream stream, CUcontext context) {
    Spent* free = nullptr;
    for (Spent& s : spent) {
      if (s.stream == stream && s.open) return;
      if (!s.open && free == nullptr) free = &s;  // the first, so that a launch on one stream touches nothing behind it
    }
    if (free == nullptr) free = &spent[next++ % kStreams];
    *free = {stream, 0, 0, context, 0, true};
  }
  void Close() {
    for (Spent& s : spent) s.open = false;
  }
  // False: the meter is to be told first.
  bool Take(CUstream stream, uint64_t kind, int64_t cost) {
    Spent* at = spent;
    while (!at->open || at->stream != stream) {
      if (++at == spent + kStreams) return false;
    }
    Spent& s = *at;
    if (s.kind != kind) s.kind = s.launches == 0 ? kind : 0;
    s.cost += cost;
    ++s.launches;
    credit -= cost;
    return true;
  }
};
static_assert(offsetof(Lease, spent) + sizeof(Lease::Spent) <= 64);
HAMI_HOT extern constinit thread_local Lease t_lease;

// The default stream of a thread has a name of its own.
inline CUstream StreamOf(CUstream stream, bool per_thread) {
  return stream == nullptr && per_thread ? CU_STREAM_PER_THREAD : stream;
}
// Whether a launch on the stream is known to be for the device of the lease, where there are several.
bool GoesToDeviceOf(const Lease& lease, CUstream stream);

// A launch between its admission and its return from the driver.
struct Ticket {
  time::Launch launch;
  time::Meter::Plan plan;
  time::Event empty = nullptr, begin = nullptr;
  CUcontext context = nullptr;
  int64_t began_at = 0;
  CUstream stream = nullptr;
  int32_t device = -1;  // below 0: it is not counted
  bool per_thread = false;
  bool elsewhere = false;  // the stream's context is not the current one
};

// The slow path, before and after the driver's own function.
void BeginLaunch(const LaunchName& name, CUstream stream, bool per_thread, Ticket* ticket);
void EndLaunch(Ticket* ticket, CUresult result);
// Waits as the first of them would, and begins nothing: for launches of which several go at once.
void AwaitLaunch(const LaunchName& name, CUstream stream);

inline bool LaunchesOpen() {
  return __builtin_expect(__atomic_load_n(&g_words.launches_open, __ATOMIC_RELAXED) != 0, 1);
}

inline uint32_t LeaseEpoch() { return __atomic_load_n(&g_words.lease_epoch, __ATOMIC_RELAXED); }

// Whether this thread's lease pays for a launch of the kind that costs so many ns; 0: it is not known.
[[gnu::always_inline]] inline bool PaidFrom(Lease* lease, uint64_t kind, int64_t cost, CUstream stream) {
  return cost > 0 && cost <= lease->credit && lease->Take(stream, kind, cost);
}

// Whether a launch may go as it is, where that is known without a call: then nothing has to be kept across one. Nearly
// every kind is at the first of its places in the book.
template <typename What>
[[gnu::always_inline]] inline bool PassesAtOnce(const What& what, CUstream stream, bool per_thread) {
  if (LaunchesOpen()) return true;
  Lease& lease = t_lease;
  if (lease.sole_epoch != LeaseEpoch()) return false;
  const uint64_t kind = what.Kind();
  return PaidFrom(&lease, kind, g_book.Price(kind, 1), StreamOf(stream, per_thread));
}

// All others.
template <typename What, typename Launch>
CUresult HeldLaunch(const What& what, CUstream stream, bool per_thread, Launch launch) {
  Lease& lease = t_lease;
  const LaunchName name = what.Name();
  if (lease.epoch == LeaseEpoch() && (lease.sole_epoch == lease.epoch || GoesToDeviceOf(lease, stream)) &&
      PaidFrom(&lease, name.kind, g_book.Price(name.kind), StreamOf(stream, per_thread))) {
    return launch();
  }
  Ticket ticket;
  BeginLaunch(name, stream, per_thread, &ticket);
  const CUresult result = launch();
  EndLaunch(&ticket, result);
  return result;
}

template <typename What, typename Launch>
inline CUresult PacedLaunch(const What& what, CUstream stream, bool per_thread, Launch launch) {
  return PassesAtOnce(what, stream, per_thread) ? launch() : HeldLaunch(what, stream, per_thread, launch);
}

void CaptureBegan();
void CaptureEnded();

// An executable graph does something else from now on, or is gone.
void GraphChanged(CUgraphExec exec);
void ForgetGraph(CUgraphExec exec);
struct ExecutableGraph {
  CUgraphExec exec;

  uint64_t Kind() const { return LaunchId(reinterpret_cast<uintptr_t>(exec), 0, ~uint64_t{0}, 0); }
  LaunchName Name() const { return {Kind(), reinterpret_cast<uintptr_t>(exec)}; }
};
// Code is gone: its handles may come to be others'.
void ForgetGuesses();

// There is a context on the device: others are told before it launches.
void PacerEnterContext(int device);
// Before a context or a stream may end: nothing of ours may be left in it.
void PacerLeaveContext(CUcontext context);
void PacerLeaveStream(CUstream stream);

void ResetPacer();

}  // namespace hami::vgpu
