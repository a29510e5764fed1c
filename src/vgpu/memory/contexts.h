// SPDX-License-Identifier: Apache-2.0
//
// Contexts: which device a call is about, what each context costs, and what ends with it. A context's size is not known
// before it exists, so the size the container learnt last is reserved first and the difference is settled afterwards;
// one that does not fit then is taken down again. When a context dies, everything charged in it is refunded.
#pragma once

#include <stdint.h>

#include <atomic>

#include "abi/cuda_abi.h"
#include "vgpu/memory/measure_lock.h"
#include "vgpu/memory/table.h"
#include "vgpu/runtime/lock.h"

namespace hami::vgpu {

// Where a call of this thread takes place. `context` is our number for the current context, 0 = none.
struct Place {
  uint32_t context = 0;
  CUdevice ordinal = -1;
  int device = -1;  // region index, kUnlimited or kForbidden
};

// False when the thread has no current context: the driver knows the right error.
bool CurrentPlace(Place* out);

// Changes whenever a handle of a context or a stream may have become another one's, and before it may. Read at every
// launch where there are several devices, written when one ends: a cache line of its own.
struct alignas(64) Handles {
  std::atomic<uint32_t> epoch{1};
};
extern constinit Handles g_handles;
inline uint32_t HandleEpoch() { return g_handles.epoch.load(std::memory_order_acquire); }
inline void HandlesChange() { g_handles.epoch.fetch_add(1, std::memory_order_acq_rel); }

// Lives around the driver's call that ends a stream. Whoever launches on the stream meanwhile may see it before or
// after the call.
class StreamEnd {
 public:
  StreamEnd() { HandlesChange(); }
  ~StreamEnd() { HandlesChange(); }
  StreamEnd(const StreamEnd&) = delete;
  StreamEnd& operator=(const StreamEnd&) = delete;
};

// The streams that every context has: which one is meant depends on the current context.
inline bool OfCurrentContext(CUstream stream) {
  return stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

// Makes the context of a stream current while it lives, where that is another one: a kernel of a library, a graph and
// memory from a pool go where their stream is, whatever is current, and even where nothing is.
class OnContextOf {
 public:
  explicit OnContextOf(CUstream stream);
  ~OnContextOf();
  OnContextOf(const OnContextOf&) = delete;
  OnContextOf& operator=(const OnContextOf&) = delete;
  bool elsewhere() const { return elsewhere_; }
  // The current context is the stream's. Where the driver did not tell, nobody knows.
  bool there() const { return there_; }

 private:
  bool elsewhere_ = false;
  bool there_ = false;
};

enum class ContextKind : uint8_t { kPrimary, kCreated, kGreen };

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

// Lives around the driver's call that ends a context, or a reference to it, and what follows from that. The driver
// takes a context down piece by piece, and an address may be another thread's before its bytes are free: whatever was
// charged in the context counts until this ends, whoever frees that address or is given it.
class ContextEnd {
 public:
  explicit ContextEnd(CUcontext handle);
  explicit ContextEnd(CUdevice of_primary);
  ~ContextEnd();
  ContextEnd(const ContextEnd&) = delete;
  ContextEnd& operator=(const ContextEnd&) = delete;

 private:
  uint32_t id_ = 0;
};
// True when a ContextEnd will refund it.
bool LeftToContextSlow(const Entry& entry);
extern std::atomic<uint32_t> g_context_ends;  // alive
inline bool LeftToContext(const Entry& entry) {
  return g_context_ends.load(std::memory_order_relaxed) != 0 && LeftToContextSlow(entry);
}

// Known, and nobody has begun to end it. What of ours lives in it may be used then.
bool ContextLives(CUcontext handle);

// After the driver destroyed a context (or a green context: pass what MakeContext's `handle` gave), under the measure
// lock under which it did; the rest is measured under the same one.
void ContextGone(CUcontext handle, MeasureLock* measure_lock);
// Whether a release would be the last, as far as references were taken through us. With PrimaryLock held, as for:
bool LastOfPrimary(CUdevice ordinal);
// After a release or reset of the primary context: settles if it is no longer active.
void PrimaryLetGo(CUdevice ordinal, MeasureLock* measure_lock);

// Live contexts that this process is known to have on a region device.
int ContextsOn(int device);

void ResetContexts();

}  // namespace hami::vgpu
