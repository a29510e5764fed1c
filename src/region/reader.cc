// SPDX-License-Identifier: Apache-2.0
#include "region/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "region/gpu_time.h"
#include "region/process.h"

namespace hami::region {
namespace {

constexpr int kSeqlockTries = 8;

// Either a descriptor or bytes in memory. Read is all or nothing.
class Source {
 public:
  explicit Source(int fd) : fd_(fd) {}
  Source(const uint8_t* bytes, size_t size) : bytes_(bytes), size_(size) {}
  bool Read(size_t offset, void* to, size_t size) const {
    if (fd_ < 0) {
      if (offset > size_ || size > size_ - offset) return false;
      memcpy(to, bytes_ + offset, size);
      return true;
    }
    for (size_t done = 0; done < size;) {
      const ssize_t got = pread(fd_, static_cast<char*>(to) + done, size - done, static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      done += static_cast<size_t>(got);
    }
    return true;
  }
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
  const uint8_t* bytes_ = nullptr;
  size_t size_ = 0;
};

template <typename T>
bool ReadAt(const Source& source, size_t offset, T* value) {
  return source.Read(offset, value, sizeof *value);
}

// Copies up to the first NUL; what is not printable ASCII becomes '?'.
template <size_t to_size, size_t from_size>
void CopyPrintable(char (&to)[to_size], const char (&from)[from_size]) {
  static_assert(to_size == from_size + 1);
  size_t size = 0;
  for (; size < from_size && from[size] != '\0'; ++size)
    to[size] = from[size] >= ' ' && from[size] <= '~' ? from[size] : '?';
  memset(to + size, 0, to_size - size);
}

uint64_t SaturatingAdd(uint64_t a, uint64_t b) {
  uint64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

int32_t ClampCount(int32_t count) {
  if (count < 0) return 0;
  return count > static_cast<int32_t>(kMaxSlots) ? static_cast<int32_t>(kMaxSlots) : count;
}

// Fields whose names are the same in both layouts; RegionT is Region or RegionV0. Only the parts around the table are
// read: `header` up to slots, `tail` from slot_count.
template <typename RegionT>
bool ReadFrame(const Source& source, Snapshot* snapshot) {
  struct {
    char uuids[kMaxDevices][kUuidBytes];
    uint64_t limit[kMaxDevices];
    uint64_t sm_limit[kMaxDevices];
  } frame;
  static_assert(offsetof(RegionT, sm_limit) - offsetof(RegionT, uuids) == sizeof frame.uuids + sizeof frame.limit);
  struct {
    int32_t slot_count, utilization_switch, recent_kernel, priority;
  } tail;
  uint64_t device_count = 0;
  if (!ReadAt(source, offsetof(RegionT, device_count), &device_count) ||
      !ReadAt(source, offsetof(RegionT, uuids), &frame) || !ReadAt(source, offsetof(RegionT, slot_count), &tail)) {
    return false;
  }
  snapshot->device_count = device_count > kMaxDevices ? kMaxDevices : static_cast<uint32_t>(device_count);
  for (uint32_t i = 0; i < kMaxDevices; ++i) {
    CopyPrintable(snapshot->devices[i].uuid, frame.uuids[i]);
    snapshot->devices[i].limit = frame.limit[i];
    snapshot->devices[i].sm_limit = frame.sm_limit[i];
  }
  snapshot->slot_limit = ClampCount(tail.slot_count);
  snapshot->utilization_switch = tail.utilization_switch;
  snapshot->recent_kernel = tail.recent_kernel;
  snapshot->priority = tail.priority;
  return true;
}

template <typename SlotT>
void CopySlot(const SlotT& from, int32_t index, SnapshotSlot* to) {
  memset(to, 0, sizeof *to);
  to->index = index;
  to->pid = from.pid;
  to->host_pid = from.host_pid;
  to->status = from.status;
  for (uint32_t i = 0; i < kMaxDevices; ++i) {
    to->memory[i] = {from.used[i].context, from.used[i].module,  from.used[i].data,     from.used[i].offset,
                     from.used[i].total,   from.monitor_used[i], from.utilization[i].sm};
  }
}

Liveness JudgeToken(const Source& source, const SnapshotSlot& slot, uint64_t own_namespace, int32_t* holding) {
  int32_t holder = 0;
  const LockHeld held = AskRecordLock(source.fd(), kSlotLockByte + slot.index, 1, &holder);
  if (held == LockHeld::kYes && holder > 0) *holding = holder;
  const bool same_namespace = slot.pid_namespace == own_namespace && own_namespace != 0;
  if (held == LockHeld::kYes && (holder == 0 || holder == slot.pid || !same_namespace)) return Liveness::kAlive;
  if (!same_namespace) return Liveness::kUnknown;
  const ProcessStat stat = ReadProcessStat(slot.pid);
  if (stat.presence == Presence::kUnknown) return Liveness::kUnknown;
  return stat.presence == Presence::kThere && stat.start_time == slot.start_time ? Liveness::kAlive : Liveness::kDead;
}

void ReadRecord(const Source& source, uint64_t token, SnapshotSlot* slot) {
  PrivateSlot record;
  const size_t offset =
      kPrivateOffset + offsetof(PrivateArea, slots) + static_cast<size_t>(slot->index) * sizeof(PrivateSlot);
  if (!ReadAt(source, offset, &record) || record.token != token) return;
  slot->pid_namespace = record.pid_namespace;
  slot->attached_at = record.attached_at;
  CopyPrintable(slot->command, record.command);
}

bool ReadSlots(const Source& source, bool check_liveness, Snapshot* snapshot) {
  const uint64_t own_namespace = check_liveness ? OwnPidNamespace() : 0;
  for (int32_t i = 0; i < snapshot->slot_limit; ++i) {
    Slot raw;
    const size_t offset = offsetof(Region, slots) + static_cast<size_t>(i) * sizeof(Slot);
    for (int tries = 0; tries < kSeqlockTries; ++tries) {
      uint64_t after = 0;
      if (!ReadAt(source, offset, &raw) || !ReadAt(source, offset + offsetof(Slot, seqlock), &after)) return false;
      // An odd number for good is a writer that died there: the figures are then as good as they get.
      if (raw.seqlock % 2 == 0 && raw.seqlock == after) break;
    }
    if (raw.pid <= 0) continue;
    SnapshotSlot* slot = &snapshot->slots[snapshot->slot_count++];
    CopySlot(raw, i, slot);
    slot->has_token = TokenBelongsTo(raw.token, raw.pid);
    if (slot->has_token) {
      slot->start_time = raw.start_time;
      if (snapshot->has_private) ReadRecord(source, raw.token, slot);
      if (check_liveness) slot->liveness = JudgeToken(source, *slot, own_namespace, &slot->holder);
    }
  }
  return true;
}

bool ReadSlotsV0(const Source& source, Snapshot* snapshot) {
  for (int32_t i = 0; i < snapshot->slot_limit; ++i) {
    SlotV0 raw;
    if (!ReadAt(source, offsetof(RegionV0, slots) + static_cast<size_t>(i) * sizeof(SlotV0), &raw)) return false;
    if (raw.pid > 0) CopySlot(raw, i, &snapshot->slots[snapshot->slot_count++]);
  }
  return true;
}

void SumUp(Snapshot* snapshot) {
  for (int32_t i = 0; i < snapshot->slot_count; ++i) {
    const SnapshotSlot& slot = snapshot->slots[i];
    if (slot.liveness == Liveness::kDead) continue;
    for (uint32_t d = 0; d < kMaxDevices; ++d) {
      snapshot->devices[d].used = SaturatingAdd(snapshot->devices[d].used, slot.memory[d].total);
    }
  }
}

// Whether the slot of a hold's process is there and in the sum.
bool InSum(const Snapshot& snapshot, const int16_t (&slot_at)[kMaxSlots], const PrivateHold& hold) {
  const int16_t at = hold.slot < kMaxSlots ? slot_at[hold.slot] : int16_t{-1};
  return at >= 0 && TokenBelongsTo(hold.holder, snapshot.slots[at].pid) &&
         snapshot.slots[at].liveness != Liveness::kDead;
}

// Whether another process counts for the object of `hold`, whose own one does not.
bool Bequeathed(const Snapshot& snapshot, const int16_t (&slot_at)[kMaxSlots], const PrivateHold* holds, uint32_t count,
                const PrivateHold& hold) {
  bool any = false;
  for (const PrivateHold* other = holds; other != holds + count; ++other) {
    if (other == &hold || other->object != hold.object || other->state == kHoldFree) continue;
    if (!InSum(snapshot, slot_at, *other)) continue;
    if (other->state != kHoldGuest) return false;  // it pays already
    any = true;
  }
  return any;
}

// Adds what is in no slot, or only in a dead one's: memory that the living hold.
bool ReadHolds(const Source& source, Snapshot* snapshot) {
  constexpr size_t kAt = kPrivateOffset + offsetof(PrivateArea, holds);
  uint32_t top = 0;
  PrivateHold holds[kMaxHolds];
  if (!ReadAt(source, kAt + offsetof(PrivateHolds, top), &top)) return false;
  if (top > kMaxHolds) top = kMaxHolds;
  if (top == 0) return true;
  if (!source.Read(kAt + offsetof(PrivateHolds, entries), holds, top * sizeof *holds)) return false;
  int16_t slot_at[kMaxSlots];
  memset(slot_at, -1, sizeof slot_at);
  for (int32_t i = 0; i < snapshot->slot_count; ++i) slot_at[snapshot->slots[i].index] = static_cast<int16_t>(i);
  for (const PrivateHold* hold = holds; hold != holds + top; ++hold) {
    if (hold->device >= kMaxDevices || (hold->state != kHoldPayer && hold->state != kHoldHeir)) continue;
    const bool counts = InSum(*snapshot, slot_at, *hold);
    const bool owed = counts ? hold->state == kHoldHeir : Bequeathed(*snapshot, slot_at, holds, top, *hold);
    if (!owed) continue;
    SnapshotDevice& device = snapshot->devices[hold->device];
    device.used = SaturatingAdd(device.used, hold->bytes);
    device.owed = SaturatingAdd(device.owed, hold->bytes);
  }
  return true;
}

bool ReadPrivate(const Source& source, Snapshot* snapshot) {
  struct {
    uint64_t magic;
    uint32_t version;
    uint32_t bytes;
  } head;
  if (!ReadAt(source, kPrivateOffset, &head) || head.magic != kPrivateMagic || head.version != kPrivateVersion ||
      head.bytes != sizeof(PrivateArea)) {
    return false;
  }
  PrivateMeta meta;
  PrivateDevice devices[kMaxDevices];
  struct {
    GpuTime accounts;
    PrivateTally tallies[kMaxDevices];
  } time;
  static_assert(offsetof(PrivateArea, tallies) - offsetof(PrivateArea, gpu_time) == sizeof time.accounts);
  if (!ReadAt(source, kPrivateOffset + offsetof(PrivateArea, meta), &meta) ||
      !ReadAt(source, kPrivateOffset + offsetof(PrivateArea, devices), &devices) ||
      !ReadAt(source, kPrivateOffset + offsetof(PrivateArea, gpu_time), &time) ||
      !ReadAt(source, kPrivateOffset + offsetof(PrivateArea, lock_steals), &snapshot->lock_steals)) {
    return false;
  }
  CopyPrintable(snapshot->share_name, meta.share_name);
  snapshot->creator_pid = meta.creator_pid;
  snapshot->creator_start_time = meta.creator_start_time;
  snapshot->created_at = meta.created_at;
  snapshot->flags = meta.flags;
  snapshot->policy = meta.policy;
  for (uint32_t i = 0; i < kMaxDevices; ++i) {
    snapshot->devices[i].peak = devices[i].peak;
    snapshot->devices[i].refusals = devices[i].refusals;
    snapshot->devices[i].physical_bytes = devices[i].physical_bytes;
    snapshot->devices[i].gpu_ns = time.accounts.devices[i].charged;
    const uint32_t burst = time.accounts.devices[i].burst;
    snapshot->devices[i].burst = burst > 100 ? 100 : burst;
    snapshot->devices[i].throttled_ns = time.tallies[i].throttled_ns;
    snapshot->devices[i].spilled_bytes = time.tallies[i].spilled_bytes;
  }
  return true;
}

Status Read(const Source& source, uint64_t size, bool check_liveness, Snapshot* snapshot) {
  // Not the table, which is most of it: an observer of many regions would do little else.
  constexpr size_t kBehindSlots = offsetof(Snapshot, slots) + sizeof snapshot->slots;
  memset(static_cast<void*>(snapshot), 0, offsetof(Snapshot, slots));
  memset(reinterpret_cast<char*>(snapshot) + kBehindSlots, 0, sizeof *snapshot - kBehindSlots);
  struct {
    int32_t magic;
    uint32_t major_version, minor_version;
  } header;
  if (!ReadAt(source, 0, &header) || header.magic != kMagic) return Status::kCorrupt;
  if (size < kRegionV0Bytes || size == kInterimRegionBytes || size == kInterimFileBytes) return Status::kUnsupported;
  if (size < kRegionBytes) {
    const bool ok = ReadFrame<RegionV0>(source, snapshot) && ReadSlotsV0(source, snapshot);
    SumUp(snapshot);
    return ok ? Status::kOk : Status::kIo;
  }
  if (header.major_version != kMajorVersion) return Status::kUnsupported;
  snapshot->version = 1;
  snapshot->minor_version = header.minor_version;
  if (!ReadFrame<Region>(source, snapshot) ||
      !ReadAt(source, offsetof(Region, last_kernel_time), &snapshot->last_kernel_time)) {
    return Status::kIo;
  }
  snapshot->has_private = size >= kFileBytes && ReadPrivate(source, snapshot);
  if (!ReadSlots(source, check_liveness, snapshot)) return Status::kIo;
  SumUp(snapshot);
  return !snapshot->has_private || ReadHolds(source, snapshot) ? Status::kOk : Status::kIo;
}

}  // namespace

Status ReadSnapshot(int fd, bool check_liveness, Snapshot* snapshot) {
  const FileStatus file = StatFile(fd);
  if (!file.ok) return Status::kIo;
  if (!file.regular) return Status::kCorrupt;
  return Read(Source(fd), static_cast<uint64_t>(file.size), check_liveness, snapshot);
}

Status ReadSnapshotFile(const char* path, bool check_liveness, Snapshot* snapshot) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK);
  if (fd < 0) return errno == ENOENT ? Status::kMissing : Status::kIo;
  const Status status = ReadSnapshot(fd, check_liveness, snapshot);
  close(fd);
  return status;
}

Status ParseSnapshot(const uint8_t* bytes, size_t size, Snapshot* snapshot) {
  return Read(Source(bytes, size), size, false, snapshot);
}

uint64_t ProcessStartTime(int32_t pid) {
  const ProcessStat stat = ReadProcessStat(pid);
  return stat.presence == Presence::kThere ? stat.start_time : 0;
}

}  // namespace hami::region
