// SPDX-License-Identifier: Apache-2.0
//
// Stream-ordered allocation, pools, and the synchronisations at which a pool gives memory back. Each function and its
// per-thread-stream twin share one body.

#include "vgpu/memory/pools.h"

#include "vgpu/loader/driver.h"
#include "vgpu/memory/charge.h"
#include "vgpu/memory/free_events.h"
#include "vgpu/memory/memory.h"
#include "vgpu/memory/modules.h"
#include "vgpu/memory/oversubscription.h"
#include "vgpu/memory/sparse_multicast.h"
#include "vgpu/pacer/pacer.h"
#include "vgpu/runtime/capture.h"

using namespace hami::vgpu;  // NOLINT: this file only exports

namespace {

// Where memory for a stream comes from. A stream of another context than the current one is on that context's device.
bool ContextOfStream(CUstream stream, ContextRef* out) {
  const OnContextOf there(stream);
  return CurrentContext(out);
}

bool CurrentPool(const ContextRef& context, CUmemoryPool* pool) {
  const RelaxedCapture relaxed;
  return real::cuDeviceGetMemPool(pool, context.ordinal) == CUDA_SUCCESS;
}

CUstream Meant(CUstream stream, bool per_thread) {
  return per_thread && stream == nullptr ? CU_STREAM_PER_THREAD : stream;
}

// `allocate` is the driver's function with everything but `out` bound.
template <typename Allocate>
CUresult FromPool(CUdeviceptr* out, size_t bytes, const ContextRef& context, CUmemoryPool pool, CUstream stream,
                  Allocate allocate) {
  const PoolRequest request{context, pool, out, bytes, stream, StreamIdOf(stream)};
  const CUresult result = AllocateFromPool(request, allocate, [&] { real::cuMemFreeAsync(*out, stream); });
  if (result != CUDA_ERROR_OUT_OF_MEMORY || !settings().oversubscribe) return result;
  return ChargedOrSpilled({context, bytes, out}, [] { return CUDA_ERROR_OUT_OF_MEMORY; });
}

template <typename Allocate>
CUresult FromCurrentPool(CUdeviceptr* out, size_t bytes, CUstream stream, Allocate allocate) {
  ContextRef context;
  CUmemoryPool pool = nullptr;
  // Recorded into a graph, nothing is allocated now: the graph's memory is charged when it is launched.
  if (!Active() || out == nullptr || bytes == 0 || BeingCaptured(stream) || !ContextOfStream(stream, &context) ||
      !CurrentPool(context, &pool)) {
    return allocate();
  }
  return FromPool(out, bytes, context, pool, stream, allocate);
}

template <typename Allocate>
CUresult FromGivenPool(CUdeviceptr* out, size_t bytes, CUmemoryPool pool, CUstream stream, Allocate allocate) {
  ContextRef context;
  if (!Active() || out == nullptr || bytes == 0 || pool == nullptr || BeingCaptured(stream) ||
      !ContextOfStream(stream, &context)) {
    return allocate();
  }
  return FromPool(out, bytes, context, pool, stream, allocate);
}

template <typename Free>
CUresult FreePlainInOrder(CUdeviceptr pointer, CUstream stream, Free free) {
  const StreamId name = StreamIdOf(stream);
  const MeasureLock measure_lock(LockMode::kShared);
  Entry entry;
  if (!table().Take(HandleKind::kPointer, pointer, &entry)) return free();
  BeginLeave(&entry);
  const CUresult result = free();
  if (result != CUDA_SUCCESS) {
    Restore(entry);
  } else if (!LeftToContext(entry)) {
    // Others may be in its blocks and leave them before the stream gets here: so long they count for it, whole.
    const uint64_t blocks = BlocksOf(entry);
    ChargeAnyway(entry.device, blocks, Kind::kData);
    Refund(entry.device, LeaveBlocks(entry), Kind::kData);
    VmmFreedLater(entry.device, blocks, name);
    if (!RecordFreeEvent(stream, name)) SettleFrees();
  }
  return result;
}

// Memory that stands in for a pool's has no stream-ordered free: the stream is waited for instead.
template <typename Free>
CUresult FreeInOrder(CUdeviceptr pointer, CUstream stream, Free free) {
  // Of a free that is recorded nothing is known but that it may come later: what is charged stays.
  if (!Active() || BeingCaptured(stream)) return free();
  Entry entry;
  table().Find(HandleKind::kPointer, pointer, &entry);
  if ((entry.flags & kFromPool) != 0) {
    const StreamId name = StreamIdOf(stream);
    PoolFreeBegins(entry);
    const CUresult result = Uncharged(HandleKind::kPointer, pointer, free);
    PoolFreeEnds(entry, name, stream, result == CUDA_SUCCESS);
    return result;
  }
  if (entry.kind == HandleKind::kNone) return free();
  if ((entry.flags & kSpilled) == 0) return FreePlainInOrder(pointer, stream, free);
  const CUresult result = real::cuStreamSynchronize(stream);
  if (result != CUDA_SUCCESS) return result;
  return Uncharged(HandleKind::kPointer, pointer, [&] { return real::cuMemFree_v2(pointer); });
}

// The program's wait for what `name` tells; that is asked only if something may be learnt from it.
template <typename Name, typename Wait>
CUresult Synchronised(Name name, Wait wait) {
  Waited waited;
  if (g_memory_flags.pools_may_shrink.load(std::memory_order_relaxed) || VmmUsesEndLater()) {
    waited = {g_memory.pools.frees.SoFar(), name()};
  }
  const CUresult result = wait();
  if (result == CUDA_SUCCESS && VmmUsesEndLater()) {
    const MeasureLock measure_lock(LockMode::kShared);
    VmmReached(waited);
    SettleFrees();
  }
  AfterSynchronise(result == CUDA_SUCCESS ? waited : Waited{});
  ModulesSynchronised();
  return result;
}

template <typename Wait>
CUresult StreamSynchronised(CUstream stream, Wait wait) {
  const auto name = [stream] { return StreamId{StreamIdOf(stream).number, nullptr}; };
  return Synchronised(name, wait);
}

template <typename Wait>
CUresult ContextSynchronised(CUcontext context, Wait wait) {
  const auto name = [context] {
    CUcontext waited_for = context;
    if (context == nullptr) real::cuCtxGetCurrent(&waited_for);
    return StreamId{0, waited_for};
  };
  return Synchronised(name, wait);
}

StreamId Nothing() { return {}; }

// A pool that the driver hands out of its own.
CUresult Met(CUresult result, const CUmemoryPool* out, const CUmemLocation& location) {
  if (result == CUDA_SUCCESS && out != nullptr && Active()) PoolMet(*out, location);
  return result;
}
CUresult Met(CUresult result, const CUmemoryPool* out, CUdevice ordinal) {
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = ordinal;
  return Met(result, out, location);
}

void StreamEnds(CUstream stream) {
  PoolsLoseStream(stream);
  PacerLeaveStream(stream);
}

}  // namespace

HAMI_EXPORT CUresult cuMemAllocAsync(CUdeviceptr* out, size_t bytes, CUstream stream) {
  return FromCurrentPool(out, bytes, stream, [&] { return real::cuMemAllocAsync(out, bytes, stream); });
}

HAMI_EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr* out, size_t bytes, CUstream stream) {
  return FromCurrentPool(out, bytes, Meant(stream, true),
                         [&] { return real::cuMemAllocAsync_ptsz(out, bytes, stream); });
}

HAMI_EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr* out, size_t bytes, CUmemoryPool pool, CUstream stream) {
  return FromGivenPool(out, bytes, pool, stream,
                       [&] { return real::cuMemAllocFromPoolAsync(out, bytes, pool, stream); });
}

HAMI_EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* out, size_t bytes, CUmemoryPool pool, CUstream stream) {
  return FromGivenPool(out, bytes, pool, Meant(stream, true),
                       [&] { return real::cuMemAllocFromPoolAsync_ptsz(out, bytes, pool, stream); });
}

HAMI_EXPORT CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
  return FreeInOrder(pointer, stream, [&] { return real::cuMemFreeAsync(pointer, stream); });
}

HAMI_EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream) {
  return FreeInOrder(pointer, Meant(stream, true), [&] { return real::cuMemFreeAsync_ptsz(pointer, stream); });
}

HAMI_EXPORT CUresult cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps* props) {
  const CUresult result = real::cuMemPoolCreate(out, props);
  if (result == CUDA_SUCCESS && out != nullptr && props != nullptr && Active()) PoolCreated(*out, *props);
  return result;
}

HAMI_EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* out, CUdevice ordinal) {
  return Met(real::cuDeviceGetDefaultMemPool(out, ordinal), out, ordinal);
}
HAMI_EXPORT CUresult cuDeviceGetMemPool(CUmemoryPool* out, CUdevice ordinal) {
  return Met(real::cuDeviceGetMemPool(out, ordinal), out, ordinal);
}
HAMI_EXPORT CUresult cuMemGetDefaultMemPool(CUmemoryPool* out, CUmemLocation* location, CUmemAllocationType type) {
  const CUresult result = real::cuMemGetDefaultMemPool(out, location, type);
  return location == nullptr ? result : Met(result, out, *location);
}
HAMI_EXPORT CUresult cuMemGetMemPool(CUmemoryPool* out, CUmemLocation* location, CUmemAllocationType type) {
  const CUresult result = real::cuMemGetMemPool(out, location, type);
  return location == nullptr ? result : Met(result, out, *location);
}

HAMI_EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  if (!Active()) return real::cuMemPoolDestroy(pool);
  const MeasureLock measure_lock(LockMode::kShared);
  PoolDestroying(pool);
  const CUresult result = real::cuMemPoolDestroy(pool);
  if (result == CUDA_SUCCESS) PoolDestroyed(pool);
  return result;
}

HAMI_EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
  return Synchronised(Nothing, [&] { return real::cuMemPoolTrimTo(pool, keep); });
}

HAMI_EXPORT CUresult cuStreamDestroy(CUstream stream) {
  if (Active()) StreamEnds(stream);
  const StreamEnd end;
  return real::cuStreamDestroy(stream);
}
HAMI_EXPORT CUresult cuStreamDestroy_v2(CUstream stream) {
  if (Active()) StreamEnds(stream);
  const StreamEnd end;
  return real::cuStreamDestroy_v2(stream);
}

HAMI_EXPORT CUresult cuStreamSynchronize(CUstream stream) {
  return StreamSynchronised(stream, [&] { return real::cuStreamSynchronize(stream); });
}
HAMI_EXPORT CUresult cuStreamSynchronize_ptsz(CUstream stream) {
  return StreamSynchronised(Meant(stream, true), [&] { return real::cuStreamSynchronize_ptsz(stream); });
}
// Which streams an event stood on, nobody says; what it waited for may be known by an event of ours.
HAMI_EXPORT CUresult cuEventSynchronize(CUevent event) {
  return Synchronised(Nothing, [&] { return real::cuEventSynchronize(event); });
}
HAMI_EXPORT CUresult cuCtxSynchronize() {
  return ContextSynchronised(nullptr, [] { return real::cuCtxSynchronize(); });
}
HAMI_EXPORT CUresult cuCtxSynchronize_v2(CUcontext context) {
  return ContextSynchronised(context, [&] { return real::cuCtxSynchronize_v2(context); });
}
