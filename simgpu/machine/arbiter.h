// SPDX-License-Identifier: Apache-2.0
//
// Who has the GPU when. One ArbiterState a device lies in the shared machine file, all zero at first; it is plain data
// and pure integer arithmetic, so any process may drive it for all.
//
// Each context lives in its own GPU time v, which advances only while the context holds the GPU. Its owner keeps its
// queues in v and publishes how far it can run without further news (the demand). Contexts whose v has not reached
// their demand are runnable and take turns: round robin, one quantum each, an exhausted one yields at once. Intervals
// remember which stretch of v was which stretch of wall time, so every process computes exact time stamps for itself.
// From one context to another the partition loses time that nobody is given (ArbiterTiming): the switch, and at the
// beginning of its turn what an interrupted context needs before it makes progress.
//
// Clients of MPS do not take turns as long as their percentages fit beside each other: each gets a lane, which is a
// partition of its own. A client for which there is no room any more shares the lane with the fewest others.
//
// Invariants: v never exceeds the demand; wall time and v never go back; within a partition intervals never overlap.
// The caller holds the device's arbiter lock around every function but TryRaise. Refuses: a context beyond
// kMaxContexts.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>

#include "simgpu/machine/profile.h"

namespace simgpu {

inline constexpr int kMaxContexts = 1024;  // of one device, all processes
inline constexpr int kFirstLane = 9;       // 0: the whole device; 1 + n: GPU instance n, which has SMs of its own
inline constexpr int kLanes = 60;          // of MPS clients, which run beside each other
inline constexpr int kPartitions = kFirstLane + kLanes;
inline constexpr int kIntervals = 128;  // remembered stretches of one context
inline constexpr std::int64_t kDefaultQuantum = 2'000'000;
inline constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

// What turns take and cost, as in Profile. All zero: turns of kDefaultQuantum that cost nothing.
struct ArbiterTiming {
  std::int64_t turn_ns, switch_ns, idle_switch_ns, resume_ns;
  std::int64_t jitter_permille;
};
ArbiterTiming TimingOf(const Profile& profile);

// A context held the GPU from wall time `wall` on for `length` ns, which took it from v to v + length.
struct GrantInterval {
  std::int64_t wall, v, length;
};

struct ArbiterContext {
  // The v at which the known work ends. Its owner raises it; kIdleBit says that the arbiter took the context out of the
  // rotation, so that the owner has to hand it in again under the lock.
  std::atomic<std::int64_t> demand;
  std::int64_t granted;      // v
  std::uint64_t intervals;   // written so far; the last kIntervals of them are remembered
  std::int32_t owner;        // process slot
  std::uint16_t next, prev;  // rotation, while runnable
  std::uint8_t used, runnable, partition;
  std::uint8_t interrupted;  // its last turn ended by time
  std::uint8_t percent;      // of the SMs, of an MPS client
};

struct ArbiterPartition {
  std::int64_t now;         // wall time up to which the GPU's time has been given out
  std::int64_t slice_left;  // of the current context's quantum
  std::int64_t busy;        // ns that any context held the GPU
  std::int64_t lost;        // ns that switches took
  std::int64_t loss_left;   // of the switch that is under way, and of what follows it
  std::int64_t turns;       // begun so far: what jitter is computed from
  // Parts in a million of the recent past (kLoadWindow) that somebody held the GPU. Read without the lock.
  std::atomic<std::int32_t> load;
  std::uint16_t current, runnable;
  std::uint16_t resident;  // 1 + the context whose state the SMs hold; 0: nobody's
  std::uint8_t cut;        // the resident's turn ended by time
};

struct ArbiterState {
  static constexpr std::int64_t kIdleBit = std::numeric_limits<std::int64_t>::min();

  ArbiterTiming timing;
  std::uint16_t high_water;  // contexts beyond this were never used
  // Bit per context that was attached or granted time since somebody cleared it: whoever follows the grants looks only
  // at these.
  std::uint64_t changed[kMaxContexts / 64];
  ArbiterPartition partitions[kPartitions];
  std::int64_t copy_free[3];  // wall time from which each copy engine is free
  ArbiterContext contexts[kMaxContexts];
  GrantInterval rings[kMaxContexts][kIntervals];

  // A new context with v = 0 and no work; -1 when the table is full.
  int Attach(std::int32_t owner, int partition);
  // The same for an MPS client with PERCENT of the SMs; all contexts of an owner are in one lane.
  int AttachBeside(std::int32_t owner, int percent);
  void Detach(int ctx);
  // Everything a dead process had. Call it when a process is reaped.
  void RemoveOwner(std::int32_t owner);
  // After the lock's owner died while holding it: links and counts are rebuilt from the contexts.
  void Repair();

  // Gives out GPU time up to `now`. Does nothing when that is past already.
  void Advance(int partition, std::int64_t now);

  // Raises the demand of a context at the partition's present (call Advance first); it becomes runnable if it was idle.
  void Raise(int ctx, std::int64_t demand);
  // The same without the lock, for a context in the rotation whose demand is `known`. False: take the lock and Raise.
  static bool TryRaise(ArbiterContext& ctx, std::int64_t known, std::int64_t demand) {
    return ctx.demand.compare_exchange_strong(known, demand, std::memory_order_acq_rel);
  }
  // Takes back demand that was published but will not be used (a context that is destroyed with work pending).
  void Drop(int ctx);

  std::int64_t DemandOf(int ctx) const { return contexts[ctx].demand.load(std::memory_order_acquire) & ~kIdleBit; }

  // The wall time at which the context reaches v, if nobody brings more work; kNever when its demand is below v.
  std::int64_t Predict(int ctx, std::int64_t v) const;
  // The wall time at which the context reached v <= granted. A v older than the remembered intervals gets the oldest.
  std::int64_t WallOf(int ctx, std::int64_t v) const;
  // How many contexts other than `ctx` want this partition now.
  int Rivals(int ctx) const;

  // Takes a copy engine for `length` ns, not before `ready`; returns the start.
  std::int64_t ReserveCopy(int engine, std::int64_t ready, std::int64_t length);

 private:
  std::int64_t Quantum() const { return timing.turn_ns > 0 ? timing.turn_ns : kDefaultQuantum; }
  std::int64_t Jittered(const ArbiterPartition& p, std::int64_t length) const;
  std::int64_t SwitchCost(const ArbiterPartition& p) const {
    return p.cut != 0 ? timing.switch_ns : timing.idle_switch_ns;
  }
  void BeginTurn(ArbiterPartition& p, std::uint16_t ctx);
  void BeginSwitch(ArbiterPartition& p);
  int LaneFor(std::int32_t owner, int percent) const;
  void Link(int ctx);
  void Unlink(int ctx);
  void MarkChanged(int ctx) { changed[ctx / 64] |= std::uint64_t{1} << (ctx % 64); }
  void Grant(int ctx, std::int64_t wall, std::int64_t length);
};

static_assert(std::atomic<std::int64_t>::is_always_lock_free);

}  // namespace simgpu
