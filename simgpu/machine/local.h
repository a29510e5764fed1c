// SPDX-License-Identifier: Apache-2.0
//
// What belongs to this process alone and must be forgotten by a forked child: its slot and the lock of attaching. It
// lies in a page that the kernel wipes in the child, so no fork handler is needed and a lock that another thread held
// at the fork is free again.
#pragma once

#include "simgpu/machine/state.h"

namespace simgpu {

// A spin lock with sleep: held only while attaching.
class LocalLock {
 public:
  LocalLock();
  ~LocalLock();
  LocalLock(const LocalLock&) = delete;
  LocalLock& operator=(const LocalLock&) = delete;
};

// This process's slot, attached at its first use and after a fork; -1 when the table is full.
int OwnSlot(State& state);
// The same with the machine's lock held.
int OwnSlotLocked(State& state);

}  // namespace simgpu
