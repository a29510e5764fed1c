// SPDX-License-Identifier: Apache-2.0
//
// Histories of two schedulers, drawn by chance (testing/race.h): no card is ever given twice, and when all is quiet the
// books are what the cluster is.

#include <gtest/gtest.h>

#include <cstdlib>

#include "scheduler/testing/race.h"

namespace hami::scheduler {
namespace {

using testing::Race;

TEST(RaceTest, GivenTwoSchedulersAndEveryFailure_ThenNoCardIsGivenTwice) {
  base::StartLog("race", base::LogLevel::kOff);
  std::uint64_t events = 0;
  std::uint64_t bindings = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Race race(seed, 105'000);
    race.Run();
    race.ComeToRest();
    events += race.events();
    bindings += race.cluster().bindings;
    ASSERT_TRUE(race.cluster().violations.empty()) << "seed " << seed << ": " << race.cluster().violations.front();
    for (const auto& scheduler : race.schedulers()) EXPECT_EQ(race.Difference(*scheduler), "") << "seed " << seed;
    if (seed == 1) {
      for (const auto& [call, count] : race.calls()) RecordProperty(call, count);
      // A history in which little happens proves little.
      EXPECT_GT(race.crashes(), 10);
      EXPECT_GT(race.steps_of_the_clock(), 10);
      EXPECT_GT(race.calls()["LIST pods"], 50);
      EXPECT_GT(race.calls()["PATCH pod"], 50);
      RecordProperty("alone", race.bound_in(BindMode::kAlone));
      RecordProperty("with tickets", race.bound_in(BindMode::kTickets));
      EXPECT_GT(race.bound_in(BindMode::kAlone), 200);
      EXPECT_GT(race.bound_in(BindMode::kTickets), 200);
      EXPECT_GT(race.calls()["LIST unbound"], 20);
    }
  }
  EXPECT_GE(events, 1'000'000U);
  EXPECT_GE(bindings, 10'000U);
}

// Tenants forge, remove and replay annotations on all pods, and bind pods of their own. HAMI_HOSTILE_SEEDS: how many
// histories, of 105,000 events each.
TEST(RaceTest, TenantsThatWriteAnythingGetNoCardTwice) {
  base::StartLog("race", base::LogLevel::kOff);
  const char* asked = std::getenv("HAMI_HOSTILE_SEEDS");
  const int seeds = asked == nullptr ? 1 : std::atoi(asked);
  std::uint64_t events = 0;
  for (int seed = 1; seed <= seeds; ++seed) {
    Race race(static_cast<std::uint64_t>(seed), 105'000, true);
    race.Run();
    race.ComeToRest();
    events += race.events();
    ASSERT_TRUE(race.cluster().violations.empty()) << "seed " << seed << ": " << race.cluster().violations.front();
    for (const auto& scheduler : race.schedulers()) EXPECT_EQ(race.Difference(*scheduler), "") << "seed " << seed;
    EXPECT_GT(race.forgeries(), 3'000U) << "a history in which little happens proves little";
    EXPECT_GT(race.cluster().bindings, 100U);
    RecordProperty("bindings", static_cast<int>(race.cluster().bindings));
    RecordProperty("forgeries", static_cast<int>(race.forgeries()));
  }
  EXPECT_GE(events, static_cast<std::uint64_t>(seeds) * 105'000U);
  std::cout << events << " events\n";
}

}  // namespace
}  // namespace hami::scheduler
