// SPDX-License-Identifier: Apache-2.0
//
// A name that a file descriptor carries wherever it goes: into duplicates, through sockets, into other containers. It
// is a read lock of the open file description, far behind any data, whose place says which region the name belongs to
// and whose length says which object of it. Such locks end with the description, conflict with nobody who does not want
// to write there, and do not show in what a program can ask a descriptor. Invariant: what TaggedObject answers was
// written by TagDescriptor to this very description; where the kernel can not do it (before 4.1, no /proc) there are no
// names.

#pragma once

#include <cstdint>

namespace hami::region {

inline constexpr uint64_t kMaxTagRegion = (uint64_t{1} << 61) - 1;
inline constexpr uint64_t kMaxTagObject = (uint64_t{1} << 60) - 1;

// Neither may be 0. False when it can not be had.
bool TagDescriptor(int fd, uint64_t region, uint64_t object);
// 0 = none of this region.
uint64_t TaggedObject(int fd, uint64_t region);

// One line of /proc/<pid>/fdinfo/<fd>. False when it is no tag.
bool ParseTag(const char* line, uint64_t* region, uint64_t* object);

}  // namespace hami::region
