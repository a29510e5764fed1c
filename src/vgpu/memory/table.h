// SPDX-License-Identifier: Apache-2.0
//
// What this process holds: from a driver handle (device pointer, array, …) to the bytes charged for it. Invariant: an
// entry exists exactly while its bytes are charged and the driver's object lives; whoever takes the entry out owns the
// refund, so of two racing frees only one gets it. Insert, Find and Take cost the same at any number of entries (hash,
// 64 shards); nothing here calls malloc or the driver.
#pragma once

#include <stdint.h>

#include "vgpu/runtime/lock.h"

namespace hami::vgpu {

// What `key` is. Handles of different kinds may have equal values.
enum class HandleKind : uint8_t {
  kNone = 0,
  kPointer,        // a device pointer of any kind; see Entry.flags
  kArray,          // CUarray
  kMipmap,         // CUmipmappedArray
  kExternal,       // CUexternalMemory
  kEndingContext,  // a number; bytes in a context that is ending, under whatever handle they were allocated
  kGraphExec,      // CUgraphExec; bytes = what its allocation nodes may need, not charged by itself
  kVmmHandle,      // CUmemGenericAllocationHandle; `extra` is the number of the physical memory
  kVmmMapping,     // mapped address; likewise
  kVmmPhysical,    // that number
  kVmmShared,      // likewise; `extra` is the object that the region knows it as
  kVmmBinding,     // a part of a multicast object; `extra` as above, `context` its owner's number
  kVmmTile,        // of a sparse array; likewise, `bytes` is its place
  kBlock,          // a block of device memory that small allocations share (blocks.h)
  kVmmOwner,  // the array, or the number of the multicast object's "physical memory"; `extra` is the owner's number
};

// Entry.flags
inline constexpr uint16_t kFromPool = 1;  // `extra` is the number of the pool, which is charged instead
inline constexpr uint16_t kSpilled = 2;   // managed memory that stands in for device memory
inline constexpr uint16_t kImported = 4;  // physical memory of another process
inline constexpr uint16_t kJoint = 8;     // its charge is the region's business
inline constexpr uint16_t kLeaving = 16;  // the driver is being asked to free it
// From here on: of an entry that is counted in blocks, the logarithm of their size; `extra` is its address then.
inline constexpr uint16_t kCountedInBlocks = 256;

struct Entry {
  uint64_t key = 0;
  uint64_t bytes = 0;
  uint64_t extra = 0;
  uint32_t context = 0;  // KnownContext::id; 0: belongs to none
  HandleKind kind = HandleKind::kNone;
  int8_t device = -1;  // region index
  uint16_t flags = 0;
};
static_assert(sizeof(Entry) == 32);

class Table {
 public:
  // False without memory (then nothing was stored). An entry of the same key and kind is replaced, and put into
  // *replaced (whose kind is kNone otherwise): the driver gave the key out anew, so what it was before is gone.
  bool Insert(const Entry& entry, Entry* replaced = nullptr);
  // Copies the entry out; false when there is none.
  bool Find(HandleKind kind, uint64_t key, Entry* out);
  // Takes the entry out; false when there is none.
  bool Take(HandleKind kind, uint64_t key, Entry* out);
  // Calls `change` with the stored entry of `key`'s kind and key, or with a copy of `key` where there is none; it
  // answers whether the entry is to stay. Without memory what is new is not stored. `change` must not use the table.
  void Update(const Entry& key, bool (*change)(Entry* entry, void* arg), void* arg);
  // Takes one entry of `context` out; false when there is none left. For contexts that die; costs a walk.
  bool TakeOfContext(uint32_t context, Entry* out);
  // Copies out one entry that `which` picks; false when there is none. Costs a walk; `which` must not use the table.
  template <typename Which>
  bool FindIf(Which which, Entry* out) {
    for (Shard& shard : shards_) {
      const Locked locked(shard.lock);
      for (uint32_t i = 0; i < shard.capacity; ++i) {
        const Entry& entry = shard.entries[i];
        if (entry.kind == HandleKind::kNone || !which(entry)) continue;
        *out = entry;
        return true;
      }
    }
    return false;
  }
  // Takes out every entry that `which` picks. Likewise.
  template <typename Which>
  void TakeIf(Which which) {
    for (Shard& shard : shards_) {
      const Locked locked(shard.lock);
      for (uint32_t i = 0; i < shard.capacity;) {
        Entry& entry = shard.entries[i];
        if (entry.kind != HandleKind::kNone && which(static_cast<const Entry&>(entry))) {
          Erase(shard, &entry);  // what it moves here has not been looked at
        } else {
          ++i;
        }
      }
    }
  }
  uint64_t size();
  // Forgets everything and gives the pages back: in the child of a fork.
  void Reset();

 private:
  struct alignas(64) Shard {
    Lock lock{LockRank::kTable};
    uint32_t count = 0;
    uint32_t capacity = 0;  // power of two
    Entry* entries = nullptr;
  };
  static constexpr uint32_t kShardBits = 6;
  static constexpr uint32_t kShards = 1u << kShardBits;

  static uint64_t Hash(HandleKind kind, uint64_t key);
  Shard& ShardOf(uint64_t hash) { return shards_[hash >> (64 - kShardBits)]; }
  static Entry* Locate(Shard& shard, HandleKind kind, uint64_t key, uint64_t hash);
  static bool Grow(Shard& shard);
  static bool AddLocked(Shard& shard, const Entry& entry, uint64_t hash);
  static void Erase(Shard& shard, Entry* entry);

  Shard shards_[kShards];
};

// What is charged in this process (memory.h).
Table& table();

}  // namespace hami::vgpu
