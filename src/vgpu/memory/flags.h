// SPDX-License-Identifier: Apache-2.0
//
// What a call that changes no memory has to look at before it does nothing: one cache line, which launches and
// synchronisations read and which is written seldom. Invariant: a word is zero only while there is nothing to do; its
// owner, which the comment names, sets it under its own lock. Everything else that memory keeps is in memory.h.
#pragma once

#include <stdint.h>

#include <atomic>

namespace hami::vgpu {

struct alignas(64) MemoryFlags {
  std::atomic<uint32_t> graph_devices{0};     // graphs.h: bit d: a graph with allocation nodes on device d was made
  std::atomic<bool> free_events{false};       // free_events.h: there are events that nobody has seen passed
  std::atomic<bool> pools_may_shrink{false};  // pools.h: some pool holds memory that a synchronisation may release
  std::atomic<bool> uses_end_later{false};    // sparse_multicast.h: uses wait for a stream to get to their end
  std::atomic<bool> modules_pending{
      false};                              // modules.h: something may have grown, to be measured with the next request
  std::atomic<bool> modules_known{false};  // modules.h: something was loaded on some device
};
extern MemoryFlags g_memory_flags;

}  // namespace hami::vgpu
