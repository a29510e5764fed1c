// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/memory_snapshot.h"

#include "vgpu/memory/account.h"
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

// What is counted of the whole container, and a number that tells whether it still is.
struct ContainerCount {
  uint64_t used = 0;
  uint64_t changes = 0;

  bool operator==(const ContainerCount&) const = default;
};
ContainerCount CountContainer(int device) {
  const region::Attachment* const a = attachment();
  return {UsedBytes(device), a == nullptr ? 0 : region::Changes(*a)};
}

// How much of what is seen was not counted, neither before the look nor after it.
uint64_t Uncounted(int device, const ProcessList& list, const ContainerCount& before, const ContainerCount& after) {
  const region::Attachment* const a = attachment();
  if (a == nullptr) return UINT64_MAX;
  ContainerView view = {&list, device, 0, true};
  region::ForEachProcess(*a, &AddSeen, &view);
  const uint64_t used = before.used > after.used ? before.used : after.used;
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
  // What others took and gave back during the look may be seen and not be counted.
  bool still = true;
  for (int attempt = 0; attempt < kAttempts && !(out.exact && still && (whole || attempt > 1)); ++attempt) {
    const bool known = SettleData(device);
    if (out.shared_imports) ClaimMemory();
    out.data = OwnBytes(device, Kind::kData);
    const ContainerCount before = out.shared_imports ? CountContainer(device) : ContainerCount{};
    out.seen = Measure(handle, list);
    if (out.shared_imports) {
      const ContainerCount after = CountContainer(device);
      const uint64_t uncounted = Uncounted(device, *list, before, after);
      whole = uncounted != UINT64_MAX;
      still = !whole || uncounted == 0 || before == after;
      if (uncounted < out.uncounted) out.uncounted = uncounted;
      out.paid_elsewhere = GuestMemory(device);
    }
    out.exact = SettleData(device) && OwnBytes(device, Kind::kData) == out.data;
    if (!known) break;  // and will not be, before a synchronisation
  }
  return out;
}

}  // namespace hami::vgpu
