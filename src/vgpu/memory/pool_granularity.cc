// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/pool_granularity.h"

#include "vgpu/memory/blocks.h"
#include "vgpu/memory/memory.h"
#include "vgpu/runtime/process.h"

namespace hami::vgpu {
namespace {

uint64_t& WordOf(int device, Grows what, uint64_t bytes) {
  region::Attachment* const a = attachment();
  if (a == nullptr) {
    OwnGranularity& own = g_memory.granularity[device];
    return what == Grows::kGraph ? own.graph : own.pool[GranularityClass(bytes)];
  }
  region::PrivateDevice& shared = a->area->devices[device];
  return what == Grows::kGraph ? shared.graph_steps : shared.pool_steps[GranularityClass(bytes)];
}

uint64_t& BlockWord(int device) {
  region::Attachment* const a = attachment();
  return a == nullptr ? g_memory.granularity[device].block : a->area->tallies[device].block_bytes;
}

// Whatever the file says, a step is one.
uint64_t Sane(uint64_t step, uint64_t least = kLeastGranularity, uint64_t largest = kLargestGranularity) {
  const bool power_of_two = step != 0 && (step & (step - 1)) == 0;
  return power_of_two && step >= least && step <= largest ? step : 0;
}

}  // namespace

uint64_t LearntGranularity(int device, Grows what, uint64_t bytes) {
  return device < 0 ? kLeastGranularity : Sane(region::Load(WordOf(device, what, bytes)));
}

void LearnGranularity(int device, Grows what, uint64_t needed, uint64_t grown) {
  if (device < 0 || grown == 0) return;
  uint64_t& word = WordOf(device, what, needed);
  const uint64_t known = Sane(region::Load(word));
  const uint64_t step = GranularityOf(known, needed, grown);
  if (step != known) region::Store(word, step);
}

uint64_t LearntBlock(int device) {
  return device < 0 ? kLeastGranularity : Sane(region::Load(BlockWord(device)), kAllocationUnit, kLeastGranularity);
}

void StoreBlock(int device, uint64_t bytes) { region::Store(BlockWord(device), bytes); }

}  // namespace hami::vgpu
