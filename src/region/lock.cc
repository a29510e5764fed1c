// SPDX-License-Identifier: Apache-2.0
#include "region/lock.h"

#include "region/process.h"
#include "region/table.h"

namespace hami::region {
namespace {

constexpr int kSpins = 64;
constexpr int64_t kWaitSlice = 1'000'000;
constexpr int64_t kAttachWaitSlice = 20'000'000;
constexpr int64_t kLaneTime = 300'000'000;
// How long a lock may be held by somebody who is not in the table: a live peer only during its Detach, for some µs.
constexpr int64_t kStrangerGrace = 20'000'000;

uint32_t process_lock = 0;
uint64_t local_attacher = 0;  // the identity of this process's attacher, if it has one

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

const uint32_t* FutexOf(const uint64_t& word) { return reinterpret_cast<const uint32_t*>(&word); }

int64_t ByteOfLane(uint32_t index) { return kAttachLockByte + (index - kAttacherIndex); }

enum class Owner : uint8_t { kAlive, kDead, kStranger };

Owner JudgeOwner(Attachment* attachment, uint64_t word, uint64_t own_id) {
  const uint32_t index = LockIndex(word);
  if (index >= kAttacherIndex + kAttachLanes) return Owner::kDead;  // nobody writes that: the word is garbage
  if (index >= kAttacherIndex) {
    if (LockIndex(own_id) == index) return Owner::kDead;  // there is only one, and it is this thread
    // A record lock of the own process is invisible to it, hence the second question.
    int32_t holder = 0;
    const LockHeld held = AskRecordLock(attachment->fd, ByteOfLane(index), 1, &holder);
    if (held == LockHeld::kYes || (word & ~kLockWaiters) == Load(local_attacher)) return Owner::kAlive;
    return held == LockHeld::kNo ? Owner::kDead : Owner::kStranger;
  }
  const int32_t slot = FindSlotByNumber(*attachment, index, LockNumber(word));
  if (slot < 0) return Owner::kStranger;
  return SlotAlive(*attachment, static_cast<uint32_t>(slot)) ? Owner::kAlive : Owner::kDead;
}

bool AwaitTurn(Attachment* attachment, int64_t deadline) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (__atomic_load_n(&attachment->turn, __ATOMIC_RELAXED) == kTurnFree && TakeTurn(attachment)) return true;
    Pause();
  }
  while (!TakeTurn(attachment, kTurnAwaited)) {
    if (MonotonicNanos() > deadline) return false;
    uint32_t taken = kTurnTaken;
    __atomic_compare_exchange_n(&attachment->turn, &taken, kTurnAwaited, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    FutexWait(&attachment->turn, kTurnAwaited, kAttachWaitSlice);
  }
  return true;
}

// With the turn.
Status LockWord(Attachment* attachment, uint64_t id, int64_t begin) {
  uint64_t& lock = attachment->area->lock;
  for (int spin = 0; spin < kSpins; ++spin) {
    if (__atomic_load_n(&lock, __ATOMIC_RELAXED) == 0 && CompareExchange(lock, 0, id)) return Status::kOk;
    Pause();
  }
  int64_t unchanged_since = begin;
  uint64_t last = 0;
  uint64_t mine = id;
  for (;;) {
    if (!CheckSize(attachment)) return Status::kBroken;
    uint64_t word = Load(lock);
    if (word == 0) {
      if (CompareExchange(lock, 0, mine)) return Status::kOk;
      continue;
    }
    if ((word & kLockWaiters) == 0) {
      if (!CompareExchange(lock, word, word | kLockWaiters)) continue;
      word |= kLockWaiters;
    }
    const int64_t before = MonotonicNanos();
    if (word != last) unchanged_since = before;
    last = word;
    FutexWait(FutexOf(lock), static_cast<uint32_t>(word), kWaitSlice);
    mine = id | kLockWaiters;  // others may be asleep, too
    const int64_t now = MonotonicNanos();
    if (Load(lock) != word || now - before < kWaitSlice / 2) {
      if (now - begin > kLockTimeout) return Status::kBusy;
      continue;
    }
    const Owner owner = JudgeOwner(attachment, word, id);
    const bool idle = now - unchanged_since > kLoanTime;
    if (owner == Owner::kDead || idle || (owner == Owner::kStranger && now - unchanged_since > kStrangerGrace)) {
      if (!CompareExchange(lock, word, mine)) continue;
      HAMI_KILL_POINT(2);
      RepairAfterDeath(attachment);
      return Status::kOk;
    }
    if (now - begin > kLockTimeout) return Status::kBusy;
  }
}

}  // namespace

bool CheckSize(Attachment* attachment) {
  const FileStatus status = StatFile(attachment->fd);
  if (status.ok && status.device == attachment->device && status.inode == attachment->inode &&
      status.size < static_cast<int64_t>(kFileBytes)) {
    Store(attachment->broken, 1);
  }
  return Load(attachment->broken) == 0;
}

Status LockSlow(Attachment* attachment, uint64_t id, bool has_turn) {
  const int64_t begin = MonotonicNanos();
  if (!has_turn && !AwaitTurn(attachment, begin + kLockTimeout)) return Status::kBusy;
  const Status status = LockWord(attachment, id, begin);
  if (status != Status::kOk) EndTurn(attachment);
  return status;
}

bool UnlockSlow(Attachment* attachment, uint64_t id) {
  if (!CompareExchange(attachment->area->lock, id | kLockWaiters, 0)) return false;
  FutexWake(FutexOf(attachment->area->lock), 1);
  return true;
}

bool LockProcess() {
  const int64_t deadline = MonotonicNanos() + kLockTimeout;
  for (uint32_t expected = 0;
       !__atomic_compare_exchange_n(&process_lock, &expected, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
       expected = 0) {
    if (MonotonicNanos() > deadline) return false;
    SleepNanos(50'000);
  }
  return true;
}

void UnlockProcess() { Store(process_lock, 0); }

void ResetProcessLock() {
  Store(process_lock, 0);
  Store(local_attacher, 0);
}

Status BecomeAttacher(Attachment* attachment, int64_t timeout_ns, uint64_t* id) {
  const int64_t deadline = MonotonicNanos() + timeout_ns;
  const uint32_t& turn = attachment->area->attach_turn;
  uint32_t lane = 0;
  uint32_t last = Load(turn);
  int64_t since = MonotonicNanos();
  for (;;) {
    const uint32_t seen = Load(turn);
    if (TryRecordLock(attachment->fd, kAttachLockByte + lane, 1)) break;
    if (!CheckSize(attachment)) return Status::kBroken;
    const int64_t now = MonotonicNanos();
    if (now > deadline) return Status::kBusy;
    if (seen != last) since = now;
    last = seen;
    if (now - since > kLaneTime) {  // nobody has finished for so long
      lane = (lane + 1) % kAttachLanes;
      since = now;
    }
    // Each attacher wakes one successor; the time-out is for one that died and woke nobody.
    FutexWait(&turn, seen, kAttachWaitSlice);
  }
  // A number of its own even for this short role: an observer must not mistake a new attacher for a dead one.
  const uint64_t number = __atomic_add_fetch(&attachment->area->next_token, 1, __ATOMIC_ACQ_REL) & kTokenNumberMask;
  *id = MakeLockId(kAttacherIndex + lane, number);
  Store(local_attacher, *id);
  return Status::kOk;
}

void ResignAttacher(Attachment* attachment) {
  uint32_t& turn = attachment->area->attach_turn;
  const uint32_t index = LockIndex(Load(local_attacher));
  Store(local_attacher, 0);
  RecordUnlock(attachment->fd, ByteOfLane(index), 1);
  __atomic_add_fetch(&turn, 1, __ATOMIC_ACQ_REL);
  FutexWake(&turn, 1);
}

}  // namespace hami::region
