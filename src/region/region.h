// SPDX-License-Identifier: Apache-2.0
//
// The region file of one container (or one `hami run`): open or create it, map it, and own one slot of its process
// table. Invariants: a slot is claimed, moved and freed under the lock (lock.h) and, as far as HAMi-core allows, under
// HAMi's semaphore; live slots are never moved by us; a freed slot has all counters zero; a slot's owner is known by
// pid + start time + token, never by pid alone. Refused: files that are not a v1.1/v1.2 region (v0 and the interim form
// of 2026-03 are left untouched), anything that is not a regular file, a 1025th process. Nothing here exits, changes
// the umask or handles signals; every wait is bounded. Limits in an existing file win over the caller's.
//
// The file is mapped. A process that truncates the region it has mapped gets SIGBUS at its next access, as for any
// mapping: only the container itself can do that, to itself. The size is checked at attach and again on every slow path
// (contention, refusal, sweep), after which the attachment is `broken` and refuses everything. Programs that look at
// the files of others use reader.h, which never maps.
//
// Freestanding: no C++ runtime, only libc calls of glibc ≤ 2.17. An Attachment is plain data with constant
// initialisation; it may be a global and must not be copied or moved while attached.

#pragma once

#include <cstdint>

#include "region/layout.h"

namespace hami::region {

enum class Status : int {
  kOk = 0,
  kOverLimit,    // the reservation does not fit
  kBusy,         // a live process kept the lock for longer than 2 s
  kTableFull,    // 1024 live processes
  kBadDevice,    // device index ≥ 16: nothing was counted
  kClamped,      // refund of more than this process holds: only what it held was given back
  kUnsupported,  // another layout (v0, interim, foreign major version): the file was not touched
  kCorrupt,      // not a region, or not a regular file
  kBroken,       // the file shrank while mapped
  kIo,           // open, map, … failed: Attachment.error is errno
  kNotAttached,
  kExists,   // Create: the file is there already
  kMissing,  // Open: no such file
};
const char* StatusName(Status status);

struct DeviceConfig {
  char uuid[kUuidBytes];    // "GPU-…" or "MIG-…", NUL-terminated, may be empty
  uint64_t memory_limit;    // bytes, 0 = none
  uint64_t sm_limit;        // percent, 0 or ≥ 100 = none
  uint64_t physical_bytes;  // 0 = not known
  uint32_t burst;           // percent up to which idle GPU time may be used, 0 = not said
};

// Used by whoever creates the file; ignored when it exists (except that Attach fills in nothing at all).
struct Config {
  uint32_t device_count = 0;  // how many uuids are known; limits may be set for all 16
  DeviceConfig devices[kMaxDevices] = {};
  int32_t priority = 1;            // CUDA_TASK_PRIORITY
  int32_t utilization_switch = 1;  // 1 = SM limiter active
  int32_t policy = 0;              // see PrivateMeta
  uint32_t flags = 0;              // kFlag…
  char share_name[kShareNameBytes] = {};
  int32_t creator_pid = 0;  // the process that owns the share's life (hami run), 0 = none
  uint64_t creator_start_time = 0;
};

inline constexpr int kKinds = 3;
enum class Kind : int { kContext = 0, kModule = 1, kData = 2 };

// One process's hold on one region. Fields are this library's; other code reads them through the functions below.
struct Attachment {
  Region* region = nullptr;
  PrivateArea* area = nullptr;
  int fd = -1;
  int error = 0;    // errno of the last kIo
  int32_t pid = 0;  // of the process that owns `slot`
  int32_t slot = -1;
  uint64_t token = 0;
  uint64_t start_time = 0;
  uint64_t pid_namespace = 0;
  uint64_t lock_id = 0;                     // what this process writes into the lock word
  uint32_t turn = 0;                        // of its threads with the lock; see lock.h
  uint64_t life = 0;                        // number of `life_line`
  void* life_line = nullptr;                // see HoldLifeLine
  uint32_t* fork_guard = nullptr;           // reads 0 in a child that no fork handler announced
  uint32_t broken = 0;                      // 1 once the file was seen too small
  uint64_t device = 0, inode = 0;           // of the file, to know whether `fd` is still ours
  uint64_t held[kMaxDevices][kKinds] = {};  // what this process was granted; the truth behind its slot
  uint64_t owed[kMaxDevices][kKinds] = {};  // refunds that met a busy lock, given back with the next turn
  uint32_t any_owed = 0;
  uint64_t own_limit[kMaxDevices] = {};  // bytes: what this process keeps to where that is less; 0 = no less
  char path[1024] = {};
};

// Creates the file at `path` (mode 0666 whatever the umask), initialised and with the private area, and closes it.
// kExists if there is one. The directory must exist.
Status Create(const char* path, const Config& config, int* error = nullptr);

// Maps an existing region without taking a slot (sweeping, resetting limits, looking). kMissing if there is none.
Status Open(Attachment* attachment, const char* path);

// Maps the region, creating it from `config` if need be, and claims a slot. The first process to arrive in a file whose
// slots are all dead clears them.
Status Attach(Attachment* attachment, const char* path, const Config& config);

// Claims a slot for an attachment that has none (after Open or a fork). Cheap when it has one. Thread-safe.
Status EnsureSlot(Attachment* attachment);

// Gives everything back: usage, slot, mapping, descriptor. Safe on an attachment that never attached.
void Detach(Attachment* attachment);

// In the child of a fork (pthread_atfork): forgets the parent's slot and holdings, keeps map and descriptor. The child
// has no usage, and claims its own slot with its first charge (or EnsureSlot), so children that never touch a GPU cost
// nothing. No lock, no system call besides re-arming the guard.
void AttachmentAfterFork(Attachment* attachment);

// Device identity. SetDevices writes count and uuids (NVML order) unless the creator fixed them (kFlagFixedDevices);
// more than 16 are cut. FindDevice compares whole uuids: index or -1.
void SetDevices(Attachment* attachment, uint32_t count, const char (*uuids)[kUuidBytes]);
// One that had no name when the others got theirs. Unless it is empty a name is whole.
bool Unnamed(const Attachment& attachment, uint32_t device);
void NameDevice(Attachment* attachment, uint32_t device, const char (&uuid)[kUuidBytes]);
int FindDevice(const Attachment& attachment, const char* uuid);
// For a file that was made for other GPUs, and whose devices no creator fixed. What was learnt of theirs is forgotten.
struct DeviceList {
  uint32_t count;
  char uuids[kMaxDevices][kUuidBytes];
  uint64_t memory_limit[kMaxDevices];
  uint64_t sm_limit[kMaxDevices];
};
// Only while the names are those of `judged`, so that one of many that start does it. True if this was the one.
bool ReplaceDevices(Attachment* attachment, const char (&judged)[kMaxDevices][kUuidBytes], const DeviceList& list);
// One more device. Its index, also where it is there already; -1 without a place for it.
int AddDevice(Attachment* attachment, const char (&uuid)[kUuidBytes], uint64_t memory_limit, uint64_t sm_limit);
uint32_t DeviceCount(const Attachment& attachment);  // clamped to 16
void SetPhysicalBytes(Attachment* attachment, uint32_t device, uint64_t bytes);
uint32_t Flags(const Attachment& attachment);

// The process's own slot: host pid, NVML figures, suspend state. No-ops without a slot.
void SetHostPid(Attachment* attachment, int32_t host_pid);
void SetUtilization(Attachment* attachment, uint32_t device, uint64_t sm_percent, uint64_t monitor_used);
int32_t OwnStatus(const Attachment& attachment);  // kStatus…; kStatusRunning without a slot

// The hand-shake words with the monitor.
void NoteLaunch(Attachment* attachment, uint64_t unix_seconds);  // recent_kernel := 2, last_kernel_time
bool LaunchesBlocked(const Attachment& attachment);              // recent_kernel < 0
uint64_t SmLimit(const Attachment& attachment, uint32_t device);
uint32_t CoresBurst(const Attachment& attachment, uint32_t device);  // percent, at most 100; 0 = not said
int32_t UtilizationSwitch(const Attachment& attachment);

// Counted for observers; see PrivateTally.
void NoteThrottled(Attachment* attachment, uint32_t device, uint64_t nanos);
void NoteSpilled(Attachment* attachment, uint32_t device, uint64_t bytes);

// The post-init lock that current HAMi-core uses too (record lock, freed by the kernel at death). It is waited for as
// long as its holder may get on: a slow machine is no reason to give up. False when that is over, or when `done` has
// become other than 0.
struct Patience {
  int64_t with_stopped_ns = 2'000'000'000;  // the holder does not run: a signal or a debugger has stopped it
  int64_t in_all_ns = 60'000'000'000;       // it runs, but may never come back from the driver
};
bool PostInitLock(Attachment* attachment, const uint64_t& done, const Patience& patience = {});
void PostInitUnlock(Attachment* attachment);
// By a thread of this process, so that no other process has it.
bool PostInitHeldHere();

}  // namespace hami::region
