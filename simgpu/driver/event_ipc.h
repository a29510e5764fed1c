// SPDX-License-Identifier: Apache-2.0
//
// Events that several processes use: a pair of counters in memory that all of them map. A record is a number, the next
// one; it is reached when the stream that it was put into has come to it. Who waits, waits until the last number at the
// time of its call is reached. The memory is the process' that created the event; it is kept mapped by whoever opened
// one of its events, because a stream may still have to write there.
//
// What a process recorded and did not come to when it was killed is never reached.
#pragma once

#include <atomic>
#include <cstdint>

#include "abi/cuda_abi.h"

namespace simgpu {

struct SharedEvent {
  std::atomic<std::uint64_t> id;        // 0: free
  std::atomic<std::uint64_t> recorded;  // the last number given out
  std::atomic<std::uint64_t> reached;
  std::atomic<std::uint64_t> before;  // the last number that the place's former event gave out

  bool Recorded() const { return recorded.load() != before.load(); }
  bool Done() const { return reached.load() >= recorded.load(); }
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && sizeof(SharedEvent) == 32);

// Null when there are too many. The caller serialises these two.
SharedEvent* NewSharedEvent();
// Its numbers go on where they are when the place is used again: a late record of the old one changes nothing.
void FreeSharedEvent(SharedEvent* event);

void ExportEvent(const SharedEvent& event, int machine, CUipcEventHandle* out);
// CUDA_ERROR_INVALID_HANDLE for what names no live event, CUDA_ERROR_INVALID_CONTEXT for one of this very process.
CUresult ImportEvent(const CUipcEventHandle& handle, SharedEvent** out);

}  // namespace simgpu
