// SPDX-License-Identifier: Apache-2.0
//
// Whose turn it is: those without a limit, limits that change, idle time, hosts that hold up the GPU, priority, light
// tenants, and holders that vanish. On the same clock as world_test.cc.
#include <gmock/gmock.h>

#include <cmath>

#include "vgpu/time/testing/programs.h"

namespace hami::vgpu::time::testing {
namespace {

TEST(GpuTimeWorld, GivenOneWithoutALimit_ThenItHasWhatIsLeft) {
  World world;
  world.Add({.limit = 3000}, Endless(500 * kUs));
  world.Add({}, Endless(500 * kUs));
  const std::vector<double> shares = SharesOf(world, kSeconds);
  EXPECT_NEAR(shares[0], 30, 1.0);
  EXPECT_GE(SumOf(shares), 98.0);
}

// Little until `at`, and then as much as it can.
Tenant::Program FirstLittle(int64_t at, const Tenant::Program& little) {
  return [=, endless = Endless(500 * kUs)](int64_t now) mutable { return now < at ? little(now) : endless(now); };
}

// What each has in the second that begins at `at`.
std::vector<double> SharesFrom(World& world, int64_t at) {
  world.RunUntil(at);
  std::vector<int64_t> before;
  for (auto& tenant : world.tenants) before.push_back(world.gpu.BusyOf(tenant->context));
  world.RunUntil(at + 1'000 * kMs);
  std::vector<double> shares;
  for (size_t i = 0; i < before.size(); ++i) {
    shares.push_back(world.Busy(*world.tenants[i], before[i], 1'000 * kMs));
  }
  return shares;
}

TEST(GpuTimeWorld, GivenOneThatLeftItsTimeToAnother_ThenItHasItsPartFromThenOn) {
  constexpr int64_t kAt = 3'000 * kMs;
  for (const int container : {0, 7}) {
    for (const int64_t launch : {100 * kUs, 300 * kUs}) {  // paid from a lease, and not
      World world;
      world.Add({}, Endless(500 * kUs), true, false, container);
      world.Add({}, FirstLittle(kAt, OneByOne(launch, 10 * kMs)), true, false, container);
      world.Add({}, FirstLittle(kAt, [](int64_t) { return Step{Step::kThink, kMs, 0, 1}; }), true, false, container);
      for (const double share : SharesFrom(world, kAt + 20 * kMs)) {
        EXPECT_NEAR(share, 33, 2.5) << container << ", " << launch;
      }
    }
  }
}

// While each of them has a turn the others come to lag further than two have to.
TEST(GpuTimeWorld, GivenManyWithoutALimit_ThenEachHasItsPart) {
  for (const int count : {3, 6, 8, 12}) {
    for (const int64_t length : {20 * kUs, 500 * kUs, kMs}) {
      World world;
      for (int i = 0; i < count; ++i) world.Add({}, Endless(length));
      for (const double share : SharesOf(world, kSeconds))
        EXPECT_NEAR(share, 99.0 / count, 0.5) << count << " " << length;
    }
  }
}

TEST(GpuTimeWorld, WhenALimitIsLowered_ThenWhatWasSavedIsNotHad) {
  constexpr int64_t kAt = 2'000 * kMs;
  World world;
  Tenant& tenant = world.Add({.limit = 8000}, FirstLittle(kAt, OneByOne(3 * kMs, 7 * kMs)));
  world.RunUntil(kAt);
  tenant.terms.limit = 2000;
  EXPECT_NEAR(SharesFrom(world, kAt + 10 * kMs)[0], 20, 1.0);
}

TEST(GpuTimeWorld, GivenIdleTime_WhenBurstIsAllowed_ThenItIsUsed) {
  World world;
  world.Add({.limit = 3000, .ceiling = 9000}, Endless(500 * kUs));
  EXPECT_NEAR(SharesOf(world, kSeconds)[0], 90, 1.0);
}

// Each of them, and all together, beside the same without the library.
void ExpectNoLess(const std::vector<Tenant::Program>& programs, int64_t wake_latency = 50 * kUs) {
  std::vector<double> shares[2];
  for (const bool ours : {false, true}) {
    World world;
    world.wake_latency = wake_latency;
    for (const auto& program : programs) world.Add({}, program, ours);
    shares[ours ? 1 : 0] = SharesOf(world, kSeconds);
  }
  for (size_t i = 0; i < programs.size(); ++i) EXPECT_GE(shares[1][i], shares[0][i] * 0.98) << i;
  EXPECT_GE(SumOf(shares[1]), SumOf(shares[0]) * 0.98);
}

TEST(GpuTimeWorld, GivenHostsThatHoldUpTheGpu_ThenTheyHaveNoLess) {
  const auto held_up = OneByOne(200 * kUs, 200 * kUs);
  ExpectNoLess({held_up, held_up});
  ExpectNoLess({held_up, held_up, held_up});
  ExpectNoLess({held_up, Endless(500 * kUs)});
  const auto tokens = Bursts(20, 20 * kUs, 300 * kUs);
  ExpectNoLess({tokens, tokens});
  ExpectNoLess({tokens, tokens, tokens});
}

// A holder's short work has ended, as it seems, before that of the one before it; and a busy one's last launch goes
// whole.
TEST(GpuTimeWorld, GivenAHostBoundOneBesideABusyOne_ThenNeitherHasLess) {
  for (const int64_t wake_latency : {50 * kUs, 200 * kUs}) {
    for (const int64_t length : {20 * kUs, 60 * kUs, 100 * kUs, 150 * kUs, 300 * kUs}) {
      for (const int64_t host : {200 * kUs, 500 * kUs}) {
        SCOPED_TRACE(std::to_string(length / kUs) + " us, and the host " + std::to_string(host / kUs));
        ExpectNoLess({OneByOne(length, host), Endless(500 * kUs)}, wake_latency);
        ExpectNoLess({OneByOne(length, host), Bounded(2 * kMs, 4)}, wake_latency);
      }
    }
  }
}

// A lease would pay for three launches more, the last of them while the other has the turn: the GPU would change to and
// fro, and together they had no more than without the library.
TEST(GpuTimeWorld, GivenLaunchesLongAgainstLease_ThenEachTakesTurnBesideOthers) {
  World alone;
  const Tenant& one = alone.Add({}, OneByOne(60 * kUs, 200 * kUs));
  alone.RunUntil(1'000 * kMs);
  EXPECT_LE(one.looks, one.done / (60 * kUs) / 3);
  double together[2];
  for (const bool ours : {false, true}) {
    World world;
    world.Add({}, OneByOne(60 * kUs, 200 * kUs), ours);
    world.Add({}, Endless(500 * kUs), ours);
    together[ours ? 1 : 0] = SumOf(SharesOf(world, kSeconds));
  }
  EXPECT_GE(together[1], together[0] + 1.0);
}

// As on few cores: the turn would be free for as long as the next one takes to wake.
TEST(GpuTimeWorld, GivenThreadsThatWakeLate_ThenTurnsChangeInTime) {
  ExpectNoLess({OneByOne(200 * kUs, 200 * kUs), Endless(500 * kUs)}, 200 * kUs);
  World world;
  world.wake_latency = 300 * kUs;
  for (int i = 0; i < 8; ++i) world.Add({}, Endless(500 * kUs), true, false, 77);
  EXPECT_GE(SumOf(SharesOf(world, kSeconds)), 97.5);
}

// A turn may end just behind one of the GPU's slices: what is left of it then costs a change to and fro, each time.
TEST(GpuTimeWorld, GivenEqualShares_ThenHardlyAnyKernelLengthLosesMore) {
  struct {
    int64_t wake_latency, step;
    int low;     // so many of the lengths lose more than 1.5 %
    double had;  // by all of them, on average
  } const rows[] = {{50 * kUs, 4 * kUs, 4, 99.2}, {200 * kUs, 40 * kUs, 10, 98.5}};
  for (const auto& row : rows) {
    int low = 0, lengths = 0;
    double had = 0;
    for (int64_t length = 400 * kUs; length <= 2 * kMs; length += row.step) {
      World world;
      world.wake_latency = row.wake_latency;
      for (int i = 0; i < 2; ++i) world.Add({.limit = 5000}, Endless(length));
      const double sum = SumOf(SharesOf(world, kSeconds));
      low += sum < 98.5 ? 1 : 0;
      ++lengths;
      had += sum;
    }
    EXPECT_LE(low, row.low) << row.wake_latency;
    EXPECT_GE(had / lengths, row.had) << row.wake_latency;
  }
}

// Those that waited for the turn launched one by one what came in while the account was overdrawn, in each other's way.
TEST(GpuTimeWorld, GivenProcessesWithALimit_ThenTheyGoOnTogether) {
  for (const int late : {0, 20}) {
    for (const uint32_t limit : {2500U, 5000U, 7500U, 9000U, 9500U}) {
      World world({.slice = kMs, .change = 300 * kUs, .change_idle = 150 * kUs});
      world.late_in_thousand = late;
      for (int i = 0; i < 8; ++i) world.Add({.limit = limit}, Endless(500 * kUs), true, false, 7);
      world.RunUntil(500 * kMs);
      const int64_t before = world.gpu.changes[0];
      EXPECT_NEAR(SumOf(SharesOf(world, kSeconds)), limit / 100.0, 0.5) << late;
      EXPECT_LE(world.gpu.changes[0] - before, late) << limit << ", " << late << ": while the one before had work";
    }
  }
}

// It hardly launches: it need not wait until enough is saved up for all.
TEST(GpuTimeWorld, GivenABusyProcessOfTheSameContainer_ThenRequestsWaitLittle) {
  for (const uint32_t limit : {2000U, 3000U, 5000U, 9000U}) {
    for (const int busy : {1, 4}) {
      World world;
      Tenant& requests = world.Add({.limit = limit}, Requests(kMs, 20), true, false, 7);
      for (int i = 0; i < busy; ++i) world.Add({.limit = limit}, Endless(500 * kUs), true, false, 7);
      EXPECT_NEAR(SumOf(SharesOf(world, 30)), limit / 100.0, 0.5);
      EXPECT_LE(Percentile99(requests), 6.0) << limit << ", " << busy;
    }
  }
}

// Its own account is overdrawn, not its container's, so the others of the container go on as they were.
TEST(GpuTimeWorld, GivenOneWithALimitOfItsOwn_ThenItHasThatAndOthersGoOn) {
  World world;
  world.Add({.limit = 5000, .own = 500}, Endless(500 * kUs), true, false, 7);
  Tenant& held_up = world.Add({.limit = 5000}, OneByOne(kMs, kMs), true, false, 7);
  const std::vector<double> shares = SharesOf(world, 8);
  EXPECT_NEAR(shares[0], 5, 0.3);
  EXPECT_NEAR(shares[1], 45, 0.5);
  EXPECT_LE(Percentile99(held_up), 4.0);
}

TEST(GpuTimeWorld, GivenAMoreImportantOne_ThenItWaitsForOneLaunch) {
  World alone;
  Tenant& by_itself = alone.Add({.rank = 0}, Requests(2 * kMs, 150));
  const double idle = 100 - SharesOf(alone, 20)[0];
  for (const int64_t length : {5 * kUs, 500 * kUs, 2 * kMs}) {
    World world;
    Tenant& requests = world.Add({.rank = 0}, Requests(2 * kMs, 150));
    world.Add({.rank = 1}, Endless(length));
    const std::vector<double> shares = SharesOf(world, 20);
    const double floor = Percentile99(by_itself) + static_cast<double>(length) / 1e6 + 0.16;
    EXPECT_LE(Percentile99(requests), 1.1 * floor) << length;
    EXPECT_GE(shares[1], 0.8 * idle) << length;
  }
}

// Both launch short kernels all the time, the more important one 50 at once.
TEST(GpuTimeWorld, GivenAMoreImportantOne_ThenNeitherLooksAtEachLaunch) {
  World world;
  Tenant& important = world.Add({.rank = 0}, [n = 0](int64_t) mutable {
    const int i = n++ % 52;
    if (i == 50) return Step{Step::kSync, 0, 0, 1};
    return i == 51 ? Step{Step::kThink, 3 * kMs, 0, 1} : Step{Step::kLaunch, 10 * kUs, 0, 1};
  });
  Tenant& low = world.Add({.rank = 1}, Endless(5 * kUs));
  world.RunUntil(2'000 * kMs);
  EXPECT_LT(important.looks, important.done / (10 * kUs) / 4);
  EXPECT_LT(low.looks, low.done / (5 * kUs) / 3) << "those that it is held for, too";
  EXPECT_LE(Percentile99(important), 0.6 + 0.2 + 0.16) << "its work, what is in flight, a change";
}

// On average they are too short to be measured one by one: the end of a longer one is seen all the same.
TEST(GpuTimeWorld, GivenMoreImportantShortKernels_WhenOneIsLong_ThenItKeepsTurn) {
  for (const int stream : {0, 1}) {
    World world;
    // Of any length between: where it always ends at the same moment of a kernel, one more or less fits.
    Tenant& requests = world.Add({.rank = 0}, [n = 0, stream, random = std::mt19937(5)](int64_t) mutable {
      const int i = n++ % 180;
      if (i % 3 == 0) return Step{Step::kThink, kMs + static_cast<int64_t>(random() % (2 * kMs)), stream, 1};
      if (i % 3 == 1) return Step{Step::kLaunch, i == 178 ? 3 * kMs : 20 * kUs, stream, 1};
      return Step{Step::kSync, 0, stream, 1};
    });
    world.Add({.rank = 1}, Endless(500 * kUs));
    EXPECT_GE(SharesOf(world, 20)[1], 77.0) << "80 % of the idle time";
    EXPECT_LE(static_cast<double>(*std::max_element(requests.latencies.begin(), requests.latencies.end())),
              1.1 * 3.66e6)
        << stream;
  }
}

TEST(GpuTimeWorld, GivenAMoreImportantOneThatGoesOnAtOnce_ThenItKeepsTheTurn) {
  World world;
  world.Add({.rank = 0}, OneByOne(2 * kMs, 60 * kUs));
  world.Add({.rank = 1}, Endless(500 * kUs));
  EXPECT_GE(SharesOf(world, kSeconds)[0], 92.0);
}

TEST(GpuTimeWorld, GivenALightTenant_ThenItsLaunchesWaitNoLonger) {
  double p99[2] = {};
  for (const bool ours : {false, true}) {
    World world;
    Tenant& light = world.Add({.limit = 5000}, OneByOne(kMs, 19 * kMs), ours);
    world.Add({.limit = 5000}, Endless(500 * kUs), ours);
    SharesOf(world, kSeconds);
    p99[ours ? 1 : 0] = Percentile99(light);
  }
  EXPECT_LE(p99[1], p99[0]);
}

// At any moment: it has the turn, or is given it as it waits.
TEST(GpuTimeWorld, WhenOneVanishes_ThenTheOthersGoOn) {
  for (int64_t at = 500 * kMs; at < 525 * kMs; at += 2 * kMs) {
    World world;
    Tenant& gone = world.Add({}, Endless(500 * kUs));
    Tenant& other = world.Add({}, Endless(500 * kUs));
    world.RunUntil(at);
    gone.wake = gone.help_at = INT64_MAX;
    gone.waits_for_turn = false;
    world.RunUntil(at + 30 * kMs);
    const int64_t before = world.gpu.BusyOf(other.context);
    world.RunUntil(at + 130 * kMs);
    EXPECT_GE(world.gpu.BusyOf(other.context) - before, 98 * kMs) << at;
  }
}

}  // namespace
}  // namespace hami::vgpu::time::testing
