// SPDX-License-Identifier: Apache-2.0
// How far the GPU has come, on a driver of three functions.
#include "vgpu/pacing/pacer_trail.h"

#include <gtest/gtest.h>

#include <set>

#include "vgpu/loader/driver.h"
#include "vgpu/pacing/pacer_events.h"

namespace hami::vgpu {
namespace {

constexpr int64_t kUs = 1'000;
constexpr int64_t kStart = 1'000'000'000;
const auto kOne = reinterpret_cast<CUstream>(0x1000);
const auto kTwo = reinterpret_cast<CUstream>(0x2000);
const auto kContext = reinterpret_cast<CUcontext>(0x3000);

std::set<CUevent> g_reached;
uintptr_t g_events = 0;
int g_given_back = 0;

CUresult Query(CUevent event) { return g_reached.count(event) != 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY; }
CUresult Current(CUcontext* context) {
  *context = kContext;
  return CUDA_SUCCESS;
}
CUresult Device(CUdevice* device) {
  *device = 0;
  return CUDA_SUCCESS;
}

}  // namespace

void* DriverSymbol(Sym sym) {
  if (sym == Sym::cuEventQuery) return reinterpret_cast<void*>(&Query);
  if (sym == Sym::cuCtxGetCurrent) return reinterpret_cast<void*>(&Current);
  if (sym == Sym::cuCtxGetDevice) return reinterpret_cast<void*>(&Device);
  return nullptr;
}
CUevent TakeEvent(CUcontext) { return reinterpret_cast<CUevent>(++g_events); }
void GiveEvent(CUcontext, CUdevice, CUevent) { ++g_given_back; }

namespace {

class TrailTest : public testing::Test {
 protected:
  TrailTest() {
    ResetTrails();
    g_reached.clear();
    g_given_back = 0;
  }
  static CUevent Launch(CUstream stream, int64_t cost, int64_t now, int64_t spacing = 0) {
    InFlightLocked(0, now);
    Issued(0, cost);
    const CUevent event = LayMarkLocked(0, stream, false, spacing, now);
    if (event != nullptr) MarkLaidLocked(0, event, true);
    return event;
  }
};

TEST_F(TrailTest, GivenNothingLaunched_ThenNothingIsInFlight) { EXPECT_EQ(InFlightLocked(0, kStart), 0); }

// Before it there was nothing on another stream, so even a first launch that is long is the only one.
TEST_F(TrailTest, GivenAllOnOneStream_ThenSoItWasFromTheBeginning_AndSinceTheLastOtherElse) {
  LaunchesOn(0, kOne, false, kStart);
  LaunchesOn(0, kOne, false, kStart + kUs);
  EXPECT_EQ(OneStreamSince(0), 0);
  LaunchesOn(0, kTwo, false, kStart + 2 * kUs);
  EXPECT_EQ(OneStreamSince(0), kStart + 2 * kUs);
  LaunchesOn(0, kOne, false, kStart + 3 * kUs);
  LaunchesOn(0, kOne, false, kStart + 4 * kUs);
  EXPECT_EQ(OneStreamSince(0), kStart + 3 * kUs);
  LaunchesOn(0, kOne, true, kStart + 5 * kUs);
  EXPECT_EQ(OneStreamSince(0), kStart + 3 * kUs) << "of a stream that the program made there is one";
  LaunchesOn(0, nullptr, true, kStart + 6 * kUs);
  EXPECT_EQ(OneStreamSince(0), kStart + 6 * kUs);
}

TEST_F(TrailTest, GivenTheFirstLaunchOnTheNullStream_ThenThatIsAnotherOneToo) {
  LaunchesOn(0, nullptr, false, kStart);
  EXPECT_EQ(OneStreamSince(0), 0);
  LaunchesOn(0, kOne, false, kStart + kUs);
  EXPECT_EQ(OneStreamSince(0), kStart + kUs);
}

TEST_F(TrailTest, GivenWork_ThenItIsInFlightUntilItsMarkIsReached) {
  const CUevent first = Launch(kOne, 500 * kUs, kStart);
  const CUevent second = Launch(kOne, 300 * kUs, kStart);
  EXPECT_EQ(InFlightLocked(0, kStart), 800 * kUs);
  g_reached.insert(first);
  EXPECT_EQ(InFlightLocked(0, kStart + 500 * kUs), 300 * kUs);
  g_reached.insert(second);
  EXPECT_EQ(InFlightLocked(0, kStart + 600 * kUs), 0);
  EXPECT_EQ(g_given_back, 2);
}

TEST_F(TrailTest, GivenAMarkThatIsNotReachedInTime_ThenThereIsMoreAhead) {
  EXPECT_FALSE(OverdueLocked(0, 100 * kUs, kStart)) << "nothing was launched";
  const CUevent first = Launch(kOne, 500 * kUs, kStart);
  Launch(kOne, 300 * kUs, kStart);
  EXPECT_FALSE(OverdueLocked(0, 100 * kUs, kStart + 600 * kUs));
  EXPECT_TRUE(OverdueLocked(0, 100 * kUs, kStart + 601 * kUs));
  g_reached.insert(first);
  EXPECT_FALSE(OverdueLocked(0, 100 * kUs, kStart + 602 * kUs)) << "the next one has its time";
  EXPECT_TRUE(OverdueLocked(0, 100 * kUs, kStart + 1100 * kUs));
}

TEST_F(TrailTest, WhenTimePasses_ThenTheFirstPartCountsAsDone_AndNoMore) {
  Launch(kOne, 500 * kUs, kStart);
  Launch(kOne, 300 * kUs, kStart);
  EXPECT_EQ(InFlightLocked(0, kStart + 200 * kUs), 600 * kUs);
  EXPECT_EQ(InFlightLocked(0, kStart + 5000 * kUs), 300 * kUs);
}

TEST_F(TrailTest, GivenWorkWithoutAMark_ThenItIsInFlightForItsTime) {
  EXPECT_EQ(InFlightLocked(0, kStart), 0);
  Issued(0, 400 * kUs);
  EXPECT_EQ(InFlightLocked(0, kStart + 100 * kUs), 300 * kUs);
  EXPECT_EQ(InFlightLocked(0, kStart + 400 * kUs), 0);
  Issued(0, 200 * kUs);
  EXPECT_EQ(InFlightLocked(0, kStart + 450 * kUs), 150 * kUs);
}

TEST_F(TrailTest, GivenOthersAtWork_ThenTheTimeUntilTheyHaveEndedIsNotTakenForWork) {
  const CUevent first = Launch(kOne, 200 * kUs, kStart);
  BeginsAtLocked(0, kStart + 300 * kUs);
  Launch(kOne, 200 * kUs, kStart);
  EXPECT_EQ(InFlightLocked(0, kStart + 200 * kUs), 400 * kUs);
  BeginsAtLocked(0, kStart + 400 * kUs);  // they take longer
  EXPECT_EQ(InFlightLocked(0, kStart + 500 * kUs), 300 * kUs);
  g_reached.insert(first);
  EXPECT_EQ(InFlightLocked(0, kStart + 620 * kUs), 180 * kUs);
  BeginsAtLocked(0, kStart + 2000 * kUs);  // it goes on, whatever they tell
  EXPECT_EQ(InFlightLocked(0, kStart + 700 * kUs), 100 * kUs);
}

TEST_F(TrailTest, GivenMarkThatIsSeenLate_ThenWhatFollowsBeganWhenItWasDue) {
  const CUevent first = Launch(kOne, 500 * kUs, kStart);
  Launch(kOne, 500 * kUs, kStart);
  g_reached.insert(first);
  EXPECT_EQ(InFlightLocked(0, kStart + 700 * kUs), 300 * kUs);
}

TEST_F(TrailTest, GivenMarkThatWasNotReachedWhenDue_ThenWhatFollowsBeganAfterThatLook) {
  const CUevent first = Launch(kOne, 500 * kUs, kStart);
  Launch(kOne, 500 * kUs, kStart);
  EXPECT_EQ(InFlightLocked(0, kStart + 600 * kUs), 500 * kUs);
  g_reached.insert(first);
  EXPECT_EQ(InFlightLocked(0, kStart + 700 * kUs), 400 * kUs);
}

TEST_F(TrailTest, GivenStreamThatLags_ThenItsWorkKeepsTheRestInFlight) {
  Launch(kOne, 100 * kUs, kStart);
  g_reached.insert(Launch(kTwo, 100 * kUs, kStart));
  EXPECT_EQ(InFlightLocked(0, kStart), 200 * kUs);
}

TEST_F(TrailTest, GivenStreamThatLags_WhenSkipped_ThenOnlyWhatIsBehindTheLastMarkReachedIsInFlight) {
  const CUevent slow = Launch(kOne, 100 * kUs, kStart);
  const CUevent fast = Launch(kTwo, 100 * kUs, kStart);
  Launch(kTwo, 50 * kUs, kStart);
  SkipLaggingLocked(0, kStart + kUs);
  EXPECT_EQ(ProgressLocked(0).reached_at, 0);
  EXPECT_EQ(ProgressLocked(0).to_next, 100 * kUs);
  EXPECT_EQ(InFlightLocked(0, kStart), 250 * kUs);
  g_reached.insert(fast);
  SkipLaggingLocked(0, kStart + 10 * kUs);
  EXPECT_EQ(ProgressLocked(0).reached_at, kStart + 10 * kUs);
  EXPECT_EQ(ProgressLocked(0).to_next, 50 * kUs);
  EXPECT_EQ(g_given_back, 2);
  g_reached.insert(slow);
  EXPECT_EQ(InFlightLocked(0, kStart + 10 * kUs), 50 * kUs);
}

TEST_F(TrailTest, GivenSpacing_ThenEachStreamHasMarksOfItsOwn) {
  EXPECT_NE(Launch(kOne, 10 * kUs, kStart, 100 * kUs), nullptr);
  EXPECT_EQ(Launch(kOne, 10 * kUs, kStart, 100 * kUs), nullptr);
  EXPECT_NE(Launch(kTwo, 10 * kUs, kStart, 100 * kUs), nullptr);
  EXPECT_NE(Launch(kOne, 100 * kUs, kStart, 100 * kUs), nullptr);
}

TEST_F(TrailTest, GivenMarkNotReachedForAWhile_ThenThatStreamIsBackloggedAndNoOther) {
  const CUevent mark = Launch(kOne, 500 * kUs, kStart);
  EXPECT_FALSE(BackloggedLocked(0, kOne, false, kStart + kUs));  // it may only be on its way
  EXPECT_TRUE(BackloggedLocked(0, kOne, false, kStart + 20 * kUs));
  EXPECT_FALSE(BackloggedLocked(0, kTwo, false, kStart + 20 * kUs));
  g_reached.insert(mark);
  EXPECT_FALSE(BackloggedLocked(0, kOne, false, kStart + 20 * kUs));
}

TEST_F(TrailTest, GivenMoreMarksThanThereIsRoom_ThenTheWorkStillCounts) {
  for (int i = 0; i < 200; ++i) Launch(kOne, kUs, kStart);
  EXPECT_EQ(InFlightLocked(0, kStart), 200 * kUs);
}

TEST_F(TrailTest, WhenDroppedOrItsContextEnds_ThenNothingIsInFlight) {
  Launch(kOne, 500 * kUs, kStart);
  DropTrailsOf(reinterpret_cast<CUcontext>(0x9000), -1);
  EXPECT_EQ(InFlightLocked(0, kStart), 500 * kUs);
  DropTrailsOf(kContext, -1);
  EXPECT_EQ(InFlightLocked(0, kStart), 0);
}

// A long launch on one stream is at the front, and all marks behind it are taken.
TEST_F(TrailTest, GivenALaunchThatTakesLong_ThenItIsKnownOnOtherStreamsWhetherTheirsAreDone) {
  const LaunchQueueKey two{kTwo, nullptr};
  Launch(kOne, 100'000 * kUs, kStart);
  EXPECT_FALSE(MarkedAheadLocked(0, two));
  for (int i = 0; i < 200; ++i) {
    const CUevent mark = Launch(kTwo, 200 * kUs, kStart + i * 200 * kUs);
    ASSERT_NE(mark, nullptr) << i;
    EXPECT_TRUE(MarkedAheadLocked(0, two));
    g_reached.insert(mark);
    EXPECT_FALSE(MarkedAheadLocked(0, two));
  }
  EXPECT_GT(InFlightLocked(0, kStart + 40'000 * kUs), 99'000 * kUs);  // the long one has not ended
}

TEST_F(TrailTest, GivenNoRoomForAnotherMark_ThenNothingIsTakenForDone) {
  for (int i = 0; Launch(kOne, 10 * kUs, kStart) != nullptr; ++i) ASSERT_LT(i, 1000);
  EXPECT_TRUE(MarkedAheadLocked(0, {kTwo, nullptr}));
}

}  // namespace
}  // namespace hami::vgpu
