// SPDX-License-Identifier: Apache-2.0
#include "region/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "region/adopt.h"
#include "region/gpu_time.h"
#include "region/lock.h"
#include "region/process.h"
#include "region/write_signals.h"

namespace hami::region {
namespace {

constexpr int64_t kCreationTimeout = 10'000'000'000;
constexpr mode_t kMode = 0666;

Status Fail(Attachment* attachment, Status status, int error = 0) {
  attachment->error = error;
  return status;
}

// Programs like to close or reuse low descriptors; a high one is left alone longer.
int MoveHigh(int fd) {
  constexpr int kFloors[] = {1000, 200};
  for (const int floor : kFloors) {
    const int high = fcntl(fd, F_DUPFD_CLOEXEC, floor);
    if (high >= 0) {
      close(fd);
      return high;
    }
  }
  return fd;
}

int OpenFile(const char* path, bool create) {
  constexpr int kFlags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK;
  for (int attempt = 0; attempt < 16; ++attempt) {
    int fd = open(path, kFlags);
    if (fd >= 0 || errno != ENOENT || !create) return fd < 0 ? -1 : MoveHigh(fd);
    fd = open(path, kFlags | O_CREAT | O_EXCL, kMode);
    if (fd >= 0) {
      fchmod(fd, kMode);  // 0666 whatever the umask, which belongs to the program
      return MoveHigh(fd);
    }
    if (errno != EEXIST) return -1;
  }
  return -1;
}

template <size_t n>
void CopyText(char (&to)[n], const char* from) {
  size_t size = 0;
  while (size + 1 < n && from[size] != '\0') ++size;
  memmove(to, from, size);
  memset(to + size, 0, n - size);
}

enum class FileKind : uint8_t { kReady, kFresh, kPlain, kRefused, kGarbage, kUnreadable };

// What the file is, by its size and header words alone. kPlain: a HAMi region without a private area.
FileKind Classify(int fd, int64_t size) {
  if (size == 0) return FileKind::kFresh;
  if (size < static_cast<int64_t>(kRegionBytes)) {
    int32_t magic = 0;
    if (size < static_cast<int64_t>(sizeof magic)) return FileKind::kGarbage;
    if (pread(fd, &magic, sizeof magic, 0) != sizeof magic) return FileKind::kUnreadable;
    return magic == kMagic ? FileKind::kRefused : FileKind::kGarbage;
  }
  struct {
    int32_t magic;
    uint32_t major_version;
    uint32_t minor_version;
  } header;
  if (pread(fd, &header, sizeof header, 0) != sizeof header) return FileKind::kUnreadable;
  if (size == static_cast<int64_t>(kInterimFileBytes) || size == static_cast<int64_t>(kInterimRegionBytes)) {
    return FileKind::kRefused;
  }
  // HAMi-core gives the file its size before it takes the creation lock; either library may have died before the magic.
  if (header.magic == 0) return header.major_version <= kMajorVersion ? FileKind::kFresh : FileKind::kGarbage;
  if (header.magic != kMagic) return FileKind::kGarbage;
  if (header.major_version != kMajorVersion || header.minor_version > kMinorVersion) return FileKind::kRefused;
  if (size <= static_cast<int64_t>(kPrivateOffset)) return FileKind::kPlain;
  struct {
    uint64_t magic;
    uint32_t version;
    uint32_t bytes;
  } area = {};
  if (pread(fd, &area, sizeof area, kPrivateOffset) < 0) return FileKind::kUnreadable;
  if (area.magic == 0) return FileKind::kPlain;
  if (area.magic != kPrivateMagic || area.version != kPrivateVersion || area.bytes != sizeof(PrivateArea) ||
      size < static_cast<int64_t>(kFileBytes)) {
    return FileKind::kRefused;
  }
  return FileKind::kReady;
}

Status StatusOf(Attachment* attachment, FileKind kind) {
  switch (kind) {
    case FileKind::kRefused:
      return Status::kUnsupported;
    case FileKind::kGarbage:
      return Status::kCorrupt;
    case FileKind::kUnreadable:
      return Fail(attachment, Status::kIo, errno);
    default:
      return Status::kOk;
  }
}

Status MapFile(Attachment* attachment) {
  void* map = mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, attachment->fd, 0);
  if (map == MAP_FAILED) return Fail(attachment, Status::kIo, errno);
  attachment->region = static_cast<Region*>(map);
  attachment->area = reinterpret_cast<PrivateArea*>(static_cast<char*>(map) + kPrivateOffset);
  return Status::kOk;
}

// The pages that are written at once must have room on the disk.
bool ProvideRoom(int fd) {
  constexpr auto kTail = static_cast<int64_t>(offsetof(Region, slot_count));
  constexpr auto kArea = static_cast<int64_t>(kPrivateOffset);
  return HasRoom(fd, 0, offsetof(Region, slots) + sizeof(Slot)) && HasRoom(fd, kTail, 64) &&
         HasRoom(fd, kArea, offsetof(PrivateArea, gpu_time));
}

void FillArea(PrivateArea* area, const Config* config, bool foreign) {
  Store(area->lock, 0);
  Store(area->last_sweep, 0);
  Store(area->sem_intent, 0);
  Store(area->foreign_seen, foreign ? 1U : 0U);
  PrivateMeta& meta = area->meta;
  Store(meta.created_at, UnixSeconds());
  if (config != nullptr) {
    CopyText(meta.share_name, config->share_name);
    Store(meta.creator_pid, config->creator_pid);
    Store(meta.flags, config->flags);
    Store(meta.creator_start_time, config->creator_start_time);
    Store(meta.policy, config->policy);
    Store(meta.priority, config->priority);
    for (uint32_t i = 0; i < kMaxDevices; ++i) {
      Store(area->devices[i].physical_bytes, config->devices[i].physical_bytes);
      Store(GpuTimeOf(area)->devices[i].burst, config->devices[i].burst);
    }
  }
  Store(area->version, kPrivateVersion);
  Store(area->bytes, static_cast<uint32_t>(sizeof(PrivateArea)));
  HAMI_KILL_POINT(18);
  Store(area->magic, kPrivateMagic);
}

void FillRegion(Region* region, const Config& config) {
  Store(region->major_version, kMajorVersion);
  Store(region->minor_version, kMinorVersion);
  const uint32_t count = config.device_count < kMaxDevices ? config.device_count : kMaxDevices;
  Store(region->device_count, uint64_t{count});
  for (uint32_t i = 0; i < kMaxDevices; ++i) {
    CopyText(region->uuids[i], i < count ? config.devices[i].uuid : "");
    Store(region->limit[i], config.devices[i].memory_limit);
    Store(region->sm_limit[i], config.devices[i].sm_limit);
  }
  Store(region->owner_pid, 0);
  Store(region->sem.value, 1);
  Store(region->sem_postinit.value, 1);
  Store(region->slot_count, 0);
  Store(region->utilization_switch, config.utilization_switch);
  Store(region->recent_kernel, 2);
  Store(region->priority, config.priority);
}

// Under the creation lock.
Status Initialise(Attachment* attachment, FileKind kind, bool known_to_others, const Config* config) {
  if (kind == FileKind::kFresh && config == nullptr) return Status::kCorrupt;
  const FileStatus before = StatFile(attachment->fd);
  const WithoutWriteSignals quiet;
  if (before.size < static_cast<int64_t>(kFileBytes) && ftruncate(attachment->fd, kFileBytes) != 0) {
    return Fail(attachment, Status::kIo, errno);
  }
  if (!ProvideRoom(attachment->fd)) return Fail(attachment, Status::kIo, errno);
  HAMI_KILL_POINT(19);
  const Status status = MapFile(attachment);
  if (status != Status::kOk) return status;
  Region* region = attachment->region;
  // Kept at 1 to see HAMi-core coming (it writes a 0 there); see ForeignPossible.
  __atomic_store_n(reinterpret_cast<uint8_t*>(region) + kRegionBytes, uint8_t{1}, __ATOMIC_RELEASE);
  FillArea(attachment->area, config, known_to_others);
  if (kind == FileKind::kFresh) {
    FillRegion(region, *config);
    HAMI_KILL_POINT(20);
    Store(region->magic, kMagic);
  } else if (Load(region->minor_version) < 2) {
    // 1.1 has nothing at this place, and 1.2 would wait there for minutes.
    Store(region->sem_postinit.value, 1);
  }
  return Status::kOk;
}

// The new file that is not needed; not what may be at its path by now.
void RemoveOwnName(const Attachment& attachment) {
  const int fd = open(attachment.path, O_PATH | O_CLOEXEC | O_NOFOLLOW);
  const FileStatus status = StatFile(fd);
  if (fd >= 0) close(fd);
  if (status.ok && status.device == attachment.device && status.inode == attachment.inode) unlink(attachment.path);
}

// `living` becomes a descriptor of the region that was at this path and is to be had in place of a new one.
Status InitialiseOrMap(Attachment* attachment, const Config* config, int* living) {
  const int64_t deadline = MonotonicNanos() + kCreationTimeout;
  int64_t pause = 20'000;
  for (;;) {
    const FileStatus now = StatFile(attachment->fd);
    const FileKind kind = Classify(attachment->fd, now.size);
    if (kind == FileKind::kReady) return MapFile(attachment);
    const Status refused = StatusOf(attachment, kind);
    if (refused != Status::kOk) return refused;
    if (TryRecordLock(attachment->fd, 0, kRegionFileBytes)) {
      const FileStatus size = StatFile(attachment->fd);
      const FileKind again = Classify(attachment->fd, size.size);
      Status status = StatusOf(attachment, again);
      if (status == Status::kOk && again == FileKind::kReady) status = MapFile(attachment);
      // Only by those that would make a new one: to look is slow.
      if (living != nullptr && size.size == 0) *living = OpenDeleted(attachment->path);
      if (living != nullptr && *living >= 0) {
        RemoveOwnName(*attachment);
        status = Status::kMissing;
      }
      if (status == Status::kOk && again != FileKind::kReady) {
        status = Initialise(attachment, again, size.size != 0, config);
      }
      RecordUnlock(attachment->fd, 0, kRegionFileBytes);
      return status;
    }
    if (MonotonicNanos() > deadline) return Status::kBusy;
    SleepNanos(pause);
    if (pause < 4'000'000) pause *= 2;
  }
}

// `fd` is taken over.
Status MapDescriptor(Attachment* attachment, int fd, const Config* config, int* living) {
  attachment->fd = fd;
  GuardAgainstCleaners(fd);
  const FileStatus file = StatFile(fd);
  Status status = file.ok && file.regular ? Status::kOk : Status::kCorrupt;
  if (status == Status::kOk) {
    attachment->device = file.device;
    attachment->inode = file.inode;
    // Record locks do not keep the threads of one process apart.
    if (LockProcess()) {
      status = InitialiseOrMap(attachment, config, living);
      UnlockProcess();
    } else {
      status = Status::kBusy;
    }
  }
  if (status != Status::kOk) UnmapRegion(attachment);
  return status;
}

}  // namespace

Status MapRegion(Attachment* attachment, const char* path, bool create, const Config* config, bool join) {
  const size_t length = strlen(path);
  if (length >= sizeof attachment->path) return Fail(attachment, Status::kIo, ENAMETOOLONG);
  const int fd = OpenFile(path, create);
  if (fd < 0) return Fail(attachment, errno == ENOENT && !create ? Status::kMissing : Status::kIo, errno);
  memcpy(attachment->path, path, length + 1);
  int living = -1;
  const Status status = MapDescriptor(attachment, fd, config, create && join ? &living : nullptr);
  return living < 0 ? status : MapDescriptor(attachment, MoveHigh(living), config, nullptr);
}

void UnmapRegion(Attachment* attachment) {
  if (attachment->region != nullptr) munmap(attachment->region, kFileBytes);
  attachment->region = nullptr;
  attachment->area = nullptr;
  // Unless the program made something else of our number.
  if (DescriptorIsOurs(*attachment)) close(attachment->fd);
  attachment->fd = -1;
}

bool HasRoom(int fd, int64_t offset, int64_t length) {
  int result;
  do result = fallocate(fd, FALLOC_FL_KEEP_SIZE, offset, length);
  while (result != 0 && errno == EINTR);
  if (result == 0) return true;
  if (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL) {
    return errno != ENOSPC && errno != EDQUOT && errno != EFBIG && errno != EIO;
  }
  // A file system that cannot be asked: a byte of each page that is a hole is written, which needs room, too.
  constexpr int64_t kPage = 4096;
  const WithoutWriteSignals quiet;
  for (int64_t at = offset; at < offset + length; at = (at / kPage + 1) * kPage) {
    char byte = 0;
    if (pread(fd, &byte, 1, at) != 1) return false;
    if (byte == 0 && pwrite(fd, &byte, 1, at) != 1) return false;
  }
  return true;
}

bool DescriptorIsOurs(const Attachment& attachment) {
  const FileStatus now = StatFile(attachment.fd);
  return now.ok && now.device == attachment.device && now.inode == attachment.inode;
}

void RecoverDescriptor(Attachment* attachment) {
  if (DescriptorIsOurs(*attachment)) return;
  const int fd = OpenFile(attachment->path, false);
  const FileStatus file = StatFile(fd);
  if (fd >= 0 && (file.device != attachment->device || file.inode != attachment->inode)) {
    close(fd);
    attachment->fd = -1;
    return;
  }
  attachment->fd = fd;
}

}  // namespace hami::region
