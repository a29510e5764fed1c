// SPDX-License-Identifier: Apache-2.0
//
// Contexts: which device a call is about, what each context costs, and what ends with it. A context's size is not known
// before it exists, so the size the container learnt last is reserved first and the difference is settled afterwards;
// one that does not fit then is taken down again. When a context dies, everything charged in it is refunded.
#pragma once

#include <stdint.h>

#include <atomic>

#include "abi/cuda_abi.h"
#include "vgpu/policy/gate.h"
#include "vgpu/policy/lock.h"
#include "vgpu/policy/table.h"

namespace hami::vgpu {

// Where a call of this thread takes place. `context` is our number for the current context, 0 = none.
struct Place {
  uint32_t context = 0;
  CUdevice ordinal = -1;
  int device = -1;  // region index, kUnlimited or kForbidden
};

// False when the thread has no current context: the driver knows the right error.
bool CurrentPlace(Place* out);

// Makes the context of a stream current while it lives, where that is another one: a kernel of a library, a graph and
// memory from a pool go where their stream is, whatever is current, and even where nothing is.
class OnContextOf {
 public:
  explicit OnContextOf(CUstream stream);
  ~OnContextOf();
  OnContextOf(const OnContextOf&) = delete;
  OnContextOf& operator=(const OnContextOf&) = delete;
  bool elsewhere() const { return elsewhere_; }

 private:
  bool elsewhere_ = false;
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
// is done. Comes before the gate.
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

// After the driver destroyed a context (or a green context: pass what MakeContext's `handle` gave), in the passage in
// which it did; that becomes the one in which the rest is measured.
void ContextGone(CUcontext handle, Passage* passage);
// After a release or reset of the primary context: settles if it is no longer active.
void PrimaryMayBeGone(CUdevice ordinal, Passage* passage);

// Live contexts that this process is known to have on a region device.
int ContextsOn(int device);

void ResetContexts();

}  // namespace hami::vgpu
