// SPDX-License-Identifier: Apache-2.0
//
// Memory that nobody states: code and globals of modules, stacks, heaps, what a kernel's first use loads. It is
// measured: whatever the driver says this process holds beyond what is counted already becomes module memory. A
// measurement is made exclusively (measure_lock.h); one that cannot be is made up for as soon as it can.
// Invariant: after each load, unload, limit change and query the container's count is not below what the driver sees
// (where NVML shows this process; elsewhere the change of free memory around a call is taken). A load that would pass
// the limit is undone, and none is kept that was not judged: while one is under way, what is measured is counted only
// as far as it fits, for it may be the load's.
#pragma once

#include <stdint.h>

#include <atomic>

#include "abi/cuda_abi.h"
#include "vgpu/memory/context_memory.h"
#include "vgpu/memory/flags.h"
#include "vgpu/memory/learnt_ordinal.h"
#include "vgpu/memory/measure_lock.h"
#include "vgpu/runtime/lock.h"

namespace hami::vgpu {

// All that is known of the growth of modules. What is not atomic belongs to the thread that holds the measure lock
// exclusively.
struct ModuleBook {
  struct Device {
    std::atomic<uint64_t> charged{0};
    int64_t measured_at = 0;
    int64_t queried_at = 0;
    LearntOrdinal ordinal;
    std::atomic<bool> may_have_shrunk{false};
  };

  Lock limit_lock{LockRank::kContextLimit};
  Device devices[region::kMaxDevices] = {};
  ProcessList list;
  std::atomic<int64_t> next_look{0};  // CoarseMillis before which no synchronisation measures
  std::atomic<uint32_t> loads{0};     // LoadWatches alive

  void Reset();
};

// A load, from before the driver's call to after the undoing of one that does not fit. It passes shared, because a
// driver may compile for seconds, and only what it took is measured alone. Where that can not be done now, or NVML does
// not show this process, it is judged by what the device lost and nobody has counted; near the limit it is given time
// to be measured. Without NVML it passes alone from beginning to end.
class LoadWatch {
 public:
  LoadWatch();
  ~LoadWatch();
  LoadWatch(const LoadWatch&) = delete;
  LoadWatch& operator=(const LoadWatch&) = delete;
  // After the driver's success. False: it does not fit, the caller undoes it and reports out of memory.
  bool Fits();
  // After the undoing.
  void Undone();
  int device() const { return context_.device; }

 private:
  uint64_t Uncounted(uint64_t free_after) const;

  MeasureLock measure_lock_;
  ContextRef context_;
  bool has_context_;
  uint64_t free_before_ = 0;
  uint64_t counted_before_ = 0;
};

// Held from the reading of a context's limit to the judgement of the new one: what does not fit is set back, and must
// not be set back to another thread's that did not fit either. Comes before the measure lock.
Lock& ContextLimitLock();

inline void NoteFirstUse() { g_memory_flags.modules_pending.store(true, std::memory_order_relaxed); }
void SettlePendingModulesSlow(int device);
inline void SettlePendingModules(int device) {
  if (g_memory_flags.modules_pending.load(std::memory_order_relaxed)) SettlePendingModulesSlow(device);
}

// A synchronisation has waited for kernels whose first launch may have loaded code or grown the stack, which the launch
// itself, being the driver's own function, could not notice. Measured here, soon after something was loaded and
// otherwise once a second.
void ModulesSynchronisedSlow();
inline void ModulesSynchronised() {
  if (g_memory_flags.modules_known.load(std::memory_order_relaxed)) ModulesSynchronisedSlow();
}

// Measures now, alone if that can be had, and lets the count fall too: after an unload, or the end of a context.
void SettleModules(int device, MeasureLock* measure_lock);
// For queries: measures what is pending, and everything once a second.
void SettleModulesForQuery(int device);

}  // namespace hami::vgpu
