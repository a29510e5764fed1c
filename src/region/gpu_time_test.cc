// SPDX-License-Identifier: Apache-2.0
#include "region/gpu_time.h"

#include <gtest/gtest.h>

namespace hami::region {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kStart = 1'000'000 * kMs;

TEST(GpuTimeAccount, GivenNewAccount_ThenItStartsAtZeroAndEarnsItsRate) {
  GpuTimeDevice account{};
  EXPECT_EQ(GpuTimeBalance(&account, kStart, 2500), 0);
  EXPECT_EQ(GpuTimeBalance(&account, kStart + 4 * kMs, 2500), kMs);
}

TEST(GpuTimeAccount, GivenDebt_ThenItIsPaidAtTheRate) {
  GpuTimeDevice account{};
  GpuTimeBalance(&account, kStart, 2500);
  GpuTimeCharge(&account, 500 * kMs, kStart, 2500);
  EXPECT_EQ(GpuTimeBalance(&account, kStart, 2500), -500 * kMs);
  EXPECT_LT(GpuTimeBalance(&account, kStart + 1999 * kMs, 2500), 0);
  EXPECT_GE(GpuTimeBalance(&account, kStart + 2001 * kMs, 2500), 0);
}

TEST(GpuTimeAccount, GivenRest_ThenLittleIsKept_AndMoreByTheActive) {
  GpuTimeDevice account{};
  GpuTimeBalance(&account, kStart, 5000);
  EXPECT_EQ(GpuTimeBalance(&account, kStart + 10'000 * kMs, 5000), kIdleCap);
  GpuTimeCharge(&account, 1, kStart + 10'000 * kMs, 5000);
  EXPECT_GT(GpuTimeBalance(&account, kStart + 10'040 * kMs, 5000), 20 * kMs);
}

TEST(GpuTimeAccount, GivenALongLaunchOfOthers_ThenMoreIsKeptWhileThatIsNotLongAgo) {
  const auto balance = [](int64_t seen) {
    GpuTimeDevice account{};
    GpuTimeBalance(&account, kStart, 5000);
    GpuTimeBesideLong(&account, seen);
    GpuTimeWaits(&account, kStart + 10'000 * kMs);
    return GpuTimeBalance(&account, kStart + 10'000 * kMs, 5000);
  };
  EXPECT_EQ(balance(kStart + 9'000 * kMs), kBesideLongCap);
  EXPECT_EQ(balance(kStart + 10'000 * kMs), kBesideLongCap);
  for (const int64_t not_now : {kStart - kMs, kStart + 11'000 * kMs, INT64_MIN, INT64_MAX, int64_t{0}}) {
    EXPECT_EQ(balance(not_now), kActiveCap) << not_now;
  }
}

TEST(GpuTimeAccount, WhenTheRateChanges_ThenTheBalanceIsKept) {
  GpuTimeDevice account{};
  GpuTimeBalance(&account, kStart, 2000);
  GpuTimeCharge(&account, 100 * kMs, kStart, 2000);
  EXPECT_NEAR(static_cast<double>(GpuTimeBalance(&account, kStart, 8000)), -100.0 * kMs, 1000);
  EXPECT_NEAR(static_cast<double>(GpuTimeBalance(&account, kStart, 500)), -100.0 * kMs, 1000);
}

TEST(GpuTimeAccount, WhenForgone_ThenNoSavingIsLeft_AndInFlightIsOwedOnce) {
  GpuTimeDevice account{};
  GpuTimeBalance(&account, kStart, 2000);
  GpuTimeCharge(&account, 1, kStart, 2000);
  ASSERT_EQ(GpuTimeBalance(&account, kStart + 100 * kMs, 2000), 20 * kMs - 1);
  GpuTimeForgo(&account, 6 * kMs, kStart + 100 * kMs, 2000);
  EXPECT_EQ(GpuTimeBalance(&account, kStart + 100 * kMs, 2000), -6 * kMs);
  GpuTimeForgo(&account, 4 * kMs, kStart + 100 * kMs, 2000);
  EXPECT_EQ(GpuTimeBalance(&account, kStart + 100 * kMs, 2000), -6 * kMs);
  GpuTimeCharge(&account, 300 * kMs, kStart + 100 * kMs, 2000);
  GpuTimeForgo(&account, 300 * kMs, kStart + 100 * kMs, 2000);
  EXPECT_EQ(GpuTimeBalance(&account, kStart + 100 * kMs, 2000), -306 * kMs);
}

TEST(GpuTimeAccount, GivenAChargeByARateThatIsNotTheAccounts_ThenItCostsWhatItIs) {
  for (const uint32_t stale : {100u, 10'000u}) {
    GpuTimeDevice account{};
    GpuTimeBalance(&account, kStart, 2000);
    GpuTimeCharge(&account, 10 * kMs, kStart, stale);
    EXPECT_EQ(GpuTimeBalance(&account, kStart, 2000), -10 * kMs) << stale;
  }
  GpuTimeDevice unused{};
  GpuTimeCharge(&unused, kMs, kStart, 2000);
  EXPECT_EQ(unused.charged, static_cast<uint64_t>(kMs));
}

TEST(GpuTimeAccount, GivenPointOfAnotherClock_ThenItStartsAnew) {
  GpuTimeDevice account{};
  GpuTimeBalance(&account, kStart + 1000 * kLongestDebt, 5000);
  EXPECT_EQ(GpuTimeBalance(&account, kStart, 5000), 0);
}

TEST(GpuTimeAccount, GivenSomebodyWhoWaits_ThenItIsNotAtRest) {
  GpuTimeDevice account{};
  GpuTimeBalance(&account, kStart, 100);
  GpuTimeCharge(&account, 1, kStart, 100);
  for (int64_t now = kStart; now < kStart + 4000 * kMs; now += 5 * kMs) {
    GpuTimeBalance(&account, now, 100);
    GpuTimeWaits(&account, now);
  }
  EXPECT_GT(GpuTimeBalance(&account, kStart + 4000 * kMs, 100), 30 * kMs);
}

}  // namespace
}  // namespace hami::region
