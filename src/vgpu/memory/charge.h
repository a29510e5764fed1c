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
#include "vgpu/memory/blocks.h"
#include "vgpu/memory/context_memory.h"
#include "vgpu/memory/measure_lock.h"
#include "vgpu/memory/modules.h"
#include "vgpu/runtime/process.h"

namespace hami::vgpu {

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
// An entry that was taken out, with the driver refusing to free what it stands for.
void Restore(Entry entry);

// The plain shape of a hook: reserve, call the driver, and either remember (handle → bytes) or refund.
// `allocate` answers the driver's result and leaves the handle in *handle.
template <typename Handle, typename Allocate>
CUresult Charged(const ContextRef& context, HandleKind kind, uint64_t bytes, Handle* handle, Allocate allocate) {
  if (context.device == kUnlimited) return allocate();
  const Charging charging(context.device);
  if (!Reserve(context.device, bytes, Kind::kData)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = allocate();
  if (result != CUDA_SUCCESS) {
    Refund(context.device, bytes, Kind::kData);
    return result;
  }
  Entry entry;
  entry.key = KeyOf(*handle);
  entry.bytes = bytes;
  entry.context = context.id;
  entry.kind = kind;
  entry.device = static_cast<int8_t>(context.device);
  Record(entry);
  return result;
}

// A request for memory that has an address, which counts in blocks.
struct PointerRequest {
  const ContextRef& context;
  uint64_t bytes;  // as far as they are known; `allocate` may say better
  CUdeviceptr* out;
  uint16_t flags = 0;  // of the entry; likewise
};
using Allocator = CUresult (*)(PointerRequest* request, void* arg);
// As Charged, for such memory.
CUresult ChargedPointer(PointerRequest request, Allocator allocate, void* arg);
template <typename Allocate>
CUresult ChargedPointer(const PointerRequest& request, Allocate allocate) {
  return ChargedPointer(
      request, [](PointerRequest* r, void* arg) { return (*static_cast<Allocate*>(arg))(r); }, &allocate);
}

// The matching end: the driver first, then the refund. Handles we do not know are the driver's business alone.
template <typename Handle, typename Free>
CUresult Uncharged(HandleKind kind, Handle handle, Free free) {
  const uint64_t key = KeyOf(handle);
  Entry entry;
  // Taken out before the call: afterwards the driver may give the same handle to another thread.
  if (!Active()) return free();
  const MeasureLock measure_lock(LockMode::kShared);
  if (!table().Take(kind, key, &entry)) return free();
  BeginLeave(&entry);
  const CUresult result = free();
  if (result == CUDA_SUCCESS) {
    RefundEntry(entry);
  } else {
    Restore(entry);
  }
  return result;
}

}  // namespace hami::vgpu
