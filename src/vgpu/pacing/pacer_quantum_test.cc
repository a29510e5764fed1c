// SPDX-License-Identifier: Apache-2.0
#include "vgpu/pacing/pacer_quantum.h"

#include <gtest/gtest.h>

namespace hami::vgpu {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr Quantum kSome{1'200'000, 200'000};

TEST(WorkInFlight, GivenRoomForALaunch_ThenItGoes) {
  EXPECT_EQ(QuantumWait(0, 5'000, kSome), 0);
  EXPECT_EQ(QuantumWait(1'195'000, 5'000, kSome), 0);
  EXPECT_GT(QuantumWait(1'195'001, 5'000, kSome), 0);
}

TEST(WorkInFlight, GivenLaunchLongerThanAQuantum_ThenItGoesWhenLittleIsAhead) {
  EXPECT_EQ(QuantumWait(200'000, 5 * kMs, kSome), 0);
  EXPECT_GT(QuantumWait(200'001, 5 * kMs, kSome), 0);
  EXPECT_EQ(QuantumWait(0, 5 * kMs, kShortQuantum), 0);
  EXPECT_GT(QuantumWait(1, 5 * kMs, kShortQuantum), 0);
}

TEST(WorkInFlight, GivenNoRoom_ThenTheWaitIsWhatIsTooMuch_NeitherABlinkNorLong) {
  EXPECT_EQ(QuantumWait(1'300'000, 5'000, kSome), 105'000);
  EXPECT_EQ(QuantumWait(1'200'000, 5'000, kSome), kQuantumPoll);
  EXPECT_EQ(QuantumWait(50 * kMs, 5'000, kSome), kLongestPoll);
}

TEST(WorkInFlight, GivenMoreWhoTakeTurns_ThenEachHasLess_ButMoreThanATurn) {
  EXPECT_EQ(SharedQuantum(1).most, 6 * kMs);
  EXPECT_EQ(SharedQuantum(2).most, 6 * kMs);
  EXPECT_EQ(SharedQuantum(3).most, 4 * kMs);
  EXPECT_EQ(SharedQuantum(4).most, 3 * kMs);
  EXPECT_EQ(SharedQuantum(200).most, 3 * kMs);
  EXPECT_EQ(PartOf(SharedQuantum(4), 1).most, 3 * kMs);
  EXPECT_EQ(PartOf(SharedQuantum(4), 8).most, 375'000);
  EXPECT_EQ(PartOf(kShortQuantum, 8).most, 50'000) << "as much as a launch takes to get there";
  EXPECT_EQ(QuantumWait(375'000 + 1'000, 0, PartOf(SharedQuantum(4), 8)), kQuantumPoll);
  EXPECT_EQ(QuantumWait(375'000 + 20'000, 0, PartOf(SharedQuantum(4), 8)), 160'000) << "the others have their turns";
}

}  // namespace
}  // namespace hami::vgpu
