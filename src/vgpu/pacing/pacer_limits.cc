// SPDX-License-Identifier: Apache-2.0
//
// What this container may have of each GPU, whom it gives way to, and its account: read from the region at every look,
// so that changes are live.
#include <atomic>

#include "vgpu/pacing/pacer.h"
#include "vgpu/pacing/pacer_common.h"
#include "vgpu/runtime/device_map.h"
#include "vgpu/runtime/settings.h"

namespace hami::vgpu {
namespace {

constinit std::atomic<bool> g_was_blocked{false};
constinit std::atomic<int64_t> g_own_charges[region::kMaxDevices]{};
constinit uint32_t g_counted_in[region::kMaxDevices]{};
// The account of a process without a region.
constinit region::GpuTimeDevice g_private_accounts[region::kMaxDevices]{};

}  // namespace

region::GpuTimeDevice* AccountOf(int device) {
  region::Attachment* const a = attachment();
  return a == nullptr ? &g_private_accounts[device] : &region::GpuTimeOf(a->area)->devices[device];
}

void Charge(int device, int64_t gpu, int64_t now, uint32_t rate) {
  region::GpuTimeCharge(AccountOf(device), gpu, now, rate);
  g_own_charges[device].fetch_add(gpu, std::memory_order_relaxed);
}

int64_t WorkersOf(int device, int64_t now) {
  return region::GpuTimeWorkers(AccountOf(device), now, &g_counted_in[device]);
}

int64_t ChargedToOthers(int device) {
  const auto all = static_cast<int64_t>(region::Load(AccountOf(device)->charged));
  return all - g_own_charges[device].load(std::memory_order_relaxed);
}

uint32_t LimitOf(int device) {
  if (device < 0 || device >= static_cast<int>(region::kMaxDevices)) return 0;
  const region::Attachment* const a = attachment();
  const uint64_t percent =
      a == nullptr ? settings().sm_limit[device] : region::SmLimit(*a, static_cast<uint32_t>(device));
  UtilizationPolicy policy = settings().policy;
  if (policy == UtilizationPolicy::kDefault && a != nullptr) {
    policy = static_cast<UtilizationPolicy>(region::Load(a->area->meta.policy));
  }
  if (policy == UtilizationPolicy::kDisable) return 0;
  const bool switched_off = a != nullptr && region::UtilizationSwitch(*a) == 0;
  const bool suspended = policy != UtilizationPolicy::kForce && switched_off;
  if (percent != 0 && percent < 100 && !suspended) return static_cast<uint32_t>(percent) * 100;
  return !g_was_blocked.load(std::memory_order_relaxed) && BesideLimited(device) ? kSpare : 0;
}

uint32_t RateOf(int device) {
  const uint32_t limit = LimitOf(device);
  if (limit == kSpare) return SpareRate(device, MonotonicNanos());
  return limit == 0 || CoresBurst(device) == 0 ? limit : WithBurst(device, limit, MonotonicNanos());
}

bool AnyRate() {
  for (int device = 0; device < static_cast<int>(region::kMaxDevices); ++device) {
    if (LimitOf(device) != 0) return true;
  }
  return false;
}

bool GivesWay(int device) {
  const region::Attachment* const a = attachment();
  if (a == nullptr || device < 0) return false;
  // One that the container does not have must not keep the others' launches from passing without a look.
  const uint64_t devices = region::Load(a->region->device_count);
  if (devices != 0 && static_cast<uint64_t>(device) >= devices) return false;
  if (g_was_blocked.load(std::memory_order_relaxed)) return true;
  if (region::Load(a->region->priority) <= 0) return false;
  return OthersKnown(device) ? Others(device, MonotonicNanos()).higher_present : settings().says_priority;
}

bool TellsOthers(int device) { return device >= 0 && Others(device, MonotonicNanos()).lower_present; }

bool AnyWatched() {
  for (int device = 0; device < static_cast<int>(region::kMaxDevices); ++device) {
    if (GivesWay(device) || TellsOthers(device)) return true;
  }
  return false;
}

bool Blocked() {
  const region::Attachment* const a = attachment();
  return a != nullptr && region::LaunchesBlocked(*a);
}

void WasBlocked() { g_was_blocked.store(true, std::memory_order_relaxed); }

void ResetLimits() {
  g_was_blocked.store(false);
  for (region::GpuTimeDevice& account : g_private_accounts) account = {};
  for (std::atomic<int64_t>& charges : g_own_charges) charges.store(0);
  for (uint32_t& counted_in : g_counted_in) region::Store(counted_in, 0u);
}

}  // namespace hami::vgpu
