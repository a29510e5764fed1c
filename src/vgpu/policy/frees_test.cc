// SPDX-License-Identifier: Apache-2.0
// What may still be under way, against the order of frees and waits.
#include "vgpu/policy/frees.h"

#include <gtest/gtest.h>

#include "vgpu/loader/driver.h"

namespace hami::vgpu {

void* DriverSymbol(Sym) { return nullptr; }  // streams are named by the tests

namespace {

constexpr uint64_t kPool = 7;

class FreesTest : public testing::Test {
 protected:
  ~FreesTest() override { ResetFrees(); }
  static CUcontext Context(uintptr_t number) { return reinterpret_cast<CUcontext>(number * 16); }
  static StreamName Stream(uint64_t number, uintptr_t context = 1) { return {number, Context(context)}; }
  static void Free(uint64_t bytes, const StreamName& stream, uint64_t pool = kPool) {
    FreeBegins(pool, bytes);
    FreeEnds(pool, bytes, stream, true);
  }
  static void WaitFor(uint64_t stream) { FreesReached({FreesSoFar(), {stream, nullptr}}); }
  static void WaitFor(CUcontext context) { FreesReached({FreesSoFar(), {0, context}}); }
};

TEST_F(FreesTest, GivenAFree_ThenItIsUnderWayForEveryOtherStream) {
  Free(100, Stream(1));
  EXPECT_EQ(Unreached(kPool), 100u);
  EXPECT_EQ(Unreached(kPool, Stream(2)), 100u);
  EXPECT_EQ(Unreached(kPool, Stream(1)), 0u);
  EXPECT_EQ(Unreached(kPool + 1), 0u);
}

TEST_F(FreesTest, GivenStreamsThatTheDriverDoesNotName_ThenNoneIsTheSame) {
  Free(100, Stream(0));
  EXPECT_EQ(Unreached(kPool, Stream(0)), 100u);
  WaitFor(uint64_t{0});
  EXPECT_EQ(Unreached(kPool), 100u);
  WaitFor(Context(1));
  EXPECT_EQ(Unreached(kPool), 0u);
}

TEST_F(FreesTest, GivenAWait_ThenOnlyWhatItWaitedForIsReached) {
  Free(1, Stream(1));
  Free(10, Stream(2));
  Free(100, Stream(3, 2));
  Free(1000, {});
  WaitFor(2);
  EXPECT_EQ(Unreached(kPool), 1101u);
  WaitFor(Context(1));
  EXPECT_EQ(Unreached(kPool), 1100u);
  FreesEnded(Context(2));
  EXPECT_EQ(Unreached(kPool), 1000u);
  ForgetFrees(kPool);
  EXPECT_EQ(Unreached(kPool), 0u);
}

TEST_F(FreesTest, GivenAFreeAfterTheWaitBegan_ThenItIsNotReached) {
  Free(1, Stream(1));
  const Waited waited{FreesSoFar(), {1, nullptr}};
  Free(10, Stream(1));
  FreesReached(waited);
  EXPECT_GE(Unreached(kPool), 10u);
  WaitFor(1);
  EXPECT_EQ(Unreached(kPool), 0u);
}

TEST_F(FreesTest, GivenAFreeInTheDriversCall_ThenNoWaitReachesItAndNoStreamHasIt) {
  FreeBegins(kPool, 10);
  WaitFor(1);
  WaitFor(Context(1));
  ForgetFrees(kPool);
  EXPECT_EQ(Unreached(kPool, Stream(1)), 10u);
  FreeEnds(kPool, 10, Stream(1), false);  // declined
  EXPECT_EQ(Unreached(kPool), 0u);
}

TEST_F(FreesTest, GivenMoreStreamsThanAreToldApart_ThenNothingIsLostAndTheContextEndsIt) {
  for (uint64_t stream = 1; stream <= 100; ++stream) Free(1, Stream(stream));
  EXPECT_EQ(Unreached(kPool), 100u);
  EXPECT_EQ(Unreached(kPool, Stream(100)), 100u);
  for (uint64_t stream = 1; stream <= 100; ++stream) WaitFor(stream);
  EXPECT_GT(Unreached(kPool), 0u);
  WaitFor(Context(1));
  EXPECT_EQ(Unreached(kPool), 0u);
}

}  // namespace
}  // namespace hami::vgpu
