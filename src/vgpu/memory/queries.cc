// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/queries.h"

#include "vgpu/loader/driver.h"
#include "vgpu/memory/charge.h"
#include "vgpu/memory/modules.h"
#include "vgpu/memory/pools.h"
#include "vgpu/memory/vmm.h"
#include "vgpu/runtime/process.h"

namespace hami::vgpu {
namespace {

uint64_t Less(uint64_t a, uint64_t b) { return a < b ? a : b; }

}  // namespace

uint64_t VisibleTotal(int device, uint64_t physical_total) {
  const uint64_t limit = LimitBytes(device);
  if (limit == 0) return physical_total;
  return settings().oversubscribe ? limit : Less(limit, physical_total);
}

MemoryView ViewOf(int device, uint64_t physical_total, uint64_t physical_free) {
  MemoryView view;
  view.total = VisibleTotal(device, physical_total);
  view.free = physical_free;
  view.used = physical_total - physical_free;
  if (LimitBytes(device) == 0) return view;
  view.limited = true;
  SweepForQuery();
  {
    const MeasureLock measure_lock(LockMode::kShared);
    SettleFrees();
    VmmSettleDescriptors();
  }
  SettlePools(device);
  SettleModulesForQuery(device);
  view.used = Less(UsedBytes(device), view.total);
  view.free = view.total - view.used;
  if (!settings().oversubscribe) view.free = Less(view.free, physical_free);
  return view;
}

CUresult ShowMemory(int device, size_t* free, size_t* total) {
  if (LimitBytes(device) == 0) return CUDA_SUCCESS;
  size_t physical_free = 0;
  size_t physical_total = 0;
  if (free != nullptr && total != nullptr) {
    physical_free = *free;
    physical_total = *total;
  } else if (const CUresult result = real::cuMemGetInfo_v2(&physical_free, &physical_total); result != CUDA_SUCCESS) {
    return result;
  }
  const MemoryView view = ViewOf(device, physical_total, physical_free);
  if (free != nullptr) *free = view.free;
  if (total != nullptr) *total = view.total;
  return CUDA_SUCCESS;
}

}  // namespace hami::vgpu
