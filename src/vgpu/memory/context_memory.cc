// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/context_memory.h"

#include "vgpu/loader/driver.h"
#include "vgpu/memory/account.h"
#include "vgpu/memory/charge.h"
#include "vgpu/memory/identity.h"
#include "vgpu/memory/memory.h"
#include "vgpu/memory/memory_snapshot.h"
#include "vgpu/memory/modules.h"
#include "vgpu/runtime/capture.h"
#include "vgpu/runtime/device_map.h"
#include "vgpu/runtime/lock.h"
#include "vgpu/runtime/nvml_probe.h"
#include "vgpu/runtime/process.h"

namespace hami::vgpu {
namespace {

// More than any context was ever seen to take; a larger difference is somebody else's allocation.
constexpr uint64_t kLargestContext = uint64_t{4} << 30;
// Held while the container's very first context is made, when nobody knows yet what one costs.
constexpr uint64_t kFirstContext = uint64_t{512} << 20;

uint64_t LearntBytes(int device) {
  const region::Attachment* const a = attachment();
  return a == nullptr || device < 0 ? 0 : region::Load(a->area->devices[device].context_bytes);
}

void Learn(int device, uint64_t bytes) {
  region::Attachment* const a = attachment();
  if (a != nullptr && device >= 0) region::Store(a->area->devices[device].context_bytes, bytes);
}

// Reserves for a context that is about to be made: what one cost last, or, the first time, what there is up to
// kFirstContext. False: there is no room.
bool ReserveContext(int device, uint64_t* reserved) {
  *reserved = LearntBytes(device);
  if (*reserved != 0 || LimitBytes(device) == 0) return Reserve(device, *reserved, Kind::kContext);
  for (int attempt = 0; attempt < 64; ++attempt) {
    const uint64_t limit = LimitBytes(device);
    const uint64_t used = UsedBytes(device);
    if (used >= limit) break;
    *reserved = limit - used < kFirstContext ? limit - used : kFirstContext;
    if (TryReserve(device, *reserved, Kind::kContext)) return true;
  }
  return Reserve(device, kAllocationUnit, Kind::kContext) && (*reserved = kAllocationUnit);
}

// One process of the container at a time: what is held in reserve only for a moment would refuse the others. A process
// takes the turn while nobody knows what a context costs, and while it identifies itself (identity.h). The turn is
// waited for as long as its holder may get on; not for the dead or the stopped. A request that does not fit meanwhile
// waits for the end of the turn (AwaitStarts).
class Turn {
 public:
  explicit Turn(int device) {
    region::Attachment* const a = attachment();
    if (a == nullptr || device < 0 || LimitBytes(device) == 0 || LearntBytes(device) != 0) return;
    const uint64_t& learnt = a->area->devices[device].context_bytes;
    if (region::PostInitLock(a, learnt)) held_ = a;
    if (region::Load(learnt) != 0) Release();  // somebody has found out
  }
  ~Turn() { Release(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  // Where it can not be had the process goes on without it.
  void Take() {
    constexpr uint64_t kNever = 0;
    region::Attachment* const a = attachment();
    if (held_ == nullptr && a != nullptr && region::PostInitLock(a, kNever, kPatience)) held_ = a;
  }

 private:
  static constexpr region::Patience kPatience{200'000'000, 10'000'000'000};
  void Release() {
    if (held_ != nullptr) region::PostInitUnlock(held_);
    held_ = nullptr;
  }
  region::Attachment* held_ = nullptr;
};

// Without NVML the driver itself is asked for the device's free memory; that needs a context on the device.
Measurement AskDriver() {
  const RelaxedCapture relaxed;
  Measurement out;
  size_t free = 0;
  size_t total = 0;
  if (real::cuMemGetInfo_v2(&free, &total) != CUDA_SUCCESS) return out;
  out.free_known = true;
  out.free = free;
  return out;
}

Measurement AskDriverBefore(CUdevice ordinal) {
  ContextRef context;
  return CurrentContext(&context) && context.ordinal == ordinal ? AskDriver() : Measurement{};
}

// With the new context current. `before` of the first context is the whole device: a neighbour's part then counts, too,
// up to what a first context is trusted to take.
Measurement AskDriverAfter(CUcontext made, Measurement* before) {
  if (real::cuCtxPushCurrent_v2(made) != CUDA_SUCCESS) return {};
  const Measurement after = AskDriver();
  size_t free = 0;
  size_t total = 0;
  if (after.free_known && !before->free_known && real::cuMemGetInfo_v2(&free, &total) == CUDA_SUCCESS) {
    before->free_known = true;
    before->free = total - after.free > kFirstContext ? after.free + kFirstContext : total;
  }
  CUcontext popped = nullptr;
  real::cuCtxPopCurrent_v2(&popped);
  return after;
}

// A probe has room of its own. Then this process can find itself on the device even where nobody knows what the others
// had there before; else a probe has only what the context leaves of the reservation.
bool HasRoomForProbe(int device) {
  const uint64_t limit = LimitBytes(device);
  return limit == 0 || UsedBytes(device) + kLargestProbe <= limit;
}

// The size of a context, from a look before its making and one after. What the driver says about this process alone is
// preferred: the device's free memory also moves with the neighbours.
class Sizing {
 public:
  // `making`, whose lock is held, lends room for who is on the device.
  Sizing(CUdevice ordinal, int device, bool alone, ContextMaking* making)
      : ordinal_(ordinal),
        device_(device),
        alone_(alone),
        later_(NvmlOpening() && HasRoomForProbe(device)),
        nvml_(later_ ? NvmlUse::kLater : NvmlUse::kNow),
        measurable_(Measurable()),
        listed_before_(making->before),
        listed_after_(making->after) {
    listed_before_.count = 0;
    before_ = measurable_ ? TakeSnapshot(device_, handle_, &listed_before_) : ByDriver(AskDriverBefore(ordinal));
  }

  // `made` is nullptr where the driver can not be asked in it. `reserved` is what the container has set aside for it.
  void Made(CUcontext made, uint64_t reserved, Turn* turn) {
    // NVML would have had nothing to show before: it is open while the process has a context.
    const bool late = later_ && nvml_.Open() && Measurable();
    if (measurable_ || late) {
      after_ = TakeSnapshot(device_, handle_, &listed_after_);
      if (NvmlPid() != 0 || Identify(made, reserved, turn)) {
        FindOwn(listed_before_, &before_.seen);
        FindOwn(listed_after_, &after_.seen);
      }
    }
    const bool shown = measurable_ || (late && after_.seen.own_known);
    if (!shown && made != nullptr) after_ = ByDriver(AskDriverAfter(made, &before_.seen));
    measurable_ |= late;
  }

  // Whether the size is this context's alone, and may be learnt.
  bool Sure() const {
    return alone_ && Undisturbed(before_) && Undisturbed(after_) &&
           (after_.seen.own_known || !measurable_ || !OthersMoved());
  }

  // What a measurement that others disturbed shows is a guess: better what an undisturbed one has shown.
  uint64_t Bytes(uint64_t learnt) const {
    if (learnt != 0 && !Sure()) return learnt;
    uint64_t size = 0;
    if (after_.seen.own_known) {
      size = after_.unstated() - before_.unstated();
    } else if (before_.seen.free_known && after_.seen.free_known) {
      size = before_.seen.free - after_.seen.free - (after_.data - before_.data);
      if (learnt != 0 && size > 2 * learnt) size = learnt;
      if (!Sure() && size > kFirstContext) size = kFirstContext;
    } else {
      size = learnt;
    }
    return size > kLargestContext ? learnt : size;  // also where more went than came
  }

 private:
  bool Measurable() { return nvml_ && HandleOfOrdinal(ordinal_, &handle_); }

  bool Identify(CUcontext made, uint64_t reserved, Turn* turn) {
    if (IdentifyByPid(listed_after_)) return true;
    if (made == nullptr || listed_after_.count == 0) return false;
    turn->Take();
    return IdentifyByProbe(device_, handle_, made, Spare(reserved));
  }

  static bool Undisturbed(const MemorySnapshot& snapshot) { return snapshot.exact && !snapshot.imports; }

  // What of the reservation is left whichever of the listed processes is this one. One that has grown by more than that
  // is another: were it this one, its context alone would be more than was set aside.
  uint64_t Spare(uint64_t reserved) const {
    uint64_t taken = 0;
    for (unsigned i = 0; i < listed_after_.count; ++i) {
      uint64_t grown = listed_after_.items[i].usedGpuMemory;
      for (unsigned j = 0; j < listed_before_.count; ++j) {
        if (listed_before_.items[j].pid != listed_after_.items[i].pid) continue;
        grown = grown > listed_before_.items[j].usedGpuMemory ? grown - listed_before_.items[j].usedGpuMemory : 0;
      }
      if (grown <= reserved && grown > taken) taken = grown;
    }
    return reserved - taken;
  }

  // Another process came, went, or changed between the looks or during one of them: the loss of free memory is not this
  // context's alone.
  bool OthersMoved() const {
    if (!before_.seen.of_one_moment || !after_.seen.of_one_moment) return true;
    unsigned common = 0;
    for (unsigned i = 0; i < listed_after_.count; ++i) {
      for (unsigned j = 0; j < listed_before_.count; ++j) {
        if (listed_before_.items[j].pid != listed_after_.items[i].pid) continue;
        if (listed_before_.items[j].usedGpuMemory != listed_after_.items[i].usedGpuMemory) return true;
        ++common;
      }
    }
    return common != listed_before_.count || listed_after_.count > common + 1;
  }

  MemorySnapshot ByDriver(const Measurement& seen) const { return {seen, OwnBytes(device_, Kind::kData), true}; }

  const CUdevice ordinal_;
  const int device_;
  const bool alone_;
  const bool later_;  // NVML is not there before the context is made
  NvmlUse nvml_;
  nvmlDevice_t handle_ = nullptr;
  bool measurable_;  // by NVML
  ProcessList& listed_before_;
  ProcessList& listed_after_;
  MemorySnapshot before_;
  MemorySnapshot after_;
};

void LearnBlockIn(CUcontext context, int device) {
  CUcontext popped = nullptr;
  if (real::cuCtxPushCurrent_v2(context) != CUDA_SUCCESS) return;
  LearnBlock(device);
  real::cuCtxPopCurrent_v2(&popped);
}

}  // namespace

[[gnu::cold]] CUresult MakeContext(CUdevice ordinal, ContextKind kind, const ContextMaker& maker) {
  const int device = DeviceOfOrdinal(ordinal);
  if (device == kUnlimited) return maker.create(maker.arg);
  ContextMaking& making = g_memory.making;
  const Locked one_at_a_time(making.lock);
  Turn turn(device);
  const MeasureLock measure_lock(LockMode::kExclusive);
  const uint64_t learnt = LearntBytes(device);
  uint64_t reserved = 0;
  if (!ReserveContext(device, &reserved)) return CUDA_ERROR_OUT_OF_MEMORY;
  Sizing sizing(ordinal, device, measure_lock.exclusive(), &making);
  const CUresult result = maker.create(maker.arg);
  if (result != CUDA_SUCCESS) {
    Refund(device, reserved, Kind::kContext);
    return result;
  }
  const CUcontext made = maker.handle(maker.arg);
  sizing.Made(kind == ContextKind::kGreen ? nullptr : made, reserved, &turn);
  const uint64_t size = sizing.Bytes(learnt);
  const bool fits = size <= reserved || Reserve(device, size - reserved, Kind::kContext);
  if (!fits) maker.undo(maker.arg);
  const uint64_t kept = fits ? size : 0;
  if (kept < reserved) Refund(device, reserved - kept, Kind::kContext);
  if (fits && learnt == 0 && kind != ContextKind::kGreen) LearnBlockIn(made, device);
  // Last, for now others go on, and need what was held in reserve.
  if (size != 0 && kind != ContextKind::kGreen && sizing.Sure()) Learn(device, size);
  if (!fits) return CUDA_ERROR_OUT_OF_MEMORY;
  ContextMade(made, ordinal, kind, size);
  TellContextMade(device);
  return CUDA_SUCCESS;
}

Lock& PrimaryLock() { return g_memory.making.primary_lock; }

CUresult RetainPrimary(CUdevice ordinal, const ContextMaker& maker) {
  const Locked locked(g_memory.making.primary_lock);
  unsigned flags = 0;
  int active = 0;
  if (real::cuDevicePrimaryCtxGetState(ordinal, &flags, &active) == CUDA_SUCCESS && active == 0) {
    return MakeContext(ordinal, ContextKind::kPrimary, maker);
  }
  const CUresult result = maker.create(maker.arg);
  if (result != CUDA_SUCCESS) return result;
  // Alive before we saw it being made (a library was loaded first): know it, so that its end is noticed.
  const NvmlUse nvml;
  ContextMade(maker.handle(maker.arg), ordinal, ContextKind::kPrimary, 0);
  return CUDA_SUCCESS;
}

void ContextGone(CUcontext handle, MeasureLock* measure_lock) {
  EndedContext ended;
  if (!ForgetContext(handle, &ended)) return;
  TellContextEnded(ended);
  SettleModules(ended.device, measure_lock);
}

void PrimaryLetGo(CUdevice ordinal, MeasureLock* measure_lock) {
  unsigned flags = 0;
  int active = 0;
  const bool gone = real::cuDevicePrimaryCtxGetState(ordinal, &flags, &active) == CUDA_SUCCESS && active == 0;
  if (const CUcontext handle = PrimaryOf(ordinal); gone && handle != nullptr) ContextGone(handle, measure_lock);
  PrimaryReleased(ordinal);
}

bool LeftToContextSlow(const Entry& entry) {
  Entry left = entry;
  left.kind = HandleKind::kEndingContext;
  const auto leave = [](void* what) {
    auto* const e = static_cast<Entry*>(what);
    e->key = ++g_memory.making.last_ending;
    table().Insert(*e);  // without memory it counts for ever: too careful is not wrong
  };
  return LeaveToContextEnd(entry.context, leave, &left);
}

void RefundLeft(uint32_t context) {
  const auto left = [context](const Entry& entry) {
    return entry.kind == HandleKind::kEndingContext && entry.context == context;
  };
  for (Entry entry; table().FindIf(left, &entry);) {
    if (table().Take(HandleKind::kEndingContext, entry.key, &entry)) RefundEntry(entry);
  }
}

void ContextMaking::Reset() {
  primary_lock.Reset();
  lock.Reset();
}

}  // namespace hami::vgpu
