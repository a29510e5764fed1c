// SPDX-License-Identifier: Apache-2.0
//
// The account of GPU time of a container: one per device, shared by all its processes, in the region's private area.
// The account is a single point in time: `zero_at`, the moment (CLOCK_MONOTONIC ns) at which the balance is, was or
// will be zero. It grows by itself at `rate` GPU nanoseconds per nanosecond, so nobody has to refill it; a charge moves
// the point by one atomic addition. Nothing is held by anybody, so a killed process leaves nothing to give back. What
// is not used is kept only up to a cap. Time is always a parameter.
//
// Refused: debts of more than kLongestDebt (a file that outlived a reboot carries points of another clock). A rate is
// in 1/10000, from 1 to 9999; a share without a limit has no business here.

#pragma once

#include <cstdint>

#include "region/layout.h"

namespace hami::region {

struct alignas(64) GpuTimeDevice {
  int64_t zero_at;      // 0 = never used
  int64_t last_charge;  // when somebody last charged or waited, for the cap
  uint64_t charged;     // everything ever charged, ns of GPU time
  uint32_t rate;        // the rate that zero_at was written with
  uint32_t burst;       // percent up to which idle time may be used; not above the limit: none; 0 = not said
  uint64_t reserved;
  int64_t beside_long;  // when a launch longer than a turn was last seen under way beside others
  uint64_t more_reserved[2];
};
static_assert(sizeof(GpuTimeDevice) == 64);

struct GpuTime {
  GpuTimeDevice devices[kMaxDevices];
};
static_assert(sizeof(GpuTime) <= sizeof(PrivateArea::gpu_time));

inline GpuTime* GpuTimeOf(PrivateArea* area) { return reinterpret_cast<GpuTime*>(area->gpu_time); }

inline constexpr int64_t kFullRate = 10'000;
inline constexpr int64_t kIdleCap = 8'000'000;      // what a container that rested may use at once
inline constexpr int64_t kActiveCap = 100'000'000;  // one that goes on launching keeps what it could not use so far
// Beside a kernel of 500 ms, which takes half of the GPU for a second, who has 95 % misses 450 ms.
inline constexpr int64_t kBesideLongCap = 500'000'000;
inline constexpr int64_t kBesideLong = 10'000'000'000;  // and has by then, with 5 % to spare
inline constexpr int64_t kRest = 150'000'000;           // without a charge for so long is resting
inline constexpr int64_t kLongestDebt = 120'000'000'000;

// GPU nanoseconds earned in `wall`, and the wall time that earns `gpu`.
inline int64_t GpuTimeEarned(int64_t wall, uint32_t rate) {
  return wall / kFullRate * rate + wall % kFullRate * rate / kFullRate;
}
inline int64_t WallToEarn(int64_t gpu, uint32_t rate) { return gpu * kFullRate / rate; }

// Brings the account up to `now` (rate changes, caps) and returns its balance.
inline int64_t GpuTimeBalance(GpuTimeDevice* device, int64_t now, uint32_t rate) {
  int64_t zero_at = Load(device->zero_at);
  const uint32_t before = Load(device->rate);
  if (before != rate) {
    // Whoever sees the change first converts the balance; the others find it done.
    uint32_t expected = before;
    if (__atomic_compare_exchange_n(&device->rate, &expected, rate, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED) &&
        before != 0) {
      const int64_t wall = zero_at - now;
      const int64_t converted = WallToEarn(GpuTimeEarned(wall > kLongestDebt ? kLongestDebt : wall, before), rate);
      __atomic_fetch_add(&device->zero_at, converted - wall, __ATOMIC_ACQ_REL);
      zero_at = Load(device->zero_at);
    }
  }
  const bool resting = now - Load(device->last_charge) > kRest;
  const int64_t seen = Load(device->beside_long);
  const int64_t active_cap = seen > now - kBesideLong && seen <= now ? kBesideLongCap : kActiveCap;
  const int64_t earliest = now - WallToEarn(resting ? kIdleCap : active_cap, rate);
  int64_t wanted = zero_at;
  if (zero_at == 0 || zero_at - now > kLongestDebt) {
    wanted = now;
  } else if (zero_at < earliest) {
    wanted = earliest;
  }
  if (wanted != zero_at &&
      __atomic_compare_exchange_n(&device->zero_at, &zero_at, wanted, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
    zero_at = wanted;
  }
  return GpuTimeEarned(now - zero_at, rate);
}

// Who waits for the balance to grow is not at rest.
inline void GpuTimeWaits(GpuTimeDevice* device, int64_t now) { Store(device->last_charge, now); }

// What it can not use beside a long launch of others, which nobody can interrupt, it has when that is over.
inline void GpuTimeBesideLong(GpuTimeDevice* device, int64_t now) { Store(device->beside_long, now); }

// Moves the point by `gpu` nanoseconds, at the rate that it was written with: `rate`, which the caller saw, may be of
// another moment.
inline void GpuTimeMove(GpuTimeDevice* device, int64_t gpu, uint32_t rate) {
  const uint32_t written = Load(device->rate);
  __atomic_fetch_add(&device->zero_at, WallToEarn(gpu, written == 0 ? rate : written), __ATOMIC_ACQ_REL);
}

// Takes `gpu` nanoseconds (gives them back when negative), whatever the balance.
inline void GpuTimeCharge(GpuTimeDevice* device, int64_t gpu, int64_t now, uint32_t rate) {
  GpuTimeMove(device, gpu, rate);
  __atomic_fetch_add(&device->charged, static_cast<uint64_t>(gpu), __ATOMIC_RELAXED);
  if (gpu > 0) Store(device->last_charge, now);
}

// Leaves a debt of `gpu` nanoseconds at least, or if that is below zero no more than so many.
inline void GpuTimeForgo(GpuTimeDevice* device, int64_t gpu, int64_t now, uint32_t rate) {
  const int64_t least = now + WallToEarn(gpu, rate);
  int64_t zero_at = Load(device->zero_at);
  while (zero_at < least &&
         !__atomic_compare_exchange_n(&device->zero_at, &zero_at, least, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
  }
}

}  // namespace hami::region
