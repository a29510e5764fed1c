// SPDX-License-Identifier: Apache-2.0
#include "region/region.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "region/file.h"
#include "region/gpu_time.h"
#include "region/holds.h"
#include "region/keep_errno.h"
#include "region/lock.h"
#include "region/process.h"
#include "region/table.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

namespace hami::region {
namespace {

uint64_t post_init_here = 0;  // 1: a thread of this process has the post-init lock, or asks for it

constexpr int64_t kAttachTimeout = 10'000'000'000;
constexpr int64_t kSemaphoreWait = 1'000'000'000;
constexpr size_t kGuardBytes = 4096;
constexpr int64_t kShortestNap = 500'000;
constexpr int64_t kLongestNap = 10'000'000;

void Identify(Attachment* attachment) {
  attachment->pid = getpid();
  attachment->start_time = ReadProcessStat(attachment->pid).start_time;
  attachment->pid_namespace = OwnPidNamespace();
}

// A word that the kernel clears in the child of any fork, also of one that runs no handlers. Kernels before 4.14 lack
// it; there only AttachmentAfterFork tells.
void ArmForkGuard(Attachment* attachment) {
  if (attachment->fork_guard == nullptr) {
    void* page = mmap(nullptr, kGuardBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return;
    madvise(page, kGuardBytes, MADV_WIPEONFORK);
    attachment->fork_guard = static_cast<uint32_t*>(page);
  }
  Store(*attachment->fork_guard, 1U);
}

void DisarmForkGuard(Attachment* attachment) {
  if (attachment->fork_guard != nullptr) munmap(attachment->fork_guard, kGuardBytes);
  attachment->fork_guard = nullptr;
}

// Nobody else is here: what the file says about processes is history. Limits, metadata, peaks and refusals stay.
void ResetTable(Attachment* attachment, uint64_t id, bool* semaphore) {
  Region& region = *attachment->region;
  const uint32_t count = SlotCount(*attachment);
  for (uint32_t i = 0; i < count; ++i) {
    if (Load(region.slots[i].pid) > 0 && SlotAlive(*attachment, i)) continue;
    if (!Locked(*attachment, id)) return;
    FreeSlot(attachment, i);
  }
  EndOrphans(attachment);
  uint32_t live = count;
  while (live > 0 && Load(region.slots[live - 1].pid) == 0) --live;
  if (!Locked(*attachment, id)) return;
  Store(region.slot_count, static_cast<int32_t>(live));
  Recount(attachment);
  if (live != 0) return;
  if (!*semaphore) ForceSemaphore(attachment);
  *semaphore = true;
  Store(region.sem_postinit.value, 1);
}

bool PostInitHolderStopped(const Attachment& attachment) {
  int32_t holder = 0;
  return AskRecordLock(attachment.fd, kPostInitLockByte, 1, &holder) == LockHeld::kYes && holder != 0 &&
         ReadProcessStat(holder).stopped;
}

bool NobodyElseLocks(const Attachment& attachment) {
  int32_t holder = 0;
  return AskRecordLock(attachment.fd, kSlotLockByte, kMaxSlots, &holder) == LockHeld::kNo;
}

// Before the first record lock, which it would end.
void HoldLife(Attachment* attachment) {
  DropLifeLine(attachment->life_line);
  attachment->life = __atomic_add_fetch(&attachment->area->next_token, 1, __ATOMIC_ACQ_REL) & kTokenNumberMask;
  attachment->life_line = HoldLifeLine(attachment->fd, kLifeLockByte + static_cast<int64_t>(attachment->life));
}

// With the process-local lock.
Status AcquireSlot(Attachment* attachment) {
  RecoverDescriptor(attachment);
  if (!CheckSize(attachment)) return Status::kBroken;
  Identify(attachment);
  HoldLife(attachment);
  uint64_t id = 0;
  Status status = BecomeAttacher(attachment, kAttachTimeout, &id);
  if (status != Status::kOk) return status;
  const uint64_t number = LockNumber(id);
  const uint64_t token = MakeToken(number, attachment->pid);
  if (!AddLocalToken(token)) {
    ResignAttacher(attachment);
    return Status::kTableFull;
  }
  bool semaphore = false;
  HAMI_KILL_POINT(21);
  const bool first = NobodyElseLocks(*attachment);
  status = EnterTable(attachment, id, kSemaphoreWait, true, &semaphore);
  if (status == Status::kOk) {
    if (first) ResetTable(attachment, id, &semaphore);
    status = ClaimSlot(attachment, number);
    if (status == Status::kOk) {
      Recount(attachment);
      attachment->lock_id = MakeLockId(static_cast<uint32_t>(attachment->slot), number);
    }
    if (!LeaveTable(attachment, id, semaphore)) Reaffirm(attachment);
    HAMI_KILL_POINT(22);
  }
  if (status == Status::kTableFull && SweepTable(attachment, id) > 0 &&
      (status = EnterTable(attachment, id, kSemaphoreWait, true, &semaphore)) == Status::kOk) {
    status = ClaimSlot(attachment, number);
    if (status == Status::kOk) attachment->lock_id = MakeLockId(static_cast<uint32_t>(attachment->slot), number);
    if (!LeaveTable(attachment, id, semaphore)) Reaffirm(attachment);
  }
  ResignAttacher(attachment);
  if (status != Status::kOk) RemoveLocalToken(token);
  return status;
}

}  // namespace

const char* StatusName(Status status) {
  switch (status) {
    case Status::kOk:
      return "ok";
    case Status::kOverLimit:
      return "over the limit";
    case Status::kBusy:
      return "the region's lock is held by a live process for too long";
    case Status::kTableFull:
      return "no free process slot";
    case Status::kBadDevice:
      return "no such device";
    case Status::kClamped:
      return "more given back than held";
    case Status::kUnsupported:
      return "unsupported region version";
    case Status::kCorrupt:
      return "not a region file";
    case Status::kBroken:
      return "the region file was truncated";
    case Status::kIo:
      return "can not be opened or read";
    case Status::kNotAttached:
      return "not attached";
    case Status::kExists:
      return "the region exists";
    case Status::kMissing:
      return "no such region";
  }
  return "unknown";
}

Status Create(const char* path, const Config& config, int* error) {
  Attachment draft;
  char temporary[sizeof draft.path];
  const size_t length = strlen(path);
  constexpr char kSuffix[] = ".XXXXXXXX.new";
  Status status = Status::kIo;
  draft.error = ENAMETOOLONG;
  if (length + sizeof kSuffix <= sizeof temporary) {
    // Made under another name and linked into place, so nobody ever sees half a region.
    memcpy(temporary, path, length);
    memcpy(temporary + length, kSuffix, sizeof kSuffix);
    uint64_t mark =
        (static_cast<uint64_t>(MonotonicNanos()) ^ static_cast<uint64_t>(getpid()) << 40) * 0x9e37'79b9'7f4a'7c15;
    for (size_t i = 1; i <= 8; ++i, mark >>= 5) {
      temporary[length + i] = "abcdefghijklmnopqrstuvwxyz012345"[mark >> 20 & 31];
    }
    status = MapRegion(&draft, temporary, true, &config, false);
    if (status == Status::kOk) {
      if (link(temporary, path) != 0) {
        draft.error = errno;
        status = errno == EEXIST ? Status::kExists : Status::kIo;
      }
      UnmapRegion(&draft);
      unlink(temporary);
    }
  }
  if (error != nullptr) *error = draft.error;
  return status;
}

Status Open(Attachment* attachment, const char* path) {
  if (attachment->region != nullptr) return Status::kOk;
  const Status status = MapRegion(attachment, path, false, nullptr);
  if (status != Status::kOk) return status;
  Identify(attachment);
  ArmForkGuard(attachment);
  return status;
}

Status Attach(Attachment* attachment, const char* path, const Config& config) {
  if (attachment->region == nullptr) {
    const Status status = MapRegion(attachment, path, true, &config);
    if (status != Status::kOk) return status;
    Identify(attachment);
    ArmForkGuard(attachment);
  }
  const Status status = EnsureSlot(attachment);
  if (status != Status::kOk) Detach(attachment);
  return status;
}

Status EnsureSlot(Attachment* attachment) {
  if (attachment->region == nullptr) return Status::kNotAttached;
  NoticeFork(attachment);
  if (Load(attachment->slot) >= 0) return Status::kOk;
  if (!LockProcess()) return Status::kBusy;
  const Status status = Load(attachment->slot) >= 0 ? Status::kOk : AcquireSlot(attachment);
  UnlockProcess();
  return status;
}

void Detach(Attachment* attachment) {
  if (attachment->region == nullptr) return;
  NoticeFork(attachment);
  if (attachment->slot >= 0 && Load(attachment->broken) == 0) {
    bool semaphore = false;
    if (EnterTable(attachment, attachment->lock_id, 20'000'000, false, &semaphore) == Status::kOk) {
      const int32_t slot =
          FindSlotByNumber(*attachment, static_cast<uint32_t>(attachment->slot), attachment->token >> kTokenPidBits);
      if (slot >= 0) FreeSlot(attachment, static_cast<uint32_t>(slot));
      Recount(attachment);
      LeaveTable(attachment, attachment->lock_id, semaphore);
    }
  }
  RemoveLocalToken(attachment->token);
  DropLifeLine(attachment->life_line);
  DisarmForkGuard(attachment);
  const int error = attachment->error;
  UnmapRegion(attachment);
  *attachment = Attachment();
  attachment->error = error;
}

void AttachmentAfterFork(Attachment* attachment) {
  ResetProcessLock();
  Store(post_init_here, 0);
  ClearLocalTokens();
  if (attachment->region == nullptr) return;
  Store(attachment->slot, -1);
  attachment->token = 0;
  attachment->lock_id = 0;
  Store(attachment->turn, kTurnFree);
  attachment->life_line = nullptr;  // the parent's, which is not mapped here
  memset(attachment->held, 0, sizeof attachment->held);
  memset(attachment->owed, 0, sizeof attachment->owed);
  attachment->any_owed = 0;
  ArmForkGuard(attachment);
}

void SetDevices(Attachment* attachment, uint32_t count, const char (*uuids)[kUuidBytes]) {
  Region* region = attachment->region;
  if (region == nullptr || (Flags(*attachment) & kFlagFixedDevices) != 0) return;
  if (count > kMaxDevices) count = kMaxDevices;
  for (uint32_t i = 0; i < count; ++i) {
    // Byte by byte and only where it differs: readers see either the old or the new text, mostly the same one.
    for (size_t byte = 0; byte < kUuidBytes; ++byte) {
      const char wanted = byte + 1 < kUuidBytes ? uuids[i][byte] : '\0';
      if (__atomic_load_n(&region->uuids[i][byte], __ATOMIC_RELAXED) != wanted) {
        __atomic_store_n(&region->uuids[i][byte], wanted, __ATOMIC_RELAXED);
      }
    }
  }
  Store(region->device_count, uint64_t{count});
}

bool Unnamed(const Attachment& attachment, uint32_t device) {
  return attachment.region != nullptr && device < kMaxDevices &&
         __atomic_load_n(&attachment.region->uuids[device][0], __ATOMIC_ACQUIRE) == '\0';
}

void NameDevice(Attachment* attachment, uint32_t device, const char (&uuid)[kUuidBytes]) {
  if (!Unnamed(*attachment, device) || (Flags(*attachment) & kFlagFixedDevices) != 0) return;
  char* const name = attachment->region->uuids[device];
  // The first byte last: who sees it sees all. Several may write at once, all the same.
  for (size_t byte = kUuidBytes; byte-- > 0;) {
    __atomic_store_n(&name[byte], byte + 1 < kUuidBytes ? uuid[byte] : '\0', __ATOMIC_RELEASE);
  }
}

int FindDevice(const Attachment& attachment, const char* uuid) {
  const uint32_t count = DeviceCount(attachment);
  for (uint32_t i = 0; i < count; ++i) {
    if (uuid[0] != '\0' && strncmp(attachment.region->uuids[i], uuid, kUuidBytes) == 0) return static_cast<int>(i);
  }
  return -1;
}

namespace {

bool LockDevices(Attachment* attachment) {
  return (Flags(*attachment) & kFlagFixedDevices) == 0 && EnsureSlot(attachment) == Status::kOk &&
         Lock(attachment, attachment->lock_id) == Status::kOk;
}

void WriteLimits(Attachment* attachment, uint32_t device, uint64_t memory_limit, uint64_t sm_limit) {
  Store(attachment->region->limit[device], memory_limit);
  Store(attachment->region->sm_limit[device], sm_limit);
  PrivateDevice& books = attachment->area->devices[device];
  Store(books.context_bytes, 0);
  Store(books.pool_steps[0], 0);
  Store(books.pool_steps[1], 0);
  Store(books.graph_steps, 0);
  Store(attachment->area->tallies[device].block_bytes, 0);
}

}  // namespace

bool ReplaceDevices(Attachment* attachment, const char (&judged)[kMaxDevices][kUuidBytes], const DeviceList& list) {
  if (!LockDevices(attachment)) return false;
  const bool same = memcmp(attachment->region->uuids, judged, sizeof judged) == 0;
  if (same) {
    const uint32_t count = list.count < kMaxDevices ? list.count : kMaxDevices;
    for (uint32_t i = 0; i < count; ++i) WriteLimits(attachment, i, list.memory_limit[i], list.sm_limit[i]);
    SetDevices(attachment, count, list.uuids);
  }
  Unlock(attachment, attachment->lock_id);
  return same;
}

int AddDevice(Attachment* attachment, const char (&uuid)[kUuidBytes], uint64_t memory_limit, uint64_t sm_limit) {
  if (!LockDevices(attachment)) return -1;
  int device = FindDevice(*attachment, uuid);
  const uint32_t count = DeviceCount(*attachment);
  if (device < 0 && count < kMaxDevices) {
    WriteLimits(attachment, count, memory_limit, sm_limit);
    for (size_t byte = 0; byte < kUuidBytes; ++byte) {
      __atomic_store_n(&attachment->region->uuids[count][byte], byte + 1 < kUuidBytes ? uuid[byte] : '\0',
                       __ATOMIC_RELEASE);
    }
    Store(attachment->region->device_count, uint64_t{count} + 1);
    device = static_cast<int>(count);
  }
  Unlock(attachment, attachment->lock_id);
  return device;
}

uint32_t DeviceCount(const Attachment& attachment) {
  if (attachment.region == nullptr) return 0;
  const uint64_t count = Load(attachment.region->device_count);
  return count > kMaxDevices ? kMaxDevices : static_cast<uint32_t>(count);
}

void SetPhysicalBytes(Attachment* attachment, uint32_t device, uint64_t bytes) {
  if (attachment->area != nullptr && device < kMaxDevices) {
    Store(attachment->area->devices[device].physical_bytes, bytes);
  }
}

uint32_t Flags(const Attachment& attachment) {
  return attachment.area == nullptr ? 0 : Load(attachment.area->meta.flags);
}

void SetHostPid(Attachment* attachment, int32_t host_pid) {
  if (attachment->slot < 0 || !OwnSlotIntact(*attachment)) return;
  Store(attachment->region->slots[attachment->slot].host_pid, host_pid);
}

void SetUtilization(Attachment* attachment, uint32_t device, uint64_t sm_percent, uint64_t monitor_used) {
  if (attachment->slot < 0 || device >= kMaxDevices || !OwnSlotIntact(*attachment)) return;
  Slot& slot = attachment->region->slots[attachment->slot];
  Store(slot.utilization[device].sm, sm_percent);
  Store(slot.monitor_used[device], monitor_used);
}

int32_t OwnStatus(const Attachment& attachment) {
  const int32_t slot = Load(attachment.slot);
  return slot < 0 || attachment.region == nullptr ? kStatusRunning : Load(attachment.region->slots[slot].status);
}

void NoteLaunch(Attachment* attachment, uint64_t unix_seconds) {
  if (attachment->region == nullptr) return;
  // A negative value is the monitor's order to stop, which a launch that was already under way must not undo.
  int32_t recent = Load(attachment->region->recent_kernel);
  if (recent >= 0 && recent != 2) {
    __atomic_compare_exchange_n(&attachment->region->recent_kernel, &recent, 2, false, __ATOMIC_ACQ_REL,
                                __ATOMIC_RELAXED);
  }
  Store(attachment->region->last_kernel_time, unix_seconds);
}

bool LaunchesBlocked(const Attachment& attachment) {
  return attachment.region != nullptr && Load(attachment.region->recent_kernel) < 0;
}

uint64_t SmLimit(const Attachment& attachment, uint32_t device) {
  return attachment.region == nullptr || device >= kMaxDevices ? 0 : Load(attachment.region->sm_limit[device]);
}

uint32_t CoresBurst(const Attachment& attachment, uint32_t device) {
  if (attachment.area == nullptr || device >= kMaxDevices) return 0;
  const uint32_t percent = Load(GpuTimeOf(attachment.area)->devices[device].burst);
  return percent > 100 ? 100 : percent;
}

int32_t UtilizationSwitch(const Attachment& attachment) {
  return attachment.region == nullptr ? 1 : Load(attachment.region->utilization_switch);
}

void NoteThrottled(Attachment* attachment, uint32_t device, uint64_t nanos) {
  if (attachment == nullptr || attachment->area == nullptr || device >= kMaxDevices) return;
  __atomic_fetch_add(&attachment->area->tallies[device].throttled_ns, nanos, __ATOMIC_RELAXED);
}

void NoteSpilled(Attachment* attachment, uint32_t device, uint64_t bytes) {
  if (attachment == nullptr || attachment->area == nullptr || device >= kMaxDevices) return;
  __atomic_fetch_add(&attachment->area->tallies[device].spilled_bytes, bytes, __ATOMIC_RELAXED);
}

bool PostInitLock(Attachment* attachment, const uint64_t& done, const Patience& patience) {
  const KeepErrno keep;
  if (!LockProcess()) return false;
  RecoverDescriptor(attachment);
  UnlockProcess();
  const int64_t begin = MonotonicNanos();
  int64_t looked = begin;
  // Hundreds may wait: they must not keep the holder from working.
  for (int64_t nap = kShortestNap; Load(done) == 0; nap = nap * 2 < kLongestNap ? nap * 2 : kLongestNap) {
    // Record locks do not keep the threads of one process apart.
    if (CompareExchange(post_init_here, 0, 1)) {
      if (TryRecordLock(attachment->fd, kPostInitLockByte, 1)) return true;
      const int error = errno;
      Store(post_init_here, 0);
      if (error != EAGAIN && error != EACCES) return false;  // nobody has it, and there is no lock to be had here
    }
    const int64_t now = MonotonicNanos();
    if (now - begin > patience.in_all_ns) return false;
    if (now - looked > patience.with_stopped_ns) {
      if (PostInitHolderStopped(*attachment)) return false;
      looked = now;
    }
    SleepNanos(nap);
  }
  return false;
}

bool PostInitHeldHere() { return Load(post_init_here) != 0; }

void PostInitUnlock(Attachment* attachment) {
  RecordUnlock(attachment->fd, kPostInitLockByte, 1);
  Store(post_init_here, 0);
}

}  // namespace hami::region
