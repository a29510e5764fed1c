// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/account.h"

#include <time.h>

#include "vgpu/memory/memory.h"

namespace hami::vgpu {
namespace {

// As long as another process starts, and gets on with it.
constexpr region::Patience kStartPatience{200'000'000, 10'000'000'000};

bool PrivateReserve(int device, uint64_t bytes, bool force) {
  std::atomic<uint64_t>& total = g_memory.account.total[device];
  const uint64_t limit = LimitBytes(device);
  uint64_t used = total.load(std::memory_order_relaxed);
  for (;;) {
    if (!force && limit != 0 && (bytes > limit || used > limit - bytes)) return false;
    if (total.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed)) return true;
  }
}

}  // namespace

bool TryReserve(int device, uint64_t bytes, Kind kind) {
  if (device < 0) return device != kForbidden;
  if (region::Attachment* const a = attachment(); a != nullptr) {
    return region::Reserve(a, static_cast<uint32_t>(device), bytes, kind) == region::Status::kOk;
  }
  if (!PrivateReserve(device, bytes, false)) return false;
  g_memory.account.used[device][static_cast<int>(kind)].fetch_add(bytes, std::memory_order_relaxed);
  return true;
}

bool AwaitStarts(int device, uint64_t bytes, Kind kind) {
  constexpr uint64_t kNever = 0;
  region::Attachment* const a = attachment();
  if (a == nullptr || device < 0 || bytes > LimitBytes(device)) return false;
  // While this process has the turn nobody holds more than it will keep. To look whether another has it is not enough:
  // the next may begin right after the look.
  const bool turn = !region::PostInitHeldHere() && region::PostInitLock(a, kNever, kStartPatience);
  const bool granted = TryReserve(device, bytes, kind);
  if (turn) region::PostInitUnlock(a);
  return granted;
}

void ChargeAnyway(int device, uint64_t bytes, Kind kind) {
  if (device < 0 || bytes == 0) return;
  if (region::Attachment* const a = attachment(); a != nullptr) {
    region::Charge(a, static_cast<uint32_t>(device), bytes, kind);
    return;
  }
  PrivateReserve(device, bytes, true);
  g_memory.account.used[device][static_cast<int>(kind)].fetch_add(bytes, std::memory_order_relaxed);
}

void Refund(int device, uint64_t bytes, Kind kind) {
  if (device < 0 || bytes == 0) return;
  if (region::Attachment* const a = attachment(); a != nullptr) {
    region::Refund(a, static_cast<uint32_t>(device), bytes, kind);
    return;
  }
  g_memory.account.used[device][static_cast<int>(kind)].fetch_sub(bytes, std::memory_order_relaxed);
  g_memory.account.total[device].fetch_sub(bytes, std::memory_order_relaxed);
}

void CountRefusal(int device) {
  region::Attachment* const a = attachment();
  if (a != nullptr && device >= 0) region::NoteRefusal(a, static_cast<uint32_t>(device));
}

uint64_t UsedBytes(int device) {
  if (device < 0) return 0;
  if (const region::Attachment* const a = attachment(); a != nullptr) {
    return region::Used(*a, static_cast<uint32_t>(device));
  }
  return g_memory.account.total[device].load(std::memory_order_relaxed);
}

uint64_t LimitBytes(int device) {
  if (device < 0) return 0;
  if (const region::Attachment* const a = attachment(); a != nullptr) {
    return region::Limit(*a, static_cast<uint32_t>(device));
  }
  const uint64_t own = settings().own_memory_limit[device];
  return own != 0 ? own : settings().memory_limit[device];
}

uint64_t OwnBytes(int device, Kind kind) {
  if (device < 0) return 0;
  if (const region::Attachment* const a = attachment(); a != nullptr) {
    return region::OwnUsed(*a, static_cast<uint32_t>(device), kind);
  }
  return g_memory.account.used[device][static_cast<int>(kind)].load(std::memory_order_relaxed);
}

uint64_t OwnBytes(int device) {
  return OwnBytes(device, Kind::kContext) + OwnBytes(device, Kind::kModule) + OwnBytes(device, Kind::kData);
}

void SweepForQuery() {
  region::Attachment* const a = attachment();
  if (a == nullptr) return;
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  region::SweepIfStale(a, static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec);
}

void PrivateAccount::Reset() {
  for (auto& device : used) {
    for (auto& bytes : device) bytes.store(0, std::memory_order_relaxed);
  }
  for (auto& bytes : total) bytes.store(0, std::memory_order_relaxed);
}

}  // namespace hami::vgpu
