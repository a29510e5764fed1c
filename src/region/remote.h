// SPDX-License-Identifier: Apache-2.0
//
// The few words that an agent of the node writes into a region that somebody else owns: feedback and limits. Each is
// written by one pwrite of its own width into a file that has just been seen to be a region of that layout, so nothing
// is mapped and a file that shrinks meanwhile costs no signal. Who may want which value is not decided here. Refuses
// what is no region, what has another layout than the caller read, and device indices from 16 on.

#pragma once

#include <cstdint>

#include "region/region.h"

namespace hami::region {

// A region as somebody read it: the layout (Snapshot::version) and a descriptor that may be written.
struct Remote {
  int fd = -1;
  int version = 1;
};

// kOk, kBadDevice, kCorrupt (not such a region any more) or kIo.
Status WriteRecentKernel(const Remote& remote, int32_t value);
Status WriteUtilizationSwitch(const Remote& remote, int32_t value);
Status WritePriority(const Remote& remote, int32_t value);
Status WriteMemoryLimit(const Remote& remote, uint32_t device, uint64_t bytes);
Status WriteSmLimit(const Remote& remote, uint32_t device, uint64_t percent);
// kUnsupported where there is no private area.
Status WriteBurst(const Remote& remote, uint32_t device, uint32_t percent);

}  // namespace hami::region
