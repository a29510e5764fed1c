// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <bitset>
#include <deque>
#include <random>

#include "vgpu/time/book.h"
#include "vgpu/time/busy_union.h"
#include "vgpu/time/meter.h"
#include "vgpu/time/turns.h"

namespace hami::vgpu::time {
namespace {

TEST(BusyUnion, GivenAnyStretches_ThenWhatTwoCoverCountsOnce) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    BusyUnion busy;
    std::bitset<1000> covered;
    for (int i = 0; i < 20; ++i) {
      const int64_t begin = std::uniform_int_distribution(0, 899)(random);
      const int64_t end = begin + std::uniform_int_distribution(0, 99)(random);
      const auto before = covered.count();
      for (int64_t at = begin; at < end; ++at) covered.set(static_cast<size_t>(at));
      ASSERT_EQ(busy.Add(begin, end), static_cast<int64_t>(covered.count() - before));
    }
  }
}

TEST(BusyUnion, GivenMoreStretchesThanItKeeps_ThenNoneIsLost) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    BusyUnion busy;
    std::bitset<10'000> covered;
    int64_t paid = 0;
    for (int i = 0; i < 500; ++i) {
      const int64_t begin = std::uniform_int_distribution(0, 8'999)(random);
      const int64_t end = begin + std::uniform_int_distribution(0, 9)(random);
      for (int64_t at = begin; at < end; ++at) covered.set(static_cast<size_t>(at));
      const int64_t added = busy.Add(begin, end);
      ASSERT_GE(added, 0);
      paid += added;
      ASSERT_GE(paid, static_cast<int64_t>(covered.count()));
    }
    // What lies between is filled, and all of it is paid once.
    paid += busy.Add(0, 10'000);
    EXPECT_EQ(paid, 10'000);
  }
}

TEST(BusyUnion, GivenOnesThatNoneComesBefore_ThenTheyTakeNoRoom) {
  BusyUnion busy;
  for (int i = 0; i < 3 * BusyUnion::kStretches; ++i) {
    EXPECT_EQ(busy.Add(10 * i, 10 * i + 5), 5);
    busy.Forget(10 * i - 10);
    EXPECT_EQ(busy.Add(10 * i, 10 * i + 2), 0);
  }
}

constinit CostBook g_book;

TEST(CostBook, GivenAKindInAnotherGrid_ThenTheLastCostOfItsKernelIsTheGuess) {
  g_book.Reset();
  EXPECT_EQ(g_book.Expected(9, 77), 0);
  g_book.Teach(9, 77, 1'000);
  EXPECT_EQ(g_book.Price(9), 1'000);
  EXPECT_EQ(g_book.Price(17), 0);
  EXPECT_EQ(g_book.Expected(17, 77), 1'000);
  g_book.Forget(9);
  EXPECT_EQ(g_book.Price(9), 0);
  EXPECT_EQ(g_book.Expected(9, 77), 1'000);
}

TEST(CostBook, GivenManyMeasurements_ThenThePriceIsTheirMean) {
  g_book.Reset();
  for (int i = 0; i < 200; ++i) g_book.Teach(9, 77, i % 2 == 0 ? 900 : 1'100);
  EXPECT_NEAR(static_cast<double>(g_book.Price(9)), 1'000, 60);
}

// As of a framework whose batches differ in length. A kind that another one pushes out is measured again and again.
TEST(CostBook, GivenThousandsOfKinds_ThenNoneIsPushedOut) {
  g_book.Reset();
  std::mt19937_64 random(1);
  std::vector<uint64_t> kinds(3'000);
  for (uint64_t& kind : kinds) {
    kind = random() | 1;
    g_book.Teach(kind, 0, 1'000);
  }
  EXPECT_LE(std::count_if(kinds.begin(), kinds.end(), [](uint64_t kind) { return g_book.Price(kind) == 0; }), 3);
}

TEST(CostBook, GivenMoreKindsThanRoom_ThenTheLastIsKnown) {
  g_book.Reset();
  for (uint64_t kind = 1; kind < 400'000; kind += 8) {
    g_book.Teach(kind, 0, static_cast<int64_t>(kind));
    ASSERT_EQ(g_book.Price(kind), static_cast<int64_t>(kind));
  }
}

// Measured before more of it goes, until a few changes in a row have left what it takes as it was.
TEST(CostBook, GivenAGraphThatChanges_ThenItIsDoubtedUntilChangesAreSteady) {
  constexpr uint64_t kGraph = 8, kHandle = 99;
  g_book.Reset();
  g_book.Teach(kGraph, kHandle, 1'000, true);
  for (int change = 0; change < 3; ++change) {
    g_book.Changed(kGraph, kHandle);
    EXPECT_TRUE(g_book.Doubted(kHandle)) << change;
    EXPECT_EQ(g_book.Expected(kGraph, kHandle), 1'000) << "still the best guess";
    g_book.Teach(kGraph, kHandle, 1'000, false);
    EXPECT_TRUE(g_book.Doubted(kHandle)) << "what was launched before says nothing";
    g_book.Teach(kGraph, kHandle, 1'000, true);
    EXPECT_FALSE(g_book.Doubted(kHandle)) << change;
  }
  g_book.Changed(kGraph, kHandle);
  EXPECT_FALSE(g_book.Doubted(kHandle));
  g_book.Teach(kGraph, kHandle, 9'000, false);
  g_book.Changed(kGraph, kHandle);
  EXPECT_TRUE(g_book.Doubted(kHandle)) << "one was dearer";
}

TEST(Turns, GivenAnyContent_ThenALaunchGoesAfterAWhile) {
  std::mt19937_64 random(2);
  constexpr int kLines = 8;
  for (int round = 0; round < 300; ++round) {
    TurnLine lines[kLines];
    uint64_t word = random();
    for (TurnLine& line : lines) {
      auto* const words = reinterpret_cast<uint64_t*>(&line);
      for (size_t i = 0; i < sizeof line / sizeof *words; ++i) words[i] = random() % 4 == 0 ? random() : random() % 3;
      line.gpu = 7;
    }
    Turns turns;
    turns.Join({lines, kLines, 7, &word}, 0);
    int64_t now = 1'000'000'000;
    const int64_t end = now + 5'000'000'000;
    Turns::Verdict verdict{.go = false};
    while (!verdict.go && now < end) {
      verdict = turns.Ask(turns.Look(1, now), {.rank = 1, .owed = true, .zero_at = now - 1}, now);
      ASSERT_TRUE(verdict.go || (verdict.until > now && verdict.until < now + 10'000'000));
      now = verdict.until;
    }
    EXPECT_TRUE(verdict.go) << round;
  }
}

// Two containers on one GPU.
struct TwoInTurn {
  TurnLine lines[2] = {};
  uint64_t word = 0;
  Turns holder, next;
  int64_t now = 1'000'000'000;

  TwoInTurn() {
    for (int i = 0; i < 2; ++i) {
      lines[i].process = static_cast<uint64_t>(i + 1) << 32 | 1;
      lines[i].gpu = 7;
      (i == 0 ? holder : next).Join({lines, 2, 7, &word}, i);
    }
  }
  Turns::Verdict Ask(Turns& turns, int64_t in_flight = 0) {
    return turns.Ask(turns.Look(1, now), {.rank = 1, .in_flight = in_flight}, now);
  }
};

// The end of one that launches again and again is never near: to look for it would take a processor.
TEST(Turns, GivenAHolderThatGoesOn_ThenTheNextOneSleeps) {
  TwoInTurn two;
  ASSERT_TRUE(two.Ask(two.holder).go);
  for (int i = 0; i < 20; ++i, two.now += 50'000) {
    two.holder.Went(250'000, false, two.now);
    const Turns::Verdict verdict = two.Ask(two.next);
    ASSERT_FALSE(verdict.go || verdict.soon) << i;
  }
  EXPECT_TRUE(two.Ask(two.next).soon) << "it did not go on";
}

// While both have work in flight the GPU may change to the one, back for the rest of the other, and again.
TEST(Turns, GivenANextOneThatIsAwake_ThenTheTurnGoesOnLater) {
  for (const bool awake : {false, true}) {
    TwoInTurn two;
    ASSERT_TRUE(two.Ask(two.holder).go);
    two.now += kTurn;
    two.holder.Went(awake ? 250'000 : 1'000'000, false, two.now);
    two.Ask(two.next);
    ASSERT_EQ(awake, two.Ask(two.next).soon);
    EXPECT_FALSE(two.Ask(two.holder, kHandover + 1).passed);
    EXPECT_NE(awake, two.Ask(two.holder, kHandover).passed);
    EXPECT_FALSE(awake && two.Ask(two.holder, 1).passed);
    EXPECT_EQ(awake, two.Ask(two.holder, 0).passed);
  }
}

// Its word is the end of what it paid for: programs that decode tokens lost a fifth where the next one took that for
// the end of the work.
TEST(Turns, GivenAHolderThatMayGoOn_ThenTheNextOneGoesBeforeTheEnd) {
  TwoInTurn two;
  ASSERT_TRUE(two.Ask(two.holder).go);
  two.holder.Went(250'000, false, two.now);
  two.Ask(two.next);
  ASSERT_TRUE(two.Ask(two.next).soon);
  two.now += 250'000 - kHandover;
  EXPECT_TRUE(two.Ask(two.next).go);
}

// It was to launch more. The next one knows at once that it does not, so that it is awake when its moment comes.
TEST(Turns, WhenAHolderLeaves_ThenTheNextOneLooksInTime) {
  TwoInTurn two;
  ASSERT_TRUE(two.Ask(two.holder).go);
  two.now += kTurn;
  two.holder.Went(1'500'000, false, two.now);
  two.Ask(two.next);
  EXPECT_FALSE(two.Ask(two.holder, 1'000'000).go);
  const int64_t end = two.now + 1'000'000;
  two.now = two.Ask(two.next).until;
  EXPECT_EQ(two.now, end - kHandover - kFlightUnder);
  EXPECT_TRUE(two.Ask(two.next).soon);
  two.now = end - 1;
  EXPECT_FALSE(two.Ask(two.next).go);
  ++two.now;
  EXPECT_TRUE(two.Ask(two.next).go);
}

// The host's clock is the device's; each event is a moment of it.
DriverPort DriverAt(int64_t* clock) {
  return {clock,
          [](void* self, Event event, Event reference, int64_t* since) {
            const int64_t now = *static_cast<int64_t*>(self);
            const int64_t at = *static_cast<int64_t*>(event);
            if (at <= now && reference != nullptr) *since = at - *static_cast<int64_t*>(reference);
            return at <= now ? now : 0;
          },
          [](void*, Event) {}, [](void*, const void*, const StreamRef&) { return false; }};
}

constexpr int64_t kUs = 1'000, kMs = 1'000'000;
constexpr uint64_t kKind = 8, kHandle = 99;

// A meter with a book that knows nothing yet.
struct Metered {
  int64_t clock;
  DriverPort driver = DriverAt(&clock);
  Meter meter;
  std::deque<int64_t> events;

  explicit Metered(int64_t at) : clock(at) {
    g_book.Reset();
    meter.Use(&meter, &driver, &g_book);
  }
  // A launch of kKind at this moment, at work from here on for `length` ns; the call takes the host `took` ns.
  Meter::Plan Launch(int64_t cost, int64_t length, int64_t spacing, int64_t took) {
    const time::Launch launch{.stream = {}, .kind = kKind, .handle = kHandle, .cost = cost};
    const Meter::Plan plan = meter.Before(launch, spacing, clock);
    Event const empty = plan.empty ? &events.emplace_back(clock) : nullptr;
    Event const begin = plan.begin ? &events.emplace_back(clock) : nullptr;
    Event const end = plan.end ? &events.emplace_back(clock + length) : nullptr;
    meter.After(launch, plan, empty, begin, end, took, clock);
    return plan;
  }
};

// The host lost its processor in the call: the kernel was at work since that came back, at the latest. Where that
// leaves much open nothing is learnt: of a kernel that is thought to take next to nothing the next mark would be far
// away.
TEST(Meter, GivenASlowCallOfAnUnknownKernel_ThenItsRestIsPaid) {
  constexpr int64_t kGuess = 2 * kMs;
  struct Given {
    int64_t took, paid;
    bool known;
  };
  for (const Given& given : {Given{kMs, 4 * kMs, true}, {49 * kMs / 10, kGuess, false}, {5 * kMs, kGuess, false}}) {
    g_book.Reset();
    Meter meter;
    int64_t clock = 206 * kMs;
    const DriverPort driver = DriverAt(&clock);
    meter.Use(&meter, &driver, &g_book);
    int64_t times[] = {100 * kMs, 100 * kMs, 105 * kMs};
    const Launch launch{.stream = {}, .kind = 8, .handle = 99, .cost = kGuess};
    const Meter::Plan plan = meter.Before(launch, kSegment, 200 * kMs);
    ASSERT_TRUE(plan.empty && plan.begin && plan.end);
    meter.After(launch, plan, &times[0], &times[1], &times[2], given.took, 201 * kMs);
    EXPECT_NEAR(static_cast<double>(kGuess + meter.Poll(0, 0, 206 * kMs)), static_cast<double>(given.paid), 1e4)
        << given.took;
    EXPECT_EQ(g_book.Expected(8, 99) > 0, given.known) << given.took;
  }
}

// Each call takes the host about as long as the kernel lasts, so none is sure. One that stays unknown is launched one
// by one, at a guess of 2 ms: eight streams of 0.06 ms had 20 of 50 % where the host was slow.
TEST(Meter, GivenSlowCallsAlone_ThenTheKernelIsLearntInTheEnd) {
  Metered metered(100 * kMs);
  int launches = 0;
  for (; g_book.Price(kKind) == 0 && launches < 100; ++launches) {
    metered.Launch(2 * kMs, 64 * kUs, kSegment, 60 * kUs);
    metered.clock += 300 * kUs;
    metered.meter.Poll(0, 0, metered.clock);
  }
  EXPECT_GT(launches, 1);
  EXPECT_LE(launches, 20);
  EXPECT_NEAR(static_cast<double>(g_book.Price(kKind)), 64e3, 3e3);
}

// Of 2.5 ms that a launch took others were at work for 0.5 at most, and the host may have been away for 0.05: it took
// 1.9 ms or more, so what was expected is wrong.
TEST(Meter, GivenAKernelThatGrewBesideAnother_ThenTheBookLearnsIt) {
  Metered metered(0);
  Meter& meter = metered.meter;
  g_book.Teach(kKind, kHandle, kMs / 10);
  for (int i = 0; i < 20; ++i) {
    meter.Poll(1, metered.clock, metered.clock);
    const Meter::Plan plan = metered.Launch(g_book.Expected(kKind, kHandle), 5 * kMs / 2, kHandover, kMs / 20);
    ASSERT_TRUE(plan.begin && plan.end);
    metered.clock += kMs / 2;
    meter.Poll(1, metered.clock, metered.clock);
    meter.Poll(0, 0, metered.clock);
    meter.Poll(0, 0, metered.clock += 4 * kMs);
  }
  EXPECT_GT(g_book.Expected(kKind, kHandle), 17 * kMs / 10);
}

// Another had the GPU for a part of the time: what a launch took longer is no reason to think it longer.
TEST(Meter, GivenAKernelBesideAnother_ThenTheBookKeepsItsCost) {
  Metered metered(kMs);
  Meter& meter = metered.meter;
  g_book.Teach(kKind, kHandle, 500 * kUs);
  for (int i = 0; i < 20; ++i) {
    meter.Poll(1, metered.clock, metered.clock);
    const Meter::Plan plan = metered.Launch(g_book.Expected(kKind, kHandle), 1'200 * kUs, kHandover, 5 * kUs);
    ASSERT_TRUE(plan.begin && plan.end);
    meter.Poll(1, metered.clock, metered.clock);
    metered.clock += 2 * kMs;
    meter.Poll(1, metered.clock, metered.clock);
  }
  EXPECT_NEAR(static_cast<double>(g_book.Expected(kKind, kHandle)), 500e3, 50e3);
}

// The thread slept while another came and went: what a launch took longer was that one's.
TEST(Meter, GivenAnotherThatWorkedBetweenTwoLooks_ThenItsTimeIsNotPaid) {
  Metered metered(kMs);
  Meter& meter = metered.meter;
  g_book.Teach(kKind, kHandle, 500 * kUs);
  int64_t paid = 0;
  for (const bool slept : {false, true}) {
    meter.Poll(0, 0, metered.clock);
    const Meter::Plan plan = metered.Launch(500 * kUs, (slept ? 2'100 : 500) * kUs, kHandover, 5 * kUs);
    ASSERT_TRUE(plan.begin && plan.end);
    metered.clock += (slept ? 4'000 : 500) * kUs;
    paid = meter.Poll(0, slept ? metered.clock - kMs : 0, metered.clock);
  }
  EXPECT_NEAR(static_cast<double>(paid), 0, 50e3) << "beside what was charged";
}

// A neighbour that had ended by then: what takes longer than expected has the GPU to itself, and all of it is charged.
TEST(Meter, GivenAnotherThatEndedBefore_ThenAllOfItsTimeIsCharged) {
  Metered metered(kMs);
  Meter& meter = metered.meter;
  g_book.Teach(kKind, kHandle, kMs);
  const int64_t ended = metered.clock - kMs / 4;
  meter.Poll(0, 0, metered.clock - kMs / 2);
  meter.Poll(0, ended, metered.clock);
  const Meter::Plan plan = metered.Launch(g_book.Expected(kKind, kHandle), 100 * kMs, kHandover, 5 * kUs);
  ASSERT_TRUE(plan.begin && plan.end);
  ASSERT_EQ(meter.Poll(0, ended, metered.clock), 0);
  EXPECT_EQ(meter.Poll(0, ended, metered.clock + 3 * kMs / 2), kMs / 2);
}

// The GPU would leave what another does, or is about to do, for an event of a stream that has nothing else to do.
TEST(Meter, GivenAStreamThatRests_ThenItIsMarkedOnlyWhenNoneWorks) {
  Metered metered(kWants);
  Meter& meter = metered.meter;
  g_book.Teach(kKind, kHandle, 20 * kUs);
  metered.Launch(20 * kUs, 20 * kUs, kSegment, 1);
  metered.clock += 100 * kUs;
  StreamRef stream;
  struct Case {
    int others;
    int64_t since;  // one worked
    bool marked;
  };
  for (const Case& now : {Case{1, 0, false}, {0, kUs, false}, {0, kWants, true}}) {
    ASSERT_FALSE(metered.Launch(20 * kUs, 20 * kUs, kSegment, 1).end);
    metered.clock += 100 * kUs;
    meter.Poll(now.others, metered.clock - now.since, metered.clock);
    EXPECT_EQ(meter.WantsTail(nullptr, &stream, metered.clock, metered.clock), now.marked) << now.since;
  }
}

// What is under way was launched before the change: its cost says nothing of what the graph does from now on.
TEST(Meter, WhenGraphChangesBeforeMeasurementIsSeen_ThenItStaysDoubted) {
  Metered metered(100 * kUs);
  g_book.Teach(kKind, kHandle, 10 * kUs, true);
  g_book.Changed(kKind, kHandle);
  const Meter::Plan plan = metered.Launch(g_book.Expected(kKind, kHandle), 10 * kUs, kSegment, 1);
  ASSERT_TRUE(plan.guessed && plan.begin && plan.end);
  metered.meter.Changed(kKind);
  g_book.Changed(kKind, kHandle);
  metered.meter.Poll(0, 0, metered.clock += 100 * kUs);
  EXPECT_TRUE(g_book.Doubted(kHandle));
}

// A kernel so short that a mark's worth of its launches is thousands: until its grid is known each takes the slow path.
TEST(Meter, GivenShortKernelsNewGridOnIdleStream_ThenLaunchIsMeasured) {
  Metered metered(100 * kUs);
  g_book.Teach(16, kHandle, kUs / 10);
  const Meter::Plan plan = metered.Launch(g_book.Expected(kKind, kHandle), kIdleStart + kUs / 10, kSegment, 1);
  ASSERT_TRUE(plan.begin && plan.end);
  metered.meter.Poll(0, 0, metered.clock += 10 * kUs);
  EXPECT_GT(g_book.Price(kKind), 0);
}

// One thread's kernel, whose other grid is known, among what another thread pays from its lease, on a stream that never
// rests: no segment is of the one alone.
TEST(Meter, GivenANewGridAmongAnothersLaunches_ThenItsKindIsLearnt) {
  g_book.Reset();
  g_book.Teach(16, 98, 10 * kUs);
  g_book.Teach(24, 99, 10 * kUs);
  Meter meter;
  int64_t clock = 0;
  DriverPort driver = DriverAt(&clock);
  driver.busy = [](void*, const void*, const StreamRef&) { return true; };
  meter.Use(&meter, &driver, &g_book);
  std::deque<int64_t> events;
  for (int i = 0; i < 200; ++i) {
    meter.Spent({.stream = {}, .kind = 16, .cost = 10 * kUs}, 1, clock);
    const Launch launch{.stream = {}, .kind = 8, .handle = 99, .cost = g_book.Expected(8, 99)};
    const Meter::Plan plan = meter.Before(launch, kSegment, clock);
    Event const begin = plan.begin ? &events.emplace_back(clock + 10 * kUs) : nullptr;
    Event const end = plan.end ? &events.emplace_back(clock + 20 * kUs) : nullptr;
    meter.After(launch, plan, nullptr, begin, end, kUs, clock);
    meter.Poll(0, 0, clock += 20 * kUs);
  }
  EXPECT_GT(g_book.Price(8), 0);
  EXPECT_LT(events.size(), 40U) << "not each launch is measured for that";
}

}  // namespace
}  // namespace hami::vgpu::time
