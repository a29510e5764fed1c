// SPDX-License-Identifier: Apache-2.0
#include "vgpu/policy/contexts.h"

#include <atomic>

#include "vgpu/loader/driver.h"
#include "vgpu/policy/charge.h"
#include "vgpu/policy/device_map.h"
#include "vgpu/policy/lock.h"
#include "vgpu/policy/modules.h"
#include "vgpu/policy/nvml_probe.h"
#include "vgpu/policy/pages.h"
#include "vgpu/policy/pools.h"
#include "vgpu/policy/process.h"

namespace hami::vgpu {
namespace {

// More than any context was ever seen to take; a larger difference is somebody else's allocation.
constexpr uint64_t kLargestContext = uint64_t{4} << 30;
// Held while the container's very first context is made, when nobody knows yet what one costs.
constexpr uint64_t kFirstContext = uint64_t{512} << 20;

struct Known {
  CUcontext handle;
  CUdevice ordinal;
  int device;
  uint32_t id;
  uint64_t bytes;  // charged as context memory
  ContextKind kind;
  bool counted;  // made through us; others were only seen being current
};

constinit Lock g_lock{};           // guards g_known
constinit Lock g_primary_lock{};   // state and retain of a primary context belong together
constinit Lock g_making_lock{};    // one context is made at a time, so that its size can be measured
constinit ProcessList g_before{};  // guarded by it, like its twin
constinit ProcessList g_after{};
constinit Growing<Known> g_known{};
constinit uint32_t g_next_id = 1;
// Changes whenever a handle may have become another context's.
constinit std::atomic<uint32_t> g_epoch{1};

// The last answer of CurrentPlace in this thread.
struct Remembered {
  CUcontext handle;
  uint32_t epoch;
  Place place;
};
constinit thread_local Remembered t_last{};

Known* FindLocked(CUcontext handle) {
  for (Known& known : g_known) {
    if (known.handle == handle) return &known;
  }
  return nullptr;
}

Known* AddLocked(CUcontext handle, CUdevice ordinal, int device, ContextKind kind) {
  Known* const known = g_known.Add();
  if (known == nullptr) return nullptr;
  *known = {handle, ordinal, device, g_next_id++, 0, kind, false};
  return known;
}

uint64_t LearntBytes(int device) {
  const region::Attachment* const a = attachment();
  return a == nullptr || device < 0 ? 0 : region::Load(a->area->devices[device].reserved[0]);
}

void Learn(int device, uint64_t bytes) {
  region::Attachment* const a = attachment();
  if (a != nullptr && device >= 0) region::Store(a->area->devices[device].reserved[0], bytes);
}

// The context's size from measurements around its making. Prefers what the driver says about this process alone, less
// what other threads were granted meanwhile; the device's free memory also moves with the neighbours.
uint64_t SizeOf(const Measurement& before, const Measurement& after, uint64_t other_growth, uint64_t learnt) {
  uint64_t size = 0;
  if (after.own_known) {
    const uint64_t was = (before.own_known ? before.own : 0) + other_growth;
    size = after.own > was ? after.own - was : 0;
  } else if (before.free_known && after.free_known && before.free > after.free) {
    size = before.free - after.free;
    size = size > other_growth ? size - other_growth : 0;
    if (learnt != 0 && size > 2 * learnt) size = learnt;
  } else {
    size = learnt;
  }
  return size > kLargestContext ? learnt : size;
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

uint64_t OthersHold(int device) { return OwnBytes(device, Kind::kData) + OwnBytes(device, Kind::kModule); }

}  // namespace

bool CurrentPlace(Place* out) {
  CUcontext current = nullptr;
  if (real::cuCtxGetCurrent(&current) != CUDA_SUCCESS || current == nullptr) return false;
  const uint32_t epoch = g_epoch.load(std::memory_order_acquire);
  Remembered& last = t_last;
  if (last.handle == current && last.epoch == epoch) {
    *out = last.place;
    return true;
  }
  CUdevice ordinal = 0;
  if (real::cuCtxGetDevice(&ordinal) != CUDA_SUCCESS) return false;
  const int device = DeviceOfOrdinal(ordinal);
  const Locked locked(g_lock);
  Known* known = FindLocked(current);
  if (known == nullptr) known = AddLocked(current, ordinal, device, ContextKind::kCreated);
  *out = {known == nullptr ? 0 : known->id, ordinal, device};
  last = {current, epoch, *out};
  return true;
}

int DeviceOfContext(CUcontext context) {
  {
    const Locked locked(g_lock);
    if (const Known* known = FindLocked(context); known != nullptr) return known->device;
  }
  CUdevice ordinal = 0;
  if (real::cuCtxPushCurrent_v2(context) != CUDA_SUCCESS) return kUnlimited;
  const CUresult result = real::cuCtxGetDevice(&ordinal);
  CUcontext popped = nullptr;
  real::cuCtxPopCurrent_v2(&popped);
  return result == CUDA_SUCCESS ? DeviceOfOrdinal(ordinal) : kUnlimited;
}

CUresult MakeContext(CUdevice ordinal, ContextKind kind, const ContextMaker& maker) {
  const int device = DeviceOfOrdinal(ordinal);
  if (device == kUnlimited) return maker.create(maker.arg);
  const Locked making(g_making_lock);
  const uint64_t learnt = LearntBytes(device);
  uint64_t reserved = 0;
  if (!ReserveContext(device, &reserved)) return CUDA_ERROR_OUT_OF_MEMORY;

  nvmlDevice_t handle = nullptr;
  const bool measurable = HandleOfOrdinal(ordinal, &handle);
  const Measurement before = measurable ? Measure(handle, &g_before) : Measurement{};
  const uint64_t others_before = OthersHold(device);
  const CUresult result = maker.create(maker.arg);
  if (result != CUDA_SUCCESS) {
    Refund(device, reserved, Kind::kContext);
    return result;
  }
  Measurement after = measurable ? Measure(handle, &g_after) : Measurement{};
  if (measurable && NvmlPid() == 0) {
    IdentifySelf(g_before, g_after, before.free > after.free ? before.free - after.free : 0);
    FindOwn(g_after, &after);
  }
  const uint64_t others_after = OthersHold(device);
  const uint64_t other_growth = others_after > others_before ? others_after - others_before : 0;
  const uint64_t size = SizeOf(before, after, other_growth, learnt);
  if (size > reserved && !Reserve(device, size - reserved, Kind::kContext)) {
    Learn(device, size);
    maker.undo(maker.arg);
    Refund(device, reserved, Kind::kContext);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (size < reserved) Refund(device, reserved - size, Kind::kContext);
  if (size != 0 && kind != ContextKind::kGreen) Learn(device, size);

  const CUcontext made = maker.handle(maker.arg);
  const Locked locked(g_lock);
  Known* known = FindLocked(made);
  if (known == nullptr) known = AddLocked(made, ordinal, device, kind);
  if (known != nullptr) {
    known->kind = kind;
    known->bytes += size;
    known->counted = true;
  }
  return CUDA_SUCCESS;
}

CUresult RetainPrimary(CUdevice ordinal, const ContextMaker& maker) {
  const Locked locked(g_primary_lock);
  unsigned flags = 0;
  int active = 0;
  if (real::cuDevicePrimaryCtxGetState(ordinal, &flags, &active) == CUDA_SUCCESS && active == 0) {
    return MakeContext(ordinal, ContextKind::kPrimary, maker);
  }
  const CUresult result = maker.create(maker.arg);
  if (result != CUDA_SUCCESS) return result;
  // Alive before we saw it being made (a library was loaded first): know it, so that its end is noticed.
  const CUcontext made = maker.handle(maker.arg);
  const int device = DeviceOfOrdinal(ordinal);
  const Locked known_locked(g_lock);
  Known* known = FindLocked(made);
  if (known == nullptr) known = AddLocked(made, ordinal, device, ContextKind::kPrimary);
  if (known != nullptr) {
    known->kind = ContextKind::kPrimary;
    known->counted = true;
  }
  return CUDA_SUCCESS;
}

void ContextGone(CUcontext handle) {
  Known gone{};
  {
    const Locked locked(g_lock);
    Known* const known = FindLocked(handle);
    if (known == nullptr) return;
    gone = *known;
    g_known.Remove(known);
    g_epoch.fetch_add(1, std::memory_order_acq_rel);
  }
  Refund(gone.device, gone.bytes, Kind::kContext);
  Entry entry;
  while (table().TakeOfContext(gone.id, &entry)) RefundEntry(entry);
  SettlePools(gone.device);
  SettleModules(gone.device);
}

void PrimaryMayBeGone(CUdevice ordinal) {
  unsigned flags = 0;
  int active = 0;
  if (real::cuDevicePrimaryCtxGetState(ordinal, &flags, &active) != CUDA_SUCCESS || active != 0) return;
  CUcontext handle = nullptr;
  {
    const Locked locked(g_lock);
    for (const Known& known : g_known) {
      if (known.ordinal == ordinal && known.kind == ContextKind::kPrimary) handle = known.handle;
    }
  }
  if (handle != nullptr) ContextGone(handle);
}

int ContextsOn(int device) {
  const Locked locked(g_lock);
  int count = 0;
  for (const Known& known : g_known) count += known.device == device && known.counted ? 1 : 0;
  return count;
}

void ResetContexts() {
  g_lock.Reset();
  g_primary_lock.Reset();
  g_making_lock.Reset();
  g_known.Clear();
  g_epoch.fetch_add(1, std::memory_order_acq_rel);
}

}  // namespace hami::vgpu
