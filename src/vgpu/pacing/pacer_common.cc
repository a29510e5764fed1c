// SPDX-License-Identifier: Apache-2.0
#include "vgpu/pacing/pacer_common.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <atomic>

#include "region/gpu_time.h"
#include "region/keep_errno.h"
#include "region/process.h"
#include "vgpu/pacing/pacer.h"
#include "vgpu/runtime/lock.h"
#include "vgpu/runtime/process.h"

namespace hami::vgpu {
namespace {

constexpr int64_t kFarthest = 900'000'000;  // what is told is not beyond others' reach (kCommonReach); renewed in time
constexpr int64_t kAskAgain = 30'000'000;
constexpr int64_t kHears = 100'000'000;
constexpr int64_t kSlack = 250'000;  // between the end that was expected and the next launch

constexpr int64_t kLagsFrom = 4'000'000;   // who shares the GPU has a balance of some ms at times
constexpr int64_t kMostConceded = 400;     // of 10000; shares are kept to a point,
constexpr int64_t kSpareConceded = 5'000;  // and who has none has no share
constexpr uint32_t kLeastSpare = 100;      // of 10000: nobody promised it anything
constexpr uint32_t kIdleRate = 100'000;    // while nobody else has use for the GPU: a debt is soon paid

constexpr int64_t kMore = 15'000'000;          // the helper looks every 10 ms
constexpr int64_t kLooksAgain = 12'000'000;    // within that a launch that is under way is looked at
constexpr int64_t kLookAgain = 1'000'000'000;  // for an area where there was none
constexpr uint32_t kMostOpened = 64;           // each leaves a mapping behind, for somebody may be reading it

enum : uint32_t { kNotYet = 0, kOpen = 1, kNone = 2 };
// Where those who share a GPU meet.
struct MeetingPlace {
  uint32_t state = kNotYet;
  region::CommonArea* area = nullptr;  // with kOpen
  int line = -1;
  // With g_lock held.
  region::CommonFile file;
  int64_t looked_at = 0;
  uint32_t opened = 0;
};
constinit Lock g_lock{LockRank::kPacerCommon};
constinit MeetingPlace g_places[region::kMaxDevices]{};
constinit std::atomic<uint64_t> g_container{0};
constinit std::atomic<int64_t> g_asked_at{0};
constinit std::atomic<int64_t> g_quiet_since{0};
constinit std::atomic<bool> g_always[region::kMaxDevices]{};
constinit std::atomic<int64_t> g_used[region::kMaxDevices]{};  // ns, by short launches of this process
constinit uint32_t g_long[region::kMaxDevices]{};              // of GpuTimeLongs
constinit std::atomic<uint64_t> g_gpu[region::kMaxDevices]{};

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

// Seldom called are small rather than fast, as tools/abi_gate.sh bounds the library's size.

// The area's path for a device: what was named, or below it. A UUID is a name, never a path.
[[gnu::cold]] bool PathOf(int device, char (&path)[sizeof(Settings::common_path) + 128]) {
  const region::Attachment* const a = attachment();
  const char* const named = settings().common_path;
  if (a == nullptr || named[0] == '\0') return false;
  const int folder = open(named, O_PATH | O_CLOEXEC | O_DIRECTORY);
  if (folder >= 0) close(folder);
  char uuid[sizeof a->region->uuids[0]];
  memcpy(uuid, a->region->uuids[device], sizeof uuid);
  uuid[sizeof uuid - 1] = '\0';
  if (folder >= 0 && (uuid[0] == '\0' || strchr(uuid, '/') != nullptr)) return false;
  snprintf(path, sizeof path, folder >= 0 ? "%s/%s/area" : "%s", named, uuid);
  return true;
}

// With g_lock held.
[[gnu::cold]] void OpenArea(int device, int64_t now) {
  const region::KeepErrno keep;
  MeetingPlace& place = g_places[device];
  place.looked_at = now;
  char path[sizeof(Settings::common_path) + 128];
  region::CommonFile file;
  if (place.opened < kMostOpened && PathOf(device, path)) file = region::OpenCommonArea(path);
  if (file.area != nullptr) {
    const region::Attachment* const a = attachment();
    g_container.store(Mix(Mix(1, a->device), a->inode) | 1, std::memory_order_relaxed);
    ++place.opened;
    place.file = file;
    region::Store(place.line, -1);
    __atomic_store_n(&place.area, file.area, __ATOMIC_RELAXED);
  }
  __atomic_store_n(&place.state, file.area == nullptr ? kNone : kOpen, __ATOMIC_RELEASE);
}

// Null when there is none.
region::CommonArea* Area(int device) {
  MeetingPlace& place = g_places[device];
  if (__atomic_load_n(&place.state, __ATOMIC_ACQUIRE) == kNotYet) {
    const Locked locked(g_lock);
    if (__atomic_load_n(&place.state, __ATOMIC_RELAXED) == kNotYet) OpenArea(device, region::MonotonicNanos());
  }
  if (__atomic_load_n(&place.state, __ATOMIC_ACQUIRE) != kOpen) return nullptr;
  return __atomic_load_n(&place.area, __ATOMIC_RELAXED);
}

int32_t OwnPriority() {
  const region::Attachment* const a = attachment();
  return a == nullptr ? settings().priority : region::Load(a->region->priority);
}

// This container's line; joins when it is not there, or not any more.
region::CommonMember* Mine(int device, int64_t now) {
  const uint64_t gpu = device < 0 ? 0 : GpuOf(device);
  region::CommonArea* const area = gpu == 0 ? nullptr : Area(device);
  if (area == nullptr) return nullptr;
  const uint64_t container = g_container.load(std::memory_order_relaxed);
  int line = region::Load(g_places[device].line);
  if (!region::CommonIsMine(*area, line, container, gpu)) {
    line = region::CommonJoin(area, container, gpu, now);
    if (line >= 0) {
      region::Store(area->members[line].rate, static_cast<uint16_t>(LimitOf(device)));
      region::Store(area->members[line].priority, OwnPriority());
    }
    region::Store(g_places[device].line, line);
  }
  return line < 0 ? nullptr : &area->members[line];
}

region::CommonMember* Renew(int device, uint32_t rate, int64_t now) {
  region::CommonMember* const mine = Mine(device, now);
  if (mine == nullptr) return nullptr;
  region::Store(mine->rate, static_cast<uint16_t>(rate));
  region::Store(mine->priority, OwnPriority());
  region::Store(mine->seen_at, now);
  return mine;
}

int64_t WithinReach(int64_t until, int64_t now) { return until < now + kFarthest ? until : now + kFarthest; }

int64_t QuietLeft(int64_t now) { return region::CommonQuietLeft(g_quiet_since.load(std::memory_order_relaxed), now); }

}  // namespace

int64_t BehindOthers(int device, int64_t now) {
  const int64_t wait = Others(device, now).lower_until - kSlack - now;
  return now + (wait < 0 ? 0 : wait < kSlice ? wait : kSlice);
}

void TellOthers(int device, uint32_t rate, int64_t charge, int64_t now) {
  region::CommonMember* const mine = Renew(device, rate, now);
  if (mine == nullptr || charge <= 0) return;
  const int64_t until = region::Load(mine->active_until) - kSlack;
  const bool was_always = g_always[device].exchange(false);
  const bool goes_on = !was_always && until > now && until < now + region::kCommonReach;
  const int64_t alone = (goes_on ? until : BehindOthers(device, now)) + charge;
  const int64_t shared = now + charge * (1 + Others(device, now).active);  // all take turns
  region::Store(mine->idle_since, int64_t{0});
  region::Store(mine->active_until, WithinReach((alone > shared ? alone : shared) + kSlack, now));
}

void TellHeld(int device, bool idle, int64_t now) {
  region::CommonMember* const mine = Mine(device, now);
  if (mine == nullptr) return;
  region::Store(mine->idle_since, idle ? now : 0);
  const int64_t until = region::Load(mine->active_until);
  if (idle ? until > now : until < now + kSlack) region::Store(mine->active_until, idle ? now : now + kSlack);
}

void TellOthersAll(int device, uint32_t rate, int64_t all, int64_t now) {
  region::CommonMember* const mine = Renew(device, rate, now);
  if (mine == nullptr) return;
  const bool was_always = g_always[device].exchange(false);
  int64_t until = WithinReach(BehindOthers(device, now) + all + kSlack, now);
  // What was launched without a look is known of by the first mark behind it, if that is not reached in time.
  if (was_always && until < now + kMore) until = now + kMore;
  region::Store(mine->idle_since, int64_t{0});
  // Another process of this container may have more under way.
  const bool only_one = was_always || WorkersOf(device, now) == 1;
  const int64_t told = region::Load(mine->active_until);
  if (only_one || told < until || told > now + region::kCommonReach) region::Store(mine->active_until, until);
}

void TellOthersAlways(int device, int64_t now) {
  region::CommonMember* const mine = Mine(device, now);
  if (mine == nullptr) return;
  // Others read the line: it is not written with every launch.
  const int64_t left = region::Load(mine->active_until) - now;
  if (g_always[device].load() && left > kFarthest / 2 && left <= kFarthest) return;
  Renew(device, 0, now);
  region::Store(mine->idle_since, int64_t{0});
  g_always[device].store(true);
  region::Store(mine->active_until, now + kFarthest);
}

[[gnu::cold]] void TellMore(int device, int64_t now) {
  region::CommonMember* const mine = Mine(device, now);
  if (mine == nullptr) return;
  region::Store(mine->idle_since, int64_t{0});
  if (region::Load(mine->active_until) < now + kMore) region::Store(mine->active_until, now + kMore);
}

void TellUsed(int device, int64_t gpu, int64_t now) {
  const int64_t before = g_used[device].fetch_add(gpu, std::memory_order_relaxed);
  __atomic_fetch_add(&AccountOf(device)->used, gpu, __ATOMIC_RELAXED);
  WorkersOf(device, now);  // counts this one, for its siblings
  region::CommonMember* const mine = Mine(device, now);
  if (mine == nullptr) return;
  region::CommonUse(mine, ((before + gpu) >> region::kCommonUnit) - (before >> region::kCommonUnit));
}

void TellLong(int device, int64_t now) {
  const int64_t siblings = region::GpuTimeLongs(AccountOf(device), true, now, &g_long[device]);
  region::CommonMember* const mine = Renew(device, LimitOf(device), now);
  if (mine == nullptr) return;
  region::CommonSetLongs(mine, 1 + siblings, now);
  // Whoever thinks that it has ended measures it with his own.
  const int64_t until = now + kLooksAgain;
  if (region::Load(mine->active_until) < until) region::Store(mine->active_until, until);
}

void TellNoLong(int device, int64_t left, int64_t now) {
  const int64_t siblings = region::GpuTimeLongs(AccountOf(device), false, now, &g_long[device]);
  region::CommonMember* const mine = Mine(device, now);
  if (mine == nullptr) return;
  region::CommonSetLongs(mine, siblings, now);
  const int64_t told = region::Load(mine->active_until);
  const int64_t until = now + left * (1 + Others(device, now).active) + kSlack;
  if (told > until && told <= now + kLooksAgain && WorkersOf(device, now) == 1)
    region::Store(mine->active_until, until);
}

void TellLag(int device, int64_t balance, int64_t now) {
  region::CommonMember* const mine = Mine(device, now);
  if (mine != nullptr) region::CommonSetLag(mine, balance - kLagsFrom);
}

int64_t Concession(int device, int64_t gpu, uint32_t rate, int64_t now) {
  const region::CommonMember* const mine = Mine(device, now);
  if (mine == nullptr) return 0;
  const int64_t own_lag = region::Load(mine->lag) * region::kCommonLagUnit;
  const bool spare = LimitOf(device) == kSpare;
  const int64_t part =
      region::CommonConcession(Others(device, now), spare ? 0 : rate, own_lag, spare ? kSpareConceded : kMostConceded);
  return gpu / region::kCommonAll * part + gpu % region::kCommonAll * part / region::kCommonAll;
}

region::CommonUsed UsedByOthers(int device, int64_t now) {
  const uint64_t gpu = device < 0 ? 0 : GpuOf(device);
  const region::CommonArea* const area = gpu == 0 ? nullptr : Area(device);
  region::CommonUsed used{.silent = true};
  if (area != nullptr) used = region::CommonLookAtUse(*area, region::Load(g_places[device].line), gpu, now);
  region::GpuTimeDevice* const account = AccountOf(device);
  const int64_t of_siblings = region::Load(account->used) - g_used[device].load(std::memory_order_relaxed);
  used.gpu += static_cast<uint64_t>(of_siblings >> region::kCommonUnit);
  used.siblings = region::GpuTimeLongs(account, region::Load(g_long[device]) != 0, now, &g_long[device]);
  const int64_t short_ones = WorkersOf(device, now) - 1 - used.siblings;
  used.shorts += short_ones > 0 ? short_ones : 0;
  return used;
}

[[gnu::noinline]] region::CommonView Others(int device, int64_t now) {
  const uint64_t gpu = device < 0 ? 0 : GpuOf(device);
  const region::CommonArea* const area = gpu == 0 ? nullptr : Area(device);
  if (area == nullptr) return {};
  return region::CommonLook(*area, region::Load(g_places[device].line), gpu, OwnPriority(), now);
}

bool OthersKnown(int device) { return device >= 0 && GpuOf(device) != 0 && Area(device) != nullptr; }

int64_t AskForQuiet(int device, int64_t span, int64_t least, int64_t since, int64_t now) {
  if (now - g_asked_at.load(std::memory_order_relaxed) < kAskAgain) return 0;
  const int64_t left = QuietLeft(now);
  if (left < least) return 0;
  if (left < span && least != 0) span = left;
  const region::CommonView others = Others(device, now);
  // Who launches without a look does not hear.
  if (others.active_until <= since || others.active_until > now + kHears || others.quiet_until > now) return 0;
  region::CommonMember* const mine = Mine(device, now);
  if (mine == nullptr) return 0;
  g_asked_at.store(now, std::memory_order_relaxed);
  if (left == region::kCommonQuiet) g_quiet_since.store(now, std::memory_order_relaxed);
  const int64_t until = now + (span < region::kCommonQuiet ? span : region::kCommonQuiet);
  region::Store(mine->quiet_until, until);
  return until;
}

int64_t ProlongQuiet(int device, int64_t span, int64_t now) {
  const int64_t left = QuietLeft(now);
  const int64_t until = now + (span < left ? span : left);
  if (region::CommonMember* const mine = Mine(device, now); mine != nullptr) region::Store(mine->quiet_until, until);
  return until;
}

void EndQuiet(int device, int64_t now) {
  if (region::CommonMember* const mine = Mine(device, now); mine != nullptr) region::Store(mine->quiet_until, now);
}

int64_t QuietUntil(int device, int64_t now) {
  const int64_t until = Others(device, now).quiet_until;
  if (until <= now) return 0;
  const int64_t left = QuietLeft(now);
  if (left == region::kCommonQuiet) g_quiet_since.store(now, std::memory_order_relaxed);
  return left > 0 ? until : 0;
}

uint32_t WithBurst(int device, uint32_t rate, int64_t now) {
  const uint32_t ceiling = CoresBurst(device) * 100;
  if (rate == 0 || ceiling <= rate || !OthersKnown(device)) return rate;
  const uint32_t most = ceiling < region::kFullRate ? ceiling : static_cast<uint32_t>(region::kFullRate) - 1;
  return region::CommonBurstRate(rate, most, Others(device, now).wanted);
}

[[gnu::cold]] bool BesideLimited(int device) {
  const region::CommonView others = Others(device, MonotonicNanos());
  return others.limited_present && !others.lower_present && !others.higher_present;
}

[[gnu::cold]] uint32_t SpareRate(int device, int64_t now) {
  const region::CommonView others = Others(device, now);
  return others.limited_until > now ? region::CommonSpareRate(others, kLeastSpare) : kIdleRate;
}

[[gnu::cold]] void CheckCommonAreas(int64_t now) {
  if (settings().common_path[0] == '\0') return;
  for (int device = 0; device < static_cast<int>(region::kMaxDevices); ++device) {
    MeetingPlace& place = g_places[device];
    const uint32_t state = __atomic_load_n(&place.state, __ATOMIC_ACQUIRE);
    if (state == kNotYet || (state == kNone && now - region::Load(place.looked_at) < kLookAgain)) continue;
    const Locked locked(g_lock);
    char path[sizeof(Settings::common_path) + 128];
    if (state == kOpen && PathOf(device, path) && region::CommonIsWhole(place.file, path)) continue;
    OpenArea(device, now);
  }
}

[[gnu::cold]] void ResetCommonAreas() {
  g_lock.Reset();
  for (std::atomic<uint64_t>& gpu : g_gpu) gpu.store(0, std::memory_order_relaxed);
  for (MeetingPlace& place : g_places) {
    place.opened = 0;
    __atomic_store_n(&place.state, kNotYet, __ATOMIC_RELAXED);
  }
}

}  // namespace hami::vgpu
