// SPDX-License-Identifier: Apache-2.0
//
// The steps in which a driver grows what it keeps memory in: pools, and the memory of graphs. Not documented and not
// the same everywhere, so they are learnt from what it was seen to do; every process of the container learns from the
// others', because the region keeps them. A reservation in these steps is what the driver takes, no more and no less.
#pragma once

#include <stdint.h>

namespace hami::vgpu {

inline constexpr uint64_t kLeastGranularity = uint64_t{2} << 20;
inline constexpr uint64_t kLargestGranularity = uint64_t{512} << 20;
// What nobody has seen yet is guessed: this first, and where it does not fit, kLeastGranularity.
inline constexpr uint64_t kGuessedGranularity = uint64_t{32} << 20;

// The smallest power of two that is not below `known` and explains that a need of `needed` bytes became `grown`.
constexpr uint64_t GranularityOf(uint64_t known, uint64_t needed, uint64_t grown) {
  uint64_t step = known > kLeastGranularity ? known : kLeastGranularity;
  while (step < kLargestGranularity && (needed + step - 1) / step * step < grown) step *= 2;
  return step;
}

// Small blocks and large ones are treated differently.
constexpr int GranularityClass(uint64_t bytes) { return bytes < kGuessedGranularity ? 0 : 1; }

// What a process without a region has learnt of a device.
struct OwnGranularity {
  uint64_t pool[2] = {};
  uint64_t graph = 0;
  uint64_t block = 0;
};

enum class Grows { kPool, kGraph };
uint64_t LearntGranularity(int device, Grows what, uint64_t bytes);  // 0 = not known yet
void LearnGranularity(int device, Grows what, uint64_t needed, uint64_t grown);

// The blocks of plain memory (blocks.h), from 512 bytes to 2 MiB; 0 = not known yet.
uint64_t LearntBlock(int device);
void StoreBlock(int device, uint64_t bytes);

}  // namespace hami::vgpu
