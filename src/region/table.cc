// SPDX-License-Identifier: Apache-2.0
#include "region/table.h"

#include <errno.h>
#include <string.h>

#include "region/file.h"
#include "region/holds.h"
#include "region/process.h"

namespace hami::region {
namespace {

constexpr int64_t kSemaphorePause = 200'000;
constexpr int64_t kSweepSemaphoreWait = 20'000'000;
constexpr int kSweepBatch = 64;
constexpr uint32_t kMaxLocalTokens = 64;

uint64_t local_tokens[kMaxLocalTokens] = {};

uint64_t SaturatingAdd(uint64_t a, uint64_t b) {
  uint64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

// What the owner of a token said about itself. HAMi-core moves slots but not these records, so a moved slot's record
// is at another index.
const PrivateSlot* FindRecord(const Attachment& attachment, uint32_t hint, uint64_t token) {
  const PrivateSlot* records = attachment.area->slots;
  if (Load(records[hint].token) == token) return &records[hint];
  for (uint32_t i = 0; i < kMaxSlots; ++i) {
    if (Load(records[i].token) == token) return &records[i];
  }
  return nullptr;
}

bool SameNamespace(const Attachment& attachment, const PrivateSlot* record) {
  const uint64_t theirs = record == nullptr ? 0 : Load(record->pid_namespace);
  return theirs == 0 || attachment.pid_namespace == 0 || theirs == attachment.pid_namespace;
}

bool LifeLineHeld(const Attachment& attachment, const PrivateSlot* record) {
  const uint64_t life = record == nullptr ? 0 : Load(record->life) & kTokenNumberMask;
  return life != 0 && AskLifeLine(attachment.fd, kLifeLockByte + static_cast<int64_t>(life)) == LockHeld::kYes;
}

bool ForeignAlive(const Attachment& attachment, int32_t pid) {
  if (pid == attachment.pid) return false;  // two libraries do not live in one process: a namesake's
  return ReadProcessStat(pid).presence != Presence::kGone;
}

// A page of the file that was never written may have no room on the disk, which a store through the map would answer
// with SIGBUS. Asking for the room first turns that into an error.
Status ProvideSlot(Attachment* attachment, uint32_t index) {
  const auto offset = static_cast<int64_t>(offsetof(Region, slots) + index * sizeof(Slot));
  if (!HasRoom(attachment->fd, offset, sizeof(Slot))) {
    attachment->error = errno;
    return Status::kIo;
  }
  return Status::kOk;
}

void ClearSlot(Slot* slot) {
  for (uint32_t device = 0; device < kMaxDevices; ++device) {
    DeviceMemory& used = slot->used[device];
    Store(used.total, 0);
    Store(used.context, 0);
    Store(used.module, 0);
    Store(used.data, 0);
    Store(used.offset, 0);
    Store(slot->monitor_used[device], 0);
    Store(slot->utilization[device].decoder, 0);
    Store(slot->utilization[device].encoder, 0);
    Store(slot->utilization[device].sm, 0);
  }
  Store(slot->host_pid, 0);
  const uint64_t sequence = Load(slot->seqlock);
  if (sequence % 2 != 0) Store(slot->seqlock, sequence + 1);
}

void WriteRecord(Attachment* attachment, uint32_t index) {
  PrivateSlot& record = attachment->area->slots[index];
  Store(record.token, 0);
  Store(record.start_time, attachment->start_time);
  Store(record.pid_namespace, attachment->pid_namespace);
  Store(record.pid, attachment->pid);
  Store(record.attached_at, UnixSeconds());
  Store(record.life, attachment->life_line == nullptr ? 0 : attachment->life);
  OwnCommand(&record.command);
  Store(record.token, attachment->token);
}

// A slot that this process can have: a hole, or one that a predecessor of the same pid left.
bool Claimable(Attachment* attachment, uint32_t index) {
  const Slot& slot = attachment->region->slots[index];
  const int32_t pid = Load(slot.pid);
  if (pid != 0 && (pid != attachment->pid || SlotAlive(*attachment, index))) return false;
  // Still locked: by a process whose slot was moved away from here. Taking the byte would make it look dead.
  return attachment->fd < 0 || TryRecordLock(attachment->fd, kSlotLockByte + index, 1);
}

}  // namespace

bool AddLocalToken(uint64_t token) {
  for (uint64_t& entry : local_tokens) {
    if (CompareExchange(entry, 0, token)) return true;
  }
  return false;
}

void RemoveLocalToken(uint64_t token) {
  for (uint64_t& entry : local_tokens) {
    if (CompareExchange(entry, token, 0)) return;
  }
}

bool IsLocalToken(uint64_t token) {
  for (const uint64_t& entry : local_tokens) {
    if (Load(entry) == token) return token != 0;
  }
  return false;
}

void ClearLocalTokens() {
  for (uint64_t& entry : local_tokens) Store(entry, 0);
}

SlotIdentity IdentifySlot(const Slot& slot) {
  SlotIdentity identity;
  identity.pid = Load(slot.pid);
  identity.token = Load(slot.token);
  identity.start_time = Load(slot.start_time);
  identity.ours = TokenBelongsTo(identity.token, identity.pid);
  return identity;
}

bool SlotAlive(const Attachment& attachment, uint32_t index) {
  const SlotIdentity identity = IdentifySlot(attachment.region->slots[index]);
  if (identity.pid <= 0) return false;
  if (!identity.ours) return ForeignAlive(attachment, identity.pid);
  if (IsLocalToken(identity.token)) return true;
  int32_t holder = 0;
  const LockHeld held = AskRecordLock(attachment.fd, kSlotLockByte + index, 1, &holder);
  const PrivateSlot* record = FindRecord(attachment, index, identity.token);
  const bool same_namespace = SameNamespace(attachment, record);
  if (held == LockHeld::kYes && (holder == 0 || holder == identity.pid || !same_namespace)) return true;
  if (LifeLineHeld(attachment, record)) return true;
  // With nothing to ask by nobody is dead.
  if (!same_namespace) return held == LockHeld::kUnknown;
  const ProcessStat stat = ReadProcessStat(identity.pid);
  if (stat.presence == Presence::kGone) return false;
  if (stat.presence == Presence::kUnknown) return true;
  if (stat.start_time != identity.start_time) return false;
  if (identity.pid == attachment.pid) return false;  // this process, before an exec
  return ProcessMapsSameFile(identity.pid, attachment.region) != Presence::kGone;
}

bool OwnerAlive(const Attachment& attachment, uint64_t token) {
  if (IsLocalToken(token)) return true;
  const PrivateSlot* record = FindRecord(attachment, 0, token);
  if (record == nullptr) return false;
  if (LifeLineHeld(attachment, record)) return true;
  if (Load(record->pid_namespace) != attachment.pid_namespace) return false;
  const ProcessStat stat = ReadProcessStat(Load(record->pid));
  if (stat.presence != Presence::kThere) return stat.presence == Presence::kUnknown;
  return stat.start_time == Load(record->start_time);
}

int32_t FindSlotByNumber(const Attachment& attachment, uint32_t hint, uint64_t number) {
  const uint32_t count = SlotCount(attachment);
  const auto matches = [&](uint32_t i) {
    const SlotIdentity identity = IdentifySlot(attachment.region->slots[i]);
    return identity.ours && identity.token >> kTokenPidBits == number;
  };
  if (hint < count && matches(hint)) return static_cast<int32_t>(hint);
  for (uint32_t i = 0; i < count; ++i) {
    if (matches(i)) return static_cast<int32_t>(i);
  }
  return -1;
}

Status EnterTable(Attachment* attachment, uint64_t id, int64_t wait_ns, bool forced, bool* semaphore) {
  SemaphoreWatch watch;
  const int64_t begin = MonotonicNanos();
  for (;;) {
    const Status status = Lock(attachment, id);
    if (status != Status::kOk) return status;
    HAMI_KILL_POINT(7);
    const int64_t now = MonotonicNanos();
    *semaphore = TrySemaphore(attachment, &watch, now);
    if (*semaphore) return Status::kOk;
    if (now - begin >= wait_ns) {
      if (forced) ForceSemaphore(attachment);
      *semaphore = forced;
      return Status::kOk;
    }
    Unlock(attachment, id);
    SleepNanos(kSemaphorePause);
  }
}

bool LeaveTable(Attachment* attachment, uint64_t id, bool semaphore) {
  if (semaphore && Locked(*attachment, id)) ReleaseSemaphore(attachment);
  HAMI_KILL_POINT(8);
  return Unlock(attachment, id);
}

void Reaffirm(Attachment* attachment) {
  constexpr int kTries = 8;
  for (int tries = 0; tries < kTries && Load(attachment->slot) >= 0; ++tries) {
    if (Lock(attachment, attachment->lock_id) != Status::kOk) return;
    if (!OwnSlotIntact(*attachment)) {
      HealOwnSlot(attachment);
    } else {
      for (uint32_t device = 0; device < kMaxDevices; ++device) PublishHeld(attachment, device);
      Recount(attachment);
    }
    if (Unlock(attachment, attachment->lock_id)) return;
  }
}

Status ClaimSlot(Attachment* attachment, uint64_t number) {
  Region& region = *attachment->region;
  const uint32_t count = SlotCount(*attachment);
  uint32_t index = 0;
  while (index < count && !Claimable(attachment, index)) ++index;
  if (index == count) {
    // Behind the high-water mark nobody lives, but a moved slot's owner may still lock its old byte.
    while (index < kMaxSlots && attachment->fd >= 0 && !TryRecordLock(attachment->fd, kSlotLockByte + index, 1)) {
      ++index;
    }
    if (index == kMaxSlots) return Status::kTableFull;
    const Status status = ProvideSlot(attachment, index);
    if (status != Status::kOk) return status;
  }
  Slot& slot = region.slots[index];
  const SlotIdentity before = IdentifySlot(slot);
  if (index < count && before.ours) EndHoldsOf(attachment, before.token);  // a predecessor's
  Store(slot.pid, 0);
  Store(slot.status, kStatusFree);
  ClearSlot(&slot);
  for (uint32_t i = count; i < index; ++i) Store(region.slots[i].pid, 0);  // skipped above the mark: holes now
  const uint64_t token = MakeToken(number, attachment->pid);
  Store(attachment->token, token);
  WriteRecord(attachment, index);
  Store(slot.start_time, attachment->start_time);
  Store(slot.token, token);
  HAMI_KILL_POINT(9);
  Store(slot.pid, attachment->pid);
  HAMI_KILL_POINT(10);
  if (index >= SlotCount(*attachment)) Store(region.slot_count, static_cast<int32_t>(index + 1));
  Store(slot.status, kStatusRunning);
  HAMI_KILL_POINT(11);
  Store(attachment->slot, static_cast<int32_t>(index));
  return Status::kOk;
}

void FreeSlot(Attachment* attachment, uint32_t index) {
  Slot& slot = attachment->region->slots[index];
  const SlotIdentity identity = IdentifySlot(slot);
  if (identity.ours) EndHoldsOf(attachment, identity.token);
  ClearSlot(&slot);
  HAMI_KILL_POINT(12);
  Store(slot.status, kStatusFree);
  Store(slot.pid, 0);
  HAMI_KILL_POINT(13);
  Store(slot.token, 0);
  Store(slot.start_time, 0);
}

Status HealOwnSlot(Attachment* attachment) {
  const auto old_index = static_cast<uint32_t>(attachment->slot);
  const uint64_t number = attachment->token >> kTokenPidBits;
  const int32_t found = FindSlotByNumber(*attachment, old_index, number);
  if (found >= 0) {
    // If the byte at the new place is taken the /proc half of SlotAlive has to do.
    if (static_cast<uint32_t>(found) != old_index && attachment->fd >= 0 &&
        TryRecordLock(attachment->fd, kSlotLockByte + found, 1)) {
      RecordUnlock(attachment->fd, kSlotLockByte + old_index, 1);
    }
    Store(attachment->slot, found);
    Store(attachment->region->slots[found].start_time, attachment->start_time);
  } else {
    const Status status = ClaimSlot(attachment, number);
    if (status != Status::kOk) return status;
  }
  for (uint32_t device = 0; device < kMaxDevices; ++device) PublishHeld(attachment, device);
  Recount(attachment);
  return Status::kOk;
}

void PublishHeld(Attachment* attachment, uint32_t device) {
  Slot& slot = attachment->region->slots[attachment->slot];
  DeviceMemory& used = slot.used[device];
  const uint64_t* held = attachment->held[device];
  const uint64_t sequence = Load(slot.seqlock) | 1;
  Store(slot.seqlock, sequence);  // visible before each of the releasing stores below
  HAMI_KILL_POINT(14);
  Store(used.context, held[static_cast<int>(Kind::kContext)]);
  Store(used.module, held[static_cast<int>(Kind::kModule)]);
  Store(used.data, held[static_cast<int>(Kind::kData)]);
  HAMI_KILL_POINT(15);
  Store(used.total, held[0] + held[1] + held[2]);
  HAMI_KILL_POINT(16);
  Store(slot.seqlock, sequence + 1);
}

void Recount(Attachment* attachment) {
  uint64_t sums[kMaxDevices] = {};
  uint64_t before[kMaxDevices];
  for (uint32_t device = 0; device < kMaxDevices; ++device)
    before[device] = Load(attachment->area->devices[device].charged);
  const uint32_t count = SlotCount(*attachment);
  for (uint32_t i = 0; i < count; ++i) {
    const Slot& slot = attachment->region->slots[i];
    if (!IdentifySlot(slot).ours) continue;
    for (uint32_t device = 0; device < kMaxDevices; ++device) {
      sums[device] = SaturatingAdd(sums[device], Load(slot.used[device].total));
    }
  }
  AddHeirs(attachment, sums);
  for (uint32_t device = 0; device < kMaxDevices; ++device) {
    HAMI_KILL_POINT(17);
    CompareExchange(attachment->area->devices[device].charged, before[device], sums[device]);
  }
}

void RepairAfterDeath(Attachment* attachment) {
  Store(attachment->area->lock_steals, Load(attachment->area->lock_steals) + 1);
  RepairSemaphore(attachment);
  Recount(attachment);
}

bool ForeignPossible(const Attachment& attachment) {
  // Every HAMi-core process writes a NUL behind the struct when it opens the file; we keep a 1 there.
  uint8_t* mark = reinterpret_cast<uint8_t*>(attachment.region) + kRegionBytes;
  if (__atomic_load_n(mark, __ATOMIC_ACQUIRE) == 1) return Load(attachment.area->foreign_seen) != 0;
  Store(attachment.area->foreign_seen, 1);
  __atomic_store_n(mark, uint8_t{1}, __ATOMIC_RELEASE);
  return true;
}

uint64_t ForeignSum(const Attachment& attachment, uint32_t device) {
  uint64_t sum = 0;
  const uint32_t count = SlotCount(attachment);
  for (uint32_t i = 0; i < count; ++i) {
    const Slot& slot = attachment.region->slots[i];
    const SlotIdentity identity = IdentifySlot(slot);
    if (identity.pid > 0 && !identity.ours) sum = SaturatingAdd(sum, Load(slot.used[device].total));
  }
  return sum;
}

int SweepTable(Attachment* attachment, uint64_t id) {
  int freed = 0;
  const uint32_t count = SlotCount(*attachment);
  for (uint32_t next = 0; next < count;) {
    // Judged without the lock: the dead stay dead, and /proc takes its time.
    uint32_t dead[kSweepBatch];
    SlotIdentity identities[kSweepBatch];
    int found = 0;
    for (; next < count && found < kSweepBatch; ++next) {
      const SlotIdentity identity = IdentifySlot(attachment->region->slots[next]);
      if (identity.pid == 0 || SlotAlive(*attachment, next)) continue;
      identities[found] = identity;
      dead[found++] = next;
    }
    if (found == 0) break;
    bool semaphore = false;
    if (EnterTable(attachment, id, kSweepSemaphoreWait, false, &semaphore) != Status::kOk) break;
    for (int i = 0; i < found; ++i) {
      const SlotIdentity now = IdentifySlot(attachment->region->slots[dead[i]]);
      if (now.pid != identities[i].pid || now.token != identities[i].token ||
          now.start_time != identities[i].start_time || !Locked(*attachment, id)) {
        continue;
      }
      FreeSlot(attachment, dead[i]);
      ++freed;
    }
    Recount(attachment);
    if (!LeaveTable(attachment, id, semaphore)) Reaffirm(attachment);
  }
  if (AnyOrphan(*attachment) && Lock(attachment, id) == Status::kOk) {
    EndOrphans(attachment);
    Recount(attachment);
    if (!Unlock(attachment, id)) Reaffirm(attachment);
  }
  // Somebody may have died with the lock after its slot was freed: then only the sums and the semaphore tell of it.
  if (freed == 0 && Load(attachment->area->lock) != 0 && Lock(attachment, id) == Status::kOk) Unlock(attachment, id);
  return freed;
}

}  // namespace hami::region
