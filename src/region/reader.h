// SPDX-License-Identifier: Apache-2.0
//
// Looks at a region file that somebody else owns and may have filled with anything. The file is copied piece by piece
// with pread, never mapped, so one that shrinks meanwhile is an error and not a signal. Every number that is used as an
// index or a count is clamped, every string is cut at its field and made printable. What comes out is plain data: it
// may be a lie, but it can not hurt. Nothing is ever written to the file.

#pragma once

#include <cstddef>
#include <cstdint>

#include "region/layout.h"
#include "region/region.h"

namespace hami::region {

enum class Liveness : uint8_t { kUnknown, kAlive, kDead };

struct SnapshotMemory {
  uint64_t context, module, data, offset, total;
  uint64_t monitor_used;
  uint64_t sm_percent;
};

struct SnapshotSlot {
  int32_t index;  // in the file's table
  int32_t pid;
  int32_t host_pid;
  int32_t status;
  Liveness liveness;
  int32_t holder;  // who holds the slot's lock, as the kernel tells this process; 0: nobody, or nobody it can name
  bool has_token;  // claimed by this project's library; the next four are only then meaningful
  uint64_t start_time;
  uint64_t pid_namespace;
  int64_t attached_at;
  char command[17];
  SnapshotMemory memory[kMaxDevices];
};

struct SnapshotDevice {
  char uuid[kUuidBytes + 1];  // printable; empty if the file had none
  uint64_t limit;
  uint64_t sm_limit;
  uint64_t used;  // saturating sum over the slots that are not known to be dead, and of what they share
  uint64_t owed;  // of that, what is in no slot: shared memory that was handed to a holder who has not looked since
  uint64_t peak, refusals, physical_bytes;  // 0 without the private area, as are the following
  uint64_t gpu_ns;                          // GPU time charged
  uint32_t burst;                           // percent, at most 100; 0 = not said
  uint64_t throttled_ns, spilled_bytes;     // see PrivateTally
};

// About 800 KiB: not for the stack. Of `slots` only the first slot_count mean anything.
struct Snapshot {
  int version;  // 0 or 1
  uint32_t minor_version;
  uint32_t device_count;  // ≤ 16
  SnapshotDevice devices[kMaxDevices];
  int32_t slot_limit;  // proc_num, clamped
  int32_t slot_count;  // entries of `slots`: those with a pid
  SnapshotSlot slots[kMaxSlots];
  int32_t utilization_switch;
  int32_t recent_kernel;
  int32_t priority;
  uint64_t last_kernel_time;  // unix seconds, 0 for v0
  bool has_private;           // the rest is only then meaningful
  char share_name[kShareNameBytes + 1];
  int32_t creator_pid;
  uint64_t creator_start_time;
  int64_t created_at;
  uint32_t flags;
  int32_t policy;
  uint64_t lock_steals;
};

// Reads the region behind `fd` (readable, any offset; the offset does not move). kCorrupt, kUnsupported or kIo.
// With `check_liveness` each slot is judged by its record lock and, in the same pid namespace, by /proc.
// Do not close another descriptor of the same file in a process that is attached to it: that drops its record locks.
Status ReadSnapshot(int fd, bool check_liveness, Snapshot* snapshot);
// Opens read-only, without following a symbolic link, and reads.
Status ReadSnapshotFile(const char* path, bool check_liveness, Snapshot* snapshot);
// The same over bytes in memory. Liveness is unknown.
Status ParseSnapshot(const uint8_t* bytes, size_t size, Snapshot* snapshot);

// Start time (field 22 of /proc/<pid>/stat) of a process, 0 if it is not there or a zombie. For share owners.
uint64_t ProcessStartTime(int32_t pid);

}  // namespace hami::region
