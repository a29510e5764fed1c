// SPDX-License-Identifier: Apache-2.0
//
// Memory that nobody states: code and globals of modules, stacks, heaps, what a kernel's first use loads. It is
// measured: whatever the driver says this process holds beyond what is counted already becomes module memory.
// Invariant: after each load, unload, limit change and query the container's count is not below what the driver sees
// (where NVML shows this process; elsewhere the change of free memory around a call is taken). A load that would pass
// the limit is undone.
#pragma once

#include <stdint.h>

#include <atomic>

#include "abi/cuda_abi.h"
#include "vgpu/policy/contexts.h"

namespace hami::vgpu {

// A load between two looks at the free memory. False: it does not fit, the caller undoes it and reports out of memory.
struct LoadWatch {
  Place place;
  bool has_place = false;
  uint64_t free_before = 0;
};
void BeginLoad(LoadWatch* watch);
bool EndLoad(const LoadWatch& watch);

// Something may have grown; to be measured when memory is asked for or queried next.
extern std::atomic<bool> g_modules_pending;
inline void NoteFirstUse() { g_modules_pending.store(true, std::memory_order_relaxed); }
void SettlePendingModulesSlow(int device);
inline void SettlePendingModules(int device) {
  if (g_modules_pending.load(std::memory_order_relaxed)) SettlePendingModulesSlow(device);
}

// Measures now and lets the count fall too: after an unload, or the end of a context.
void SettleModules(int device);
// For queries: measures what is pending, and everything once a second.
void SettleModulesForQuery(int device);

void ResetModules();

}  // namespace hami::vgpu
