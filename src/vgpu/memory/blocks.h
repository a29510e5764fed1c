// SPDX-License-Identifier: Apache-2.0
//
// Plain memory in the blocks in which the driver takes it from the device: 2 MiB where nothing else was seen. A small
// allocation shares its block with others, and so may the ends of a large one. Which blocks an allocation is in, its
// address says; a block counts once for all that are in it.
// Invariant: the count is not below what the driver holds, in whatever order threads allocate and free. A block counts
// from before the driver's call that may take it, and what is being freed keeps its own block counted until the driver
// has freed it, even where the address has been given out anew meanwhile.
#pragma once

#include <stdint.h>

#include "abi/cuda_abi.h"
#include "vgpu/memory/table.h"

namespace hami::vgpu {

// What is asked of the driver for plain allocations is a multiple of it, however small.
inline constexpr uint64_t kAllocationUnit = 512;

constexpr uint64_t RoundUp(uint64_t bytes, uint64_t unit) {
  return bytes > UINT64_MAX - unit ? UINT64_MAX - unit + 1 : (bytes + unit - 1) / unit * unit;
}

// Finds out how large the driver's blocks are, once for the container: takes a little more than 2 MiB for a moment and
// looks at what the device lost. A context on the device is current.
void LearnBlock(int device);
// `bytes` in whole blocks: what is reserved before the driver is asked.
uint64_t InBlocks(int device, uint64_t bytes);

// Makes the entry one that is in blocks, at its key. Answers how much of them nothing else had counted. Without
// `shares` all of them: what is in them may be on its way out already, with a context that is ending.
uint64_t EnterBlocks(Entry* entry, bool shares = true);
// Around the driver's call that frees: the entry is on its way out, and it is gone; answers how much of its blocks is
// to be refunded. Gone without having begun is both at once.
void BeginLeave(Entry* entry);
uint64_t LeaveBlocks(Entry entry);
// The driver refused to free it. Answers what others counted meanwhile, not to count on it, and is to be refunded.
uint64_t StayInBlocks(Entry* entry);
// All of the blocks that it is in.
uint64_t BlocksOf(const Entry& entry);
// Whether a block that something is in seems to have room for so many bytes.
bool RoomInABlock(int device, uint64_t bytes);

}  // namespace hami::vgpu
