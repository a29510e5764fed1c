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
  if (replaced.space != Space::kNone) RefundEntry(replaced);
}

void RefundEntry(const Entry& entry) {
  if (entry.space == Space::kGraphExec) return;
  if ((entry.flags & kFromPool) != 0) {
    PoolBlockFreed(entry);
  } else if (!LeftToContext(entry)) {
    Refund(entry.device, entry.bytes, Kind::kData);
  }
}

}  // namespace hami::vgpu
