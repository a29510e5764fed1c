// SPDX-License-Identifier: Apache-2.0
#include "region/semaphore.h"

#include "region/lock.h"
#include "region/process.h"

namespace hami::region {
namespace {

constexpr int64_t kOrphanAge = 200'000'000;

bool OwnerGone(const Attachment& attachment, uint64_t owner) {
  // Under the lock no thread of this process holds the semaphore: its own pid there is a predecessor's.
  if (owner == static_cast<uint64_t>(attachment.pid)) return true;
  if (owner > INT32_MAX) return true;
  return ReadProcessStat(static_cast<int32_t>(owner)).presence == Presence::kGone;
}

void TakeOver(Attachment* attachment) {
  Store(attachment->region->sem.value, 0);
  Store(attachment->region->owner_pid, static_cast<uint64_t>(attachment->pid));
}

}  // namespace

bool TrySemaphore(Attachment* attachment, SemaphoreWatch* watch, int64_t now_ns) {
  Region& region = *attachment->region;
  uint32_t value = Load(region.sem.value);
  if (value > 0) {
    Store(attachment->area->sem_intent, 1);
    HAMI_KILL_POINT(3);
    // More than 1 is a repair that its slow owner did not expect: taking it sets that right.
    const bool taken =
        __atomic_compare_exchange_n(&region.sem.value, &value, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    HAMI_KILL_POINT(4);
    if (taken) Store(region.owner_pid, static_cast<uint64_t>(attachment->pid));
    Store(attachment->area->sem_intent, 0);
    return taken;
  }
  const uint64_t owner = Load(region.owner_pid);
  if (owner != 0) {
    watch->orphan_since = 0;
    if (!OwnerGone(*attachment, owner)) return false;
    TakeOver(attachment);
    return true;
  }
  // Taken, but by nobody: its owner is between two instructions, or died there.
  if (watch->orphan_since == 0) watch->orphan_since = now_ns;
  if (now_ns - watch->orphan_since < kOrphanAge) return false;
  TakeOver(attachment);
  return true;
}

void ForceSemaphore(Attachment* attachment) { TakeOver(attachment); }

void ReleaseSemaphore(Attachment* attachment) {
  Region& region = *attachment->region;
  Store(attachment->area->sem_intent, 1);
  HAMI_KILL_POINT(5);
  Store(region.owner_pid, 0);
  HAMI_KILL_POINT(6);
  Store(region.sem.value, 1);
  Store(attachment->area->sem_intent, 0);
  // Which of the other words counts the waiters depends on their glibc; a needless wake-up is harmless.
  if ((Load(region.sem.rest[0]) | Load(region.sem.rest[1]) | Load(region.sem.rest[2])) != 0) {
    FutexWake(&region.sem.value, 1);
  }
}

void RepairSemaphore(Attachment* attachment) {
  Region& region = *attachment->region;
  const uint64_t owner = Load(region.owner_pid);
  const bool intent = Load(attachment->area->sem_intent) != 0;
  if (Load(region.sem.value) == 0 && ((owner == 0 && intent) || (owner != 0 && OwnerGone(*attachment, owner)))) {
    ReleaseSemaphore(attachment);
  }
  Store(attachment->area->sem_intent, 0);
}

}  // namespace hami::region
