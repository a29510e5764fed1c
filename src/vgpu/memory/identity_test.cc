// SPDX-License-Identifier: Apache-2.0
// A process that looks for itself among processes that start, grow and end at the same moment.
#include "vgpu/memory/identity.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "vgpu/loader/driver.h"
#include "vgpu/memory/account.h"
#include "vgpu/runtime/process.h"

namespace hami::vgpu {

namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr unsigned kSelf = 4242;

// The device: this process, if it is listed, and neighbours whose memory moves between any two looks.
struct World {
  bool listed = true;
  bool room = true;
  uint64_t held = 300 * kMiB;
  uint64_t taken = 0;
  uint64_t counted = 0;
  int looks = 0;
  unsigned arrivals = 0;
  void (*neighbours)(ProcessList* list, int look) = nullptr;
};
World g_world{};
unsigned g_pid = 0;

CUresult Allocate(CUdeviceptr* out, size_t bytes) {
  *out = 1;
  g_world.taken = bytes;
  return CUDA_SUCCESS;
}
CUresult Free(CUdeviceptr) {
  g_world.taken = 0;
  return CUDA_SUCCESS;
}
CUresult Push(CUcontext) { return CUDA_SUCCESS; }
CUresult Pop(CUcontext*) { return CUDA_SUCCESS; }
CUresult Exchange(CUstreamCaptureMode*) { return CUDA_SUCCESS; }

void Add(ProcessList* list, unsigned pid, uint64_t bytes) {
  list->items[list->count].pid = pid;
  list->items[list->count++].usedGpuMemory = bytes;
}

}  // namespace

void* DriverSymbol(Sym sym) {
  if (sym == Sym::cuMemAlloc_v2) return reinterpret_cast<void*>(&Allocate);
  if (sym == Sym::cuMemFree_v2) return reinterpret_cast<void*>(&Free);
  if (sym == Sym::cuCtxPushCurrent_v2) return reinterpret_cast<void*>(&Push);
  if (sym == Sym::cuCtxPopCurrent_v2) return reinterpret_cast<void*>(&Pop);
  if (sym == Sym::cuThreadExchangeStreamCaptureMode) return reinterpret_cast<void*>(&Exchange);
  return nullptr;
}

Measurement Measure(nvmlDevice_t, ProcessList* list) {
  list->count = 0;
  if (g_world.neighbours != nullptr) g_world.neighbours(list, g_world.looks);
  ++g_world.looks;
  if (g_world.listed) Add(list, kSelf, g_world.held + g_world.taken);
  return {};
}
bool TryReserve(int, uint64_t bytes, Kind) {
  if (g_world.room) g_world.counted += bytes;
  return g_world.room;
}
void Refund(int, uint64_t bytes, Kind) { g_world.counted -= bytes; }
unsigned NvmlPid() { return g_pid; }
void SetNvmlPid(unsigned pid) { g_pid = pid; }

namespace {

class IdentityTest : public testing::Test {
 protected:
  IdentityTest() {
    g_world = {};
    g_pid = 0;
  }
  static bool Search(uint64_t spare = 0) { return IdentifyByProbe(0, nullptr, nullptr, spare); }
};

TEST_F(IdentityTest, GivenNobodyElse_ThenFoundAndNothingStaysCounted) {
  EXPECT_TRUE(Search());
  EXPECT_EQ(g_pid, kSelf);
  EXPECT_EQ(g_world.counted, 0u);
  EXPECT_EQ(g_world.taken, 0u);
}

TEST_F(IdentityTest, GivenOthersThatAppearWithTheSameContext_ThenFound) {
  for (int i = 0; i < 100; ++i) {
    g_pid = 0;
    g_world.looks = 0;
    g_world.neighbours = [](ProcessList* list, int look) {
      for (int other = 0; other <= look; ++other) Add(list, 100 + static_cast<unsigned>(other), 300 * kMiB);
    };
    ASSERT_TRUE(Search());
    ASSERT_EQ(g_pid, kSelf);
  }
}

TEST_F(IdentityTest, GivenOthersThatProbeAtTheSameTime_ThenNeverTakenForOneOfThem) {
  g_world.neighbours = [](ProcessList* list, int look) {
    for (unsigned other = 0; other < 8; ++other) {
      const uint64_t probe = look % 2 == 1 ? (1 + static_cast<uint64_t>(std::rand()) % kProbeUnits) * kProbeUnit : 0;
      Add(list, 100 + other, 300 * kMiB + probe);
    }
  };
  int found = 0;
  for (int i = 0; i < 1000; ++i) {
    g_pid = 0;
    g_world.looks = 0;
    found += Search() ? 1 : 0;
    ASSERT_TRUE(g_pid == 0 || g_pid == kSelf);
  }
  EXPECT_GT(found, 990);
}

TEST_F(IdentityTest, GivenItIsUnlisted_WhenNeighbourGrows_ThenNobodyIsTakenForIt) {
  g_world.listed = false;
  g_world.neighbours = [](ProcessList* list, int look) {
    Add(list, 100, 300 * kMiB + static_cast<uint64_t>(look) * kProbeUnit);
  };
  for (int i = 0; i < 1000; ++i) ASSERT_FALSE(Search());
}

TEST_F(IdentityTest, GivenListsWithoutMemory_ThenUnknown) {
  g_world.listed = false;
  g_world.neighbours = [](ProcessList* list, int) { Add(list, kSelf, ~uint64_t{0}); };
  EXPECT_FALSE(Search());
  EXPECT_LE(g_world.looks, 5);
}

TEST_F(IdentityTest, GivenNoRoomUnderTheLimit_ThenUnknownAndNothingCounted) {
  g_world.room = false;
  EXPECT_FALSE(Search());
  EXPECT_EQ(g_world.counted, 0u);
}

TEST_F(IdentityTest, GivenRoomInReserveAlone_ThenFound) {
  g_world.room = false;
  EXPECT_TRUE(Search(kLargestProbe));
  EXPECT_EQ(g_pid, kSelf);
  EXPECT_EQ(g_world.counted, 0u);
  EXPECT_EQ(g_world.taken, 0u);
}

TEST_F(IdentityTest, GivenTooLittleInReserve_ThenUnknown) {
  g_world.room = false;
  EXPECT_FALSE(Search(kProbeUnit - 1));
  EXPECT_EQ(g_world.taken, 0u);
}

}  // namespace
}  // namespace hami::vgpu
