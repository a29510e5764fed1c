// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/memory_snapshot.h"

#include "vgpu/memory/graphs.h"
#include "vgpu/memory/pools.h"
#include "vgpu/memory/shared_memory.h"
#include "vgpu/memory/vmm.h"
#include "vgpu/runtime/process.h"

namespace hami::vgpu {
namespace {

// Pools only shrink while a thread is alone, and not often.
constexpr int kAttempts = 4;

bool SettleData(int device) {
  VmmSettleDescriptors();
  SettleGraphs(device);
  return SettlePools(device);
}

struct ContainerView {
  const ProcessList* list;
  int device;
  uint64_t seen;
  bool complete;
};

// What the driver shows of one process of the container. Without a line of its own it may be known by a pid that nobody
// has learnt.
bool AddSeen(const region::ProcessUsage& process, void* context) {
  auto* const view = static_cast<ContainerView*>(context);
  const auto pid = static_cast<unsigned>(process.host_pid != 0 ? process.host_pid : process.pid);
  bool listed = process.total[view->device] == 0;
  for (unsigned i = 0; i < view->list->count; ++i) {
    const nvmlProcessInfo_t& item = view->list->items[i];
    if (item.pid != pid) continue;
    listed = true;
    view->seen += item.usedGpuMemory;
  }
  view->complete = view->complete && listed;
  return view->complete;
}

uint64_t Uncounted(int device, const ProcessList& list, uint64_t used_before) {
  const region::Attachment* const a = attachment();
  if (a == nullptr) return UINT64_MAX;
  ContainerView view = {&list, device, 0, true};
  region::ForEachProcess(*a, &AddSeen, &view);
  // Others take and give back meanwhile: the larger count is the one that may have been true.
  const uint64_t used_after = UsedBytes(device);
  const uint64_t used = used_before > used_after ? used_before : used_after;
  if (!view.complete) return UINT64_MAX;
  return view.seen > used ? view.seen - used : 0;
}

}  // namespace

MemorySnapshot TakeSnapshot(int device, nvmlDevice_t handle, ProcessList* list) {
  MemorySnapshot out;
  out.imports = VmmHoldsImports();
  out.unused_imports = VmmHoldsUnusedImports();
  out.shared_imports = VmmHoldsSharedImports();
  // Who has died meanwhile is seen no more and still counted, and what it paid for may show here: once more then, when
  // it has been swept out.
  bool whole = true;
  for (int attempt = 0; attempt < kAttempts && !(out.exact && (whole || attempt > 1)); ++attempt) {
    const bool known = SettleData(device);
    if (out.shared_imports) ClaimMemory();
    out.data = OwnBytes(device, Kind::kData);
    const uint64_t used = UsedBytes(device);
    out.seen = Measure(handle, list);
    if (out.shared_imports) {
      out.uncounted = Uncounted(device, *list, used);
      whole = out.uncounted != UINT64_MAX;
      out.paid_elsewhere = GuestMemory(device);
    }
    out.exact = SettleData(device) && OwnBytes(device, Kind::kData) == out.data;
    if (!known) break;  // and will not be, before a synchronisation
  }
  return out;
}

}  // namespace hami::vgpu
