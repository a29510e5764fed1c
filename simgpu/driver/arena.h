// SPDX-License-Identifier: Apache-2.0
//
// Addresses for one kind of memory: a large sparse mapping from which allocations are cut. It owns addresses, not
// memory: what may be allocated is decided by the machine's books. Up to 1 MiB, blocks of a power of two share a slab
// of 2 MiB; larger ones are runs of slabs. Every operation takes constant time or the logarithm of the number of holes,
// at any number of live allocations, and an address inside a block finds its allocation in two loads.
//
// Not thread-safe: mem_internal.h has the lock. Memory that was freed is given back to the host in whole slabs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "simgpu/driver/mem.h"

namespace simgpu {

struct Pool;
struct ManagedState;
struct VmmHandle;

// One live range, in an arena or outside.
struct Allocation {
  CUdeviceptr base = 0;
  std::size_t size = 0;       // as asked for
  std::uint64_t charged = 0;  // bytes in the machine's books that belong to it alone
  std::uint64_t id = 0;
  Context* ctx = nullptr;
  Pool* pool = nullptr;             // kAsync, kGraph, kPoolImport
  ManagedState* managed = nullptr;  // kManaged
  VmmHandle* vmm = nullptr;         // kMapped
  std::size_t map_offset = 0;       // kMapped, kIpc, kPoolImport: where in the memory or file behind it it begins
  std::uint64_t origin = 0;         // kIpc, kPoolImport: the owner's pid and its id of the range
  std::size_t references = 1;       // kIpc: how often it was opened
  unsigned flags = 0;               // of the API call; kMapped: two bits of access by ordinal
  int machine = -1;
  MemKind kind = MemKind::kNone;
  bool sync_memops = false;
  bool readable = true;
  bool writable = true;
  bool in_use = true;                 // false between a stream-ordered free and its execution
  int backings = 0;                   // kGraph: launches that hold the memory; charged while there is one
  bool owed = false;                  // kGraph: launched by a graph that does not free it itself, and not freed since
  bool told = false;                  // to other processes: Arena::Tell
  bool orphan = false;                // kGraph: no node allocates it any more, the last free ends it
  std::uint32_t slab = 0, block = 0;  // the arena's own
};

class Arena {
 public:
  // Reserves up to `wanted` bytes of addresses, less when the process may not have that many. `shared`: backed by a
  // file that another process can map. False when not even `least` could be had.
  bool Create(std::size_t wanted, std::size_t least, bool shared);

  // Null when the addresses are used up.
  Allocation* Allocate(std::size_t size);
  // From a slab that small allocations of any size share, first fit; `group`: slabs are not shared between groups. Null
  // without `open` when none has room; with it a new slab is opened, whatever room there is.
  Allocation* AllocatePacked(std::size_t size, std::uint32_t group, bool open);
  // Bytes of a shared slab that this was the last allocation of; 0 otherwise.
  std::size_t Free(Allocation* allocation);

  // The live allocation whose block contains `address` and whose `size` reaches it.
  Allocation* Find(CUdeviceptr address) const;

  bool Contains(CUdeviceptr address) const { return address - base_ < size_; }
  CUdeviceptr base() const { return base_; }
  int fd() const { return fd_; }  // -1 when not shared

  // Other processes may know of the range until it is freed. False when the file can not say so.
  bool Tell(Allocation* allocation);
  // Whether the range of that id at an offset of another process' file lives still. `file_size`: of the whole file.
  static bool IsTold(int fd, std::size_t file_size, std::size_t offset, std::uint64_t id);

  template <typename Visit>
  void ForEach(Visit visit) const;

 private:
  static constexpr int kSlabShift = 21;
  static constexpr int kLeastShift = 9;
  static constexpr int kLargestShift = 20;
  static constexpr std::size_t kSlab = std::size_t{1} << kSlabShift;

  // A slab of equal blocks. An entry of `blocks` is a live Allocation, or 2 * (next free block) + 1.
  struct SmallSlab {
    int shift;
    std::uint32_t index;
    std::uint32_t used;
    std::uint32_t free_head;
    SmallSlab* previous;  // list of slabs with a free block
    SmallSlab* next;
    std::vector<std::uintptr_t> blocks;
  };
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  // A slab of allocations of any size, by where in it they begin.
  struct PackedSlab {
    std::uint32_t index;
    std::uint32_t group;
    std::size_t largest_hole;
    std::map<std::size_t, Allocation*> blocks;
  };

  // What a slab of the arena is: 0 free, 1 + SmallSlab*, 2 + Allocation* (part of its run), 3 + PackedSlab*.
  using Entry = std::uintptr_t;
  static constexpr Entry kSmallTag = 1, kLargeTag = 2, kPackedTag = 3, kTags = 3;

  Allocation* AllocateSmall(std::size_t size);
  Allocation* AllocateLarge(std::size_t size);
  void FreeSmall(SmallSlab* slab, Allocation* allocation);
  SmallSlab* NewSmallSlab(int shift);
  static std::size_t HoleFor(const PackedSlab& slab, std::size_t size, std::size_t* largest);
  std::size_t FreePacked(PackedSlab* slab, const Allocation* allocation);
  void Link(SmallSlab* slab);
  void Unlink(SmallSlab* slab);
  bool TakeRun(std::uint32_t slabs, std::uint32_t* start);
  void GiveRun(std::uint32_t start, std::uint32_t slabs);
  Allocation* NewNode();
  // Gives the memory behind slabs back to the host. One slab is kept until the next is discarded: a program that
  // allocates and frees one small block again and again spends no system call on it.
  void Discard(std::uint32_t start, std::uint32_t slabs);
  bool WriteEntry(const Allocation& allocation, std::uint64_t id) const;

  CUdeviceptr base_ = 0;
  std::size_t size_ = 0;
  int fd_ = -1;
  Entry* table_ = nullptr;
  std::uint32_t high_water_ = 0;  // slabs ever used
  std::uint32_t kept_ = kNone;    // a free slab whose memory the host does not have back yet
  SmallSlab* partial_[kLargestShift + 1] = {};
  std::map<std::uint32_t, std::uint32_t> holes_;               // start -> slabs
  std::set<std::pair<std::uint32_t, std::uint32_t>> by_size_;  // (slabs, start)
  std::vector<Allocation*> free_nodes_;
  std::vector<PackedSlab*> packed_;
};

template <typename Visit>
void Arena::ForEach(Visit visit) const {
  for (std::uint32_t i = 0; i < high_water_; ++i) {
    const Entry entry = table_[i];
    if ((entry & kTags) == kLargeTag) {
      auto* allocation = reinterpret_cast<Allocation*>(entry & ~kTags);
      if (allocation->slab == i) visit(allocation);
    } else if ((entry & kTags) == kSmallTag) {
      for (const std::uintptr_t block : reinterpret_cast<SmallSlab*>(entry & ~kTags)->blocks) {
        if ((block & 1) == 0) visit(reinterpret_cast<Allocation*>(block));
      }
    } else if ((entry & kTags) == kPackedTag) {
      for (const auto& [offset, allocation] : reinterpret_cast<PackedSlab*>(entry & ~kTags)->blocks) visit(allocation);
    }
  }
}

}  // namespace simgpu
