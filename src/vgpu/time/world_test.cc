// SPDX-License-Identifier: Apache-2.0
//
// What limits, turns and priority come to on a GPU that changes between contexts as a real one does. No clock is waited
// for: each row is some seconds of the GPU in some milliseconds, and the same each time.
#include <gmock/gmock.h>

#include <cmath>
#include <numeric>

#include "vgpu/time/testing/programs.h"

namespace hami::vgpu::time::testing {
namespace {

struct Shape {
  const char* name;
  Tenant::Program program;
  bool overlaps = false;
  double natural = 100;  // percent without a limit
};

std::vector<Shape> Shapes() {
  return {{"5us", Endless(5 * kUs)},
          {"20us", Endless(20 * kUs)},
          {"half_ms", Endless(500 * kUs)},
          {"50ms_sync", OneByOne(50 * kMs, 0)},
          {"8_streams", Endless(200 * kUs, 8), true},
          {"by_argument", ByArgument(20 * kUs, 2 * kMs)},
          {"short_by_argument", ByArgument(20 * kUs, 80 * kUs)},
          {"new_grids", NewGrids()},
          {"mixed", Mixed(), false, 89}};
}

TEST(GpuTimeWorld, GivenALimit_ThenEachShapeHasThat) {
  for (const uint32_t limit : {500U, 1000U, 3000U, 5000U, 7500U, 9000U, 9500U}) {
    for (const Shape& shape : Shapes()) {
      World world;
      world.Add({.limit = limit}, shape.program, true, shape.overlaps);
      const double expected = std::min(limit / 100.0, shape.natural);
      EXPECT_NEAR(SharesOf(world, kSeconds)[0], expected, 1.0) << shape.name << " at " << limit;
    }
  }
}

// Each is waited for, so none has work ahead, and how long the stream rested between them nobody knows.
TEST(GpuTimeWorld, GivenShortKernelsOneByOne_ThenTheMeanIsPaid) {
  for (const uint32_t limit : {1000U, 2500U, 5000U, 7500U}) {
    for (const int64_t host : {100 * int64_t{1}, 8 * kUs}) {
      World world;
      world.Add({.limit = limit}, OneByOneByChance(20 * kUs, 80 * kUs, host));
      // An event is 1.3 us of the GPU's time, and is not paid for.
      EXPECT_NEAR(SharesOf(world, kSeconds)[0], limit / 100.0, std::max(1.0, limit / 100.0 / 50))
          << limit << " " << host;
    }
  }
}

// One in some is measured, and stands for those that a lease paid for: more of them where the book has too little.
TEST(GpuTimeWorld, GivenKernelsByArgumentOneByOne_ThenTheMeanIsTheLimit) {
  constexpr int kSeeds = 8;
  for (const auto& [shorter, longer] : {std::pair{20 * kUs, 80 * kUs}, {10 * kUs, 190 * kUs}}) {
    for (const uint32_t limit : {2500U, 5000U, 7500U}) {
      double sum = 0;
      for (unsigned seed = 1; seed <= kSeeds; ++seed) {
        World world;
        world.launch_cost = kIdleStart + world.gpu.model().event;  // so that what is measured is right
        world.Add({.limit = limit}, OneByOneByChance(shorter, longer, kUs, seed));
        sum += SharesOf(world, kSeconds)[0];
      }
      EXPECT_NEAR(sum / kSeeds, limit / 100.0, 0.5) << shorter / kUs << " or " << longer / kUs << " at " << limit;
    }
  }
}

// Busy and work in percent of the GPU's time, work as ns of kernels that were launched.
struct BusyAndWork {
  double busy, work;
};
BusyAndWork BusyAndWorkOf(uint32_t limit, const Tenant::Program& program, bool overlaps) {
  World world;
  Tenant& tenant = world.Add({.limit = limit}, program, limit != 0, overlaps);
  SharesOf(world, 1);
  const int64_t done = tenant.done;
  const int64_t busy = world.gpu.BusyOf(tenant.context);
  const int64_t span = kSeconds * 1'000 * kMs;
  world.RunUntil(world.now + span);
  return {world.Busy(tenant, busy, span), 100.0 * static_cast<double>(tenant.done - done) / static_cast<double>(span)};
}

// Short kernels of many kinds, behind most of which the stream rests, as the host is slower than the GPU.
TEST(GpuTimeWorld, GivenAnEagerFramework_ThenTheLimitHolds) {
  for (const uint64_t handles : {uint64_t{1}, uint64_t{60}}) {
    const double natural = BusyAndWorkOf(0, Eager(16 * kUs, handles), false).busy;
    for (const uint32_t limit : {1000U, 3000U, 5000U, 7500U}) {
      const BusyAndWork found = BusyAndWorkOf(limit, Eager(16 * kUs, handles), false);
      EXPECT_NEAR(found.busy, std::min(natural, limit / 100.0), 1.0) << limit << " of " << natural << " " << handles;
    }
  }
}

// What ends raggedly at a change of turns is all that is lost.
TEST(GpuTimeWorld, GivenTwoTenantsWithStreamsSideBySide_ThenTheyDoWhatOneDoes) {
  const double alone = BusyAndWorkOf(0, SideBySide(200 * kUs), true).work;
  for (const uint32_t limit : {0U, 3000U}) {
    World world;
    Tenant& first = world.Add({.limit = limit}, SideBySide(200 * kUs), true, true);
    Tenant& second = world.Add({.limit = limit == 0 ? 0 : 10'000 - limit}, SideBySide(200 * kUs), true, true);
    world.RunUntil(1'000 * kMs);
    const int64_t done = first.done + second.done;
    world.RunUntil((1 + kSeconds) * 1'000 * kMs);
    const double work = static_cast<double>(first.done + second.done - done) / static_cast<double>(kSeconds * 10 * kMs);
    EXPECT_GE(work, 0.967 * alone) << limit;
  }
}

// 15 us of GPU for each 19 of the host: at 95 % there is nothing to wait for, and hardly anything to look at.
TEST(GpuTimeWorld, GivenALimitThatDoesNotBind_ThenLooksAreFew) {
  World world;
  Tenant& tenant = world.Add({.limit = 9500}, Eager(16 * kUs, 60));
  world.RunUntil(1'000 * kMs);
  const int64_t looks = tenant.looks;
  const int64_t busy = world.gpu.BusyOf(tenant.context);
  const int64_t span = kSeconds * 1'000 * kMs;
  world.RunUntil(world.now + span);
  EXPECT_GT(world.Busy(tenant, busy, span), 78.0);
  EXPECT_LT(tenant.looks - looks, span / (19 * kUs) / 120);
}

// What was never seen costs what its kernel does on average, and says nothing of what is known.
TEST(GpuTimeWorld, GivenLongNewGridsAmongKnown_ThenTheLimitHolds) {
  const double natural = BusyAndWorkOf(0, NewGridsAmongKnown(18 * kUs), false).busy;
  for (const uint32_t limit : {1000U, 3000U, 5000U, 7500U}) {
    const BusyAndWork found = BusyAndWorkOf(limit, NewGridsAmongKnown(18 * kUs), false);
    EXPECT_NEAR(found.busy, std::min(natural, limit / 100.0), 1.0) << limit << " of " << natural;
  }
}

// A process that wants less than its container has leaves the rest to the others of it.
TEST(GpuTimeWorld, GivenAProcessThatWantsLess_ThenItAloneHasLess) {
  World world;
  world.Add({.limit = 6000, .own = 2000}, Endless(500 * kUs), true, false, 7);
  world.Add({.limit = 6000}, Endless(500 * kUs), true, false, 7);
  const std::vector<double> shares = SharesOf(world, kSeconds);
  EXPECT_NEAR(shares[0], 20, 1.0);
  EXPECT_NEAR(shares[1], 40, 1.0);
  World alone;
  alone.Add({.own = 2000}, Endless(20 * kUs));
  EXPECT_NEAR(SharesOf(alone, kSeconds)[0], 20, 1.0);
}

// What ends raggedly does less: most of the work that as much time without a limit would do is done.
TEST(GpuTimeWorld, GivenStreamsSideBySide_ThenTheyAreLetGoTogether) {
  double work[2];
  for (const uint32_t limit : {10'000U, 1000U, 2500U, 5000U, 9000U}) {
    World world;
    Tenant& tenant = world.Add({.limit = limit % 10'000}, SideBySide(200 * kUs), true, true);
    const double share = SharesOf(world, kSeconds)[0];
    work[limit == 10'000 ? 0 : 1] = static_cast<double>(tenant.done) / static_cast<double>(limit);
    EXPECT_NEAR(share, limit / 100.0, 1.0) << limit;
    EXPECT_GE(work[limit == 10'000 ? 0 : 1], 0.97 * work[0]) << limit;
  }
}

// Of kernels that are shorter than a release, one after the other or side by side. Where streams rest between their
// launches nobody sees for how long; and where each is beside another one they go on together.
void ExpectLimitAndWork(const char* name, const Tenant::Program& program, bool overlaps,
                        const std::vector<uint32_t>& limits = {2500, 5000, 9000}) {
  const double natural = BusyAndWorkOf(0, program, overlaps).work;
  for (const uint32_t limit : limits) {
    const BusyAndWork found = BusyAndWorkOf(limit, program, overlaps);
    EXPECT_NEAR(found.busy, limit / 100.0, 1.0) << name << " at " << limit;
    EXPECT_GE(found.work / natural, 0.97 * limit / 10'000) << name << " at " << limit;
  }
}

TEST(GpuTimeWorld, GivenShortKernelsOnManyStreams_ThenTheLimitHolds) {
  ExpectLimitAndWork("4 side by side", Endless(20 * kUs, 4), true, {8500, 9500});
  for (const int streams : {8, 32, 100}) {
    for (const bool overlaps : {false, true}) {
      const std::string name = std::to_string(streams) + (overlaps ? " side by side" : " that fill the GPU");
      ExpectLimitAndWork(name.c_str(), Endless(20 * kUs, streams), overlaps);
    }
  }
}

// Beside a more important one so little is in flight that a thread that sleeps would wake when all of it has ended, and
// never see that streams run side by side.
TEST(GpuTimeWorld, GivenThreadsThatWakeLate_ThenStreamsThatGiveWayRunSideBySide) {
  World world;
  world.wake_latency = 150 * kUs;
  world.Add({.rank = 0}, OneByOne(kMs, 20 * kMs));
  Tenant& low = world.Add({.rank = 1}, Endless(200 * kUs, 8), true, true);
  world.RunUntil(1'000 * kMs);
  const int64_t done = low.done;
  const int64_t busy = world.gpu.BusyOf(low.context);
  world.RunUntil(3'000 * kMs);
  EXPECT_GE(static_cast<double>(low.done - done), 6.0 * static_cast<double>(world.gpu.BusyOf(low.context) - busy));
}

// Held until the long ones are paid for, the short ones would have a thousandth of the time.
TEST(GpuTimeWorld, GivenLongLaunchesOnAStream_ThenShortOnesDoNotWaitForThem) {
  for (const uint32_t limit : {2500U, 5000U, 9000U}) {
    for (const bool overlaps : {false, true}) {
      World world;
      Tenant& tenant = world.Add({.limit = limit}, ShortBesideLong(&world, 0), true, overlaps);
      SharesOf(world, 2);
      const int64_t before[] = {world.gpu.BusyOf(tenant.context), tenant.quick};
      const int64_t span = 6'000 * kMs;
      world.RunUntil(world.now + span);
      EXPECT_NEAR(world.Busy(tenant, before[0], span), limit / 100.0, 1.0) << overlaps;
      const double quick = 100.0 * static_cast<double>(tenant.quick - before[1]) / static_cast<double>(span);
      EXPECT_GE(quick, overlaps ? 0.95 * limit / 100 : 0) << limit;
    }
  }
}

// What is longer than a turn goes on by slices of the GPU, and the other has each second one.
TEST(GpuTimeWorld, GivenLongLaunchesBesideAnother_ThenEachHasHalf) {
  for (const int64_t length : {5 * kUs, 20 * kUs, 500 * kUs}) {
    World world;
    Tenant& tenant = world.Add({.limit = 9000}, ShortBesideLong(&world, 0), true, true);
    world.Add({.limit = 9500}, Endless(length));
    const std::vector<double> shares = SharesOf(world, 12);
    EXPECT_NEAR(shares[0], shares[1], 4.0) << length;
    EXPECT_GE(SumOf(shares), 92.0) << length;
    EXPECT_GE(static_cast<double>(tenant.quick), 0.75 * static_cast<double>(world.gpu.BusyOf(tenant.context)))
        << length;
  }
}

// Beside its own long launch a short one takes nothing from the other, whatever the limit and the turn.
TEST(GpuTimeWorld, GivenShortLaunchesBesideAnOwnLongOne_ThenTheyNeedNoTurn) {
  for (const uint32_t limit : {2000U, 5000U}) {
    World world;
    Tenant& tenant = world.Add({.limit = limit}, ShortBesideLong(&world, 0), true, true);
    world.Add({.limit = 5000}, Endless(500 * kUs));
    SharesOf(world, 12);
    EXPECT_GE(static_cast<double>(tenant.quick), 0.45 * static_cast<double>(world.gpu.BusyOf(tenant.context))) << limit;
  }
}

// However long the other's launch is, and whatever it is owed.
TEST(GpuTimeWorld, GivenALongLaunchOfAnother_ThenOneBesideItWaitsForATurn) {
  World world;
  world.Add({.limit = 7000}, OneByOne(100 * kMs, 0));
  Tenant& light = world.Add({.limit = 3000}, OneByOne(kMs, 10 * kMs));
  world.RunUntil(8'000 * kMs);
  EXPECT_LE(Percentile99(light), 20.0);
}

void ExpectShares(const char* name, uint32_t a, Tenant::Program first, uint32_t b, Tenant::Program second) {
  World world;
  world.Add({.limit = a}, std::move(first));
  world.Add({.limit = b}, std::move(second));
  const std::vector<double> shares = SharesOf(world, 20);
  EXPECT_NEAR(shares[0], a / 100.0, 5.0) << name;
  // Nobody has what the GPU takes to change.
  EXPECT_LE(shares[0], a / 100.0 + 1) << name;
  EXPECT_NEAR(shares[1], b / 100.0, 4.0) << name;
}

// Two that go on by slices of the GPU: each pays for its own, however long the other keeps it.
TEST(GpuTimeWorld, GivenStepsBesideOthers_ThenEachHasItsShare) {
  const auto step100 = OneByOne(100 * kMs, 0), step500 = OneByOne(500 * kMs, 0), half = Endless(500 * kUs);
  ExpectShares("100 ms beside 100 ms", 3000, step100, 7000, step100);
  ExpectShares("100 ms beside 0.5 ms", 3000, step100, 7000, half);
  ExpectShares("500 ms beside 0.5 ms", 3000, step500, 7000, half);
  ExpectShares("500 ms beside 500 ms", 3000, step500, 7000, step500);
  ExpectShares("500 ms without end beside 0.5 ms", 7000, Endless(500 * kMs), 3000, half);
}

TEST(GpuTimeWorld, GivenProcessesOfOneContainerWithSteps_ThenEachHasItsPart) {
  for (const bool beside : {false, true}) {
    World world;
    const int count = beside ? 3 : 4;
    const uint32_t limit = beside ? 3000 : 5000;
    for (int i = 0; i < count; ++i) world.Add({.limit = limit}, OneByOne(100 * kMs, 0), true, false, 7);
    if (beside) world.Add({.limit = 7000}, OneByOne(100 * kMs, 0), true, false, 8);
    const std::vector<double> shares = SharesOf(world, 20);
    const double each = limit / 100.0 / count;
    for (int i = 0; i < count; ++i) EXPECT_NEAR(shares[static_cast<size_t>(i)], each, 1.1) << beside;
    EXPECT_NEAR(SumOf(shares), beside ? 98 : 50, 3.0);
  }
}

// 60 ms of kernels behind a wait that the thread itself ends once it has launched them all.
TEST(GpuTimeWorld, GivenLaunchTheGpuAwaitsBesideAnother_ThenItIsNotHeldForLong) {
  for (const uint32_t limit : {0U, 9000U}) {
    World world;
    int64_t began = 0, ended = 0;
    world.Add({.limit = limit}, [&, n = 0](int64_t now) mutable {
      const int i = n++;
      if (i == 2'000) world.gpu.Wait(0, 0), began = now;
      if (i < 2'120) return Step{Step::kLaunch, 500 * kUs, 0, 1};
      if (i == 2'120) world.gpu.EndWait(0, 0), ended = now;
      return Step{};
    });
    world.Add({.limit = limit == 0 ? 0u : 9500u}, Endless(20 * kUs));
    world.RunUntil(10'000 * kMs);
    EXPECT_LE(ended - began, 300 * kMs) << limit;
    EXPECT_GT(ended, began) << limit;
  }
}

// Else thousands of them might be ahead of everybody.
TEST(GpuTimeWorld, GivenAKindOfWhichNothingIsKnown_ThenFewGoBehindIt) {
  World world;
  Tenant& tenant = world.Add({}, Endless(50 * kMs));
  world.Add({}, Endless(500 * kUs));
  world.RunUntil(40 * kMs);
  EXPECT_LE(world.gpu.Launched(tenant.context), 4U);
}

TEST(GpuTimeWorld, GivenLongKernels_ThenTheFirstAreSoonPaidFor) {
  for (const uint32_t limit : {3000U, 7500U}) {
    World world;
    world.Add({.limit = limit}, Endless(500 * kMs));
    EXPECT_NEAR(SharesOf(world, 40)[0], limit / 100.0, 1.3) << limit;
  }
}

// The GPU's turns and changes as they were measured, and others.
std::vector<GpuModel> Models() {
  return {GpuModel{}, GpuModel{.slice = kMs, .change = 300 * kUs, .change_idle = 150 * kUs},
          GpuModel{.slice = 6 * kMs, .change = 50 * kUs, .change_idle = 50 * kUs},
          GpuModel{.change = 0, .change_idle = 0}};
}

// Turns of launches that are all as long end at the same place of the driver's slices, each time. Just behind one the
// GPU changes to the next, and back for what little is left.
TEST(GpuTimeWorld, GivenLaunchesInStepWithSlices_ThenTurnsEndBetweenThose) {
  for (const GpuModel& model : {GpuModel{}, GpuModel{.slice = kMs, .change = 300 * kUs, .change_idle = 150 * kUs}}) {
    for (const int64_t longer : {470 * kUs, 500 * kUs}) {
      for (const int64_t shorter : {5 * kUs, 10 * kUs, 15 * kUs, 18 * kUs, 20 * kUs, 30 * kUs}) {
        World world(model);
        world.Add({.limit = 5000}, Endless(longer));
        world.Add({.limit = 5000}, Endless(shorter));
        const double possible = 100 - 100.0 * static_cast<double>(model.change_idle) / kTurn;
        EXPECT_GE(SumOf(SharesOf(world, kSeconds)), possible - 1.1) << longer << " " << shorter << " " << model.slice;
      }
    }
  }
}

// What a change takes, and what is asked for beyond the whole GPU, is missing to each by the same part.
TEST(GpuTimeWorld, GivenSharesOf100PercentOrMore_ThenEachHasItsPart) {
  const std::vector<std::vector<uint32_t>> groups = {
      {3000, 7000}, {7000, 3000}, {5000, 5000}, {1000, 2000, 3000, 4000}, {8000, 8000}, {9000, 6000, 2000}};
  // None in step with a slice: what ends just behind one costs a change.
  const Tenant::Program bounded[] = {Bounded(470 * kUs, 16), Bounded(2'110 * kUs, 4), Endless(5 * kUs),
                                     Bounded(930 * kUs, 4)};
  const Tenant::Program endless[] = {Endless(470 * kUs), Endless(20 * kUs), Endless(930 * kUs), Endless(5 * kUs)};
  for (const GpuModel& model : Models()) {
    for (size_t n = 0; n < 2 * groups.size(); ++n) {
      const auto& group = groups[n / 2];
      World world(model);
      for (size_t i = 0; i < group.size(); ++i) world.Add({.limit = group[i]}, (n % 2 == 0 ? bounded : endless)[i]);
      const std::vector<double> shares = SharesOf(world, kSeconds);
      const double all = SumOf(shares);
      const double asked = std::accumulate(group.begin(), group.end(), 0.0);
      for (size_t i = 0; i < group.size(); ++i) {
        EXPECT_NEAR(shares[i], group[i] * all / asked, 0.5) << group[0] << " " << i << " " << model.change;
      }
      // A change in 10 ms.
      EXPECT_GE(all, 98.7 - 100.0 * static_cast<double>(model.change_idle) / kTurn)
          << group.size() << " " << model.change;
    }
  }
}

// Slices of 1 ms end within a change of turns, and one process finds that another had the GPU only once it wakes again.
TEST(GpuTimeWorld, GivenProcessesOfOneLimitOnShortSlices_ThenNoneIsPaidTwice) {
  for (const int64_t length : {130 * kUs, 500 * kUs, 930 * kUs}) {
    World world(Models()[1]);
    for (int i = 0; i < 8; ++i) world.Add({.limit = 7500}, Endless(length), true, false, 7);
    EXPECT_NEAR(SumOf(SharesOf(world, kSeconds)), 75, 2.0) << length;
  }
}

// A container's processes have one account, and give up its part once.
TEST(GpuTimeWorld, GivenAContainerOfSeveralBesideAnother_ThenEachHasItsPart) {
  for (const uint32_t limit : {5000U, 8000U}) {
    World world;
    for (int i = 0; i < 4; ++i) world.Add({.limit = limit}, Endless(500 * kUs), true, false, 7);
    world.Add({.limit = limit}, Endless(500 * kUs));
    const std::vector<double> shares = SharesOf(world, 2 * kSeconds);
    EXPECT_NEAR(shares[4], SumOf(shares) / 2, 0.5) << limit;
    EXPECT_GE(SumOf(shares), 98.5) << limit;
  }
}

TEST(GpuTimeWorld, GivenOneThatWaitsAndDoesNotLaunch_ThenTheOtherLosesLittle) {
  for (const uint32_t limit : {0U, 9000U}) {
    World world;
    Tenant& other = world.Add({.limit = limit}, Endless(500 * kUs));
    Tenant& waits = world.Add({.limit = limit}, [](int64_t) { return Step{}; });
    for (int ms = 0; ms < 2'000; ++ms) {
      world.RunUntil(ms * kMs);
      world.ClaimTurn(waits);
    }
    EXPECT_GE(world.Busy(other, 0, 2'000 * kMs), 80) << limit;
  }
}

TEST(GpuTimeWorld, GivenNoLibrary_ThenTheGpuLosesWhatItTakesToChange) {
  World world;
  for (int i = 0; i < 2; ++i) world.Add({}, Endless(500 * kUs), false);
  EXPECT_NEAR(SumOf(SharesOf(world, kSeconds)), 92.9, 0.2);
}

TEST(GpuTimeWorld, GivenEightProcessesOfOneContainer_ThenTheyTakeTurns) {
  World world;
  for (int i = 0; i < 8; ++i) world.Add({}, Endless(500 * kUs), true, false, 7);
  const std::vector<double> shares = SharesOf(world, kSeconds);
  EXPECT_GE(SumOf(shares), 98.0);
  for (const double share : shares) EXPECT_NEAR(share, 12.4, 1.0);
}

// One account, and none of them comes too short, however late threads wake: two cores may serve 16.
TEST(GpuTimeWorld, GivenEightProcessesWithALimit_ThenEachHasAnEighthOfIt) {
  for (const int late : {0, 20}) {
    for (const uint32_t limit : {1000U, 2500U, 5000U, 9000U}) {
      World world;
      world.late_in_thousand = late;
      for (int i = 0; i < 8; ++i) world.Add({.limit = limit}, Endless(kMs), true, false, 7);
      // Turns of 10 ms each, and all that a limit of 10 % has in 100 ms is one.
      const std::vector<double> shares = SharesOf(world, limit == 1000 ? 5 * kSeconds : kSeconds);
      EXPECT_NEAR(SumOf(shares), limit / 100.0, 1.0) << late;
      for (const double share : shares) EXPECT_NEAR(share, limit / 800.0, limit / 1600.0) << limit << " " << late;
    }
  }
}

// Threads that wake 4 ms late one time in 50.
TEST(GpuTimeWorld, GivenThreadsThatWakeLate_ThenEachShapeHasItsLimit) {
  for (const uint32_t limit : {1000U, 2500U, 5000U, 9000U}) {
    for (const Shape& shape : Shapes()) {
      World world;
      world.late_in_thousand = 20;
      world.Add({.limit = limit}, shape.program, true, shape.overlaps);
      // What is late is not made up for, where there is next to nothing to spare.
      EXPECT_NEAR(SharesOf(world, kSeconds)[0], std::min(limit / 100.0, shape.natural), 1.0) << shape.name << limit;
    }
  }
}

// A GPU that waits for its host is not busy, and what it did not do is not paid for.
TEST(GpuTimeWorld, GivenABusyMachine_ThenEachShapeHasItsLimit) {
  const std::vector<Shape> shapes = {{"8_streams", Endless(200 * kUs, 8), true},
                                     {"8_streams_that_differ", SideBySide(200 * kUs), true},
                                     {"8_streams_in_batches", Batches(200 * kUs, 8, 128), true},
                                     {"32_streams_of_short_ones", Endless(20 * kUs, 32), true},
                                     {"8_streams_that_fill_the_gpu", Batches(200 * kUs, 8, 128)},
                                     {"graphs", Bounded(2 * kMs, 4)},
                                     {"half_ms", Bounded(500 * kUs, 16)},
                                     {"20us", Endless(20 * kUs)},
                                     {"50ms_sync", OneByOne(50 * kMs, 0)},
                                     {"new_grids", NewGrids()},
                                     {"mixed", Mixed()}};
  for (const uint32_t limit : {1000U, 2500U, 5000U}) {
    for (const Shape& shape : shapes) {
      World world;
      world.MakeBusy();
      world.Add({.limit = limit}, shape.program, true, shape.overlaps);
      EXPECT_NEAR(SharesOf(world, kSeconds)[0], limit / 100.0, 0.5) << shape.name << " at " << limit;
    }
  }
}

// Between what is decided and the launch, or the launch and the mark behind it, the GPU may come to rest.
TEST(GpuTimeWorld, WhenThreadsAreTakenOffInALaunch_ThenTheRestIsNotPaidFor) {
  for (const int64_t length : {20 * kUs, 500 * kUs}) {
    World world;
    world.turn_of_others = 4 * kMs;
    world.works_for = 400 * kUs;
    world.Add({.limit = 2500}, Endless(length));
    EXPECT_NEAR(SharesOf(world, kSeconds)[0], 25, 0.3) << length;
  }
}

}  // namespace
}  // namespace hami::vgpu::time::testing
