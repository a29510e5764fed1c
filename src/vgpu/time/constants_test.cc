// SPDX-License-Identifier: Apache-2.0
//
// What halving and doubling each of the constants does: the one thing it is there for changes, and limits hold all the
// same.
#include <gmock/gmock.h>

#include "vgpu/time/testing/programs.h"

namespace hami::vgpu::time::testing {
namespace {

struct Row {
  const char* name;
  int64_t* constant;
  const char* what;
  double (*measure)();
  double halved, doubled;  // of what it is: at least so much less or more; 1: nothing is said
};

double LooksOfShortKernels() {
  World world;
  Tenant& tenant = world.Add({.limit = 5000}, Endless(5 * kUs));
  world.RunUntil(1'000 * kMs);
  return static_cast<double>(tenant.looks);
}
double PausesAtALowLimit() {
  World world;
  Tenant& tenant = world.Add({.limit = 1000}, Endless(100 * kUs));
  world.RunUntil(2'000 * kMs);
  return static_cast<double>(tenant.holds);
}
double MostInFlight(const Terms& terms, Tenant::Program program, const std::vector<Terms>& others) {
  World world;
  Tenant& tenant = world.Add(terms, std::move(program));
  for (const Terms& other : others) world.Add(other, OneByOne(kMs, 4 * kMs));
  world.RunUntil(500 * kMs);
  tenant.most_in_flight = 0;
  world.RunUntil(1'500 * kMs);
  return static_cast<double>(tenant.most_in_flight);
}
// What little it does keeps what is saved up, for the burst that follows.
double InFlightAlone() {
  const Tenant::Program bursts = [n = 0](int64_t) mutable {
    if (n % 320 < 20) return Step{n++ % 2 == 0 ? Step::kThink : Step::kLaunch, n % 2 == 0 ? 100 * kUs : 30 * kMs, 0, 1};
    return Step{Step::kLaunch, (n++, 100 * kUs), 0, 1};
  };
  return MostInFlight({.limit = 5000}, bursts, {});
}
double InFlightBesideOthers() { return MostInFlight({}, Endless(20 * kUs), {{}}); }
double InFlightUnderAnother() { return MostInFlight({.rank = 1}, Endless(20 * kUs), {{.rank = 0}}); }
double ChangesOfTwo() {
  World world;
  for (int i = 0; i < 2; ++i) world.Add({}, Endless(500 * kUs));
  world.RunUntil(2'000 * kMs);
  return static_cast<double>(world.gpu.changes[0] + world.gpu.changes[1]);
}
double ShareOfOneThatItsHostHoldsUp() {
  World world;
  world.Add({}, OneByOne(200 * kUs, 200 * kUs));
  world.Add({}, Endless(500 * kUs));
  return SharesOf(world, 2)[0];
}
double IdleBetweenTurns() {
  World world;
  world.wake_latency = 400 * kUs;
  for (int i = 0; i < 2; ++i) world.Add({}, Endless(20 * kUs));
  world.RunUntil(2'000 * kMs);
  return static_cast<double>(world.gpu.idle);
}
// One of two is gone, at any moment: the turn that it has, or is given as it waited, it does not use.
double IdleAfterOneIsGone() {
  double idle = 0;
  for (int64_t at = 500 * kMs; at < 520 * kMs; at += kMs) {
    World world;
    Tenant& gone = world.Add({}, Endless(500 * kUs));
    world.Add({}, Endless(500 * kUs));
    world.RunUntil(at);
    gone.wake = gone.help_at = INT64_MAX;
    gone.waits_for_turn = false;
    const int64_t before = world.gpu.idle;
    world.RunUntil(at + 30 * kMs);
    idle += static_cast<double>(world.gpu.idle - before);
  }
  return idle;
}
// A kernel that was short takes 300 ms once. The GPU might wait for what is held meanwhile, so that goes bit by bit.
double LaunchedBehindALateOne() {
  World world;
  Tenant& tenant = world.Add({.limit = 9900}, [n = 0](int64_t) mutable {
    return Step{Step::kLaunch, n++ == 2'000 ? 300 * kMs : 100 * kUs, 0, 1};
  });
  world.RunUntil(220 * kMs);
  const int64_t before = tenant.done;
  world.RunUntil(320 * kMs);
  return static_cast<double>(tenant.done - before);
}
// More than there is, until one of them goes away.
double SavedUpOnAFullGpu() {
  World world;
  Tenant& stays = world.Add({.limit = 7000}, Endless(500 * kUs));
  Tenant& goes = world.Add({.limit = 7000}, Endless(500 * kUs));
  world.RunUntil(2'000 * kMs);
  goes.wake = INT64_MAX;
  world.RunUntil(2'010 * kMs);
  const int64_t before = world.gpu.BusyOf(stays.context);
  world.RunUntil(2'110 * kMs);
  return static_cast<double>(world.gpu.BusyOf(stays.context) - before) - 60.0 * kMs;
}
double MarksOfShortKernels() {
  World world;
  Tenant& tenant = world.Add({.limit = 9900}, Endless(20 * kUs));
  world.RunUntil(1'000 * kMs);
  return static_cast<double>(tenant.marks);
}
// How long a kind that comes to take twice as long is thought shorter.
double LaunchesUntilLearnt() {
  World world;
  Tenant& tenant = world.Add({.limit = 9900}, [n = 0](int64_t) mutable {
    return Step{Step::kLaunch, n++ < 1'000 ? 100 * kUs : 200 * kUs, 0, 1};
  });
  int64_t at = 100 * kMs;
  world.RunUntil(at);
  while (tenant.book().Price(KindOf(1)) < 190 * kUs && at < 900 * kMs) world.RunUntil(at += kMs);
  return static_cast<double>(at - 100 * kMs);
}
double PaidForOneByOne() {
  World world;
  world.Add({.limit = 3000}, OneByOne(20 * kUs, 5 * kUs));
  return SharesOf(world, 2)[0];
}
// The other launches for a while once in 60 ms; who may use idle time has it as soon as it is thought idle.
double IdleTimeThatIsUsed() {
  World world;
  world.Add({.limit = 3000, .ceiling = 9000}, Endless(500 * kUs));
  world.Add({.limit = 7000}, OneByOne(5 * kMs, 60 * kMs));
  return SharesOf(world, 4)[0];
}

std::vector<Row> Rows() {
  return {
      {"kLease", &kLease, "looks at the account", &LooksOfShortKernels, 1.5, 0.7},
      {"kBurst", &kBurst, "pauses", &PausesAtALowLimit, 1.5, 0.7},
      {"kFlightAlone", &kFlightAlone, "work in flight", &InFlightAlone, 0.7, 1.4},
      {"kFlight", &kFlight, "work in flight beside others", &InFlightBesideOthers, 0.8, 1.3},
      {"kFlightUnder", &kFlightUnder, "work in flight beside a more important one", &InFlightUnderAnother, 0.8, 1.3},
      {"kTurn", &kTurn, "changes of turns", &ChangesOfTwo, 1.5, 0.7},
      {"kLeastTurn", &kLeastTurn, "share of one that its host holds up", &ShareOfOneThatItsHostHoldsUp, 1, 0.98},
      {"kHandover", &kHandover, "idle time between turns", &IdleBetweenTurns, 1.2, 0.7},
      {"kUnused", &kUnused, "idle time for one that is gone", &IdleAfterOneIsGone, 0.97, 1.05},
      {"kPatience", &kPatience, "launched behind a late one", &LaunchedBehindALateOne, 1.05, 0.7},
      {"kBank", &kBank, "what a full GPU saves up", &SavedUpOnAFullGpu, 0.8, 1.3},
      {"kSegment", &kSegment, "marks", &MarksOfShortKernels, 1.15, 0.85},
      {"kSmooth", &kSmooth, "until a change is learnt", &LaunchesUntilLearnt, 0.8, 1.3},
      {"kIdleStart", &kIdleStart, "share of what is waited for", &PaidForOneByOne, 0.99, 1.01},
      {"kWants", &kWants, "idle time that is used", &IdleTimeThatIsUsed, 1.01, 0.99}};
}

TEST(GpuTimeConstants, WhenEachIsHalvedAndDoubled_ThenThatChanges) {
  for (const Row& row : Rows()) {
    const int64_t own = *row.constant;
    const double before = row.measure();
    *row.constant = own / 2;
    const double halved = row.measure() / before;
    *row.constant = own * 2;
    const double doubled = row.measure() / before;
    *row.constant = own;
    std::printf("%-13s %-45s %14.1f  halved x %.2f, doubled x %.2f\n", row.name, row.what, before, halved, doubled);
    const auto expect = [&](double found, double wanted) {
      EXPECT_TRUE(wanted == 1 || (wanted < 1 ? found <= wanted : found >= wanted)) << row.name << " " << found;
    };
    expect(halved, row.halved);
    expect(doubled, row.doubled);
  }
}

// None of them is what keeps a limit.
TEST(GpuTimeConstants, WhenEachIsHalvedAndDoubled_ThenLimitsHold) {
  for (const Row& row : Rows()) {
    const int64_t own = *row.constant;
    for (const int64_t changed : {own / 2, own * 2}) {
      *row.constant = changed;
      for (const int64_t length : {20 * kUs, 500 * kUs}) {
        World world;
        world.Add({.limit = 3000}, Endless(length));
        EXPECT_NEAR(SharesOf(world, 2)[0], 30, 1.5) << row.name << " " << changed << " " << length;
      }
    }
    *row.constant = own;
  }
}

}  // namespace
}  // namespace hami::vgpu::time::testing
