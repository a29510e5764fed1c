// SPDX-License-Identifier: Apache-2.0
//
// What this container may have of each GPU: read from the region and the environment at every look, so that changes are
// live.
#include "vgpu/pacer/shell.h"

#include <sys/mman.h>

#include <new>

#include "region/keep_errno.h"
#include "region/process.h"
#include "vgpu/pacer/pacer.h"
#include "vgpu/runtime/process.h"

namespace hami::vgpu::pacer {

constinit Shell g_shell{};

namespace {

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

time::Terms TermsOf(int index, const DeviceTime* device) {
  time::Terms terms;
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
  const bool in_area = device != nullptr && device->meeting.in_area();
  terms.gives_way =
      g_shell.was_blocked.load(std::memory_order_relaxed) || (!in_area && terms.rank > 0 && settings().says_priority);
  return terms;
}

void Meet(DeviceTime* device, int index, int64_t now) {
  if (g_shell.left.load(std::memory_order_relaxed)) return;
  const region::CommonLines lines = LinesOf(&device->meeting, index, now);
  if (lines.lines == nullptr) return device->gate.turns().Join({}, -1);
  const uint64_t gpu = device->meeting.gpu;
  device->line = lines.Join(device->line, device->meeting.process, gpu, now);
  device->turn = lines.Join(device->turn, time::kTurnItself, gpu, now);
  if (device->line < 0 || device->turn < 0) return device->gate.turns().Join({}, -1);
  time::TurnLine& turn = lines.lines[device->turn];
  const uint32_t used = region::Load(*lines.used);
  const int count = used < static_cast<uint32_t>(lines.room) ? static_cast<int>(used) : lines.room;
  region::Store(turn.seen_at, now);
  device->gate.turns().Join({lines.lines, count, gpu, &turn.word}, device->line);
}

void Leave(DeviceTime* device, int index, int64_t now) {
  if (device->gate.Pending() || device->gate.InFlight(now) > 0) return;
  LinesOf(&device->meeting, index, now).Leave(device->line, device->meeting.process, device->meeting.gpu);
  WakeOthers(device->gate.turns());
  device->gate.turns().Join({}, -1);
}

void WakeOthers(const time::Turns& turns) {
  if (turns.table().word == nullptr) return;
  const region::KeepErrno keep;
  region::FutexWake(reinterpret_cast<const uint32_t*>(turns.table().word), INT32_MAX);
}

}  // namespace hami::vgpu::pacer
