// SPDX-License-Identifier: Apache-2.0
//
// The one place that knows whether this process is under control, and whether its region can be had; where it cannot,
// limits are enforced by what the process counts itself (fail closed). Everything starts at the first hooked call and
// starts anew in the child of a fork, with zero usage and empty tables. Never exits, never waits without bound, touches
// no signal, no umask, no stdio.
#pragma once

#include <stdint.h>

#include "region/ledger.h"
#include "vgpu/runtime/settings.h"

namespace hami::vgpu {

// Answers of the device map beside a region index.
inline constexpr int kUnlimited = -1;  // a device without a place in the region: not counted
inline constexpr int kForbidden = -2;  // the region names its devices, and this is none of them

// Words that the kernel hands to a child of a fork as zeros.
struct ProcessWords {
  uint32_t phase;          // of process.cc
  uint32_t launches_open;  // 1: launches pass without a look (pacer.h)
  uint32_t lease_epoch;    // of the leases that are valid; 0 = none is
};
#if defined(__aarch64__)
inline constexpr size_t kWipedPage = 65536;
#else
inline constexpr size_t kWipedPage = 4096;
#endif
struct alignas(kWipedPage) WipedWords : ProcessWords {
  char rest[kWipedPage - sizeof(ProcessWords)];
};
// What each launch reads: found without a look into the table of the library's addresses.
#define HAMI_HOT __attribute__((visibility("hidden")))
HAMI_HOT extern WipedWords g_words;

// True when hooks have anything to do. The first call attaches; later ones cost one load.
bool Active();

// Once Active() was true: a limit that was meant cannot be read, so this process gets nothing.
bool RefusesAll();

const Settings& settings();  // valid once Active() was true
// nullptr while the counters are private.
region::Attachment* attachment();

// Percent up to which idle GPU time may be used: what the region says, else this process's environment. Not above the
// limit of its time: no more than that.
uint32_t CoresBurst(int device);

// Milliseconds of a clock that is cheap and only goes forward.
int64_t CoarseMillis();

}  // namespace hami::vgpu
