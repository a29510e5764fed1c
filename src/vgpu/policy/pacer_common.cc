// SPDX-License-Identifier: Apache-2.0
#include "vgpu/policy/pacer_common.h"

#include <atomic>

#include "region/gpu_time.h"
#include "vgpu/policy/lock.h"
#include "vgpu/policy/process.h"

namespace hami::vgpu {
namespace {

constexpr int64_t kAlways = 900'000'000;  // renewed every half a second
constexpr int64_t kAskAgain = 30'000'000;
constexpr int64_t kQuietAgain = 100'000'000;  // of the time, a quarter at most is spent waiting for those who measure
constexpr int64_t kHears = 100'000'000;
constexpr int64_t kSlice = 2'000'000;  // for longer than about that a GPU does not let one container wait for another
constexpr int64_t kSlack = 250'000;    // between the end that was expected and the next launch

enum : uint32_t { kNotYet = 0, kOpen = 1, kNone = 2 };
constinit uint32_t g_state = kNotYet;
constinit Lock g_lock{};
constinit region::CommonFile g_file{};
constinit uint64_t g_container = 0;
constinit std::atomic<int64_t> g_asked_at{0};
constinit std::atomic<int64_t> g_quiet_since{0};
constinit std::atomic<bool> g_always[region::kMaxDevices]{};
constinit std::atomic<uint64_t> g_gpu[region::kMaxDevices]{};
constinit int g_line[region::kMaxDevices]{};

uint64_t Mix(uint64_t h, uint64_t value) {
  h = (h ^ value) * 0x9e37'79b9'7f4a'7c15;
  return h ^ h >> 29;
}

// 0 while the device is not known.
uint64_t GpuOf(int device) {
  if (const uint64_t known = g_gpu[device].load(std::memory_order_relaxed); known != 0) return known;
  const region::Attachment* const a = attachment();
  if (a == nullptr || region::DeviceCount(*a) <= static_cast<uint32_t>(device)) return 0;  // written last
  uint64_t hash = 1;
  for (const char c : a->region->uuids[device]) {
    if (c == '\0') break;
    hash = Mix(hash, static_cast<unsigned char>(c));
  }
  g_gpu[device].store(hash | 1, std::memory_order_relaxed);
  return hash | 1;
}

void OpenArea() {
  const Locked locked(g_lock);
  if (__atomic_load_n(&g_state, __ATOMIC_RELAXED) != kNotYet) return;
  const region::Attachment* const a = attachment();
  if (a == nullptr || settings().common_path[0] == '\0') return __atomic_store_n(&g_state, kNone, __ATOMIC_RELEASE);
  g_file = region::OpenCommonArea(settings().common_path);
  g_container = Mix(Mix(1, a->device), a->inode) | 1;
  for (int& line : g_line) line = -1;
  __atomic_store_n(&g_state, g_file.area == nullptr ? kNone : kOpen, __ATOMIC_RELEASE);
}

region::CommonArea* Area() {
  if (__atomic_load_n(&g_state, __ATOMIC_ACQUIRE) == kNotYet) OpenArea();
  return __atomic_load_n(&g_state, __ATOMIC_ACQUIRE) == kOpen ? g_file.area : nullptr;
}

int32_t OwnPriority() {
  const region::Attachment* const a = attachment();
  return a == nullptr ? settings().priority : region::Load(a->region->priority);
}

// This container's line; joins when it is not there, or not any more.
region::CommonMember* Mine(int device, int64_t now) {
  region::CommonArea* const area = Area();
  const uint64_t gpu = area == nullptr || device < 0 ? 0 : GpuOf(device);
  if (gpu == 0) return nullptr;
  int line = __atomic_load_n(&g_line[device], __ATOMIC_RELAXED);
  if (!region::CommonIsMine(*area, line, g_container, gpu)) {
    line = region::CommonJoin(area, g_container, gpu, now);
    __atomic_store_n(&g_line[device], line, __ATOMIC_RELAXED);
  }
  return line < 0 ? nullptr : &area->members[line];
}

region::CommonMember* Renew(int device, uint32_t rate, int64_t now) {
  region::CommonMember* const mine = Mine(device, now);
  if (mine == nullptr) return nullptr;
  region::Store(mine->rate, rate);
  region::Store(mine->priority, OwnPriority());
  region::Store(mine->seen_at, now);
  return mine;
}

// When work that is launched now begins: what less important containers have under way comes before it.
int64_t BehindOthers(int device, int64_t now) {
  const int64_t wait = Others(device, now).lower_until - kSlack - now;
  return now + (wait < 0 ? 0 : wait < kSlice ? wait : kSlice);
}

}  // namespace

void TellOthers(int device, uint32_t rate, int64_t charge, int64_t now) {
  region::CommonMember* const mine = Renew(device, rate, now);
  if (mine == nullptr || charge <= 0) return;
  const int64_t until = region::Load(mine->active_until) - kSlack;
  const bool was_always = g_always[device].exchange(false);
  const bool goes_on = !was_always && until > now && until < now + region::kCommonReach;
  const int64_t alone = (goes_on ? until : BehindOthers(device, now)) + charge;
  const int64_t shared = now + charge * (1 + Others(device, now).active);  // all take turns
  region::Store(mine->active_until, (alone > shared ? alone : shared) + kSlack);
}

void TellOthersAll(int device, uint32_t rate, int64_t all, int64_t now) {
  region::CommonMember* const mine = Renew(device, rate, now);
  if (mine == nullptr) return;
  g_always[device].store(false);
  region::Store(mine->active_until, BehindOthers(device, now) + all + kSlack);
}

void TellOthersAlways(int device, int64_t now) {
  region::CommonMember* const mine = Renew(device, 0, now);
  if (mine == nullptr) return;
  g_always[device].store(true);
  region::Store(mine->active_until, now + kAlways);
}

region::CommonView Others(int device, int64_t now) {
  const region::CommonArea* const area = Area();
  const uint64_t gpu = area == nullptr || device < 0 ? 0 : GpuOf(device);
  if (gpu == 0) return {};
  return region::CommonLook(*area, g_line[device], gpu, OwnPriority(), now);
}

bool OthersKnown() { return Area() != nullptr; }

bool AskForQuiet(int device, int64_t span, int64_t now) {
  if (now - g_asked_at.load(std::memory_order_relaxed) < kAskAgain) return false;
  const region::CommonView others = Others(device, now);
  // Who launches without a look does not hear.
  if (others.active_until <= now || others.active_until > now + kHears || others.quiet_until > now) return false;
  region::CommonMember* const mine = Mine(device, now);
  if (mine == nullptr) return false;
  g_asked_at.store(now, std::memory_order_relaxed);
  region::Store(mine->quiet_until, now + (span < region::kCommonQuiet ? span : region::kCommonQuiet));
  return true;
}

int64_t QuietUntil(int device, int64_t now) {
  const int64_t until = Others(device, now).quiet_until;
  if (until <= now) return 0;
  const int64_t since = g_quiet_since.load(std::memory_order_relaxed);
  if (now - since > kQuietAgain) {
    g_quiet_since.store(now, std::memory_order_relaxed);
    return until;
  }
  return now - since < region::kCommonQuiet ? until : 0;
}

uint32_t WithBurst(int device, uint32_t rate, int64_t now) {
  const uint32_t ceiling = settings().cores_burst * 100;
  if (rate == 0 || ceiling <= rate || Area() == nullptr) return rate;
  const uint32_t most = ceiling < region::kFullRate ? ceiling : static_cast<uint32_t>(region::kFullRate) - 1;
  return region::CommonBurstRate(rate, most, Others(device, now).wanted);
}

void CheckCommonArea() {
  if (Area() == nullptr || region::CommonIsWhole(g_file, settings().common_path)) return;
  __atomic_store_n(&g_state, kNone, __ATOMIC_RELEASE);
}

void ResetCommonArea() {
  g_lock.Reset();
  for (std::atomic<uint64_t>& gpu : g_gpu) gpu.store(0, std::memory_order_relaxed);
  __atomic_store_n(&g_state, kNotYet, __ATOMIC_RELAXED);
}

}  // namespace hami::vgpu
