// SPDX-License-Identifier: Apache-2.0
#include "vgpu/runtime/contexts.h"

#include "vgpu/loader/driver.h"
#include "vgpu/runtime/device_map.h"
#include "vgpu/runtime/nvml_probe.h"
#include "vgpu/runtime/process.h"
#include "vgpu/runtime/runtime.h"

namespace hami::vgpu {

constinit Handles g_handles{};

namespace {

constexpr int kEveryDevice = -3;

using Known = KnownContext;

ContextRegistry& Registry() { return g_runtime.contexts; }

// The last answer of CurrentContext in this thread.
struct Remembered {
  CUcontext handle;
  uint32_t epoch;
  ContextRef context;
};
constinit thread_local Remembered t_last{};

Known* FindLocked(CUcontext handle) {
  for (Known& known : Registry().known) {
    if (known.handle == handle) return &known;
  }
  return nullptr;
}

Known* FindIdLocked(uint32_t id) {
  for (Known& known : Registry().known) {
    if (known.id == id) return &known;
  }
  return nullptr;
}

Known* AddLocked(CUcontext handle, CUdevice ordinal, int device, ContextKind kind) {
  Known* const known = Registry().known.Add();
  if (known == nullptr) return nullptr;
  *known = {handle, ordinal, device, ++Registry().last_id, 0, kind, false, 0, 0, false};
  return known;
}

int CountLocked(int device = kEveryDevice) {
  int count = 0;
  for (const Known& known : Registry().known) {
    count += known.counted && (device == kEveryDevice || known.device == device) ? 1 : 0;
  }
  return count;
}

Known* FindPrimaryLocked(CUdevice ordinal) {
  for (Known& known : Registry().known) {
    if (known.ordinal == ordinal && known.kind == ContextKind::kPrimary) return &known;
  }
  return nullptr;
}

}  // namespace

bool CurrentContext(ContextRef* out) {
  CUcontext current = nullptr;
  if (real::cuCtxGetCurrent(&current) != CUDA_SUCCESS || current == nullptr) return false;
  const uint32_t epoch = HandleEpoch();
  Remembered& last = t_last;
  if (last.handle == current && last.epoch == epoch) {
    *out = last.context;
    return true;
  }
  CUdevice ordinal = 0;
  if (real::cuCtxGetDevice(&ordinal) != CUDA_SUCCESS) return false;
  const int device = DeviceOfOrdinal(ordinal);
  const Locked locked(Registry().lock);
  Known* known = FindLocked(current);
  if (known == nullptr) known = AddLocked(current, ordinal, device, ContextKind::kCreated);
  *out = {known == nullptr ? 0 : known->id, ordinal, device};
  last = {current, epoch, *out};
  return true;
}

OnContextOf::OnContextOf(CUstream stream) {
  there_ = OfCurrentContext(stream);
  if (there_) return;
  CUcontext of_stream = nullptr;
  CUcontext current = nullptr;
  if (real::cuStreamGetCtx(stream, &of_stream) != CUDA_SUCCESS || of_stream == nullptr) return;
  if (real::cuCtxGetCurrent(&current) != CUDA_SUCCESS) return;
  there_ = current == of_stream;
  if (there_) return;
  elsewhere_ = real::cuCtxPushCurrent_v2(of_stream) == CUDA_SUCCESS;
  there_ = elsewhere_;
}

OnContextOf::~OnContextOf() {
  CUcontext popped = nullptr;
  if (elsewhere_) real::cuCtxPopCurrent_v2(&popped);
}

void ContextMade(CUcontext handle, CUdevice ordinal, ContextKind kind, uint64_t bytes) {
  const int device = DeviceOfOrdinal(ordinal);
  const Locked locked(Registry().lock);
  Known* known = FindLocked(handle);
  if (known == nullptr) known = AddLocked(handle, ordinal, device, kind);
  if (known != nullptr) {
    known->kind = kind;
    known->bytes += bytes;
    known->counted = true;
    ++known->retained;
  }
  KeepNvmlWhile(CountLocked());
}

bool ForgetContext(CUcontext handle, EndedContext* out) {
  const Locked locked(Registry().lock);
  Known* const known = FindLocked(handle);
  if (known == nullptr) return false;
  *out = {handle, known->ordinal, known->device, known->id, known->bytes};
  Registry().known.Remove(known);
  HandlesChange();
  KeepNvmlWhile(CountLocked());
  return true;
}

ContextEnd::ContextEnd(CUcontext handle) {
  HandlesChange();  // its streams end with it
  Registry().ends.fetch_add(1, std::memory_order_relaxed);
  {
    const Locked locked(Registry().lock);
    Known* const known = FindLocked(handle);
    if (known == nullptr) return;
    ++known->ends;
    id_ = known->id;
  }
  TellContextEnding();
}

ContextEnd::ContextEnd(CUdevice of_primary) : ContextEnd(PrimaryOf(of_primary)) {}

ContextEnd::~ContextEnd() {
  HandlesChange();
  bool left = false;
  {
    const Locked locked(Registry().lock);
    Known* const known = FindIdLocked(id_);
    if (known != nullptr && --known->ends == 0) {  // it was not the end
      left = known->left;
      known->left = false;
    }
  }
  if (left) TellContextStays(id_);
  Registry().ends.fetch_sub(1, std::memory_order_relaxed);
}

bool LeaveToContextEnd(uint32_t id, void (*leave)(void* what), void* what) {
  // Not to be missed by those that look for it when the context is no longer known, or no longer ending.
  const Locked locked(Registry().lock);
  Known* const known = FindIdLocked(id);
  if (known == nullptr || known->ends == 0) return false;
  known->left = true;
  leave(what);
  return true;
}

bool ContextLives(CUcontext handle) {
  const Locked locked(Registry().lock);
  const Known* const known = FindLocked(handle);
  return known != nullptr && known->ends == 0;
}

CUcontext PrimaryOf(CUdevice ordinal) {
  const Locked locked(Registry().lock);
  const Known* const known = FindPrimaryLocked(ordinal);
  return known == nullptr ? nullptr : known->handle;
}

bool LastOfPrimary(CUdevice ordinal) {
  const Locked locked(Registry().lock);
  const Known* const known = FindPrimaryLocked(ordinal);
  return known == nullptr || known->retained <= 1;
}

void PrimaryReleased(CUdevice ordinal) {
  const Locked locked(Registry().lock);
  Known* const known = FindPrimaryLocked(ordinal);
  if (known != nullptr && known->retained > 0) --known->retained;
}

int ContextsOn(int device) {
  const Locked locked(Registry().lock);
  return CountLocked(device);
}

bool ContextsOnlyOn(int device) {
  const Locked locked(Registry().lock);
  for (const Known& known : Registry().known) {
    if (known.device != device) return false;
  }
  return true;
}

void ResetContexts() {
  Registry().lock.Reset();
  Registry().known.Clear();
  Registry().ends.store(0, std::memory_order_relaxed);
  HandlesChange();
}

}  // namespace hami::vgpu
