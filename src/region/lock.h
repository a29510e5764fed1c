// SPDX-License-Identifier: Apache-2.0
//
// The one lock of a region: a 64-bit word in the private area, taken by CAS, waited for by futex, and recovered from a
// dead owner. The word names its owner by slot index and token number, so that whoever waits can find out whether the
// owner lives (SlotAlive) and take the lock from the dead; the recovery then repairs what the dead left half done. Held
// for a few stores, or, while the slot table changes, for a few system calls. No wait is longer than kLockTimeout.
//
// A process that was stopped inside (a debugger, Ctrl-Z, a frozen container) keeps nobody out: after kLoanTime the lock
// is taken from the living, too. What that owner does when it goes on is made right by itself: a sum is only changed by
// adding to what is there or if it is still what it was, nobody else writes an owner's slot, and Unlock says that the
// lock was lost, whereupon the owner takes it again, writes its slot anew and counts the sums (Reaffirm). Until then a
// grant is not made: it is looked at once more against the limit, before the driver is asked.
//
// The word knows processes, so the threads of a process take turns first (Attachment.turn): else a thread whose lock
// was taken from it could go on while another one has it in the same name.
//
// Before it has a slot a process takes the lock as "an attacher", one at a time: it holds the record lock
// kAttachLockByte, and, against its own threads, a process-local lock. When that one does not get on, the next one goes
// by another lane, with a byte of its own.

#pragma once

#include <bit>
#include <cstdint>

#include "region/process.h"
#include "region/region.h"

// A test defines this to die at chosen places.
#ifndef HAMI_KILL_POINT
#define HAMI_KILL_POINT(number) static_cast<void>(0)
#endif

namespace hami::region {

inline constexpr int64_t kLockTimeout = 2'000'000'000;
// Longer than any owner that runs holds it.
inline constexpr int64_t kLoanTime = 100'000'000;

static_assert(std::endian::native == std::endian::little, "the futex is the low half of the lock word");
inline constexpr uint64_t kLockWaiters = uint64_t{1} << 31;
inline constexpr uint64_t kLockIndexMask = 0x7ff;
inline constexpr uint32_t kAttacherIndex = kMaxSlots;  // of the first lane
inline constexpr uint32_t kAttachLanes = 8;

constexpr uint64_t MakeLockId(uint32_t index, uint64_t number) {
  number &= kTokenNumberMask;
  return (index + 1) | (number & 0xfffff) << 11 | (number >> 20) << 32;
}
constexpr uint32_t LockIndex(uint64_t word) { return static_cast<uint32_t>(word & kLockIndexMask) - 1; }
constexpr uint64_t LockNumber(uint64_t word) { return (word >> 11 & 0xfffff) | (word >> 32 & 0x3fffff) << 20; }
static_assert(LockIndex(MakeLockId(kAttacherIndex, 0x2aa'5555'5555)) == kAttacherIndex);
static_assert(LockNumber(MakeLockId(7, 0x2aa'5555'5555) | kLockWaiters) == 0x2aa'5555'5555);

inline bool CompareExchange(uint64_t& word, uint64_t expected, uint64_t desired) {
  return __atomic_compare_exchange_n(&word, &expected, desired, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

// Attachment.turn
inline constexpr uint32_t kTurnFree = 0;
inline constexpr uint32_t kTurnTaken = 1;
inline constexpr uint32_t kTurnAwaited = 2;  // taken, and other threads may be asleep

inline bool TakeTurn(Attachment* attachment, uint32_t as = kTurnTaken) {
  uint32_t expected = kTurnFree;
  return __atomic_compare_exchange_n(&attachment->turn, &expected, as, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}
inline void EndTurn(Attachment* attachment) {
  if (__atomic_exchange_n(&attachment->turn, kTurnFree, __ATOMIC_RELEASE) == kTurnAwaited) {
    FutexWake(&attachment->turn, 1);
  }
}

Status LockSlow(Attachment* attachment, uint64_t id, bool has_turn);
bool UnlockSlow(Attachment* attachment, uint64_t id);

// kOk, kBusy or kBroken.
inline Status Lock(Attachment* attachment, uint64_t id) {
  const bool turn = TakeTurn(attachment);
  if (turn && CompareExchange(attachment->area->lock, 0, id)) return Status::kOk;
  return LockSlow(attachment, id, turn);
}
// False when it was lost meanwhile.
inline bool Unlock(Attachment* attachment, uint64_t id) {
  HAMI_KILL_POINT(1);
  const bool kept = CompareExchange(attachment->area->lock, id, 0) || UnlockSlow(attachment, id);
  EndTurn(attachment);
  return kept;
}
inline bool Locked(const Attachment& attachment, uint64_t id) {
  return (Load(attachment.area->lock) & ~kLockWaiters) == (id & ~kLockWaiters);
}

// The process-local half of being the attacher. Bounded; false on time-out.
bool LockProcess();
void UnlockProcess();
// In the child of a fork: the thread that held it is not here.
void ResetProcessLock();

// Serialises attachers over all processes of the region, as far as they get on, and gives them a lock identity. kBusy
// after `timeout_ns`.
Status BecomeAttacher(Attachment* attachment, int64_t timeout_ns, uint64_t* id);
void ResignAttacher(Attachment* attachment);

// Whether the file still has its size; if not the attachment is marked broken.
bool CheckSize(Attachment* attachment);

}  // namespace hami::region
