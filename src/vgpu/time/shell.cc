// SPDX-License-Identifier: Apache-2.0
//
// What this container may have of each GPU, and where it meets the others: read from the region and the environment at
// every look, so that changes are live. A UUID is a name, never a path.
#include "vgpu/time/shell.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>

#include "region/keep_errno.h"
#include "region/process.h"
#include "vgpu/runtime/process.h"
#include "vgpu/time/pacer.h"

namespace hami::vgpu::time {

constinit Shell g_shell{};

namespace {

constexpr int64_t kLookAgain = 1'000'000'000;  // ns; for an area where there was none
constexpr uint32_t kMostOpened = 64;           // each leaves a mapping behind, for another thread may be reading it

uint64_t Mix(uint64_t h, uint64_t value) {
  h = (h ^ value) * 0x9e37'79b9'7f4a'7c15;
  return h ^ h >> 29;
}

// 0 while the device is not known.
uint64_t GpuOf(const region::Attachment& a, int device) {
  if (region::DeviceCount(a) <= static_cast<uint32_t>(device)) return 0;  // written last
  uint64_t hash = 1;
  for (const char c : a.region->uuids[device]) {
    if (c == '\0') break;
    hash = Mix(hash, static_cast<unsigned char>(c));
  }
  return hash | 1;
}

using Path = char[sizeof(Settings::common_path) + 128];

// What was named, or below it.
[[gnu::cold]] bool PathOf(const region::Attachment& a, int device, Path& path) {
  const char* const named = settings().common_path;
  if (named[0] == '\0') return false;
  const int folder = open(named, O_PATH | O_CLOEXEC | O_DIRECTORY);
  if (folder >= 0) close(folder);
  char uuid[sizeof a.region->uuids[0]];
  memcpy(uuid, a.region->uuids[device], sizeof uuid);
  uuid[sizeof uuid - 1] = '\0';
  if (folder >= 0 && (uuid[0] == '\0' || strchr(uuid, '/') != nullptr)) return false;
  snprintf(path, sizeof path, folder >= 0 ? "%s/%s/area" : "%s", named, uuid);
  return true;
}

[[gnu::cold]] void OpenArea(const region::Attachment& a, DeviceTime* device, int index, int64_t now) {
  const region::KeepErrno keep;
  Path path;
  device->looked_at = now;
  device->file = {};
  device->line = device->turn = -1;
  device->gate.turns().Join({}, -1);
  device->process = Mix(Mix(1, a.device), a.inode) << 32 |
                    static_cast<uint32_t>(Mix(a.pid_namespace, static_cast<uint64_t>(getpid())));
  if (device->opened >= kMostOpened || !PathOf(a, index, path)) return;
  device->file = region::OpenCommonArea(path);
  if (device->file.area != nullptr) ++device->opened;
}

region::GpuTimeDevice* AccountOf(int device) {
  region::Attachment* const a = attachment();
  return a == nullptr ? &g_shell.private_accounts[device] : &region::GpuTimeOf(a->area)->devices[device];
}

}  // namespace

DeviceTime* DeviceOf(int device, bool make) {
  if (device < 0 || device >= static_cast<int>(region::kMaxDevices)) return nullptr;
  std::atomic<DeviceTime*>& place = g_shell.devices[device];
  DeviceTime* known = place.load(std::memory_order_acquire);
  if (known != nullptr || !make) return known;
  const Locked locked(g_shell.making);
  known = place.load(std::memory_order_relaxed);
  if (known != nullptr) return known;
  // Far larger than what a library may have in its file, and for most devices never needed.
  void* const room = mmap(nullptr, sizeof(DeviceTime), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) return nullptr;
  known = new (room) DeviceTime;
  known->gate.Use(AccountOf(device), &g_book, &kDriver);
  place.store(known, std::memory_order_release);
  return known;
}

void ResetDevices() {
  g_shell.making.Reset();
  for (std::atomic<DeviceTime*>& device : g_shell.devices) {
    if (void* const room = device.exchange(nullptr); room != nullptr) munmap(room, sizeof(DeviceTime));
  }
  for (region::GpuTimeDevice& account : g_shell.private_accounts) account = {};
}

bool Blocked() {
  const region::Attachment* const a = attachment();
  return a != nullptr && region::LaunchesBlocked(*a);
}

Terms TermsOf(int index, const DeviceTime* device) {
  Terms terms;
  const region::Attachment* const a = attachment();
  const uint64_t percent =
      a == nullptr ? settings().sm_limit[index] : region::SmLimit(*a, static_cast<uint32_t>(index));
  UtilizationPolicy policy = settings().policy;
  if (policy == UtilizationPolicy::kDefault && a != nullptr) {
    policy = static_cast<UtilizationPolicy>(region::Load(a->area->meta.policy));
  }
  const bool switched_off = a != nullptr && region::UtilizationSwitch(*a) == 0;
  const bool off = policy == UtilizationPolicy::kDisable || (policy != UtilizationPolicy::kForce && switched_off);
  if (percent != 0 && percent < 100 && !off) terms.limit = static_cast<uint32_t>(percent) * 100;
  const auto own = static_cast<uint32_t>(settings().own_sm_limit[index]) * 100;
  if (own != 0 && !off && (terms.limit == 0 || own < terms.limit)) terms.own = own;
  const uint32_t burst = CoresBurst(index) * 100;
  terms.ceiling = burst < region::kFullRate ? burst : static_cast<uint32_t>(region::kFullRate) - 1;
  terms.rank = a == nullptr ? settings().priority : region::Load(a->region->priority);
  const bool in_area = device != nullptr && device->file.area != nullptr;
  terms.gives_way =
      g_shell.was_blocked.load(std::memory_order_relaxed) || (!in_area && terms.rank > 0 && settings().says_priority);
  return terms;
}

bool Meet(DeviceTime* device, int index, int64_t now) {
  const region::Attachment* const a = attachment();
  if (a == nullptr) return false;
  if (device->gpu == 0) device->gpu = GpuOf(*a, index);
  if (device->gpu == 0) return false;
  if (device->looked_at == 0) OpenArea(*a, device, index, now);
  region::CommonArea* const area = device->file.area;
  const region::CommonLines lines = area != nullptr ? region::CommonLinesOf(area) : region::CommonLinesOf(a->area);
  device->line = lines.Join(device->line, device->process, device->gpu, now);
  device->turn = lines.Join(device->turn, kTurnItself, device->gpu, now);
  if (device->line < 0 || device->turn < 0) {
    device->gate.turns().Join({}, -1);
    return false;
  }
  TurnLine& turn = lines.lines[device->turn];
  const uint32_t used = region::Load(*lines.used);
  const int count = used < static_cast<uint32_t>(lines.room) ? static_cast<int>(used) : lines.room;
  region::Store(turn.seen_at, now);
  device->gate.turns().Join({lines.lines, count, device->gpu, &turn.word}, device->line);
  return area != nullptr;
}

[[gnu::cold]] void CheckArea(DeviceTime* device, int index, int64_t now) {
  const region::Attachment* const a = attachment();
  if (a == nullptr || device->gpu == 0 || device->looked_at == 0) return;
  Path path;
  if (device->file.area == nullptr) {
    if (now - device->looked_at < kLookAgain) return;
  } else if (PathOf(*a, index, path) && region::CommonIsWhole(device->file, path)) {
    return;
  }
  OpenArea(*a, device, index, now);
}

void WakeOthers(const Turns& turns) {
  if (turns.table().word == nullptr) return;
  const region::KeepErrno keep;
  region::FutexWake(reinterpret_cast<const uint32_t*>(turns.table().word), INT32_MAX);
}

}  // namespace hami::vgpu::time
