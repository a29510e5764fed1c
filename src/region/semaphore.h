// SPDX-License-Identifier: Apache-2.0
//
// HAMi's semaphore over the slot table (Region.sem, Region.owner_pid), kept usable for HAMi-core processes in the same
// file. Our own processes take it only while they hold the region's lock, and give it back before they drop that lock;
// so whatever is found taken under the lock belongs to HAMi-core or to somebody dead, and an orphan of ours is repaired
// by whoever takes the lock from the dead. The words are handled directly: the value is the first word of a sem_t in
// every glibc, the rest differs, and libc's own functions are too new (2.34) for the library's floor.

#pragma once

#include "region/region.h"

namespace hami::region {

struct SemaphoreWatch {
  int64_t orphan_since = 0;  // since when it is taken by nobody
};

// Under the lock. True if taken now: free, left by a dead owner, or taken by nobody for 200 ms.
bool TrySemaphore(Attachment* attachment, SemaphoreWatch* watch, int64_t now_ns);
// Under the lock: takes it from an owner that has kept it far beyond what its work takes.
void ForceSemaphore(Attachment* attachment);
void ReleaseSemaphore(Attachment* attachment);
// Under a lock that was just taken from a dead owner.
void RepairSemaphore(Attachment* attachment);

}  // namespace hami::region
