// SPDX-License-Identifier: Apache-2.0
// What a container tells the others on a GPU, as they read it.
#include "vgpu/pacing/pacer_common.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "vgpu/pacing/pacer.h"
#include "vgpu/runtime/process.h"

namespace hami::vgpu {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr uint32_t kThird = 3'000;
constexpr int64_t kStart = 1'000'000 * kMs;

region::GpuTimeDevice g_account{};
region::Region g_region{};
region::Attachment g_attachment{};
Settings g_settings{};

}  // namespace

region::Attachment* attachment() { return &g_attachment; }
const Settings& settings() { return g_settings; }
uint32_t LimitOf(int) { return kThird; }
uint32_t CoresBurst(int) { return 0; }
int64_t WorkersOf(int, int64_t) { return 1; }
int64_t MonotonicNanos() { return kStart; }
region::GpuTimeDevice* AccountOf(int) { return &g_account; }

namespace {

class ToldToOthers : public testing::Test {
 protected:
  ToldToOthers() : path_(testing::TempDir() + "hami-common-" + std::to_string(getpid())) {
    g_account = {};
    g_attachment = {};
    g_attachment.region = &g_region;
    g_region.device_count = 1;
    std::strcpy(g_region.uuids[0], "GPU-1");
    std::snprintf(g_settings.common_path, sizeof g_settings.common_path, "%s", path_.c_str());
    EXPECT_TRUE(region::CreateCommonArea(path_.c_str()));
    ResetCommonAreas();
    file_ = region::OpenCommonArea(path_.c_str());
    TellOthers(0, kThird, 0, kStart);  // joins
  }
  ~ToldToOthers() override {
    munmap(file_.area, sizeof *file_.area);
    std::remove(path_.c_str());
  }

  // Another container on the GPU, which is at work for so long.
  void Join(int64_t until) {
    const int line = region::CommonJoin(file_.area, 77, file_.area->members[0].gpu, kStart);
    ASSERT_EQ(line, 1);
    region::Store(file_.area->members[1].active_until, until);
  }
  // How many it sees at work.
  int64_t AtWork(int64_t now) const {
    return region::CommonLook(*file_.area, 1, file_.area->members[0].gpu, 0, now).active;
  }

  std::string path_;
  region::CommonFile file_;
};

TEST_F(ToldToOthers, GivenALaunchOfHalfASecondBesideAnother_ThenItIsSeenFromTheBeginning) {
  Join(kStart + 5 * kMs);
  TellOthers(0, kThird, 700 * kMs, kStart);  // which both share
  for (int64_t ms = 0; ms < 600; ms += 50) EXPECT_EQ(AtWork(kStart + ms * kMs), 1) << ms << " ms later";
}

TEST_F(ToldToOthers, GivenWorkOfSecondsInFlight_ThenItIsSeenFromTheBeginning) {
  Join(0);
  TellOthersAll(0, kThird, 3'000 * kMs, kStart);
  for (int64_t ms = 0; ms < 600; ms += 50) EXPECT_EQ(AtWork(kStart + ms * kMs), 1) << ms << " ms later";
}

TEST_F(ToldToOthers, GivenAShortLaunch_ThenItIsSeenUntilItsEnd) {
  Join(0);
  TellOthers(0, kThird, 2 * kMs, kStart);
  EXPECT_EQ(AtWork(kStart + kMs), 1);
  EXPECT_EQ(AtWork(kStart + 3 * kMs), 0);
}

TEST_F(ToldToOthers, GivenWhoLaunchesWithoutALook_ThenHeIsAtWorkUntilHeIsOverdue) {
  Join(0);
  TellOthersAlways(0, kStart);
  EXPECT_EQ(AtWork(kStart), 1);
  EXPECT_EQ(AtWork(kStart + 850 * kMs), 1);
  EXPECT_EQ(AtWork(kStart + 950 * kMs), 0);
}

// Long launches take turns by processes, whatever container they are in.
TEST_F(ToldToOthers, GivenProcessesOfThisContainer_ThenOthersSeeHowManyHaveALongLaunch_AndSoDoesEachOfThem) {
  Join(kStart + 5 * kMs);
  const auto seen = [&] { return region::CommonLookAtUse(*file_.area, 1, file_.area->members[0].gpu, kStart).longs; };
  uint32_t said[2]{};
  region::GpuTimeLongs(&g_account, true, kStart, &said[0]);
  EXPECT_EQ(UsedByOthers(0, kStart).siblings, 1);
  TellLong(0, kStart);
  EXPECT_EQ(seen(), 2);
  region::GpuTimeLongs(&g_account, true, kStart, &said[1]);
  EXPECT_EQ(UsedByOthers(0, kStart).siblings, 2);
  EXPECT_EQ(UsedByOthers(0, kStart).longs, 0);
  TellNoLong(0, 0, kStart);
  EXPECT_EQ(seen(), 2);
  // What a sibling's short launches are charged counts, and what its own are does not.
  const region::CommonUsed before = UsedByOthers(0, kStart);
  TellUsed(0, 100 * kMs, kStart);
  EXPECT_EQ(region::CommonUsedBetween(before.gpu, UsedByOthers(0, kStart).gpu), 0);
  g_account.used += 7 << region::kCommonUnit;
  EXPECT_EQ(region::CommonUsedBetween(before.gpu, UsedByOthers(0, kStart).gpu), 7);
}

TEST_F(ToldToOthers, GivenOneWithALimit_ThenWhoHasNoneLeavesItsPart_WhileItIsAtWork) {
  Join(kStart + 5 * kMs);
  EXPECT_FALSE(BesideLimited(0));
  region::CommonMember& other = file_.area->members[1];
  region::Store(other.rate, uint16_t{7'000});
  EXPECT_TRUE(BesideLimited(0));
  EXPECT_EQ(SpareRate(0, kStart), 3'000u);
  EXPECT_GT(SpareRate(0, kStart + 6 * kMs), region::kCommonAll);
  // Who is more important, or less, is not divided with.
  for (const int32_t priority : {1, -1}) {
    g_region.priority = 0;
    region::Store(other.priority, priority);
    EXPECT_EQ(BesideLimited(0), priority < 0);
  }
}

}  // namespace
}  // namespace hami::vgpu
