// SPDX-License-Identifier: Apache-2.0
#include "vgpu/policy/reading.h"

#include "vgpu/policy/graphs.h"
#include "vgpu/policy/pools.h"
#include "vgpu/policy/process.h"
#include "vgpu/policy/sharing.h"
#include "vgpu/policy/vmm.h"

namespace hami::vgpu {
namespace {

// Pools only shrink while a thread is alone, and not often.
constexpr int kAttempts = 4;

bool SettleData(int device) {
  SettleGraphs(device);
  return SettlePools(device);
}

}  // namespace

Reading Look(int device, nvmlDevice_t handle, ProcessList* list) {
  Reading out;
  out.imports = VmmHoldsImports();
  out.unused_imports = VmmHoldsUnusedImports();
  out.shared_imports = VmmHoldsSharedImports();
  for (int attempt = 0; attempt < kAttempts && !out.exact; ++attempt) {
    const bool known = SettleData(device);
    if (out.shared_imports) ClaimMemory();
    out.data = OwnBytes(device, Kind::kData);
    out.seen = Measure(handle, list);
    out.exact = SettleData(device) && OwnBytes(device, Kind::kData) == out.data;
    if (!known) break;  // and will not be, before a synchronisation
  }
  return out;
}

}  // namespace hami::vgpu
