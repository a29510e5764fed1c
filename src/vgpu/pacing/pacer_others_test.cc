// SPDX-License-Identifier: Apache-2.0
//
// Who else is at work: other processes of the container, told from what they were charged, and other containers, where
// only NVML makes them suspect.
#include <gtest/gtest.h>

#include "vgpu/pacing/pacer_model.h"

namespace hami::vgpu {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kStart = 1'000'000 * kMs;

// Processes of a container that was known to take 30 % of a GPU of its own, and pays for too little.
TEST(OthersAtWork, GivenCostsThatAreTooLow_ThenTheExcessIsNotTakenForOthersForLong) {
  constexpr int kProcesses = 8;
  constexpr int64_t kLimit = 30;
  Estimate e[kProcesses];
  for (Estimate& each : e) {
    for (uint32_t i = 0; i < kEnoughAlone; ++i) Learn(&each, kMs * 2 / 3);
  }
  Suspicion s;
  for (int i = 0; i < 8; ++i) Suspect(&s, kLimit, 60);
  bool suspected = true;
  int64_t busy = 0;
  for (int second = 0; second < 4; ++second) {
    busy = 0;
    for (Estimate& each : e) {
      busy += kLimit * kMs / each.cost;
      const int64_t launches = 10 * kLimit * kMs / each.cost / kProcesses;
      for (int64_t i = 0; i < launches; ++i) {
        const int64_t cost = kMs + (i * 7 % 11 - 5) * kMs / 50;
        Learn(&each, cost, {.contended = suspected, .suspected = suspected, .siblings = true});
      }
    }
    busy /= kProcesses;
    suspected = Suspect(&s, kLimit, busy);
  }
  EXPECT_NEAR(static_cast<double>(busy), static_cast<double>(kLimit), 1.0);
}

TEST(OthersAtWork, GivenSlicesOfOthersWhoAreOnlySuspected_ThenTheyAreNotChargedForThem) {
  Estimate e;
  for (uint32_t i = 0; i < kEnoughAlone; ++i) Learn(&e, 10 * kMs);
  for (int i = 0; i < 2000; ++i) {
    EXPECT_LE(Learn(&e, (18 + i * 7 % 5) * kMs, {.contended = true, .suspected = true}), 11 * kMs);
  }
}

// On a GPU that is full every second launch waits for the turns of all siblings. Who pays too little keeps it full, and
// suspects others, whose time is not believed.
TEST(OthersAtWork, GivenACostThatIsTooLow_WhenOnlyHalfOfTheLaunchesWait_ThenItIsNotKeptForSeconds) {
  Estimate e;
  for (uint32_t i = 0; i < kConfident; ++i) Learn(&e, kMs * 6 / 10);
  int launches = 0;
  while (e.cost < kMs * 95 / 100 && launches < 1000) {
    const int64_t wait = launches++ % 2 == 0 ? 0 : 14 * kMs;
    Learn(&e, kMs + wait, {.gap = Gap::kNone, .contended = true, .suspected = true, .siblings = true});
  }
  EXPECT_LE(launches, 200);
}

TEST(SiblingsAtWork, GivenWhatTheyWereCharged_ThenTheyAreAtWorkUntilThatIsDone) {
  Siblings s;
  LookAt(&s, 70 * kMs, kStart);  // from before we looked
  EXPECT_LT(s.until, kStart);
  LookAt(&s, 73 * kMs, kStart + kMs);
  EXPECT_EQ(s.until, kStart + 4 * kMs);
  LookAt(&s, 74 * kMs, kStart + 2 * kMs);
  EXPECT_EQ(s.until, kStart + 5 * kMs);
  LookAt(&s, 60 * kMs, kStart + 3 * kMs);  // some of it came back
  EXPECT_EQ(s.until, kStart + 5 * kMs);
  LookAt(&s, 61 * kMs, kStart + 10 * kMs);
  EXPECT_EQ(s.until, kStart + 11 * kMs);
}

constexpr int kMany = 64;

// Kernels of 1 ms that vary by a tenth.
class Kernels {
 public:
  int64_t Next() {
    random_ = random_ * 6364136223846793005u + 1442695040888963407u;
    return kMs - kMs / 10 + static_cast<int64_t>((random_ >> 33) % (kMs / 5));
  }

 private:
  uint64_t random_ = 1;
};

// The first few may all be short ones. If what is longer than they vary were refused, they would be all that counts;
// and who pays too little comes to suspect others, for seconds.
TEST(SiblingsAtWork, GivenKernelsThatVary_WhenFewWereMeasured_ThenTheCostIsTheirMean) {
  for (const bool suspected : {false, true}) {
    Kernels kernels;
    double cost = 0;
    for (int process = 0; process < kMany; ++process) {
      Estimate e;
      for (uint32_t i = 0; i < kSettled; ++i) {
        Learn(&e, kernels.Next(),
              {.gap = Gap::kCertain,
               .host_gap = -kLeastGap,
               .host_span = 20'000,
               .contended = suspected && i != 0,
               .suspected = suspected && i != 0,
               .siblings = true});
      }
      cost += static_cast<double>(e.cost);
    }
    EXPECT_NEAR(cost / kMany, 1.0 * kMs, 0.004 * kMs) << suspected;
  }
}

// At 95 % a launch is let go 50 us after the one of another process is expected to end, and one in four of those ends
// later. Such waits are as short as kernels vary, so they can not be told from that.
TEST(SiblingsAtWork, GivenKernelsThatVary_WhenEachIsLetGoAsTheOneBeforeIsToEnd_ThenShortWaitsAreNotTheirCost) {
  Kernels kernels;
  constexpr int kLaunches = 4000;
  constexpr int64_t kSpare = kMs * 5 / 95;
  double charged = 0;
  for (int process = 0; process < kMany; ++process) {
    Estimate e;
    for (int i = 0; i < kLaunches; ++i) {
      const bool behind = i % 24 == 0;
      const int64_t over = behind ? 0 : kernels.Next() - kMs - kSpare;
      charged += static_cast<double>(Learn(
          &e, kernels.Next() + (over > 0 ? over : 0),
          {.gap = behind ? Gap::kNone : Gap::kCertain, .host_gap = -kLeastGap, .siblings = true, .spare = kSpare}));
    }
  }
  EXPECT_NEAR(charged / kMany / kLaunches, 1.0 * kMs, 0.002 * kMs);
}

TEST(OthersAtWork, GivenLongKernelsThatRunInTheSecondAfterTheyAreCharged_ThenNobodyIsSuspected) {
  Suspicion s;
  for (int second = 0; second < 60; ++second) EXPECT_FALSE(Suspect(&s, second % 2 == 0 ? 50 : 0, second % 2 * 50));
  for (int second = 0; second < 60; ++second) EXPECT_FALSE(Suspect(&s, second % 2 == 0 ? 50 : 100, 75));
}

TEST(OthersAtWork, WhenTheyBeginAndEnd_ThenThatIsSeenWithinSeconds) {
  Suspicion s;
  for (int second = 0; second < 20; ++second) EXPECT_FALSE(Suspect(&s, 30, 31));
  Suspect(&s, 30, 100);
  EXPECT_TRUE(Suspect(&s, 30, 100));
  for (int second = 0; second < 60; ++second) EXPECT_TRUE(Suspect(&s, 30, 50));
  int seconds = 0;
  while (Suspect(&s, 30, 30)) ++seconds;
  EXPECT_LE(seconds, 8);
}

TEST(OthersAtWork, WhenALimitBeginsToHold_ThenWhatRanWithoutItIsNobodyElses) {
  Suspicion s;
  for (int second = 0; second < 20; ++second) EXPECT_FALSE(Suspect(&s, 30, 31));
  SkipLooks(&s);
  EXPECT_FALSE(Suspect(&s, 12, 100));  // in part without a limit,
  EXPECT_FALSE(Suspect(&s, 30, 80));   // and told of late
  EXPECT_FALSE(Suspect(&s, 30, 31));
}

}  // namespace
}  // namespace hami::vgpu
