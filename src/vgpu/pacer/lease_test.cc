// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "vgpu/pacer/pacer.h"

namespace hami::vgpu {
namespace {

CUstream Stream(uintptr_t number) { return reinterpret_cast<CUstream>(number); }

int Open(const Lease& lease) {
  return static_cast<int>(std::ranges::count_if(lease.spent, [](const Lease::Spent& s) { return s.open; }));
}

// What lies behind the first one is in other cache lines, and would be looked through with each launch.
TEST(Lease, GivenOneStream_ThenItHasTheFirstPlace) {
  Lease lease;
  for (int held = 0; held < 3; ++held) {
    lease.Open(Stream(1), nullptr);
    EXPECT_TRUE(lease.spent[0].open);
    EXPECT_EQ(lease.spent[0].stream, Stream(1));
    EXPECT_EQ(Open(lease), 1);
    lease.Close();
  }
}

TEST(Lease, GivenMoreStreamsThanPlaces_ThenTheyReplaceEachOther) {
  Lease lease;
  lease.credit = 1'000;
  for (uintptr_t i = 1; i <= 3 * Lease::kStreams; ++i) {
    lease.Open(Stream(i), nullptr);
    EXPECT_TRUE(lease.Take(Stream(i), 1, 1)) << i;
    if (i > Lease::kStreams) {
      EXPECT_FALSE(lease.Take(Stream(i - Lease::kStreams), 1, 1)) << i;
    }
  }
  EXPECT_EQ(lease.credit, 1'000 - 3 * int64_t{Lease::kStreams});
}

TEST(Lease, GivenAStreamThatWasNotOpened_ThenNothingIsTaken) {
  Lease lease;
  lease.credit = 1'000;
  EXPECT_FALSE(lease.Take(nullptr, 1, 10)) << "an empty place is no stream's";
  lease.Open(Stream(1), nullptr);
  EXPECT_FALSE(lease.Take(nullptr, 1, 10));
  lease.Close();
  EXPECT_FALSE(lease.Take(Stream(1), 1, 10));
  EXPECT_EQ(lease.credit, 1'000);
}

TEST(Lease, GivenLaunchesOfSeveralKinds_ThenTheKindIsOfNone) {
  Lease lease;
  lease.credit = 1'000;
  lease.Open(Stream(1), nullptr);
  const Lease::Spent& spent = lease.spent[0];
  for (const uint64_t kind : {3u, 3u, 5u, 3u}) {
    EXPECT_TRUE(lease.Take(Stream(1), kind, 10));
    EXPECT_EQ(spent.kind, spent.launches < 3 ? 3u : 0u);
  }
  EXPECT_EQ(spent.cost, 40);
  lease.spent[0].launches = 0;  // the meter was told
  EXPECT_TRUE(lease.Take(Stream(1), 7, 10));
  EXPECT_EQ(spent.kind, 7u);
}

// Published epochs are odd, or 0 while none is valid: a thread that never had anything has a lease of none of them.
TEST(Lease, GivenAThreadThatNeverHadOne_ThenItIsOfNoEpoch) {
  const Lease lease;
  EXPECT_EQ(lease.sole_epoch % 2, 0u);
  EXPECT_NE(lease.sole_epoch, 0u);
}

}  // namespace
}  // namespace hami::vgpu
