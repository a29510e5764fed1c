// SPDX-License-Identifier: Apache-2.0
#include "vgpu/policy/modules.h"

#include "vgpu/loader/driver.h"
#include "vgpu/policy/charge.h"
#include "vgpu/policy/device_map.h"
#include "vgpu/policy/lock.h"
#include "vgpu/policy/nvml_probe.h"
#include "vgpu/policy/process.h"

namespace hami::vgpu {

constinit std::atomic<bool> g_modules_pending{false};

namespace {

// The pace of measurements that nobody asked for by name. One costs a round through NVML.
constexpr int64_t kPendingMillis = 50;
constexpr int64_t kQueryMillis = 1000;

struct DeviceModules {
  uint64_t charged = 0;
  int64_t measured_at = 0;
  int64_t queried_at = 0;
  CUdevice ordinal = -1;
};
constinit Lock g_lock{};
constinit DeviceModules g_modules[region::kMaxDevices]{};

bool FreeMemory(uint64_t* out) {
  size_t free = 0;
  size_t total = 0;
  if (real::cuMemGetInfo_v2(&free, &total) != CUDA_SUCCESS) return false;
  *out = free;
  return true;
}

enum class Direction { kUp, kUpWithinLimit, kBoth };

// Brings the module count to (what the driver sees − what is counted otherwise). False: it did not fit.
bool AdjustLocked(int device, Direction direction, bool* known) {
  DeviceModules& modules = g_modules[device];
  nvmlDevice_t handle = nullptr;
  if (modules.ordinal < 0 || !HandleOfOrdinal(modules.ordinal, &handle)) return true;
  const uint64_t counted = OwnBytes(device, Kind::kContext) + OwnBytes(device, Kind::kData);
  const Measurement now = Measure(handle);
  if (known != nullptr) *known = now.own_known;
  if (!now.own_known) return true;
  modules.measured_at = CoarseMillis();
  const uint64_t target = now.own > counted ? now.own - counted : 0;
  if (target > modules.charged) {
    const uint64_t growth = target - modules.charged;
    if (direction != Direction::kUpWithinLimit) {
      ChargeAnyway(device, growth, Kind::kModule);
    } else if (!TryReserve(device, growth, Kind::kModule)) {
      return false;
    }
    modules.charged = target;
  } else if (direction == Direction::kBoth && target < modules.charged) {
    Refund(device, modules.charged - target, Kind::kModule);
    modules.charged = target;
  }
  return true;
}

}  // namespace

void BeginLoad(LoadWatch* watch) {
  watch->has_place = CurrentPlace(&watch->place) && watch->place.device >= 0 && FreeMemory(&watch->free_before);
}

bool EndLoad(const LoadWatch& watch) {
  NoteFirstUse();  // a part may be loaded later
  uint64_t free_after = 0;
  if (!watch.has_place || !FreeMemory(&free_after) || free_after >= watch.free_before) return true;
  const int device = watch.place.device;
  const Locked locked(g_lock);
  g_modules[device].ordinal = watch.place.ordinal;
  bool known = false;
  if (!AdjustLocked(device, Direction::kUpWithinLimit, &known)) return false;
  if (known) return true;
  // NVML does not show this process: the device's loss is all there is to go by, a neighbour's part in it included.
  const uint64_t growth = watch.free_before - free_after;
  if (!TryReserve(device, growth, Kind::kModule)) return false;
  g_modules[device].charged += growth;
  return true;
}

void SettlePendingModulesSlow(int device) {
  if (device < 0) return;
  const int64_t now = CoarseMillis();
  Place place;
  const bool has_place = CurrentPlace(&place) && place.device == device;
  const Locked locked(g_lock);
  DeviceModules& modules = g_modules[device];
  if (has_place) modules.ordinal = place.ordinal;
  if (modules.ordinal < 0 || now - modules.measured_at < kPendingMillis) return;
  g_modules_pending.store(false, std::memory_order_relaxed);
  modules.measured_at = now;
  AdjustLocked(device, Direction::kUp, nullptr);
}

void SettleModules(int device) {
  if (device < 0) return;
  Place place;
  const bool has_place = CurrentPlace(&place) && place.device == device;
  const bool gone = ContextsOn(device) == 0;
  const Locked locked(g_lock);
  DeviceModules& modules = g_modules[device];
  if (has_place) modules.ordinal = place.ordinal;
  if (gone) {
    Refund(device, modules.charged, Kind::kModule);
    modules.charged = 0;
    return;
  }
  AdjustLocked(device, Direction::kBoth, nullptr);
}

void SettleModulesForQuery(int device) {
  if (device < 0) return;
  const int64_t now = CoarseMillis();
  Place place;
  const bool has_place = CurrentPlace(&place) && place.device == device;
  const Locked locked(g_lock);
  DeviceModules& modules = g_modules[device];
  if (has_place) modules.ordinal = place.ordinal;
  if (modules.ordinal < 0) return;
  const bool pending = g_modules_pending.load(std::memory_order_relaxed);
  if (!pending && now - modules.queried_at < kQueryMillis) return;
  g_modules_pending.store(false, std::memory_order_relaxed);
  modules.queried_at = now;
  AdjustLocked(device, Direction::kUp, nullptr);
}

void ResetModules() {
  g_lock.Reset();
  for (DeviceModules& modules : g_modules) modules = DeviceModules{};
  g_modules_pending.store(false, std::memory_order_relaxed);
}

}  // namespace hami::vgpu
