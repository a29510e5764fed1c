// SPDX-License-Identifier: Apache-2.0
#include "vgpu/runtime/process.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "region/keep_errno.h"
#include "vgpu/runtime/contexts.h"
#include "vgpu/runtime/device_map.h"
#include "vgpu/runtime/listeners.h"
#include "vgpu/runtime/log.h"
#include "vgpu/runtime/nvml_probe.h"
#include "vgpu/runtime/runtime.h"
#include "vgpu/runtime/share_file.h"
#include "vgpu/runtime/visible.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

#ifdef HAMI_FREESTANDING
// The compiler's start files, which we do without, would define how a fork handler is known to be this library's.
extern "C" __attribute__((visibility("hidden"))) void* __dso_handle;
void* __dso_handle = &__dso_handle;
#endif
// How glibc calls what pthread_atfork does there; other C libraries (musl) have only the latter.
extern "C" {
int __register_atfork(void (*prepare)(), void (*parent)(), void (*child)(), void* library) __attribute__((weak));
int pthread_atfork(void (*prepare)(), void (*parent)(), void (*child)()) __attribute__((weak));
}

namespace hami::vgpu {

// One page that the kernel hands to a child of a fork as zeros, so that a single load tells a new process from an old
// one without a system call or a fork handler (a raw clone is noticed too).
constinit WipedWords g_words{};

namespace {

enum : uint32_t { kNew = 0, kStarting = 1, kOff = 2, kShared = 3, kPrivate = 4 };

// As long as another process starts, and gets on with it.
constexpr region::Patience kStartPatience{200'000'000, 10'000'000'000};

void ForgetWords() {
  __atomic_store_n(&g_words.launches_open, 0u, __ATOMIC_RELAXED);
  __atomic_store_n(&g_words.lease_epoch, 0u, __ATOMIC_RELAXED);
  __atomic_store_n(&g_words.phase, kNew, __ATOMIC_RELEASE);
}

void GuardFork() {
  if (g_runtime.fork_guarded) return;
  g_runtime.fork_guarded = true;
  if (madvise(&g_words, sizeof g_words, MADV_WIPEONFORK) == 0) return;
  // Kernels before 4.14 know no such advice: a fork handler does the same, except for raw clones.
  if (__register_atfork != nullptr) {
    __register_atfork(nullptr, nullptr, &ForgetWords, &__dso_handle);
  } else if (pthread_atfork != nullptr) {
    pthread_atfork(nullptr, nullptr, &ForgetWords);
  }
}

void ResetTables() {
  ResetContexts();
  ResetDeviceMap();
  ResetNvmlProbe();
  ResetVisible();
  TellForked();
  for (auto& device : g_runtime.account.used) {
    for (auto& used : device) used.store(0, std::memory_order_relaxed);
  }
  for (auto& total : g_runtime.account.total) total.store(0, std::memory_order_relaxed);
}

void FillConfig(Runtime& own) {
  for (uint32_t i = 0; i < region::kMaxDevices; ++i) {
    own.config->devices[i].memory_limit = own.settings.memory_limit[i];
    own.config->devices[i].sm_limit = own.settings.sm_limit[i];
    own.config->devices[i].burst = own.settings.cores_burst;
  }
  own.config->priority = own.settings.priority;
  own.config->policy = static_cast<int32_t>(own.settings.policy);
  own.config->utilization_switch = own.settings.policy == UtilizationPolicy::kDisable ? 0 : 1;
  if (own.settings.oversubscribe) own.config->flags |= region::kFlagOversubscribe;
  if (own.settings.device_count != 0) own.config->flags |= region::kFlagFixedDevices;
  own.config->device_count = own.settings.device_count;
  for (uint32_t i = 0; i < own.settings.device_count; ++i) {
    memcpy(own.config->devices[i].uuid, own.settings.uuids[i], sizeof own.config->devices[i].uuid);
  }
}

// A limit that was meant cannot be read, and the region has none in its place.
bool LacksLimit(Runtime& own) {
  const uint32_t unread = own.settings.unread_memory_limits | own.settings.unread_sm_limits;
  if (own.attachment->region == nullptr) return unread != 0;
  const bool fixed = (region::Flags(*own.attachment) & region::kFlagFixedDevices) != 0;
  const uint32_t count = fixed ? region::DeviceCount(*own.attachment) : region::kMaxDevices;
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t percent = region::SmLimit(*own.attachment, i);
    if ((own.settings.unread_memory_limits >> i & 1) != 0 && region::Limit(*own.attachment, i) == 0) return true;
    if ((own.settings.unread_sm_limits >> i & 1) != 0 && (percent == 0 || percent >= 100)) return true;
  }
  return false;
}

// No byte more: what was meant to be limited is not used without its limit.
uint32_t RefuseAll(Runtime& own) {
  region::Detach(&*own.attachment);
  for (uint64_t& limit : own.settings.own_memory_limit) limit = 1;
  own.refuses = true;
  return kPrivate;
}

// A region that this process would make now would hold, for all after it, that there is no limit.
region::Status AttachRegion(Runtime& own) {
  if (own.settings.region_path[0] == '\0') return region::Status::kIo;
  if (LacksLimit(own) && access(own.settings.region_path, F_OK) != 0) return region::Status::kMissing;
  return region::Attach(&*own.attachment, own.settings.region_path, *own.config);
}

// A file without a limit where the environment has one: made by a process that had none, old, or damaged. The creator
// of a share whose devices are fixed meant what it says.
void RestoreLimits(Runtime& own) {
  if ((region::Flags(*own.attachment) & region::kFlagFixedDevices) != 0) return;
  bool restored = false;
  region::Region& file = *own.attachment->region;
  const uint32_t named = region::DeviceCount(*own.attachment);
  for (uint32_t i = 0; i < (named != 0 ? named : region::kMaxDevices); ++i) {
    if (region::Load(file.limit[i]) == 0 && own.settings.memory_limit[i] != 0) {
      region::Store(file.limit[i], own.settings.memory_limit[i]);
      restored = true;
    }
    if (region::Load(file.sm_limit[i]) == 0) region::Store(file.sm_limit[i], own.settings.sm_limit[i]);
  }
  if (restored) {
    LogLine(Level::kError)
        .Text("region ")
        .Text(own.settings.region_path)
        .Text(": has no limit of device memory; it has that of the environment now");
  }
}

// The mode of a new process.
uint32_t Start(Runtime& own) {
  if (ControlDisabled()) return kOff;
  if (own.attached) {  // the child of a process that had started
    ResetTables();
    if (own.attachment->region == nullptr) return own.settings.fail_open && !own.refuses ? kOff : kPrivate;
    region::AttachmentAfterFork(&*own.attachment);
    return kShared;
  }
  own.config.Build();
  own.attachment.Build();
  ReadSettings(&own.settings, &getenv);
  KeepToOwnShare(&own.settings);
  FillConfig(own);
  const region::Status status = AttachRegion(own);
  own.attached = true;
  if (LacksLimit(own)) return RefuseAll(own);
  if (status == region::Status::kOk) {
    memcpy(own.attachment->own_limit, own.settings.own_memory_limit, sizeof own.attachment->own_limit);
    RestoreLimits(own);
    if ((region::Flags(*own.attachment) & region::kFlagOversubscribe) != 0) own.settings.oversubscribe = true;
    return kShared;
  }
  LogLine(Level::kError)
      .Text("region ")
      .Text(own.settings.region_path)
      .Text(": ")
      .Text(own.attachment->error != 0 ? strerror(own.attachment->error) : region::StatusName(status))
      .Text(own.settings.fail_open ? "; not limited (HAMI_FAIL_OPEN)" : "; limits are enforced per process");
  return own.settings.fail_open ? kOff : kPrivate;
}

// Slow path of Active: exactly one thread starts, the others wait for it.
uint32_t WaitForStart() {
  const region::KeepErrno keep;
  for (;;) {
    uint32_t phase = kNew;
    if (__atomic_compare_exchange_n(&g_words.phase, &phase, kStarting, false, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE)) {
      GuardFork();
      phase = Start(g_runtime);
      __atomic_store_n(&g_words.phase, phase, __ATOMIC_RELEASE);
    }
    if (phase != kStarting) return phase;
    sched_yield();
  }
}

uint32_t CurrentPhase() {
  const uint32_t phase = __atomic_load_n(&g_words.phase, __ATOMIC_ACQUIRE);
  return phase > kStarting ? phase : WaitForStart();
}

bool PrivateReserve(int device, uint64_t bytes, bool force) {
  std::atomic<uint64_t>& total = g_runtime.account.total[device];
  const uint64_t limit = LimitBytes(device);
  uint64_t used = total.load(std::memory_order_relaxed);
  for (;;) {
    if (!force && limit != 0 && (bytes > limit || used > limit - bytes)) return false;
    if (total.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed)) return true;
  }
}

}  // namespace

bool Active() { return CurrentPhase() != kOff; }
bool RefusesAll() { return g_runtime.refuses; }

const Settings& settings() { return g_runtime.settings; }
region::Attachment* attachment() { return CurrentPhase() == kShared ? &*g_runtime.attachment : nullptr; }

bool TryReserve(int device, uint64_t bytes, Kind kind) {
  if (device < 0) return device != kForbidden;
  if (region::Attachment* const a = attachment(); a != nullptr) {
    return region::Reserve(a, static_cast<uint32_t>(device), bytes, kind) == region::Status::kOk;
  }
  if (!PrivateReserve(device, bytes, false)) return false;
  g_runtime.account.used[device][static_cast<int>(kind)].fetch_add(bytes, std::memory_order_relaxed);
  return true;
}

bool AwaitStarts(int device, uint64_t bytes, Kind kind) {
  constexpr uint64_t kNever = 0;
  region::Attachment* const a = attachment();
  if (a == nullptr || device < 0 || bytes > LimitBytes(device)) return false;
  // While this process has the turn nobody holds more than it will keep. Where none starts (any more), what was held
  // has been given back.
  const bool turn = region::PostInitHeldByOther(*a) && region::PostInitLock(a, kNever, kStartPatience);
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
  g_runtime.account.used[device][static_cast<int>(kind)].fetch_add(bytes, std::memory_order_relaxed);
}

void Refund(int device, uint64_t bytes, Kind kind) {
  if (device < 0 || bytes == 0) return;
  if (region::Attachment* const a = attachment(); a != nullptr) {
    region::Refund(a, static_cast<uint32_t>(device), bytes, kind);
    return;
  }
  g_runtime.account.used[device][static_cast<int>(kind)].fetch_sub(bytes, std::memory_order_relaxed);
  g_runtime.account.total[device].fetch_sub(bytes, std::memory_order_relaxed);
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
  return g_runtime.account.total[device].load(std::memory_order_relaxed);
}

uint64_t LimitBytes(int device) {
  if (device < 0) return 0;
  if (const region::Attachment* const a = attachment(); a != nullptr) {
    return region::Limit(*a, static_cast<uint32_t>(device));
  }
  const uint64_t own = g_runtime.settings.own_memory_limit[device];
  return own != 0 ? own : g_runtime.settings.memory_limit[device];
}

uint32_t CoresBurst(int device) {
  const region::Attachment* const a = attachment();
  const uint32_t told = a == nullptr || device < 0 ? 0 : region::CoresBurst(*a, static_cast<uint32_t>(device));
  return told != 0 ? told : g_runtime.settings.cores_burst;
}

uint64_t OwnBytes(int device, Kind kind) {
  if (device < 0) return 0;
  if (const region::Attachment* const a = attachment(); a != nullptr) {
    return region::OwnUsed(*a, static_cast<uint32_t>(device), kind);
  }
  return g_runtime.account.used[device][static_cast<int>(kind)].load(std::memory_order_relaxed);
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

int64_t CoarseMillis() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1'000'000;
}

}  // namespace hami::vgpu
