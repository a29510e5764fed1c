// SPDX-License-Identifier: Apache-2.0
//
// Memory that processes of this container hand to each other, as the region knows it: an object with a number, which
// travels with the file descriptor (region/tag.h). Invariant: an object counts once in the container, for whichever of
// its holders the region chose. Where anything is missing (no region, a descriptor without a tag, another container's,
// no room) the answer is 0, and the memory counts as if nobody else had it.
#pragma once

#include <stdint.h>

namespace hami::vgpu {

// What a descriptor says of itself.
struct SharedMemory {
  uint64_t object = 0;
  uint64_t bytes = 0;
  int device = -1;
};

// `bytes` that are charged here as data may be joined by others from now on, under a new number or one that nobody
// holds.
uint64_t ShareMemory(int device, uint64_t bytes, uint64_t object = 0);
void TagMemory(int fd, const SharedMemory& memory);
SharedMemory ReadMemoryTag(int fd);
// An open file, to be known again without holding it: all of the driver's are the same device, so its name, if it has
// one, tells more.
struct FileName {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t object = 0;  // whose tag it carries; 0 = none
};
FileName NameFile(int fd);
// Whether the descriptor still is that file. What can not be found out counts as if it was.
bool IsFile(int fd, const FileName& name);
// One use of an object that somebody holds now belongs to this process.
bool JoinMemory(uint64_t object);
// The end of a use; the last one refunds what this process pays, unless another holder pays on. False: not held here.
bool LeaveMemory(uint64_t object);
// What this process holds and another one pays, or did until a moment ago.
uint64_t GuestMemory(int device);
// What others left to this process to pay, the dead among them, shows in what it holds.
void ClaimMemory();

}  // namespace hami::vgpu
