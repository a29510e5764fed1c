// SPDX-License-Identifier: Apache-2.0
// Blocks against a model of a driver: calls of several threads, interleaved at every step, on addresses that are given
// out anew before what was there is given back.
#include "vgpu/memory/blocks.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "vgpu/loader/driver.h"
#include "vgpu/memory/account.h"
#include "vgpu/memory/pool_granularity.h"
#include "vgpu/runtime/process.h"

namespace hami::vgpu {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kBlock = 2 * kMiB;
uint64_t g_learnt = 0;
uint64_t g_driver_takes = kBlock;
uint64_t g_free = 0;
bool g_room = true;

CUresult GetInfo(size_t* free, size_t* total) {
  *free = g_free;
  *total = 1 << 30;
  return CUDA_SUCCESS;
}
CUresult Alloc(CUdeviceptr* out, size_t bytes) {
  *out = 1;
  g_free -= RoundUp(bytes, g_driver_takes);
  return CUDA_SUCCESS;
}
CUresult Free(CUdeviceptr) { return CUDA_SUCCESS; }
CUresult Exchange(CUstreamCaptureMode*) { return CUDA_SUCCESS; }

}  // namespace

void* DriverSymbol(Sym sym) {
  if (sym == Sym::cuMemGetInfo_v2) return reinterpret_cast<void*>(&GetInfo);
  if (sym == Sym::cuMemAlloc_v2) return reinterpret_cast<void*>(&Alloc);
  if (sym == Sym::cuMemFree_v2) return reinterpret_cast<void*>(&Free);
  if (sym == Sym::cuThreadExchangeStreamCaptureMode) return reinterpret_cast<void*>(&Exchange);
  return nullptr;
}
bool TryReserve(int, uint64_t, Kind) { return g_room; }
void Refund(int, uint64_t, Kind) {}
uint64_t LearntBlock(int) { return g_learnt; }
void StoreBlock(int, uint64_t bytes) { g_learnt = bytes; }

namespace {

// Small allocations only: eight places in each of a few regions.
class Driver {
 public:
  static constexpr uint64_t kPlaces = 8;
  static constexpr uint64_t kRegions = 3;
  static constexpr uint64_t kPiece = kBlock / kPlaces;

  uint64_t held() const { return held_; }  // blocks

  // 0: no room.
  uint64_t Allocate(std::minstd_rand& random) {
    const uint64_t from = random() % (kRegions * kPlaces);
    for (uint64_t i = 0; i < kRegions * kPlaces; ++i) {
      const uint64_t place = (from + i) % (kRegions * kPlaces);
      Region& region = regions_[place / kPlaces];
      if ((region.taken >> place % kPlaces & 1) != 0) continue;
      if (region.taken == 0) ++held_;
      region.taken |= 1u << place % kPlaces;
      return kBlock * (1 + place / kPlaces) + place % kPlaces * kPiece;
    }
    return 0;
  }
  // The address is another one's from now on; true: a block is to be given back.
  bool LetGo(uint64_t address) {
    Region& region = regions_[address / kBlock - 1];
    region.taken &= ~(1u << address % kBlock / kPiece);
    return region.taken == 0;
  }
  void GiveBack() { --held_; }

 private:
  struct Region {
    uint32_t taken = 0;
  };
  Region regions_[kRegions];
  uint64_t held_ = 0;
};

struct Call {
  enum Step { kReserved, kAllocated, kLive, kLeaving, kLetGo, kGivenBack } step = kReserved;
  Entry entry;
  bool gives = false;  // a block back
};

class World {
 public:
  explicit World(unsigned seed) : random_(seed) {}

  void Step() {
    const size_t at = random_() % 12;
    if (at >= calls_.size()) {
      counted_ += kBlock;
      calls_.push_back({});
    } else {
      Advance(at);
    }
    Check();
  }
  // All calls that have begun end.
  void Settle(bool free_all) {
    for (size_t i = 0; i < calls_.size();) {
      const size_t before = calls_.size();
      if (calls_[i].step == Call::kLive && !free_all) {
        ++i;
      } else {
        Advance(i);
        Check();
        if (calls_.size() < before) i = 0;
      }
    }
    EXPECT_EQ(counted_, driver_.held() * kBlock);
  }

 private:
  void Check() { ASSERT_GE(counted_, driver_.held() * kBlock); }

  void Advance(size_t at) {
    Call& call = calls_[at];
    switch (call.step) {
      case Call::kReserved:
        call.entry.key = driver_.Allocate(random_);
        if (call.entry.key == 0) {
          counted_ -= kBlock;
          return Remove(at);
        }
        call.entry.bytes = 1 + random_() % Driver::kPiece;
        call.step = Call::kAllocated;
        return;
      case Call::kAllocated:
        call.entry.device = 0;
        counted_ -= kBlock - EnterBlocks(&call.entry);
        call.step = Call::kLive;
        return;
      case Call::kLive:
        BeginLeave(&call.entry);
        call.step = Call::kLeaving;
        return;
      case Call::kLeaving:
        if (random_() % 8 == 0) {  // the driver refuses
          counted_ -= StayInBlocks(&call.entry);
          call.step = Call::kLive;
          return;
        }
        call.gives = driver_.LetGo(call.entry.key);
        call.step = Call::kLetGo;
        return;
      case Call::kLetGo:
        if (call.gives) driver_.GiveBack();
        call.step = Call::kGivenBack;
        return;
      case Call::kGivenBack:
        counted_ -= LeaveBlocks(call.entry);
        return Remove(at);
    }
  }
  void Remove(size_t at) {
    calls_[at] = calls_.back();
    calls_.pop_back();
  }

  std::minstd_rand random_;
  Driver driver_;
  uint64_t counted_ = 0;
  std::vector<Call> calls_;
};

class BlocksTest : public testing::Test {
 protected:
  void SetUp() override {
    table().Reset();
    g_learnt = 0;
    g_free = 1 << 30;
    g_driver_takes = kBlock;
    g_room = true;
  }
};

TEST_F(BlocksTest, GivenCallsInterleaved_ThenTheCountIsNeverBelowTheDriver) {
  for (unsigned seed = 1; seed <= 200 && !HasFailure(); ++seed) {
    World world(seed);
    for (int i = 0; i < 500 && !HasFailure(); ++i) {
      world.Step();
      if (i % 100 == 99) world.Settle(false);
    }
    world.Settle(true);
    EXPECT_EQ(table().size(), 0u);
  }
}

Entry EntryAt(uint64_t address, uint64_t bytes) {
  Entry entry;
  entry.key = address;
  entry.bytes = bytes;
  entry.device = 0;
  return entry;
}

TEST_F(BlocksTest, GivenALargeOne_ThenItsEndsAreShared) {
  Entry large = EntryAt(10 * kBlock + kMiB, 4 * kMiB + kMiB / 2);  // a part, a whole block, three quarters of one
  EXPECT_EQ(EnterBlocks(&large), 3 * kBlock);
  EXPECT_EQ(BlocksOf(large), 3 * kBlock);
  Entry before = EntryAt(10 * kBlock, 1);
  EXPECT_EQ(EnterBlocks(&before), 0u);
  Entry behind = EntryAt(13 * kBlock - kMiB / 2, kMiB / 2);
  EXPECT_EQ(EnterBlocks(&behind), 0u);
  EXPECT_EQ(LeaveBlocks(large), kBlock);
  EXPECT_EQ(LeaveBlocks(before), kBlock);
  EXPECT_EQ(LeaveBlocks(behind), kBlock);
  EXPECT_EQ(table().size(), 0u);
}

TEST_F(BlocksTest, GivenBlocksOf512Bytes_ThenNothingIsShared) {
  g_learnt = 512;
  Entry first = EntryAt(4096, 100);
  Entry second = EntryAt(4096 + 512, 1000);
  EXPECT_EQ(EnterBlocks(&first), 512u);
  EXPECT_EQ(EnterBlocks(&second), 1024u);
  EXPECT_EQ(table().size(), 0u);
  EXPECT_FALSE(RoomInABlock(0, 1));
  EXPECT_EQ(LeaveBlocks(first), 512u);
  EXPECT_EQ(LeaveBlocks(second), 1024u);
  EXPECT_EQ(InBlocks(0, 1), 512u);
}

TEST_F(BlocksTest, GivenAContextThatEnds_ThenWhatIsInItsBlocksIsNotCountedOn) {
  Entry old = EntryAt(kBlock, 1);
  EXPECT_EQ(EnterBlocks(&old), kBlock);
  Entry anew = EntryAt(kBlock + kMiB, 1);
  EXPECT_EQ(EnterBlocks(&anew, false), kBlock);
  EXPECT_EQ(LeaveBlocks(old), kBlock);
  EXPECT_EQ(LeaveBlocks(anew), kBlock);
}

TEST_F(BlocksTest, GivenABlock_ThenItHasRoomForWhatIsLeftOfIt) {
  Entry entry = EntryAt(kBlock, kMiB);
  EnterBlocks(&entry);
  EXPECT_TRUE(RoomInABlock(0, kMiB));
  EXPECT_FALSE(RoomInABlock(0, kMiB + 512));
  EXPECT_FALSE(RoomInABlock(1, 512));
  LeaveBlocks(entry);
  EXPECT_FALSE(RoomInABlock(0, 512));
}

TEST_F(BlocksTest, GivenADriver_ThenItsBlockIsLearnt) {
  for (const uint64_t block : {uint64_t{512}, uint64_t{65536}, kMiB, kBlock}) {
    SetUp();
    g_driver_takes = block;
    EXPECT_EQ(InBlocks(0, 1), kBlock) << "until then";
    LearnBlock(0);
    EXPECT_EQ(g_learnt, block);
    EXPECT_EQ(InBlocks(0, 1), block);
  }
}

TEST_F(BlocksTest, GivenNoRoomOrAStrangeLoss_ThenNothingIsLearnt) {
  g_room = false;
  LearnBlock(0);
  EXPECT_EQ(g_learnt, 0u);
  g_room = true;
  g_driver_takes = 7 * kMiB;
  LearnBlock(0);
  EXPECT_EQ(g_learnt, 0u);
}

}  // namespace
}  // namespace hami::vgpu
