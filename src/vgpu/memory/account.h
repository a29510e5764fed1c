// SPDX-License-Identifier: Apache-2.0
//
// The account of device memory that this process pays into: the shared region, or, when that cannot be had, counters of
// its own that enforce the same limits. Invariant: what is counted never passes a limit by TryReserve, whichever of the
// two it is.
#pragma once

#include <stdint.h>

#include <atomic>

#include "region/ledger.h"
#include "vgpu/runtime/process.h"

namespace hami::vgpu {

using region::Kind;

// `device` is a region index, kUnlimited (granted, not counted) or kForbidden (refused).
// TryReserve: false when it does not fit right now; nothing was counted then.
bool TryReserve(int device, uint64_t bytes, Kind kind);
// As TryReserve, for a request that was refused. While another process of the container starts it may hold more in
// reserve than it will keep: that is waited for, as long as it gets on, and 10 s at most.
bool AwaitStarts(int device, uint64_t bytes, Kind kind);
// Counts what is there already, whatever the limit.
void ChargeAnyway(int device, uint64_t bytes, Kind kind);
void Refund(int device, uint64_t bytes, Kind kind);
// A request of the program was refused; for those who look.
void CountRefusal(int device);

uint64_t UsedBytes(int device);   // of the whole container
uint64_t LimitBytes(int device);  // 0 = none
uint64_t OwnBytes(int device, Kind kind);
uint64_t OwnBytes(int device);  // all kinds

// The memory of processes that died must not show in answers for longer than a second.
void SweepForQuery();

// What a process counts that could not map its region.
struct PrivateAccount {
  std::atomic<uint64_t> used[region::kMaxDevices][region::kKinds] = {};
  std::atomic<uint64_t> total[region::kMaxDevices] = {};

  void Reset();
};

}  // namespace hami::vgpu
