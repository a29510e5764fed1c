// SPDX-License-Identifier: Apache-2.0
#include "simgpu/driver/arena.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <random>

namespace simgpu {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(Arena, GivenRandomAllocations_WhenAskedForAddress_ThenModelAgrees) {
  Arena arena;
  ASSERT_TRUE(arena.Create(std::size_t{8} << 30, kMiB, true));
  std::map<CUdeviceptr, Allocation*> model;
  std::mt19937_64 random(1);
  for (int step = 0; step < 20000; ++step) {
    if (model.empty() || random() % 5 < 3) {
      const std::size_t size = 1 + random() % (std::size_t{1} << (1 + random() % 24));
      Allocation* made = arena.Allocate(size);
      ASSERT_NE(made, nullptr);
      ASSERT_EQ(made->size, size);
      ASSERT_EQ(made->base % 512, 0U);
      const auto next = model.lower_bound(made->base);
      ASSERT_TRUE(next == model.end() || made->base + size <= next->first);
      ASSERT_TRUE(next == model.begin() || std::prev(next)->first + std::prev(next)->second->size <= made->base);
      model.emplace(made->base, made);
    } else {
      auto victim = model.lower_bound(arena.base() + random() % (std::size_t{8} << 30));
      if (victim == model.end()) victim = model.begin();
      const CUdeviceptr base = victim->first;
      arena.Free(victim->second);
      model.erase(victim);
      ASSERT_EQ(arena.Find(base), nullptr);
    }
  }
  for (const auto& [base, allocation] : model) {
    ASSERT_EQ(arena.Find(base), allocation);
    ASSERT_EQ(arena.Find(base + allocation->size - 1), allocation);
    ASSERT_NE(arena.Find(base + allocation->size), allocation);
  }
  std::size_t visited = 0;
  arena.ForEach([&](const Allocation* allocation) { visited += model.count(allocation->base); });
  EXPECT_EQ(visited, model.size());
  for (const auto& [base, allocation] : model) arena.Free(allocation);
  // One empty slab of each block size may stay behind, anywhere.
  EXPECT_NE(arena.Allocate(std::size_t{1} << 29), nullptr) << "holes grow together again";
}

TEST(Arena, GivenASlabThatIsKeptThenItsNextBytesStay) {
  Arena arena;
  ASSERT_TRUE(arena.Create(64 * kMiB, kMiB, true));
  Allocation* first = arena.AllocatePacked(4096, 0, true);
  const CUdeviceptr base = first->base;
  EXPECT_EQ(arena.Free(first), 2 * kMiB);
  Allocation* again = arena.AllocatePacked(4096, 0, true);
  EXPECT_EQ(again->base, base);
  std::memset(reinterpret_cast<void*>(base), 7, 4096);
  for (const std::uint32_t group : {1U, 2U}) arena.Free(arena.AllocatePacked(4096, group, true));
  EXPECT_EQ(*reinterpret_cast<const unsigned char*>(base + 4095), 7);
  arena.Free(again);
  arena.Free(arena.AllocatePacked(4096, 0, true));
  Allocation* large = arena.Allocate(8 * kMiB);
  ASSERT_LE(large->base, base);
  std::memset(reinterpret_cast<void*>(large->base), 9, 8 * kMiB);
  for (const std::uint32_t group : {1U, 2U}) arena.Free(arena.AllocatePacked(4096, group, true));
  EXPECT_EQ(*reinterpret_cast<const unsigned char*>(base), 9);
}

TEST(Arena, GivenNoAddressesLeftWhenAskedThenThereIsNoAllocation) {
  Arena arena;
  ASSERT_TRUE(arena.Create(8 * kMiB, kMiB, false));
  EXPECT_EQ(arena.Allocate(9 * kMiB), nullptr);
  Allocation* all = arena.Allocate(8 * kMiB);
  ASSERT_NE(all, nullptr);
  EXPECT_EQ(arena.Allocate(1), nullptr);
  arena.Free(all);
  EXPECT_NE(arena.Allocate(1), nullptr);
}

TEST(Arena, GivenLargeMemoryWhenFreedThenItsPagesAreZeroAgain) {
  for (const bool shared : {false, true}) {
    Arena arena;
    ASSERT_TRUE(arena.Create(64 * kMiB, kMiB, shared));
    Allocation* block = arena.Allocate(4 * kMiB);
    ASSERT_NE(block, nullptr);
    std::memset(reinterpret_cast<void*>(block->base), 1, 4 * kMiB);
    const CUdeviceptr base = block->base;
    arena.Free(block);
    block = arena.Allocate(4 * kMiB);
    ASSERT_EQ(block->base, base);
    EXPECT_EQ(*reinterpret_cast<const char*>(base + kMiB), 0);
    EXPECT_EQ(arena.fd() >= 0, shared);
  }
}

}  // namespace
}  // namespace simgpu
