// SPDX-License-Identifier: Apache-2.0
#include "region/ledger.h"

#include "region/file.h"
#include "region/holds.h"
#include "region/process.h"
#include "region/table.h"
#include "region/tag.h"

namespace hami::region {
namespace {

constexpr int64_t kSweepInterval = 500'000'000;
constexpr int64_t kSweeperTimeout = 200'000'000;

uint64_t SaturatingAdd(uint64_t a, uint64_t b) {
  uint64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

uint64_t Sum(const Attachment& attachment, uint32_t device) {
  const uint64_t charged = Load(attachment.area->devices[device].charged);
  if (!ForeignPossible(attachment)) return charged;
  return SaturatingAdd(charged, ForeignSum(attachment, device));
}

uint64_t Held(const Attachment& attachment, uint32_t device, Kind kind) {
  return __atomic_load_n(&attachment.held[device][static_cast<int>(kind)], __ATOMIC_RELAXED);
}

void SetHeld(Attachment* attachment, uint32_t device, Kind kind, uint64_t bytes) {
  __atomic_store_n(&attachment->held[device][static_cast<int>(kind)], bytes, __ATOMIC_RELAXED);
}

// Adds to what is there, for the lock may have been lost. A sum below what we hold can only be damage; it must not
// wrap.
void ChangeSum(Attachment* attachment, uint32_t device, uint64_t more, uint64_t less) {
  uint64_t& sum = attachment->area->devices[device].charged;
  for (;;) {
    const uint64_t charged = Load(sum);
    const uint64_t grown = SaturatingAdd(charged, more);
    if (CompareExchange(sum, charged, less > grown ? 0 : grown - less)) return;
  }
}

// Under the lock: changes what this process holds, its slot and the sum, by the same amount.
void Apply(Attachment* attachment, uint32_t device, Kind kind, uint64_t more, uint64_t less) {
  const uint64_t held = Held(*attachment, device, kind) + more - less;
  HAMI_KILL_POINT(43);
  SetHeld(attachment, device, kind, held);
  HAMI_KILL_POINT(30);
  ChangeSum(attachment, device, more, less);
  HAMI_KILL_POINT(31);
  PublishHeld(attachment, device);
  HAMI_KILL_POINT(32);
}

void RaisePeak(Attachment* attachment, uint32_t device, uint64_t sum) {
  PrivateDevice& books = attachment->area->devices[device];
  if (Load(books.peak) < sum) Store(books.peak, sum);
}

// Under the lock: the bytes are in the sum already, and now in the own slot.
void Claim(Attachment* attachment, PrivateHold* hold) {
  const uint32_t device = Load(hold->device);
  const uint64_t* held = attachment->held[device];
  const uint64_t room = UINT64_MAX - (held[0] + held[1] + held[2]);  // only damage is larger
  const uint64_t bytes = Load(hold->bytes) < room ? Load(hold->bytes) : room;
  SetHeld(attachment, device, Kind::kData, Held(*attachment, device, Kind::kData) + bytes);
  PublishHeld(attachment, device);
  HAMI_KILL_POINT(40);
  Store(hold->state, kHoldPayer);
  HAMI_KILL_POINT(41);
}

void ClaimAll(Attachment* attachment) {
  uint32_t others = 0;
  for (PrivateHold* hold = HoldsBegin(*attachment); hold != HoldsEnd(*attachment); ++hold) {
    if (!HoldUsed(*hold) || Load(hold->state) != kHoldHeir) continue;
    if (Load(hold->holder) == attachment->token) {
      Claim(attachment, hold);
    } else {
      ++others;
    }
  }
  Store(attachment->area->holds.heirs, others);
}

// Under the lock: the last use of an object is gone.
void EndOwnHold(Attachment* attachment, PrivateHold* hold) {
  const bool paid = Load(hold->state) == kHoldPayer;
  const uint32_t device = Load(hold->device);
  const uint64_t bytes = Load(hold->bytes);
  const bool inherited = EndHold(attachment, hold);
  if (!paid) return;
  const uint64_t held = Held(*attachment, device, Kind::kData);
  const uint64_t less = bytes < held ? bytes : held;
  if (!inherited) {
    Apply(attachment, device, Kind::kData, 0, less);
  } else {  // the sum has them still, as the heir's
    SetHeld(attachment, device, Kind::kData, held - less);
    HAMI_KILL_POINT(42);
    PublishHeld(attachment, device);
    // A program that gave back more than it should have is no reason to count less than the heir will have.
    ChangeSum(attachment, device, bytes - less, 0);
  }
}

// Gives back what could not be given back when it should have been.
void SettleOwed(Attachment* attachment) {
  Store(attachment->any_owed, 0);
  for (PrivateHold* hold = HoldsBegin(*attachment); hold < HoldsEnd(*attachment); ++hold) {
    if (HoldUsed(*hold) && Load(hold->holder) == attachment->token && Load(hold->uses) == 0) {
      EndOwnHold(attachment, hold);
    }
  }
  for (uint32_t device = 0; device < kMaxDevices; ++device) {
    for (int kind = 0; kind < kKinds; ++kind) {
      const uint64_t owed = __atomic_exchange_n(&attachment->owed[device][kind], 0, __ATOMIC_ACQ_REL);
      const uint64_t held = attachment->held[device][kind];
      if (owed != 0) Apply(attachment, device, static_cast<Kind>(kind), 0, owed < held ? owed : held);
    }
  }
}

// Lock, and everything that must be true before the own slot is changed.
Status EnterLedger(Attachment* attachment) {
  if (attachment->region == nullptr) return Status::kNotAttached;
  if (Load(attachment->broken) != 0) return Status::kBroken;
  Status status = EnsureSlot(attachment);
  if (status != Status::kOk) return status;
  status = Lock(attachment, attachment->lock_id);
  if (status != Status::kOk) return status;
  HAMI_KILL_POINT(33);
  if (!OwnSlotIntact(*attachment)) status = HealOwnSlot(attachment);
  if (status != Status::kOk) {
    Unlock(attachment, attachment->lock_id);
    return status;
  }
  if (Load(attachment->area->holds.heirs) != 0) ClaimAll(attachment);
  if (Load(attachment->any_owed) != 0) SettleOwed(attachment);
  return status;
}

// False when the lock was lost in between: what this process holds has been written again.
bool LeaveLedger(Attachment* attachment) {
  if (Unlock(attachment, attachment->lock_id)) return true;
  Reaffirm(attachment);
  return false;
}

enum class Answer : uint8_t { kGranted, kRefused, kMayBeDead };

// Under the lock. kMayBeDead: it does not fit, but others hold something, and they may be dead.
Answer TryReserve(Attachment* attachment, uint32_t device, uint64_t bytes, Kind kind) {
  const uint64_t sum = Sum(*attachment, device);
  const uint64_t limit = Limit(*attachment, device);
  uint64_t after;
  const bool overflow = __builtin_add_overflow(sum, bytes, &after);
  if (!overflow && (limit == 0 || after <= limit)) {
    Apply(attachment, device, kind, bytes, 0);
    RaisePeak(attachment, device, after);
    return Answer::kGranted;
  }
  const uint64_t* held = attachment->held[device];
  return sum == held[0] + held[1] + held[2] ? Answer::kRefused : Answer::kMayBeDead;
}

bool Exceeds(const Attachment& attachment, uint32_t device) {
  const uint64_t limit = Limit(attachment, device);
  return limit != 0 && Sum(attachment, device) > limit;
}

}  // namespace

Status Reserve(Attachment* attachment, uint32_t device, uint64_t bytes, Kind kind) {
  if (device >= kMaxDevices) return Status::kBadDevice;
  for (bool swept = false;;) {
    const Status status = EnterLedger(attachment);
    if (status != Status::kOk) return status;
    const Answer answer = TryReserve(attachment, device, bytes, kind);
    const bool final = answer != Answer::kMayBeDead || swept;
    const bool kept = LeaveLedger(attachment);
    if (answer == Answer::kGranted && !kept && Exceeds(*attachment, device)) {
      // Granted by what was true before others went on without this process.
      Refund(attachment, device, bytes, kind);
      swept = false;
      continue;
    }
    if (answer == Answer::kGranted) return Status::kOk;
    // A refusal is rare enough to afford the question whether the file is still whole.
    if (!CheckSize(attachment)) return Status::kBroken;
    if (final) return Status::kOverLimit;
    SweepTable(attachment, attachment->lock_id);
    swept = true;
  }
}

Status Charge(Attachment* attachment, uint32_t device, uint64_t bytes, Kind kind) {
  if (device >= kMaxDevices) return Status::kBadDevice;
  const Status status = EnterLedger(attachment);
  if (status != Status::kOk) return status;
  const uint64_t sum = Sum(*attachment, device);
  uint64_t after;
  const bool overflow = __builtin_add_overflow(sum, bytes, &after);
  if (!overflow) {
    Apply(attachment, device, kind, bytes, 0);
    RaisePeak(attachment, device, after);
  }
  LeaveLedger(attachment);
  return overflow ? Status::kOverLimit : Status::kOk;
}

Status Refund(Attachment* attachment, uint32_t device, uint64_t bytes, Kind kind) {
  if (device >= kMaxDevices) return Status::kBadDevice;
  if (attachment->region == nullptr) return Status::kNotAttached;
  NoticeFork(attachment);
  // A forked child holds nothing, and must not claim a slot to find that out.
  if (Load(attachment->slot) < 0) return bytes == 0 ? Status::kOk : Status::kClamped;
  const Status status = EnterLedger(attachment);
  if (status == Status::kBusy) {
    __atomic_fetch_add(&attachment->owed[device][static_cast<int>(kind)], bytes, __ATOMIC_ACQ_REL);
    Store(attachment->any_owed, 1);
    return Status::kOk;
  }
  if (status != Status::kOk) return status;
  const uint64_t held = Held(*attachment, device, kind);
  Apply(attachment, device, kind, 0, bytes < held ? bytes : held);
  LeaveLedger(attachment);
  return bytes <= held ? Status::kOk : Status::kClamped;
}

Status Transfer(Attachment* attachment, uint32_t device, uint64_t bytes, Kind from, Kind to) {
  if (device >= kMaxDevices) return Status::kBadDevice;
  const Status status = EnterLedger(attachment);
  if (status != Status::kOk) return status;
  const uint64_t held = Held(*attachment, device, from);
  const uint64_t moved = bytes < held ? bytes : held;
  __atomic_store_n(&attachment->held[device][static_cast<int>(from)], held - moved, __ATOMIC_RELAXED);
  __atomic_fetch_add(&attachment->held[device][static_cast<int>(to)], moved, __ATOMIC_RELAXED);
  PublishHeld(attachment, device);
  LeaveLedger(attachment);
  return bytes <= held ? Status::kOk : Status::kClamped;
}

uint64_t Share(Attachment* attachment, uint32_t device, uint64_t bytes, uint64_t object) {
  if (device >= kMaxDevices || EnterLedger(attachment) != Status::kOk) return 0;
  uint64_t& last = attachment->area->holds.last_object;
  if (object == 0) {
    object = Load(last) < kMaxTagObject ? Load(last) + 1 : 1;  // only damage gets there
    Store(last, object);
  }
  const bool held = FindHold(*attachment, object, 0) != nullptr;
  if (held || !BeginHold(attachment, object, device, bytes, kHoldPayer)) object = 0;
  LeaveLedger(attachment);
  return object;
}

bool Join(Attachment* attachment, uint64_t object, uint32_t* device) {
  if (object == 0 || EnterLedger(attachment) != Status::kOk) return false;
  PrivateHold* hold = FindHold(*attachment, object, attachment->token);
  if (hold != nullptr) {
    __atomic_fetch_add(&hold->uses, 1, __ATOMIC_ACQ_REL);
  } else if ((hold = FindHold(*attachment, object, 0)) != nullptr &&
             !BeginHold(attachment, object, Load(hold->device), Load(hold->bytes), kHoldGuest)) {
    hold = nullptr;
  }
  if (hold != nullptr) *device = Load(hold->device);
  LeaveLedger(attachment);
  return hold != nullptr;
}

bool Leave(Attachment* attachment, uint64_t object) {
  if (attachment->region == nullptr) return false;
  NoticeFork(attachment);
  if (Load(attachment->slot) < 0) return false;
  PrivateHold* const hold = FindHold(*attachment, object, attachment->token);
  if (hold == nullptr) return false;
  if (__atomic_fetch_sub(&hold->uses, 1, __ATOMIC_ACQ_REL) != 1) return true;
  Store(attachment->any_owed, 1);  // with this turn, or, if the lock can not be had, with the next
  if (EnterLedger(attachment) == Status::kOk) LeaveLedger(attachment);
  return true;
}

uint64_t GuestBytes(const Attachment& attachment, uint32_t device) {
  if (attachment.region == nullptr || Load(attachment.slot) < 0) return 0;
  uint64_t bytes = 0;
  for (const PrivateHold* hold = HoldsBegin(attachment); hold < HoldsEnd(attachment); ++hold) {
    if (!HoldUsed(*hold) || Load(hold->holder) != attachment.token || Load(hold->device) != device) continue;
    if (Load(hold->state) != kHoldPayer) bytes = SaturatingAdd(bytes, Load(hold->bytes));
  }
  return bytes;
}

void ClaimHeritage(Attachment* attachment) {
  if (attachment->region == nullptr || Load(attachment->slot) < 0 || Load(attachment->area->holds.heirs) == 0) return;
  if (EnterLedger(attachment) == Status::kOk) LeaveLedger(attachment);
}

uint64_t Used(const Attachment& attachment, uint32_t device) {
  return attachment.region == nullptr || device >= kMaxDevices ? 0 : Sum(attachment, device);
}

uint64_t Limit(const Attachment& attachment, uint32_t device) {
  if (attachment.region == nullptr || device >= kMaxDevices) return 0;
  const uint64_t limit = Load(attachment.region->limit[device]);
  const uint64_t own = attachment.own_limit[device];
  return own != 0 && (limit == 0 || own < limit) ? own : limit;
}

uint64_t FreeUnderLimit(const Attachment& attachment, uint32_t device) {
  const uint64_t limit = Limit(attachment, device);
  if (limit == 0) return UINT64_MAX;
  const uint64_t used = Used(attachment, device);
  return used < limit ? limit - used : 0;
}

uint64_t Peak(const Attachment& attachment, uint32_t device) {
  return attachment.area == nullptr || device >= kMaxDevices ? 0 : Load(attachment.area->devices[device].peak);
}

void NoteRefusal(Attachment* attachment, uint32_t device) {
  if (attachment->area == nullptr || device >= kMaxDevices) return;
  __atomic_fetch_add(&attachment->area->devices[device].refusals, 1, __ATOMIC_RELAXED);
}

uint64_t Refusals(const Attachment& attachment, uint32_t device) {
  return attachment.area == nullptr || device >= kMaxDevices ? 0 : Load(attachment.area->devices[device].refusals);
}

uint64_t OwnUsed(const Attachment& attachment, uint32_t device, Kind kind) {
  return device >= kMaxDevices ? 0 : Held(attachment, device, kind);
}

int Sweep(Attachment* attachment) {
  if (attachment->region == nullptr) return 0;
  NoticeFork(attachment);
  if (!LockProcess()) return 0;
  int freed = 0;
  RecoverDescriptor(attachment);
  if (CheckSize(attachment)) {
    if (Load(attachment->slot) >= 0) {
      // Taken already, unless the program closed our descriptor, and with it the lock by which others see us alive.
      TryRecordLock(attachment->fd, kSlotLockByte + Load(attachment->slot), 1);
      freed = SweepTable(attachment, attachment->lock_id);
    } else {
      uint64_t id = 0;
      if (BecomeAttacher(attachment, kSweeperTimeout, &id) == Status::kOk) {
        freed = SweepTable(attachment, id);
        ResignAttacher(attachment);
      }
    }
  }
  UnlockProcess();
  return freed;
}

int SweepIfStale(Attachment* attachment, int64_t now_ns) {
  if (attachment->region == nullptr) return 0;
  int64_t last = Load(attachment->area->last_sweep);
  // A time in the future was written before the machine was restarted.
  if (last <= now_ns && now_ns - last < kSweepInterval) return 0;
  if (!__atomic_compare_exchange_n(&attachment->area->last_sweep, &last, now_ns, false, __ATOMIC_ACQ_REL,
                                   __ATOMIC_RELAXED)) {
    return 0;
  }
  return Sweep(attachment);
}

uint64_t Changes(const Attachment& attachment) {
  if (attachment.region == nullptr) return 0;
  uint64_t changes = 0;
  const uint32_t count = SlotCount(attachment);
  for (uint32_t i = 0; i < count; ++i) changes += Load(attachment.region->slots[i].seqlock);
  return changes;
}

void ForEachProcess(const Attachment& attachment, bool (*visit)(const ProcessUsage& process, void* context),
                    void* context) {
  if (attachment.region == nullptr) return;
  const uint32_t count = SlotCount(attachment);
  for (uint32_t i = 0; i < count; ++i) {
    const Slot& slot = attachment.region->slots[i];
    ProcessUsage process;
    process.pid = Load(slot.pid);
    if (process.pid <= 0) continue;
    process.host_pid = Load(slot.host_pid);
    process.status = Load(slot.status);
    for (uint32_t device = 0; device < kMaxDevices; ++device) process.total[device] = Load(slot.used[device].total);
    if (!visit(process, context)) return;
  }
}

}  // namespace hami::region
