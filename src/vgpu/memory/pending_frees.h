// SPDX-License-Identifier: Apache-2.0
//
// Frees in stream order that may still be under way: how much a pool has been promised back, and by which stream.
// Invariant: whatever the driver can not reuse yet for an allocation on some stream is part of Unreached() for it, from
// before the driver's call that frees it until a wait has proved that the stream got there. Memory that a stream freed
// is at once the same stream's again (CUDA promises that), so it is no part of what is unreached for that stream.
// A wait of the program's proves it, or the driver, asked whether a stream has nothing left to do. Streams are told
// apart by the driver's numbers, which are never reused as handles are; where the driver gives none, nothing is known
// to be the same stream.
#pragma once

#include <stdint.h>

#include <atomic>

#include "abi/cuda_abi.h"
#include "vgpu/runtime/mapped_vector.h"

namespace hami::vgpu {

// A stream as the driver knows it. 0 and nullptr: unknown, and never the same as another.
struct StreamId {
  uint64_t number = 0;
  CUcontext context = nullptr;
};
// A per-thread stream is the calling thread's.
StreamId StreamIdOf(CUstream stream);

// What a wait of the program's has proved: all that was freed before it began, on one stream or in one context.
struct Waited {
  uint64_t frees = 0;  // PendingFrees::SoFar() before the wait
  StreamId on;         // unknown parts match nothing
};
bool Reaches(const Waited& waited, const StreamId& on, uint64_t number);

// The caller holds the pools' lock, unless a function says otherwise.
class PendingFrees {
 public:
  // No lock needed: how many there were, of pools and of others that go by their number.
  uint64_t SoFar() const { return so_far_.load(std::memory_order_acquire); }
  // No lock needed: the number of something that a stream has just been asked to let go of.
  uint64_t Next() { return so_far_.fetch_add(1, std::memory_order_release) + 1; }

  // Around the driver's call. Until it ends, no wait can be one for this free. `handle` is the stream as the program
  // named it.
  void Begin(uint64_t pool, uint64_t bytes);
  void End(uint64_t pool, uint64_t bytes, const StreamId& stream, CUstream handle, bool freed);

  // Bytes that the driver may not be able to reuse on that stream now; of all streams, if it is unknown.
  uint64_t Unreached(uint64_t pool, const StreamId& stream = {}) const;
  void Reached(const Waited& waited);
  // Streams that have nothing left to do have reached what they freed. Asks the driver, and waits for nothing. `lives`
  // answers whether what is in a context may be used.
  void AskStreams(bool (*lives)(CUcontext context));
  // The handle means nothing any more; nullptr: none that is known does.
  void ForgetStream(CUstream handle);
  // The context and all its streams have ended.
  void ForgetContext(CUcontext context);
  void ForgetPool(uint64_t pool);

  void Reset();

 private:
  struct Freed {
    uint64_t pool;
    uint64_t bytes;
    uint64_t last;  // number of the youngest free in it
    StreamId on;
    CUstream handle;
    bool in_call;  // the driver is being asked; not to be reached by any wait
    bool askable;  // the handle is valid
  };
  // The record to add to; nullptr without memory.
  Freed* RecordOf(uint64_t pool, const StreamId& on, bool in_call);
  template <typename Which>
  void RemoveIf(Which which);
  static bool Idle(const Freed& freed);

  MappedVector<Freed> list_;
  std::atomic<uint64_t> so_far_{0};
};

}  // namespace hami::vgpu
