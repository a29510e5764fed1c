// SPDX-License-Identifier: Apache-2.0
//
// Contexts: which one and which device a call is about, which ones this process has, and their end. Invariant: a
// context that the driver may be ending is known as such (ContextLives) before its end begins. What a context's memory
// costs is memory/context_memory.h's business; whoever keeps something of a context hears of its end (listeners.h).
#pragma once

#include <stdint.h>

#include <atomic>

#include "abi/cuda_abi.h"
#include "vgpu/runtime/listeners.h"
#include "vgpu/runtime/lock.h"
#include "vgpu/runtime/mapped_vector.h"

namespace hami::vgpu {

// A context and its device, as this library counts them.
struct ContextRef {
  uint32_t id = 0;  // 0 = none
  CUdevice ordinal = -1;
  int device = -1;  // region index, kUnlimited or kForbidden
};

// False when the thread has no current context: the driver knows the right error.
bool CurrentContext(ContextRef* out);

// Changes whenever a handle of a context or a stream may have become another one's, and before it may. Read at every
// launch where there are several devices, written when one ends: a cache line of its own.
struct alignas(64) Handles {
  std::atomic<uint32_t> epoch{1};
};
extern constinit Handles g_handles;
inline uint32_t HandleEpoch() { return g_handles.epoch.load(std::memory_order_acquire); }
inline void HandlesChange() { g_handles.epoch.fetch_add(1, std::memory_order_acq_rel); }

// Lives around the driver's call that ends a stream. A launch on the stream meanwhile may see it before or after the
// call.
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
  // The current context is the stream's. Where the driver did not tell, it is unknown.
  bool there() const { return there_; }

 private:
  bool elsewhere_ = false;
  bool there_ = false;
};

enum class ContextKind : uint8_t { kPrimary, kCreated, kGreen };

struct KnownContext {
  CUcontext handle;
  CUdevice ordinal;
  int device;
  uint32_t id;
  uint64_t bytes;  // charged as context memory
  ContextKind kind;
  bool counted;       // made through us; others were only seen being current
  uint32_t retained;  // a primary one, by this process since it was first seen
  uint32_t ends;      // ContextEnds alive
  bool left;          // something is left to them
};

// The contexts of this process (runtime.h).
struct ContextRegistry {
  Lock lock{LockRank::kContexts};  // guards what follows
  MappedVector<KnownContext> known;
  uint32_t last_id = 0;

  std::atomic<uint32_t> ends{0};  // ContextEnds alive
};

// After the driver made a context, or gave one more reference to a primary one. `bytes` is what it was charged.
void ContextMade(CUcontext handle, CUdevice ordinal, ContextKind kind, uint64_t bytes);

// Lives around the driver's call that ends a context, or a reference to it, and what follows from that. The driver
// takes a context down piece by piece, and an address may be another thread's before its bytes are free: whatever was
// charged in the context counts until this ends, even if another thread frees or reuses the address meanwhile.
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
// Calls `leave` with the registry locked and answers true, while a ContextEnd of that context lives.
bool LeaveToContextEnd(uint32_t id, void (*leave)(void* what), void* what);

// Known, and its end has not begun. What of ours lives in it may be used then.
bool ContextLives(CUcontext handle);

// After the driver ended a context (a green one goes by what ContextMade got). False: it was not known.
bool ForgetContext(CUcontext handle, EndedContext* out);

// The primary context as far as it is known; else nullptr.
CUcontext PrimaryOf(CUdevice ordinal);
// Whether a release would be the last, as far as references were taken through us.
bool LastOfPrimary(CUdevice ordinal);
// After a release or a reset.
void PrimaryReleased(CUdevice ordinal);

// Live contexts that this process is known to have on a region device.
int ContextsOn(int device);
// None is known on another device.
bool ContextsOnlyOn(int device);

void ResetContexts();

}  // namespace hami::vgpu
