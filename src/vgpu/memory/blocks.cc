// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/blocks.h"

#include <string.h>

#include "vgpu/loader/driver.h"
#include "vgpu/memory/account.h"
#include "vgpu/memory/pool_granularity.h"
#include "vgpu/runtime/capture.h"
#include "vgpu/runtime/process.h"

namespace hami::vgpu {
namespace {

constexpr int kShiftAt = 8;  // in Entry.flags
static_assert(kCountedInBlocks == 1 << kShiftAt);

// What stands in the table about a block that is shared or may be: `bytes` and `extra` of its entry.
struct Block {
  uint32_t used;     // bytes of what is in it
  uint32_t users;    // how many that is
  uint32_t leaving;  // how many the driver is being asked to free
  uint32_t charges;  // how often it counts: once, and for each that leaves perhaps once more
};
static_assert(sizeof(Block) == sizeof(Entry::bytes) + sizeof(Entry::extra));

Block Unpack(const Entry& entry) {
  Block block;
  memcpy(&block, &entry.bytes, sizeof block);
  return block;
}

uint64_t SizeOf(const Entry& entry) { return uint64_t{1} << (entry.flags >> kShiftAt); }

// The blocks of an allocation. Those that it fills are its own.
struct Span {
  uint64_t begin, end;    // of the allocation
  uint64_t first, after;  // of its blocks
};

Span SpanOf(const Entry& entry) {
  const uint64_t size = SizeOf(entry);
  const uint64_t end = entry.extra + entry.bytes;
  return {entry.extra, end, entry.extra & ~(size - 1), (end + size - 1) & ~(size - 1)};
}

// What happens to an allocation's part of a block. Answers what of the block begins or ceases to count by it.
enum class Change : uint8_t { kEnter, kEnterAnew, kBeginLeave, kStay, kLeave };
uint64_t Apply(Change change, Block* block, uint32_t bytes, uint64_t size) {
  switch (change) {
    case Change::kEnter:
      block->used += bytes;
      if (block->users++ != 0) return 0;
      ++block->charges;
      return size;
    case Change::kEnterAnew:
      block->used += bytes;
      ++block->users;
      ++block->charges;
      return size;
    case Change::kBeginLeave:
      ++block->leaving;
      if (block->users == 0) return 0;  // it could not be stored
      --block->users;
      block->used -= bytes < block->used ? bytes : block->used;
      return 0;
    case Change::kStay:
      if (block->leaving != 0) --block->leaving;
      ++block->users;
      block->used += bytes;
      break;
    case Change::kLeave:
      if (block->leaving != 0) --block->leaving;
      if (block->charges == 0) return size;  // it could not be stored, and counts by itself
      break;
  }
  const uint32_t most = block->leaving + (block->users != 0 ? 1 : 0);
  const uint32_t surplus = block->charges > most ? block->charges - most : 0;
  block->charges -= surplus;
  return surplus * size;
}

struct Part {
  Change change;
  uint32_t bytes;
  uint64_t size;
  uint64_t answer;
};
bool ApplyStored(Entry* stored, void* arg) {
  auto* const part = static_cast<Part*>(arg);
  Block block = Unpack(*stored);
  part->answer = Apply(part->change, &block, part->bytes, part->size);
  memcpy(&stored->bytes, &block, sizeof block);
  return block.users != 0 || block.leaving != 0;
}

// The block at an address, if the allocation does not fill it: then it is nobody else's.
uint64_t At(uint64_t address, const Entry& entry, Change change) {
  const uint64_t size = SizeOf(entry);
  const Span span = SpanOf(entry);
  const uint64_t from = span.begin > address ? span.begin : address;
  const uint64_t to = span.end < address + size ? span.end : address + size;
  if (to - from == size) return 0;
  Entry key;
  key.key = address | static_cast<uint64_t>(entry.flags >> kShiftAt);
  key.kind = HandleKind::kBlock;
  key.device = entry.device;
  Part part{change, static_cast<uint32_t>(to - from), size, 0};
  table().Update(key, &ApplyStored, &part);
  return part.answer;
}

// The one or two blocks that others may be in, too.
uint64_t ForShared(const Entry& entry, Change change) {
  const Span span = SpanOf(entry);
  const uint64_t last = span.after - SizeOf(entry);
  return At(span.first, entry, change) + (last != span.first ? At(last, entry, change) : 0);
}

uint64_t WholeBlocks(const Entry& entry) {
  const uint64_t size = SizeOf(entry);
  const Span span = SpanOf(entry);
  const uint64_t begin = (span.begin + size - 1) & ~(size - 1);
  const uint64_t end = span.end & ~(size - 1);
  return end > begin ? end - begin : 0;
}

bool FreeMemory(size_t* free) {
  size_t total = 0;
  return real::cuMemGetInfo_v2(free, &total) == CUDA_SUCCESS;
}

uint64_t BlockBytes(int device) {
  const uint64_t learnt = LearntBlock(device);
  return learnt != 0 ? learnt : kLeastGranularity;
}

}  // namespace

void LearnBlock(int device) {
  constexpr uint64_t kAsked = kLeastGranularity + 1;
  constexpr uint64_t kMost = 2 * kLeastGranularity;
  if (device < 0 || LearntBlock(device) != 0 || !TryReserve(device, kMost, Kind::kContext)) return;
  const RelaxedCapture relaxed;
  CUdeviceptr block = 0;
  size_t before = 0;
  size_t after = 0;
  if (FreeMemory(&before) && real::cuMemAlloc_v2(&block, kAsked) == CUDA_SUCCESS) {
    const bool known = FreeMemory(&after);
    real::cuMemFree_v2(block);
    // What others do meanwhile comes in blocks, too: only a driver that takes smaller ones can have lost this little.
    for (uint64_t size = kAllocationUnit; known && size <= kLeastGranularity; size *= 2) {
      if (RoundUp(kAsked, size) != before - after) continue;
      StoreBlock(device, size);
      break;
    }
  }
  Refund(device, kMost, Kind::kContext);
}

uint64_t InBlocks(int device, uint64_t bytes) { return bytes == 0 ? 0 : RoundUp(bytes, BlockBytes(device)); }

uint64_t EnterBlocks(Entry* entry, bool shares) {
  const auto shift = static_cast<unsigned>(__builtin_ctzll(BlockBytes(entry->device)));
  entry->extra = entry->key;
  entry->bytes = RoundUp(entry->bytes, kAllocationUnit);
  entry->flags = static_cast<uint16_t>(entry->flags | shift << kShiftAt);
  return WholeBlocks(*entry) + ForShared(*entry, shares ? Change::kEnter : Change::kEnterAnew);
}

void BeginLeave(Entry* entry) {
  if (entry->flags < kCountedInBlocks || (entry->flags & kLeaving) != 0) return;
  entry->flags |= kLeaving;
  ForShared(*entry, Change::kBeginLeave);
}

uint64_t StayInBlocks(Entry* entry) {
  if ((entry->flags & kLeaving) == 0) return 0;
  entry->flags &= static_cast<uint16_t>(~kLeaving);
  return ForShared(*entry, Change::kStay);
}

uint64_t LeaveBlocks(Entry entry) {
  BeginLeave(&entry);
  return WholeBlocks(entry) + ForShared(entry, Change::kLeave);
}

uint64_t BlocksOf(const Entry& entry) {
  const Span span = SpanOf(entry);
  return span.after - span.first;
}

bool RoomInABlock(int device, uint64_t bytes) {
  Entry found;
  return table().FindIf(
      [&](const Entry& entry) {
        if (entry.kind != HandleKind::kBlock || entry.device != device) return false;
        const Block block = Unpack(entry);
        return block.users != 0 && block.used + bytes <= uint64_t{1} << (entry.key & (kAllocationUnit - 1));
      },
      &found);
}

}  // namespace hami::vgpu
