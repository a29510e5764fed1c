// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/modules.h"

#include "region/process.h"
#include "vgpu/loader/driver.h"
#include "vgpu/memory/account.h"
#include "vgpu/memory/charge.h"
#include "vgpu/memory/memory.h"
#include "vgpu/memory/memory_snapshot.h"
#include "vgpu/runtime/capture.h"
#include "vgpu/runtime/device_map.h"
#include "vgpu/runtime/nvml_probe.h"
#include "vgpu/runtime/process.h"

namespace hami::vgpu {

namespace {

// The pace of measurements that nobody asked for by name. One costs a round through NVML.
constexpr int64_t kPendingMillis = 50;
constexpr int64_t kQueryMillis = 1000;
// How long a load that seems not to fit waits to be measured, and how often it tries.
constexpr int64_t kJudgeMillis = 2000;
constexpr int64_t kJudgeNap = 2'000'000;
// What others may be giving back unseen while a load's loss is looked at.
constexpr uint64_t kDoubt = uint64_t{256} << 20;

using DeviceModules = ModuleBook::Device;

bool FreeMemory(uint64_t* out) {
  const RelaxedCapture relaxed;
  size_t free = 0;
  size_t total = 0;
  if (real::cuMemGetInfo_v2(&free, &total) != CUDA_SUCCESS) return false;
  *out = free;
  return true;
}

void NoteOrdinal(int device) {
  ContextRef context;
  if (CurrentContext(&context) && context.device == device) {
    g_memory.modules.devices[device].ordinal.Learn(context.ordinal);
  }
}

enum class Measured { kNo, kFits, kDoesNotFit };

void LowerTo(int device, uint64_t bytes) {
  const uint64_t charged = g_memory.modules.devices[device].charged.exchange(bytes, std::memory_order_relaxed);
  if (bytes < charged) Refund(device, charged - bytes, Kind::kModule);
}

bool HasRoom(int device, uint64_t bytes) {
  const uint64_t limit = LimitBytes(device);
  return limit == 0 || UsedBytes(device) + bytes <= limit;
}

// What was measured beyond the count. `judged`: it is a load's, and refused if it does not fit.
Measured CountGrowth(int device, uint64_t growth, bool judged) {
  if (!judged && g_memory.modules.loads.load(std::memory_order_acquire) == 0) {
    ChargeAnyway(device, growth, Kind::kModule);
  } else if (judged ? !ReserveReclaiming(device, growth, Kind::kModule)
                    : !HasRoom(device, growth) || !TryReserve(device, growth, Kind::kModule)) {
    if (!judged) NoteFirstUse();  // to be looked at again, when the load has been judged
    return Measured::kDoesNotFit;
  }
  g_memory.modules.devices[device].charged.fetch_add(growth, std::memory_order_relaxed);
  return Measured::kFits;
}

// Brings the module count to (what the driver sees − what is counted otherwise). The caller is alone.
Measured Adjust(int device, bool judged = false) {
  DeviceModules& modules = g_memory.modules.devices[device];
  const CUdevice ordinal = modules.ordinal.get();
  const bool may_shrink = modules.may_have_shrunk.load(std::memory_order_relaxed);
  if (may_shrink && ContextsOn(device) == 0) {
    LowerTo(device, 0);
    modules.may_have_shrunk.store(false, std::memory_order_relaxed);
    return Measured::kFits;
  }
  nvmlDevice_t handle = nullptr;
  const NvmlUse nvml;
  if (!nvml || ordinal < 0 || !HandleOfOrdinal(ordinal, &handle)) return Measured::kNo;
  const MemorySnapshot now = TakeSnapshot(device, handle, &g_memory.modules.list);
  if (!now.seen.own_known) return Measured::kNo;
  const uint64_t counted = OwnBytes(device, Kind::kContext) + now.data;
  const uint64_t charged = modules.charged.load(std::memory_order_relaxed);
  uint64_t target = now.seen.own > counted ? now.seen.own - counted : 0;
  // Growth may be memory that another process of the container pays for, now or as soon as it is seen there.
  if (now.shared_imports && target > charged) {
    const uint64_t growth = target - charged;
    const uint64_t explained = growth < now.paid_elsewhere ? growth : now.paid_elsewhere;
    if (explained > now.uncounted) target -= explained - now.uncounted;
  }
  const bool final = now.exact && !now.unused_imports && !(now.shared_imports && target > charged);
  if (!final) {  // to be looked at again
    modules.may_have_shrunk.store(true, std::memory_order_relaxed);
    NoteFirstUse();
    if (judged && !now.exact) return Measured::kNo;
  }
  modules.measured_at = CoarseMillis();
  if (target > charged) {
    if (CountGrowth(device, target - charged, judged) == Measured::kDoesNotFit) return Measured::kDoesNotFit;
  } else if (may_shrink && now.exact) {
    LowerTo(device, target);
  }
  if (final) modules.may_have_shrunk.store(false, std::memory_order_relaxed);
  return Measured::kFits;
}

}  // namespace

LoadWatch::LoadWatch()
    : measure_lock_(NvmlPid() != 0 ? LockMode::kShared : LockMode::kExclusive),
      has_context_(CurrentContext(&context_)) {
  g_memory.modules.loads.fetch_add(1, std::memory_order_acq_rel);
  has_context_ = has_context_ && context_.device >= 0 && FreeMemory(&free_before_);
  if (has_context_) counted_before_ = OwnBytes(context_.device);
}

LoadWatch::~LoadWatch() { g_memory.modules.loads.fetch_sub(1, std::memory_order_acq_rel); }

bool LoadWatch::Fits() {
  NoteFirstUse();  // a part may be loaded later
  g_memory_flags.modules_known.store(true, std::memory_order_relaxed);
  uint64_t free_after = 0;
  if (!has_context_ || !FreeMemory(&free_after)) return true;
  const int device = context_.device;
  DeviceModules& modules = g_memory.modules.devices[device];
  modules.ordinal.Learn(context_.ordinal);
  const uint64_t growth = Uncounted(free_after);
  // What others have reserved they may not have taken yet, and then it was this load that took it.
  const uint64_t at_most = (free_before_ > free_after ? free_before_ - free_after : growth) + kDoubt;
  const int64_t deadline = CoarseMillis() + kJudgeMillis;
  for (;;) {
    measure_lock_.Become(LockMode::kExclusive);
    if (measure_lock_.exclusive()) {
      const Measured measured = Adjust(device, true);
      if (measured != Measured::kNo) return measured == Measured::kFits;
    }
    const bool last = measure_lock_.exclusive() || CoarseMillis() > deadline;
    if ((last || HasRoom(device, at_most)) && ReserveReclaiming(device, growth, Kind::kModule)) {
      modules.charged.fetch_add(growth, std::memory_order_relaxed);
      modules.may_have_shrunk.store(true, std::memory_order_relaxed);  // it may be too much,
      NoteFirstUse();                                                  // and somebody has measured since the load
      return true;
    }
    if (last) return false;
    measure_lock_.Become(LockMode::kTryExclusive);
    if (!measure_lock_.exclusive()) region::SleepNanos(kJudgeNap);  // outside: somebody else may want to be alone
  }
}

Lock& ContextLimitLock() { return g_memory.modules.limit_lock; }

void LoadWatch::Undone() { SettleModules(context_.device, &measure_lock_); }

// What the device lost around the load, but for what this process has counted meanwhile. A neighbour's part in it is
// included.
uint64_t LoadWatch::Uncounted(uint64_t free_after) const {
  const auto lost = static_cast<int64_t>(free_before_ - free_after);
  const auto stated = static_cast<int64_t>(OwnBytes(context_.device) - counted_before_);
  return lost > stated ? static_cast<uint64_t>(lost - stated) : 0;
}

void SettlePendingModulesSlow(int device) {
  if (device < 0) return;
  NoteOrdinal(device);
  if (!g_memory.modules.devices[device].ordinal.known()) return;
  const MeasureLock measure_lock(LockMode::kTryExclusive);
  if (!measure_lock.exclusive() || CoarseMillis() - g_memory.modules.devices[device].measured_at < kPendingMillis)
    return;
  g_memory_flags.modules_pending.store(false, std::memory_order_relaxed);
  g_memory.modules.devices[device].measured_at = CoarseMillis();
  Adjust(device);
}

void ModulesSynchronisedSlow() {
  const int64_t now = CoarseMillis();
  int64_t next = g_memory.modules.next_look.load(std::memory_order_relaxed);
  const int64_t due =
      g_memory_flags.modules_pending.load(std::memory_order_relaxed) ? next - kQueryMillis + kPendingMillis : next;
  if (now < due ||
      !g_memory.modules.next_look.compare_exchange_strong(next, now + kQueryMillis, std::memory_order_relaxed)) {
    return;
  }
  ContextRef context;
  if (!Active() || !CurrentContext(&context) || context.device < 0) return;
  g_memory.modules.devices[context.device].ordinal.Learn(context.ordinal);
  const MeasureLock measure_lock(LockMode::kTryExclusive);
  if (!measure_lock.exclusive()) {
    g_memory.modules.next_look.store(now + kPendingMillis, std::memory_order_relaxed);
    return;
  }
  g_memory_flags.modules_pending.store(false, std::memory_order_relaxed);
  Adjust(context.device);
}

void SettleModules(int device, MeasureLock* measure_lock) {
  if (device < 0) return;
  NoteOrdinal(device);
  g_memory.modules.devices[device].may_have_shrunk.store(true, std::memory_order_relaxed);
  measure_lock->Become(LockMode::kExclusive);
  if (measure_lock->exclusive()) {
    Adjust(device);
  } else {
    NoteFirstUse();
  }
}

void SettleModulesForQuery(int device) {
  if (device < 0) return;
  NoteOrdinal(device);
  DeviceModules& modules = g_memory.modules.devices[device];
  if (!modules.ordinal.known()) return;
  const bool pending = g_memory_flags.modules_pending.load(std::memory_order_relaxed);
  const MeasureLock measure_lock(pending ? LockMode::kExclusive : LockMode::kTryExclusive);
  const int64_t now = CoarseMillis();
  if (!measure_lock.exclusive() || (!pending && now - modules.queried_at < kQueryMillis)) return;
  g_memory_flags.modules_pending.store(false, std::memory_order_relaxed);
  modules.queried_at = now;
  Adjust(device);
}

void ModuleBook::Reset() {
  limit_lock.Reset();
  for (Device& modules : devices) {
    modules.charged.store(0, std::memory_order_relaxed);
    modules.measured_at = 0;
    modules.queried_at = 0;
    modules.ordinal.Reset();
    modules.may_have_shrunk.store(false, std::memory_order_relaxed);
  }
  g_memory_flags.modules_pending.store(false, std::memory_order_relaxed);
  g_memory_flags.modules_known.store(false, std::memory_order_relaxed);
  loads.store(0, std::memory_order_relaxed);
  next_look.store(0, std::memory_order_relaxed);
}

}  // namespace hami::vgpu
