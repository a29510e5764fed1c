// SPDX-License-Identifier: Apache-2.0
//
// A name that a file descriptor carries wherever it goes: into duplicates, through sockets, into other containers. It
// is two read locks of the open file description, far behind any data, whose places say which region the name belongs
// to and whose lengths say which object of it, how large, and on which device. Such locks end with the description,
// conflict with nobody who does not want to write there, and do not show in what a program can ask a descriptor.
// Invariant: what ReadTag answers was written by WriteTag to this very description; where the kernel can not do it
// (before 4.1, no /proc) there are no names.

#pragma once

#include <cstdint>

namespace hami::region {

struct Tag {
  uint64_t object = 0;  // 0 = none
  uint64_t bytes = 0;   // a multiple of 512
  uint32_t device = 0;  // region index
};

inline constexpr uint64_t kMaxTagRegion = (uint64_t{1} << 59) - 1;
inline constexpr uint64_t kMaxTagObject = (uint64_t{1} << 48) - 1;
inline constexpr uint64_t kTagUnit = 512;
inline constexpr uint64_t kMaxTagBytes = (uint64_t{1} << 44) * kTagUnit - kTagUnit;

// False when it can not be had: numbers of 0 or out of range, or a lock of somebody else in the way.
bool WriteTag(int fd, uint64_t region, const Tag& tag);
// Of this region.
Tag ReadTag(int fd, uint64_t region);
// Whether the kernel says that the name is not there; false also when it can not be asked.
bool LacksTag(int fd, uint64_t region, uint64_t object);

// One line of /proc/<pid>/fdinfo/<fd>: the `part` (0 or 1) of a name, and what it says. False when it is none.
bool ParseTag(const char* line, uint64_t* region, int* part, uint64_t* value);

}  // namespace hami::region
