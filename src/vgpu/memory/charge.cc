// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/charge.h"

#include <signal.h>
#include <unistd.h>

#include "vgpu/memory/graphs.h"
#include "vgpu/memory/pools.h"
#include "vgpu/memory/vmm.h"
#include "vgpu/runtime/log.h"

namespace hami::vgpu {

bool ReserveReclaiming(int device, uint64_t bytes, Kind kind) {
  if (TryReserve(device, bytes, kind)) return true;
  if (device < 0) return false;
  SettleFrees();
  VmmSettleDescriptors();
  // What this process holds without using goes first; each step only if it is needed.
  SettlePools(device);
  if (TryReserve(device, bytes, kind)) return true;
  const uint64_t limit = LimitBytes(device);
  // Pools a second time, because both together may be enough where neither is.
  for (bool graphs_trimmed = false; bytes <= limit; graphs_trimmed = true) {
    const uint64_t used = UsedBytes(device);
    const uint64_t excess = used + bytes > limit ? used + bytes - limit : 0;
    if (TrimPools(device, excess) && TryReserve(device, bytes, kind)) return true;
    if (graphs_trimmed || !TrimGraphs(device)) break;
    if (TryReserve(device, bytes, kind)) return true;
  }
  return AwaitStarts(device, bytes, kind);
}

bool Reserve(int device, uint64_t bytes, Kind kind) {
  if (ReserveReclaiming(device, bytes, kind)) return true;
  if (device >= 0) Refused(device, bytes);
  return false;
}

void Refused(int device, uint64_t bytes) {
  CountRefusal(device);
  if (LogEnabled(Level::kInfo)) {
    LogLine(Level::kInfo)
        .Text("device ")
        .Signed(device)
        .Text(": ")
        .Number(bytes)
        .Text(" bytes do not fit: ")
        .Number(UsedBytes(device))
        .Text(" of ")
        .Number(LimitBytes(device))
        .Text(" in use");
  }
  if (!settings().kill_on_refusal) return;
  // The one whose request does not fit is the one that goes: no other process of the container did anything wrong, and
  // no pid has to be trusted.
  LogLine(Level::kError).Text("ACTIVE_OOM_KILLER: out of device memory, killing this process");
  kill(getpid(), SIGKILL);
}

void Record(const Entry& entry) {
  Entry replaced;
  table().Insert(entry, &replaced);
  if (replaced.kind != HandleKind::kNone) RefundEntry(replaced);
}

void Restore(Entry entry) {
  Refund(entry.device, StayInBlocks(&entry), Kind::kData);
  table().Insert(entry);
}

namespace {

// Before the driver is asked. `tries`: nothing is left of the limit, but a block that is there seems to have room; it
// counts as if another one was taken, and is given back if that is so.
struct Reservation {
  uint64_t bytes = 0;
  bool tries = false;
};

// False: refused.
bool ReservePointer(const PointerRequest& request, bool may_try, Reservation* reserved) {
  const int device = request.context.device;
  const uint64_t bytes = RoundUp(request.bytes, kAllocationUnit);
  *reserved = {InBlocks(device, bytes), false};
  const bool may_share = may_try && device >= 0 && bytes < InBlocks(device, 1);
  if (may_share && TryReserve(device, reserved->bytes, Kind::kData)) return true;
  if (may_share && RoomInABlock(device, bytes)) {
    reserved->tries = true;
    ChargeAnyway(device, reserved->bytes, Kind::kData);
    return true;
  }
  return Reserve(device, reserved->bytes, Kind::kData);
}

// After the driver's success. False: more than was reserved, and no room for it: it was freed.
bool SettlePointer(const PointerRequest& request, const Reservation& reserved) {
  const int device = request.context.device;
  Entry entry;
  entry.key = *request.out;
  entry.bytes = request.bytes;
  entry.context = request.context.id;
  entry.kind = HandleKind::kPointer;
  entry.device = static_cast<int8_t>(device);
  entry.flags = request.flags;
  const uint64_t counted = EnterBlocks(&entry, g_runtime.contexts.ends.load(std::memory_order_relaxed) == 0);
  const bool fits = reserved.tries
                        ? counted == 0
                        : counted <= reserved.bytes || Reserve(device, counted - reserved.bytes, Kind::kData);
  if (!fits) {
    BeginLeave(&entry);
    real::cuMemFree_v2(entry.key);
    // Others may be in its blocks by now, or have left theirs to it: these stay counted, or go with it.
    const uint64_t gone = LeaveBlocks(entry);
    ChargeAnyway(device, counted, Kind::kData);
    Refund(device, reserved.bytes + gone, Kind::kData);
    return false;
  }
  if (counted < reserved.bytes) Refund(device, reserved.bytes - counted, Kind::kData);
  Record(entry);
  return true;
}

}  // namespace

CUresult ChargedPointer(PointerRequest request, Allocator allocate, void* arg) {
  const int device = request.context.device;
  if (device == kUnlimited) return allocate(&request, arg);
  const Charging charging(device);
  const CUdeviceptr before = *request.out;
  for (bool may_try = true;; may_try = false) {
    Reservation reserved;
    if (!ReservePointer(request, may_try, &reserved)) return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result = allocate(&request, arg);
    if (result != CUDA_SUCCESS) {
      Refund(device, reserved.bytes, Kind::kData);
      return result;
    }
    if (SettlePointer(request, reserved)) return result;
    *request.out = before;
    if (!reserved.tries) return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

void RefundEntry(const Entry& entry) {
  if (entry.kind == HandleKind::kGraphExec) return;
  if ((entry.flags & kFromPool) != 0) {
    PoolBlockFreed(entry);
  } else if (!LeftToContext(entry)) {
    Refund(entry.device, entry.flags < kCountedInBlocks ? entry.bytes : LeaveBlocks(entry), Kind::kData);
  }
}

}  // namespace hami::vgpu
