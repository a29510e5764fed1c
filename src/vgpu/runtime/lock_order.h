// SPDX-License-Identifier: Apache-2.0
//
// All locks of the library that threads of this process wait for each other at, in the order in which a thread may take
// them. Invariant: a thread waits for a lock only while every lock that it holds has a lower rank; so no circle of
// threads can wait for each other. Builds with HAMI_CHECK_LOCKS (every build type but Release) check that at each lock
// and end the process where it does not hold, with both names; others know nothing of ranks.
//
// Not in this list: the region's locks between processes, which come after all of these, and the pacer's hold, which no
// lock is held through.
#pragma once

#include <stdint.h>

#ifdef HAMI_CHECK_LOCKS
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#endif

namespace hami::vgpu {

// name, what it guards
#define HAMI_LOCK_RANKS(X)                                                                                      \
  X(kPrimaryContext) /* references to primary contexts and what the driver says of them */                      \
  X(kContextMaking)  /* one context is made at a time */                                                        \
  X(kContextLimit)   /* a limit of a context, from its change to its measurement */                             \
  X(kMeasure)        /* device memory of this process: changed by holders of it shared, measured exclusively */ \
  X(kGraphLaunch)    /* unused memory of graphs that a launch counts on */                                      \
  X(kPools)          /* pools and frees in stream order */                                                      \
  X(kGraphMemory)    /* what graphs' memory is charged */                                                       \
  X(kVmm)            /* handles, mappings and bindings of physical memory */                                    \
  X(kFreeEvents)     /* events behind frees */                                                                  \
  X(kTimeTails)      /* streams of other threads while an event is recorded there */                            \
  X(kTimeDevice)     /* one device's GPU time: gate, meter, turns */                                            \
  X(kTimeMaking)     /* the devices whose GPU time is kept */                                                   \
  X(kTimeEvents)     /* timed events that are used again */                                                     \
  X(kContexts)       /* the registry of contexts */                                                             \
  X(kTable)          /* a shard of a table of handles */                                                        \
  X(kDeviceMap)      /* the driver's ordinals and the region's devices */                                       \
  X(kVisible)        /* the environment while the driver starts */                                              \
  X(kNvml)           /* whether NVML is open */

enum class LockRank : uint8_t {
#define HAMI_LOCK_RANK(name) name,
  HAMI_LOCK_RANKS(HAMI_LOCK_RANK)
#undef HAMI_LOCK_RANK
};

#ifdef HAMI_CHECK_LOCKS

// What one thread holds, in the order in which it took them.
class HeldLocks {
 public:
  // Before the lock is waited for.
  void Wait(LockRank rank) const {
    for (uint32_t i = 0; i < count_ && i < kRoom; ++i) {
      if (held_[i] >= rank) Fail(rank, held_[i]);
    }
  }
  void Take(LockRank rank) {
    if (count_ < kRoom) held_[count_] = rank;
    ++count_;
  }
  void Release(LockRank rank) {
    for (uint32_t i = count_ < kRoom ? count_ : kRoom; i-- > 0;) {
      if (held_[i] != rank) continue;
      for (; i + 1 < count_ && i + 1 < kRoom; ++i) held_[i] = held_[i + 1];
      break;
    }
    if (count_ != 0) --count_;
  }

 private:
  static constexpr uint32_t kRoom = 16;

  static void Say(const char* text) {
    if (write(STDERR_FILENO, text, strlen(text)) < 0) abort();
  }
  [[noreturn]] static void Fail(LockRank wanted, LockRank held) {
    constexpr const char* kNames[] = {
#define HAMI_LOCK_RANK(name) #name,
        HAMI_LOCK_RANKS(HAMI_LOCK_RANK)
#undef HAMI_LOCK_RANK
    };
    Say("lock order: ");
    Say(kNames[static_cast<int>(wanted)]);
    Say(" is waited for while ");
    Say(kNames[static_cast<int>(held)]);
    Say(" is held; see src/vgpu/runtime/lock_order.h\n");
    abort();
  }

  LockRank held_[kRoom] = {};
  uint32_t count_ = 0;
};
inline constinit thread_local HeldLocks t_held_locks{};

inline void WaitsForLock(LockRank rank) { t_held_locks.Wait(rank); }
inline void TookLock(LockRank rank) { t_held_locks.Take(rank); }
inline void ReleasedLock(LockRank rank) { t_held_locks.Release(rank); }

#else

inline void WaitsForLock(LockRank) {}
inline void TookLock(LockRank) {}
inline void ReleasedLock(LockRank) {}

#endif

}  // namespace hami::vgpu
