// SPDX-License-Identifier: Apache-2.0
//
// Charging as the hooks do it: reserve, and if that does not fit, first take back what this process holds without using
// (pool reserves, memory that modules gave up), then refuse. A refusal is final for the call: no double rejection when
// one request fits.
#pragma once

#include <stdint.h>

#include "abi/cuda_abi.h"
#include "vgpu/loader/driver.h"
#include "vgpu/memory/account.h"
#include "vgpu/memory/context_memory.h"
#include "vgpu/memory/measure_lock.h"
#include "vgpu/memory/modules.h"
#include "vgpu/runtime/process.h"

namespace hami::vgpu {

// The driver's own rounding of plain allocations. Small ones share a larger block of it.
inline constexpr uint64_t kAllocationUnit = 512;

constexpr uint64_t RoundUp(uint64_t bytes, uint64_t unit) {
  return bytes > UINT64_MAX - unit ? UINT64_MAX - unit + 1 : (bytes + unit - 1) / unit * unit;
}

// The measure lock, shared, for whatever is charged to a device. What modules grew by is measured first, because
// nothing can be while the lock is held.
class Charging {
 public:
  explicit Charging(int device) : measure_lock_((SettlePendingModules(device), LockMode::kShared)) {}

 private:
  const MeasureLock measure_lock_;
};

// TryReserve; when that fails, takes back what this process holds without using, and tries again.
bool ReserveReclaiming(int device, uint64_t bytes, Kind kind);
// As above. False: refused (and, where ACTIVE_OOM_KILLER asks for it, the process does not get to see it).
bool Reserve(int device, uint64_t bytes, Kind kind);

// The end of a request that does not fit: logs it, and kills this process when ACTIVE_OOM_KILLER is on.
void Refused(int device, uint64_t bytes);

template <typename T>
uint64_t KeyOf(T* handle) {
  return reinterpret_cast<uintptr_t>(handle);
}
constexpr uint64_t KeyOf(unsigned long long pointer) { return pointer; }

// What was charged for this entry, given back.
void RefundEntry(const Entry& entry);
// Remembers what was charged. There may be an entry of the same handle left, of a context that ends on another thread,
// or has ended.
void Record(const Entry& entry);

// The plain shape of a hook: reserve, call the driver, and either remember (handle → bytes) or refund.
// `allocate` answers the driver's result and leaves the handle in *handle.
template <typename Handle, typename Allocate>
CUresult Charged(const Place& place, Space space, uint64_t bytes, Handle* handle, Allocate allocate) {
  if (place.device == kUnlimited) return allocate();
  const Charging charging(place.device);
  if (!Reserve(place.device, bytes, Kind::kData)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = allocate();
  if (result != CUDA_SUCCESS) {
    Refund(place.device, bytes, Kind::kData);
    return result;
  }
  Entry entry;
  entry.key = KeyOf(*handle);
  entry.bytes = bytes;
  entry.context = place.context;
  entry.space = space;
  entry.device = static_cast<int8_t>(place.device);
  Record(entry);
  return result;
}

// An allocation turned out to be larger or smaller than was reserved. If the rest does not fit it is freed, `forget` is
// called, and the answer is out of memory.
template <typename Forget>
CUresult ResizeCharge(CUdeviceptr pointer, uint64_t bytes, Forget forget) {
  Entry entry;
  if (!table().Take(Space::kPointer, pointer, &entry)) return CUDA_SUCCESS;
  if (bytes > entry.bytes && !Reserve(entry.device, bytes - entry.bytes, Kind::kData)) {
    real::cuMemFree_v2(pointer);
    RefundEntry(entry);
    forget();
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (bytes < entry.bytes) Refund(entry.device, entry.bytes - bytes, Kind::kData);
  entry.bytes = bytes;
  table().Insert(entry);
  return CUDA_SUCCESS;
}

// The matching end: the driver first, then the refund. Handles we do not know are the driver's business alone.
template <typename Handle, typename Free>
CUresult Uncharged(Space space, Handle handle, Free free) {
  const uint64_t key = KeyOf(handle);
  Entry entry;
  // Taken out before the call: afterwards the driver may give the same handle to another thread.
  if (!Active()) return free();
  const MeasureLock measure_lock(LockMode::kShared);
  const bool known = table().Take(space, key, &entry);
  const CUresult result = free();
  if (!known) return result;
  if (result == CUDA_SUCCESS) {
    RefundEntry(entry);
  } else {
    table().Insert(entry);
  }
  return result;
}

}  // namespace hami::vgpu
