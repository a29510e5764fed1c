// SPDX-License-Identifier: Apache-2.0
//
// The measure by hand and against its definition, what the policy chooses by it, and the workload that it learns.

#include "sched/fragmentation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "sched/filter.h"
#include "sched/testing/samples.h"

namespace hami::sched {
namespace {

constexpr device::MiB kCard = 16000;

// A node with cards of which so much memory and cores are in use.
struct World {
  explicit World(std::vector<device::CardState> used)
      : vendors(testing::NvidiaOnly()), node("n", vendors.size()), states(std::move(used)) {
    node.SetCards(0, testing::Cards("n", static_cast<int>(states.size()), kCard), vendors);
    for (std::size_t i = 0; i < states.size(); ++i) {
      views.push_back({&node.devices()[i], node.lower_type(i), states[i], true});
    }
  }
  Fragments Measure(const Workload& workload, const HostRoom& host = {}) const {
    return Fragments(node, {views.data(), views.size()}, vendors, host, workload);
  }

  device::Vendors vendors;
  Node node;
  std::vector<device::CardState> states;
  std::vector<device::CardView> views;
};

device::CardState Used(device::MiB memory, int cores = 0) { return {memory, memory > 0 ? 1 : 0, cores}; }

RequestClass Class(int count, device::MiB memory, int cores, double weight, HostAmounts host = {}) {
  RequestClass one;
  one.ask = {0, {count, memory, device::kPercentUnset, cores}};
  one.host = host;
  one.weight = weight;
  return one;
}

Workload Of(std::vector<RequestClass> classes) { return {std::move(classes), 1}; }

TEST(FragmentsTest, AnEmptyNodeHasNoneWhereAllFits) {
  const World world({{}, {}});
  EXPECT_DOUBLE_EQ(world.Measure(Of({Class(1, 8000, 50, 1)})).Total(), 0);
}

TEST(FragmentsTest, WhatIsLeftAndTooSmallIsAFragment) {
  const World world({Used(12000), {}});  // a quarter left, and a whole card
  EXPECT_DOUBLE_EQ(world.Measure(Of({Class(1, 8000, 0, 1)})).Total(), 0.25);
  EXPECT_DOUBLE_EQ(world.Measure(Of({Class(1, 4000, 0, 1)})).Total(), 0);
  EXPECT_DOUBLE_EQ(world.Measure(Of({Class(1, 8000, 0, 0.5), Class(1, 4000, 0, 0.5)})).Total(), 0.125);
}

TEST(FragmentsTest, TooFewCardsMakeAllOfThemFragments) {
  const World world({Used(8000), {}});
  EXPECT_DOUBLE_EQ(world.Measure(Of({Class(2, 16000, 100, 1)})).Total(), 1.5);
}

TEST(FragmentsTest, CoresCountLikeMemory) {
  const World world({Used(1600, 80)});  // 90 % of the memory is left, and 20 % of the cores
  EXPECT_NEAR(world.Measure(Of({})).free_share(), 0.2, 1e-9);
  EXPECT_NEAR(world.Measure(Of({Class(1, 8000, 30, 1)})).Total(), 0.2, 1e-9);
  EXPECT_NEAR(world.Measure(Of({Class(1, 8000, 0, 1)})).Total(), 0, 1e-9);
}

TEST(FragmentsTest, ACardBehindAFullCpuIsAFragment) {
  const World world({{}, {}});
  const Workload workload = Of({Class(1, 8000, 0, 1, {4000, 0})});
  const HostRoom full{{1000, 1000}, {8000, 1000}, true};
  EXPECT_DOUBLE_EQ(world.Measure(workload, full).Total(), 2);
  EXPECT_DOUBLE_EQ(world.Measure(workload).Total(), 0);  // nothing is known of the node
}

TEST(FragmentsTest, AWholeCardIsNotForAUsedOne) {
  const World world({Used(160, 0)});
  EXPECT_NEAR(world.Measure(Of({Class(1, 0, 100, 1)})).Total(), 0.99, 1e-9);
}

TEST(FragmentsTest, TheTotalWithAShareIsThatOfTheNodeAfterIt) {
  std::mt19937 random(7);
  const auto upto = [&](int most) { return static_cast<int>(random() % static_cast<unsigned>(most)); };
  for (int round = 0; round < 2000; ++round) {
    std::vector<device::CardState> states;
    for (int i = 0; i < 4; ++i) states.push_back(Used(upto(5) * 4000, upto(5) * 25));
    std::vector<RequestClass> classes;
    for (int i = 0; i < 4; ++i) classes.push_back(Class(1 + upto(3), upto(5) * 4000, upto(5) * 25, 0.25));
    const Workload workload = Of(classes);
    const World world(states);
    const auto card = static_cast<std::size_t>(upto(4));
    const int memory = upto(5) * 4000;
    const int cores = upto(5) * 25;
    states[card].memory += memory;
    states[card].cores += cores;
    ++states[card].slots;
    const World after(states);
    const double expected = after.Measure(workload).Total();
    ASSERT_NEAR(world.Measure(workload).With(card, memory, cores), expected, 1e-9) << round;
    Fragments taken = world.Measure(workload);
    taken.Take(card, memory, cores);
    ASSERT_NEAR(taken.Total(), expected, 1e-9) << round;
    ASSERT_NEAR(taken.free_share(), after.Measure(workload).free_share(), 1e-9) << round;
  }
}

// Nodes and workloads by chance; amounts of memory alone, in eighths of a card.
struct Chance {
  explicit Chance(unsigned seed) : random(seed) {}
  int Upto(int most) { return static_cast<int>(random() % static_cast<unsigned>(most)); }
  device::MiB Eighths(int most) { return (1 + Upto(most)) * (kCard / 8); }
  std::vector<device::CardState> States(int cards) {
    std::vector<device::CardState> states;
    for (int i = 0; i < cards; ++i) states.push_back(Used(Upto(9) * (kCard / 8)));
    return states;
  }
  Workload Asking(int most_count) {
    std::vector<RequestClass> classes;
    for (int i = 0; i < 4; ++i) {
      classes.push_back(Class(1 + Upto(most_count), Eighths(8), 0, 0.25, {1000 * Upto(4), 0}));
    }
    return Of(classes);
  }
  HostRoom Room() { return {{1000 * Upto(9), 1000}, {8000, 1000}, Upto(2) == 0}; }
  std::mt19937 random;
};

TEST(FragmentsPropertyTest, WhatChangesNothingCostsNothing) {
  Chance chance(11);
  int asked = 0;
  for (int round = 0; round < 2000; ++round) {
    const World world(chance.States(4));
    const Workload workload = chance.Asking(3);
    const Fragments measure = world.Measure(workload, chance.Room());
    const auto card = static_cast<std::size_t>(chance.Upto(4));
    if (world.states[card].slots == 0) continue;  // the first share takes the card from those that ask for all of it
    ++asked;
    ASSERT_DOUBLE_EQ(measure.With(card, 0, 0), measure.Total()) << round;
  }
  EXPECT_GT(asked, 1000);
}

TEST(FragmentsPropertyTest, ItIsAPartOfWhatIsFree) {
  Chance chance(12);
  for (int round = 0; round < 2000; ++round) {
    const World world(chance.States(4));
    const Workload workload = chance.Asking(3);
    const Fragments measure = world.Measure(workload, chance.Room());
    ASSERT_GE(measure.Total(), -1e-9) << round;
    ASSERT_LE(measure.Total(), measure.free_share() + 1e-9) << round;
  }
}

TEST(FragmentsPropertyTest, WhoAsksForMoreFindsMoreOfItInPieces) {
  Chance chance(13);
  for (int round = 0; round < 2000; ++round) {
    const World world(chance.States(4));
    const HostRoom room = chance.Room();
    Workload workload = chance.Asking(2);
    const double before = world.Measure(workload, room).Total();
    RequestClass& one = workload.classes[static_cast<std::size_t>(chance.Upto(4))];
    switch (chance.Upto(3)) {
      case 0:
        // Of a node's CPU alone, as one of twice the size may use twice as much of the cards with the same CPU.
        one.host.cpu += 1000;
        break;
      case 1:
        if (room.known && one.host.cpu > 0) continue;
        one.ask.request.count += 1;
        break;
      default:
        if (room.known && one.host.cpu > 0) continue;
        one.ask.request.memory += kCard / 8;
    }
    ASSERT_GE(world.Measure(workload, room).Total(), before - 1e-9) << round;
  }
}

TEST(FragmentsPropertyTest, LessCpuLeavesMoreOfTheCardsInPieces) {
  Chance chance(14);
  for (int round = 0; round < 2000; ++round) {
    const World world(chance.States(4));
    const Workload workload = chance.Asking(3);
    Fragments measure = world.Measure(workload, {{8000, 1000}, {8000, 1000}, true});
    double before = measure.Total();
    for (int cpu = 7; cpu >= 0; --cpu) {
      measure.SetHost({{1000 * cpu, 1000}, {8000, 1000}, true});
      ASSERT_GE(measure.Total(), before - 1e-9) << round;
      before = measure.Total();
    }
  }
}

TEST(PlacementScoreTest, LessGrowthAndFullerNodesScoreMore) {
  const HostBooks hosts;
  const FragmentView view{nullptr, &hosts, 8};
  EXPECT_GT(PlacementScore(0, 4, {}, view), PlacementScore(0.5, 4, {}, view));
  EXPECT_GT(PlacementScore(0.5, 1, {}, view), PlacementScore(0.5, 4, {}, view));
}

// Decisions of a small cluster by the policy.
struct Decider {
  Decider()
      : vendors(testing::NvidiaOnly()),
        ledger(vendors),
        filter(ledger, vendors, {"fragmentation", "fragmentation"}, hosts) {}

  void Add(const std::string& name, int cards) { ledger.SetCards(name, 0, testing::Cards(name, cards, kCard)); }
  // The node, and the card's number on it.
  std::pair<std::string, std::string> Place(const std::string& uid, int count, device::MiB memory, int cores = 0) {
    const device::Pod pod = testing::PodOf(uid, testing::Wants(count, memory, cores));
    const Decision decision = filter.DecideAny(pod, {});
    if (decision.outcome != Outcome::kPlaced) return {};
    ledger.Assume(pod, decision.node, decision.allocation, 1LL << 40);
    return {decision.node, decision.allocation.grants.front().second.front().front().uuid};
  }

  device::Vendors vendors;
  HostBooks hosts;
  Ledger ledger;
  Filter filter;
};

TEST(FragmentationPolicyTest, AShareGoesWhereItLeavesAWholeCard) {
  Decider decider;
  decider.filter.workload().Fix({Class(1, 8000, 50, 0.5), Class(1, 0, 100, 0.5)});
  decider.Add("a", 2);
  const auto first = decider.Place("p0", 1, 8000, 50);
  EXPECT_EQ(decider.Place("p1", 1, 8000, 50), first);
}

TEST(FragmentationPolicyTest, AnExactRestIsFilledFirst) {
  Decider decider;
  decider.filter.workload().Fix({Class(1, 4000, 25, 0.4), Class(1, 12000, 75, 0.4), Class(1, 8000, 50, 0.2)});
  decider.Add("a", 2);
  const auto half = decider.Place("p0", 1, 8000, 50);
  const auto large = decider.Place("p1", 1, 12000, 75);
  ASSERT_NE(half, large);
  EXPECT_EQ(decider.Place("p2", 1, 4000, 25), large);
}

// Whatever else is asked for, as long as it is of one card.
TEST(FragmentationPolicyTest, TheCardThatAPodFillsComesFirst) {
  Chance chance(21);
  int filled = 0;
  for (int round = 0; round < 500; ++round) {
    Decider decider;
    decider.filter.workload().Fix(chance.Asking(1).classes);
    decider.Add("a", 6);
    std::vector<device::MiB> used(6);
    for (int card = 0; card < 6; ++card) {
      const device::MiB memory = chance.Upto(8) * (kCard / 8);
      if (memory == 0) continue;
      device::Pod pod = testing::PodOf("on-" + std::to_string(card), testing::Wants(1, memory));
      pod.annotations["nvidia.com/use-gpuuuid"] = "a-" + std::to_string(card);
      const Decision decision = decider.filter.DecideAny(pod, {});
      ASSERT_EQ(decision.outcome, Outcome::kPlaced);
      decider.ledger.Assume(pod, decision.node, decision.allocation, 1LL << 40);
      used[static_cast<std::size_t>(card)] = memory;
    }
    const device::MiB wanted = chance.Eighths(7);
    if (std::find(used.begin(), used.end(), kCard - wanted) == used.end()) continue;
    const std::string uuid = decider.Place("p", 1, wanted).second;
    ++filled;
    ASSERT_EQ(used[static_cast<std::size_t>(uuid.back() - '0')] + wanted, kCard) << round << " " << uuid;
  }
  EXPECT_GT(filled, 100);
}

TEST(FragmentationPolicyTest, CardsBehindAFullCpuAreNotMadeMore) {
  Decider decider;
  decider.Add("a", 2);
  decider.Add("b", 2);
  decider.hosts.SetNode("a", {8000, 1000});
  decider.hosts.SetNode("b", {64000, 1000});
  decider.filter.workload().Fix({Class(1, 8000, 50, 1, {4000, 0})});
  device::Container container = testing::Wants(1, 8000, 50);
  container.requests["cpu"] = "6";  // on a, this would leave a card and a half that no pod can use
  const Decision decision = decider.filter.DecideAny(testing::PodOf("p", container), {});
  EXPECT_EQ(decision.node, "b");
}

TEST(FragmentationPolicyTest, APodMayChooseThePolicyByAnnotation) {
  Decider decider;
  device::Pod pod = testing::PodOf("p", testing::Wants(1, 4000));
  pod.annotations["hami.io/node-scheduler-policy"] = "fragmentation";
  const auto plan = MakePlan(pod, decider.vendors, {});
  ASSERT_TRUE(plan);
  EXPECT_TRUE(plan->fragment_nodes);
  EXPECT_FALSE(plan->policies.front().fragmentation);
}

Plan PlanOf(int count, device::MiB memory, const device::Vendors& vendors, const char* cpu = "1") {
  device::Container container = testing::Wants(count, memory);
  container.requests["cpu"] = cpu;
  return *MakePlan(testing::PodOf("p", container), vendors, {});
}

TEST(WorkloadBookTest, APodCountsOnce) {
  const device::Vendors vendors = testing::NvidiaOnly();
  WorkloadBook book;
  for (int i = 0; i < 10; ++i) book.See("the same", PlanOf(1, 4000, vendors));
  book.See("another", PlanOf(1, 8000, vendors));
  ASSERT_EQ(book.Current().classes.size(), 2U);
  EXPECT_NEAR(book.Current().classes.front().weight, 0.5, 0.01);
}

TEST(WorkloadBookTest, ThePictureStaysWhileTheFrequenciesDo) {
  const device::Vendors vendors = testing::NvidiaOnly();
  WorkloadBook book;
  const auto see = [&](int from, int to, int every) {
    for (int i = from; i < to; ++i)
      book.See("pod-" + std::to_string(i), PlanOf(1, i % every == 0 ? 4000 : 8000, vendors));
  };
  see(0, 2000, 2);
  const std::uint64_t version = book.Current().version;
  see(2000, 6000, 2);
  EXPECT_EQ(book.Current().version, version);
  see(6000, 16000, 10);
  EXPECT_GT(book.Current().version, version);
  EXPECT_EQ(book.Current().classes.front().ask.request.memory, 8000);
}

TEST(WorkloadBookTest, ClassesAreBounded) {
  const device::Vendors vendors = testing::NvidiaOnly();
  WorkloadBook book;
  for (int i = 0; i < 5000; ++i) book.See("pod-" + std::to_string(i), PlanOf(1, 1000 + i, vendors));
  EXPECT_LE(book.Current().classes.size(), 42U);
}

TEST(WorkloadBookTest, CpuIsTheMiddleOfEachThird) {
  const device::Vendors vendors = testing::NvidiaOnly();
  WorkloadBook book;
  for (int i = 0; i < 256; ++i) {
    const char* cpu = i % 3 == 0 ? "1" : (i % 3 == 1 ? "4" : "16");
    book.See("pod-" + std::to_string(i), PlanOf(1, 4000, vendors, cpu));
  }
  ASSERT_EQ(book.Current().classes.size(), 3U);
  EXPECT_EQ(book.Current().classes[0].host.cpu, 1000);
  EXPECT_EQ(book.Current().classes[1].host.cpu, 4000);
  EXPECT_EQ(book.Current().classes[2].host.cpu, 16000);
}

TEST(HostBooksTest, APodIsCountedWhereItIs) {
  HostBooks books;
  books.SetNode("a", {8000, 1000});
  EXPECT_TRUE(books.Use("p", "a", {3000, 100}));
  EXPECT_FALSE(books.Use("p", "a", {3000, 100}));
  EXPECT_EQ(books.Room("a").free, (HostAmounts{5000, 900}));
  books.Use("p", "b", {3000, 100});
  EXPECT_EQ(books.Room("a").free, (HostAmounts{8000, 1000}));
  EXPECT_FALSE(books.Room("b").known);
  EXPECT_EQ(books.Drop("p"), "b");
  EXPECT_EQ(books.Drop("p"), "");
}

TEST(HostBooksTest, RequestsAreThoseOfKubernetes) {
  device::Pod pod;
  device::Container app;
  app.requests["cpu"] = "1500m";
  app.limits["memory"] = "1Gi";
  pod.containers = {app, app};
  device::InitContainer init;
  init.requests["cpu"] = "4";
  pod.init_containers.push_back(init);
  init.sidecar = true;
  init.requests["cpu"] = "0.5";
  pod.init_containers.push_back(init);
  EXPECT_EQ(HostRequest(pod), (HostAmounts{4000, 2048}));
}

}  // namespace
}  // namespace hami::sched
