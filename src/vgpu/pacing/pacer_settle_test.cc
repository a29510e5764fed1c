// SPDX-License-Identifier: Apache-2.0
// What is paid and kept when a measurement comes in, on an account of half a GPU.
#include <gtest/gtest.h>

#include <map>

#include "vgpu/loader/driver.h"
#include "vgpu/pacing/pacer.h"
#include "vgpu/pacing/pacer_common.h"
#include "vgpu/pacing/pacer_guess.h"
#include "vgpu/pacing/pacer_timed.h"
#include "vgpu/pacing/pacer_window.h"

namespace hami::vgpu {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr uint32_t kHalf = 5'000;

int64_t g_now = 0;
std::map<CUevent, int64_t> g_event_at;
region::GpuTimeDevice g_account{};
bool g_contended = false;
region::CommonUsed g_used{};

CUresult Query(CUevent event) { return g_event_at[event] <= g_now ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY; }
CUresult Elapsed(float* milliseconds, CUevent start, CUevent end) {
  *milliseconds = static_cast<float>(static_cast<double>(g_event_at[end] - g_event_at[start]) / 1e6);
  return CUDA_SUCCESS;
}

}  // namespace

void* DriverSymbol(Sym sym) {
  if (sym == Sym::cuEventQuery) return reinterpret_cast<void*>(&Query);
  if (sym == Sym::cuEventElapsedTime) return reinterpret_cast<void*>(&Elapsed);
  return nullptr;
}
TimedLaunch g_timed[kTimedPlaces];
void Free(TimedLaunch* t, bool) { t->stage.store(Stage::kFree); }
uint32_t RateOf(int) { return kHalf; }
region::GpuTimeDevice* AccountOf(int) { return &g_account; }
void Charge(int, int64_t gpu, int64_t now, uint32_t rate) { region::GpuTimeCharge(&g_account, gpu, now, rate); }
int64_t ChargedToOthers(int) { return 0; }
bool ContendedSince(int, int64_t, int64_t) { return g_contended; }
bool OthersKnown(int) { return true; }
region::CommonView Others(int, int64_t) { return {.active = g_contended, .present = g_contended}; }
region::CommonUsed UsedByOthers(int, int64_t) { return g_used; }
void TellUsed(int, int64_t, int64_t) {}
void TellLong(int, int64_t) {}
int64_t OneStreamSince(int) { return 0; }
int64_t ScaleFor(int, int64_t cost) { return cost; }
void CostMovesLocked(int, int64_t, int64_t, int64_t) {}
void LearnKernelLocked(const LaunchName&, int64_t, bool) {}

namespace {

class SettleTest : public testing::Test {
 protected:
  SettleTest() {
    ResetSettled();
    g_event_at.clear();
    g_now = 1'000'000 * kMs;
    g_account = {};
    g_contended = false;
    g_used = {};
    kind_.id = 1;
  }

  void Have(int64_t balance) {
    g_account.rate = kHalf;
    g_account.zero_at = g_now - region::WallToEarn(balance, kHalf);
    g_account.last_charge = g_now;
  }
  static int64_t Balance() { return region::GpuTimeBalance(&g_account, g_now, kHalf); }

  // One that is expected to take `cost`, begins at once and takes `takes`.
  TimedLaunch* Launch(int64_t cost, int64_t takes) {
    TimedLaunch* const t = &g_timed[0];
    t->stage.store(Stage::kPending);
    t->gap = Gap::kNone;
    t->kind = &kind_;
    t->kind_id = kind_.id;
    t->charged = t->told = cost;
    t->launched_at = t->recorded_at = t->charged_until = g_now;
    t->running = RunningOf(cost);
    t->shared = cost >= kToldAsLong ? SharedFrom(g_used, g_now) : SharedTime{};
    t->long_told = false;
    t->start = reinterpret_cast<CUevent>(uintptr_t{1});
    t->end = reinterpret_cast<CUevent>(uintptr_t{2});
    g_event_at[t->start] = g_now;
    g_event_at[t->end] = g_now + takes;
    return t;
  }
  // It ends, and is collected then.
  void Ends(TimedLaunch* t) {
    g_now = g_event_at[t->end];
    Collect(t, g_now);
    EXPECT_EQ(t->stage.load(), Stage::kFree);
  }

  LaunchKind kind_{};
};

TEST_F(SettleTest, GivenWhatComesBackFromAPhase_ThenItMakesNoBalanceAboveTheMost) {
  Have(10 * kMs);
  SettleWindow(0, -40 * kMs, kMostBack, g_now);
  EXPECT_EQ(Balance(), kMostBack);
  Have(10 * kMs);
  SettleWindow(0, -40 * kMs, 0, g_now);
  EXPECT_EQ(Balance(), 50 * kMs) << "or all of it does";
  Have(10 * kMs);
  SettleWindow(0, 40 * kMs, kMostBack, g_now);
  EXPECT_EQ(Balance(), -30 * kMs) << "what is due is due";
}

TEST_F(SettleTest, GivenABalanceThatCouldNotBeUsed_ThenNoMoreThanTheMostIsKept) {
  Have(60 * kMs);
  ForgoUnused(0, kMostBack, g_now);
  EXPECT_EQ(Balance(), kMostBack);
  Have(10 * kMs);
  ForgoUnused(0, kMostBack, g_now);
  EXPECT_EQ(Balance(), 10 * kMs);
}

// What others had while it was charged too much, nobody has any more.
TEST_F(SettleTest, GivenAKindThatWasOnlyMeasuredBesideOthers_ThenTheFirstAloneBringsBackALittleOnly) {
  g_contended = true;
  for (int i = 0; i < 5; ++i) Ends(Launch(9 * kMs, 9 * kMs));
  EXPECT_EQ(kind_.estimate.doubted, 4u);
  g_contended = false;
  TimedLaunch* const alone = Launch(9 * kMs, kMs);
  g_now += kMs;
  Have(0);
  Collect(alone, g_now);
  EXPECT_EQ(Balance(), kMostBack);
}

TEST_F(SettleTest, GivenALaunchThatWasMerelyShorter_ThenAllOfTheDifferenceComesBack) {
  kind_.estimate = {.cost = 90 * kMs, .samples = 8, .alone = 8, .gapless = true};
  TimedLaunch* const t = Launch(90 * kMs, 50 * kMs);
  g_now += 50 * kMs;
  Have(0);
  Collect(t, g_now);
  EXPECT_EQ(Balance(), 40 * kMs);
}

// Nobody can interrupt a long launch of another container: who has more than half of the GPU can not use his share
// before it ends, and is to have it afterwards.
TEST_F(SettleTest, GivenALongLaunchBesideALongOneOfOthers_ThenMoreIsKeptOfWhatCouldNotBeUsed) {
  g_contended = true;
  for (const int64_t longs : {0, 1}) {
    g_used.longs = longs;
    TimedLaunch* const t = Launch(60 * kMs, 100 * kMs);
    g_now += 30 * kMs;
    Collect(t, g_now);
    EXPECT_EQ(t->stage.load(), Stage::kPending);
    Have(400 * kMs);
    EXPECT_EQ(Balance(), longs == 0 ? region::kActiveCap : 400 * kMs);
    Ends(t);
  }
}

}  // namespace
}  // namespace hami::vgpu
