// SPDX-License-Identifier: Apache-2.0
//
// What the environment asks for: the names and meanings of HAMi, read once, when the first hooked function is called.
// Values that HAMi parses sensibly mean the same here; the obvious spellings it misreads ("1GB" was one byte) mean
// what they say, with one warning. A limit that cannot be read is refused, not ignored: one that was meant never
// becomes none. Nothing here allocates, and nothing is cached from before the first use.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "region/layout.h"

namespace hami::vgpu {

// What a source says itself, where that differs from the default.
enum Says : uint32_t {
  kSaysRegion = 1,
  kSaysCommon = 2,
  kSaysPolicy = 4,
  kSaysOversubscribe = 8,
  kSaysFailOpen = 16,
  kSaysBurst = 32,
};

enum class UtilizationPolicy : int { kDefault = 0, kForce = 1, kDisable = 2 };

struct Settings {
  uint64_t memory_limit[region::kMaxDevices] = {};
  uint64_t sm_limit[region::kMaxDevices] = {};  // percent, 1…100
  // Bytes that this process wants to have at most, where that is less than its share has; 0 = no less.
  uint64_t own_memory_limit[region::kMaxDevices] = {};
  uint64_t own_sm_limit[region::kMaxDevices] = {};  // percent, likewise
  // Bit i: device i was meant to have a limit that cannot be read. Unless it has one from elsewhere, nothing is granted
  // to the process at all.
  uint32_t unread_memory_limits = 0;
  uint32_t unread_sm_limits = 0;
  // HAMI_DEVICE_LIMITS: the devices that were granted, in the order of their numbers; 0 = it does not say.
  uint32_t device_count = 0;
  char uuids[region::kMaxDevices][region::kUuidBytes] = {};
  uint32_t says = 0;  // bits of Says
  int priority = 0;   // 1 where nothing says it; all zeros here, so that none of this lies in the library's file
  bool says_priority = false;  // the environment itself does: above 0, where no common area tells of others, a task
                               // that must stop quickly
  UtilizationPolicy policy = UtilizationPolicy::kDefault;
  bool oversubscribe = false;
  bool kill_on_refusal = false;  // ACTIVE_OOM_KILLER
  bool fail_open = false;        // HAMI_FAIL_OPEN
  uint32_t cores_burst = 0;  // HAMI_CORES_BURST: percent up to which idle time may be used; 0 = no more than the limit
  char region_path[1024] = {};
  char common_path[1024] = {};  // HAMI_COMMON_AREA; empty = there is none
};

// Fills `out` from what `get` answers (getenv, in production) and warns through the log.
void ReadSettings(Settings* out, char* (*get)(const char*));

// What holds for a process of a share: what the share says, and of what the environment says only that which gives no
// more. The answer is in `environment`; what it loses there is said through the log.
void KeepToShare(Settings* environment, const Settings& share);

// CUDA_DISABLE_CONTROL: this library must behave as if it were not there. Unless there is a file SIGN, which whoever
// made the container puts there where nobody may switch the limits off.
bool ControlDisabled();
bool ControlDisabled(char* (*get)(const char*), const char* sign);

}  // namespace hami::vgpu
