// SPDX-License-Identifier: Apache-2.0
//
// What contexts cost, and what ends with them. A context's size is not known before it exists, so the size the
// container learnt last is reserved first and the difference is settled afterwards; one that does not fit then is taken
// down again. When a context ends, everything charged in it is refunded. Which contexts there are is
// runtime/contexts.h's business.
#pragma once

#include <stdint.h>

#include "abi/cuda_abi.h"
#include "vgpu/memory/measure_lock.h"
#include "vgpu/memory/table.h"
#include "vgpu/runtime/contexts.h"
#include "vgpu/runtime/lock.h"
#include "vgpu/runtime/nvml_probe.h"
#include "vgpu/runtime/runtime.h"

namespace hami::vgpu {

// Runs `create` (which makes a context on `ordinal` and answers the driver's result) between reserving and settling;
// `undo` takes it down. `handle` names the context afterwards; for a green context that is the CUgreenCtx.
struct ContextMaker {
  CUresult (*create)(void* arg);
  void (*undo)(void* arg);
  CUcontext (*handle)(void* arg);
  void* arg;
};
CUresult MakeContext(CUdevice ordinal, ContextKind kind, const ContextMaker& maker);

// Held while a reference to a primary context is taken or let go of, so that what its state says stays true until that
// is done. Comes before the measure lock.
Lock& PrimaryLock();
// As MakeContext when the primary context is not active yet, else just `create`.
CUresult RetainPrimary(CUdevice ordinal, const ContextMaker& maker);

// True when the end of its context, which is under way, will refund it.
bool LeftToContextSlow(const Entry& entry);
inline bool LeftToContext(const Entry& entry) {
  return g_runtime.contexts.ends.load(std::memory_order_relaxed) != 0 && LeftToContextSlow(entry);
}
// The context stays: what was left to its end is refunded after all.
void RefundLeft(uint32_t context);

// After the driver destroyed a context (or a green context: pass what MakeContext's `handle` gave), under the measure
// lock under which it did; the rest is measured under the same one.
void ContextGone(CUcontext handle, MeasureLock* measure_lock);
// After a release or reset of the primary context, with PrimaryLock held: settles if it is no longer active.
void PrimaryLetGo(CUdevice ordinal, MeasureLock* measure_lock);

// What the making of contexts needs.
struct ContextMaking {
  Lock primary_lock{LockRank::kPrimaryContext};
  Lock lock{LockRank::kContextMaking};  // one context is made at a time, so that its size can be measured
  ProcessList before;                   // guarded by it, like its twin
  ProcessList after;
  uint64_t last_ending = 0;  // guarded by the registry's lock

  void Reset();
};

}  // namespace hami::vgpu
