// SPDX-License-Identifier: Apache-2.0
#include "simgpu/driver/arena.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <bit>

namespace simgpu {
namespace {

constexpr std::size_t kNodesPerChunk = 256;

std::size_t RoundUp(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }

// Behind the memory a file has an entry for each 512 bytes of it: the id of the range that begins there, if others were
// told of it. The entries cost nothing until they are written, and are not mapped.
constexpr std::size_t kEntryBytes = sizeof(std::uint64_t);
constexpr std::size_t kUnit = 512;

std::size_t FileSize(std::size_t memory) { return memory + memory / kUnit * kEntryBytes; }

off_t EntryAt(std::size_t memory, std::size_t offset) {
  return static_cast<off_t>(memory + offset / kUnit * kEntryBytes);
}

// A file may not be larger than RLIMIT_FSIZE; growing it beyond that would kill the process by a signal.
int MemoryFile(std::size_t memory) {
  const std::size_t size = FileSize(memory);
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < size) return -1;
  const int fd = memfd_create("simgpu-memory", MFD_CLOEXEC);
  if (fd < 0) return -1;
  if (ftruncate(fd, static_cast<off_t>(size)) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

// Mapped at a multiple of the slab size.
void* MapAligned(std::size_t size, std::size_t alignment, int fd) {
  void* const room = mmap(nullptr, size + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return nullptr;
  const auto start = reinterpret_cast<std::uintptr_t>(room);
  const std::uintptr_t aligned = RoundUp(start, alignment);
  if (aligned > start) munmap(room, aligned - start);
  munmap(reinterpret_cast<void*>(aligned + size), start + alignment - aligned);
  const int flags = (fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS) | MAP_NORESERVE | MAP_FIXED;
  void* const mapped = mmap(reinterpret_cast<void*>(aligned), size, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (mapped != MAP_FAILED) return mapped;
  munmap(reinterpret_cast<void*>(aligned), size);
  return nullptr;
}

}  // namespace

bool Arena::Create(std::size_t wanted, std::size_t least, bool shared) {
  for (std::size_t size = RoundUp(wanted, kSlab); size >= std::max(least, kSlab); size = RoundUp(size / 2, kSlab)) {
    const int fd = shared ? MemoryFile(size) : -1;
    if (shared && fd < 0) continue;
    void* const mapped = MapAligned(size, kSlab, fd);
    if (mapped == nullptr) {
      if (fd >= 0) close(fd);
      continue;
    }
    const std::size_t slabs = size / kSlab;
    void* const table = mmap(nullptr, slabs * sizeof(Entry), PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (table == MAP_FAILED) {
      munmap(mapped, size);
      if (fd >= 0) close(fd);
      return false;
    }
    madvise(mapped, size, MADV_DONTDUMP);
    // A child would share, not copy, its parent's device memory; like a real GPU's, it is not there after a fork.
    if (shared) madvise(mapped, size, MADV_DONTFORK);
    base_ = reinterpret_cast<CUdeviceptr>(mapped);
    size_ = size;
    fd_ = fd;
    table_ = static_cast<Entry*>(table);
    GiveRun(0, static_cast<std::uint32_t>(slabs));
    return true;
  }
  return false;
}

Allocation* Arena::Allocate(std::size_t size) {
  return size <= (std::size_t{1} << kLargestShift) ? AllocateSmall(size) : AllocateLarge(size);
}

bool Arena::WriteEntry(const Allocation& allocation, std::uint64_t id) const {
  return pwrite(fd_, &id, sizeof id, EntryAt(size_, allocation.base - base_)) == static_cast<ssize_t>(sizeof id);
}

bool Arena::Tell(Allocation* allocation) {
  allocation->told = allocation->told || WriteEntry(*allocation, allocation->id);
  return allocation->told;
}

bool Arena::IsTold(int fd, std::size_t file_size, std::size_t offset, std::uint64_t id) {
  const std::size_t memory = file_size / (kUnit + kEntryBytes) * kUnit;
  std::uint64_t entry = 0;
  return id != 0 && offset < memory && offset % kUnit == 0 &&
         pread(fd, &entry, sizeof entry, EntryAt(memory, offset)) == static_cast<ssize_t>(sizeof entry) && entry == id;
}

std::size_t Arena::Free(Allocation* allocation) {
  if (allocation->told) WriteEntry(*allocation, 0);
  const Entry entry = table_[allocation->slab];
  std::size_t given_back = 0;
  if ((entry & kTags) == kPackedTag) {
    given_back = FreePacked(reinterpret_cast<PackedSlab*>(entry & ~kTags), allocation);
  } else if ((entry & kTags) == kSmallTag) {
    FreeSmall(reinterpret_cast<SmallSlab*>(entry & ~kTags), allocation);
  } else {
    const auto slabs = static_cast<std::uint32_t>(RoundUp(allocation->size, kSlab) >> kSlabShift);
    std::fill_n(table_ + allocation->slab, slabs, Entry{0});
    Discard(allocation->slab, slabs);
    GiveRun(allocation->slab, slabs);
  }
  free_nodes_.push_back(allocation);
  return given_back;
}

// Where in the slab the first hole of that size begins, kSlab if there is none; and how large its largest one is.
std::size_t Arena::HoleFor(const PackedSlab& slab, std::size_t size, std::size_t* largest) {
  std::size_t end = 0;
  std::size_t found = kSlab;
  *largest = 0;
  const auto look = [&](std::size_t until) {
    if (found == kSlab && until - end >= size) found = end;
    *largest = std::max(*largest, until - end);
  };
  for (const auto& [offset, allocation] : slab.blocks) {
    look(offset);
    end = offset + RoundUp(allocation->size, kUnit);
  }
  look(kSlab);
  return found;
}

Allocation* Arena::AllocatePacked(std::size_t size, std::uint32_t group, bool open) {
  const std::size_t rounded = RoundUp(size, kUnit);
  PackedSlab* slab = nullptr;
  if (open) {
    std::uint32_t index = 0;
    if (!TakeRun(1, &index)) return nullptr;
    slab = new PackedSlab{index, group, kSlab, {}};
    table_[index] = reinterpret_cast<Entry>(slab) | kPackedTag;
    packed_.push_back(slab);
  } else {
    const auto found = std::find_if(packed_.begin(), packed_.end(), [&](const PackedSlab* other) {
      return other->group == group && other->largest_hole >= rounded;
    });
    if (found == packed_.end()) return nullptr;
    slab = *found;
  }
  Allocation* node = NewNode();
  const std::size_t offset = HoleFor(*slab, rounded, &slab->largest_hole);
  node->base = base_ + (std::size_t{slab->index} << kSlabShift) + offset;
  node->size = size;
  node->slab = slab->index;
  slab->blocks.emplace(offset, node);
  HoleFor(*slab, kSlab, &slab->largest_hole);
  return node;
}

std::size_t Arena::FreePacked(PackedSlab* slab, const Allocation* allocation) {
  slab->blocks.erase((allocation->base - base_) & (kSlab - 1));
  HoleFor(*slab, kSlab, &slab->largest_hole);
  if (!slab->blocks.empty()) return 0;
  table_[slab->index] = 0;
  Discard(slab->index, 1);
  GiveRun(slab->index, 1);
  std::erase(packed_, slab);
  delete slab;
  return kSlab;
}

Allocation* Arena::Find(CUdeviceptr address) const {
  if (!Contains(address)) return nullptr;
  const std::size_t offset = address - base_;
  const Entry entry = table_[offset >> kSlabShift];
  Allocation* found = nullptr;
  if ((entry & kTags) == kLargeTag) {
    found = reinterpret_cast<Allocation*>(entry & ~kTags);
  } else if ((entry & kTags) == kSmallTag) {
    const auto* slab = reinterpret_cast<SmallSlab*>(entry & ~kTags);
    const std::uintptr_t block = slab->blocks[(offset & (kSlab - 1)) >> slab->shift];
    if ((block & 1) == 0) found = reinterpret_cast<Allocation*>(block);
  } else if ((entry & kTags) == kPackedTag) {
    const auto& blocks = reinterpret_cast<const PackedSlab*>(entry & ~kTags)->blocks;
    const auto next = blocks.upper_bound(offset & (kSlab - 1));
    if (next != blocks.begin()) found = std::prev(next)->second;
  }
  return found != nullptr && address - found->base < found->size ? found : nullptr;
}

Allocation* Arena::NewNode() {
  if (free_nodes_.empty()) {
    auto* chunk = new Allocation[kNodesPerChunk];
    for (std::size_t i = kNodesPerChunk; i > 0; --i) free_nodes_.push_back(&chunk[i - 1]);
  }
  Allocation* node = free_nodes_.back();
  free_nodes_.pop_back();
  *node = Allocation{};
  return node;
}

Allocation* Arena::AllocateSmall(std::size_t size) {
  const int shift = std::max(kLeastShift, static_cast<int>(std::bit_width(size - 1)));
  SmallSlab* slab = partial_[shift];
  if (slab == nullptr) slab = NewSmallSlab(shift);
  if (slab == nullptr) return nullptr;
  const std::uint32_t block = slab->free_head;
  const auto next = static_cast<std::uint32_t>(slab->blocks[block] >> 1);
  slab->free_head = next == (kNone >> 1) ? kNone : next;
  if (slab->free_head == kNone) Unlink(slab);
  ++slab->used;
  Allocation* node = NewNode();
  slab->blocks[block] = reinterpret_cast<std::uintptr_t>(node);
  node->base = base_ + (std::size_t{slab->index} << kSlabShift) + (std::size_t{block} << shift);
  node->size = size;
  node->slab = slab->index;
  node->block = block;
  return node;
}

Arena::SmallSlab* Arena::NewSmallSlab(int shift) {
  std::uint32_t index = 0;
  if (!TakeRun(1, &index)) return nullptr;
  const std::uint32_t count = 1U << (kSlabShift - shift);
  auto* slab = new SmallSlab{shift, index, 0, 0, nullptr, nullptr, std::vector<std::uintptr_t>(count)};
  for (std::uint32_t i = 0; i < count; ++i) {
    slab->blocks[i] = 2 * std::uintptr_t{i + 1 < count ? i + 1 : kNone >> 1} + 1;
  }
  table_[index] = reinterpret_cast<Entry>(slab) | kSmallTag;
  Link(slab);
  return slab;
}

void Arena::FreeSmall(SmallSlab* slab, Allocation* allocation) {
  const std::uint32_t block = allocation->block;
  const bool was_full = slab->free_head == kNone;
  slab->blocks[block] = 2 * std::uintptr_t{was_full ? kNone >> 1 : slab->free_head} + 1;
  slab->free_head = block;
  if (was_full) Link(slab);
  // The last partial slab of a size stays, so that a program that allocates and frees one block does no more than that.
  if (--slab->used > 0 || (slab->previous == nullptr && slab->next == nullptr)) return;
  Unlink(slab);
  table_[slab->index] = 0;
  Discard(slab->index, 1);
  GiveRun(slab->index, 1);
  delete slab;
}

void Arena::Link(SmallSlab* slab) {
  slab->previous = nullptr;
  slab->next = partial_[slab->shift];
  if (slab->next != nullptr) slab->next->previous = slab;
  partial_[slab->shift] = slab;
}

void Arena::Unlink(SmallSlab* slab) {
  if (slab->previous != nullptr) {
    slab->previous->next = slab->next;
  } else {
    partial_[slab->shift] = slab->next;
  }
  if (slab->next != nullptr) slab->next->previous = slab->previous;
  slab->previous = slab->next = nullptr;
}

Allocation* Arena::AllocateLarge(std::size_t size) {
  if (size > size_) return nullptr;
  const auto slabs = static_cast<std::uint32_t>(RoundUp(size, kSlab) >> kSlabShift);
  std::uint32_t start = 0;
  if (!TakeRun(slabs, &start)) return nullptr;
  Allocation* node = NewNode();
  node->base = base_ + (std::size_t{start} << kSlabShift);
  node->size = size;
  node->slab = start;
  std::fill_n(table_ + start, slabs, reinterpret_cast<Entry>(node) | kLargeTag);
  return node;
}

// Best fit; the rest of the hole stays a hole.
bool Arena::TakeRun(std::uint32_t slabs, std::uint32_t* start) {
  const auto found = by_size_.lower_bound({slabs, 0});
  if (found == by_size_.end()) return false;
  const auto [length, first] = *found;
  by_size_.erase(found);
  holes_.erase(first);
  if (length > slabs) {
    holes_.emplace(first + slabs, length - slabs);
    by_size_.emplace(length - slabs, first + slabs);
  }
  high_water_ = std::max(high_water_, first + slabs);
  if (kept_ - first < slabs) kept_ = kNone;
  *start = first;
  return true;
}

void Arena::GiveRun(std::uint32_t start, std::uint32_t slabs) {
  auto next = holes_.lower_bound(start);
  if (next != holes_.end() && next->first == start + slabs) {
    slabs += next->second;
    by_size_.erase({next->second, next->first});
    next = holes_.erase(next);
  }
  if (next != holes_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == start) {
      start = before->first;
      slabs += before->second;
      by_size_.erase({before->second, before->first});
      holes_.erase(before);
    }
  }
  holes_.emplace(start, slabs);
  by_size_.emplace(slabs, start);
}

void Arena::Discard(std::uint32_t start, std::uint32_t slabs) {
  if (slabs == 1) std::swap(start, kept_);
  if (start == kNone) return;
  void* const first = reinterpret_cast<void*>(base_ + (std::size_t{start} << kSlabShift));
  madvise(first, std::size_t{slabs} << kSlabShift, fd_ >= 0 ? MADV_REMOVE : MADV_DONTNEED);
}

}  // namespace simgpu
