// SPDX-License-Identifier: Apache-2.0

#include "sched/victims.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "sched/filter.h"
#include "sched/testing/samples.h"

namespace hami::sched {
namespace {

class VictimsTest : public ::testing::Test {
 protected:
  VictimsTest() : vendors_(testing::NvidiaOnly()), ledger_(vendors_), filter_(ledger_, vendors_, {}) {}

  void Node(const std::string& name, int cards) { ledger_.SetCards(name, 0, testing::Cards(name, cards, 16000)); }
  // A pod that runs on CARD, `a-0` on node a.
  void Run(const std::string& uid, const std::string& card, device::MiB memory, int priority) {
    device::Pod pod = testing::PodOf(uid, testing::Wants(1, memory));
    pod.priority = priority;
    const std::string node = card.substr(0, card.find('-'));
    pod.annotations = {{"hami.io/vgpu-node", node},
                       {"hami.io/vgpu-devices-allocated", card + ",NVIDIA," + std::to_string(memory) + ",0:;"}};
    pod.node_name = node;
    ledger_.UpsertPod(pod);
  }
  static device::Pod Asking(device::MiB memory, int count = 1, int priority = 100) {
    device::Pod pod = testing::PodOf("new", testing::Wants(count, memory));
    pod.priority = priority;
    return pod;
  }
  std::optional<Victims> Find(const device::Pod& pod, std::vector<std::string_view> names = {"a"}) {
    return filter_.FindVictims(pod, names, [&](std::string_view uid) { return uid == spared_; });
  }
  static std::string Names(const std::optional<Victims>& victims) {
    if (!victims) return "nobody helps";
    std::vector<std::string> uids;
    for (const PodRecord* pod : victims->pods) uids.push_back(pod->uid);
    std::sort(uids.begin(), uids.end());
    std::string text = victims->node + ":";
    for (const std::string& uid : uids) text += " " + uid;
    return text;
  }

  device::Vendors vendors_;
  Ledger ledger_;
  Filter filter_;
  std::string spared_;
};

TEST_F(VictimsTest, TheFewestGo) {
  Node("a", 2);
  for (const char* uid : {"p1", "p2", "p3", "p4"}) Run(uid, "a-0", 4000, 0);
  Run("large", "a-1", 15000, 0);
  EXPECT_EQ(Names(Find(Asking(16000))), "a: large");
  EXPECT_EQ(Names(Find(Asking(8000))), "a: large");
  EXPECT_EQ(Names(Find(Asking(4000))), "a: large") << "one goes, and it is the one that leaves most room";
  EXPECT_EQ(Names(Find(Asking(16000, 2))), "a: large p1 p2 p3 p4");
}

TEST_F(VictimsTest, WhatItWouldGetIsWhereTheyWere) {
  Node("a", 2);
  Run("p", "a-0", 8000, 0);
  Run("q", "a-1", 16000, 50);
  const auto victims = Find(Asking(16000));
  ASSERT_EQ(Names(victims), "a: p");
  EXPECT_EQ(victims->allocation.grants.front().second.front().front().uuid, "a-0");
}

TEST_F(VictimsTest, TheLowestPrioritiesGoAndNoHigherOne) {
  Node("a", 2);
  for (const char* uid : {"p1", "p2", "p3"}) Run(uid, "a-0", 5000, 10);
  Run("dear", "a-1", 16000, 50);
  EXPECT_EQ(Names(Find(Asking(16000))), "a: p1 p2 p3");
  EXPECT_EQ(Names(Find(Asking(16000, 1, 11))), "a: p1 p2 p3");
  EXPECT_EQ(Names(Find(Asking(16000, 1, 10))), "nobody helps") << "of the same priority";
}

TEST_F(VictimsTest, PodsWhoseCardsAreOfNoUseStay) {
  Node("a", 2);
  Run("there", "a-0", 8000, 0);
  Run("elsewhere", "a-1", 16000, 0);
  device::Pod pod = Asking(16000);
  pod.annotations["nvidia.com/use-gpuuuid"] = "a-0";
  EXPECT_EQ(Names(Find(pod)), "a: there");
  pod.annotations["nvidia.com/use-gputype"] = "A100";
  EXPECT_EQ(Names(Find(pod)), "nobody helps");
}

TEST_F(VictimsTest, WhatIsSparedOrNotBoundStays) {
  Node("a", 1);
  Run("p", "a-0", 8000, 0);
  Run("q", "a-0", 8000, 0);
  spared_ = "p";
  EXPECT_EQ(Names(Find(Asking(8000))), "a: q");
  EXPECT_EQ(Names(Find(Asking(16000))), "nobody helps");
  spared_.clear();
  Node("b", 1);
  const device::Pod placed = Asking(16000, 1, 0);
  const std::string_view b[] = {"b"};
  const Decision decision = filter_.Decide(placed, b, {});
  ledger_.Assume(placed, "b", decision.allocation, 1000);
  device::Pod other = Asking(16000);
  other.uid = "other";
  EXPECT_EQ(Names(Find(other, {"b"})), "nobody helps");
}

TEST_F(VictimsTest, TheNodeWhereLeastIsLostIsChosen) {
  for (const char* name : {"a", "b", "c"}) Node(name, 1);
  Run("a1", "a-0", 16000, 50);
  Run("b1", "b-0", 8000, 10);
  Run("b2", "b-0", 8000, 10);
  Run("c1", "c-0", 16000, 10);
  EXPECT_EQ(Names(Find(Asking(16000), {"a", "b", "c"})), "c: c1");
  EXPECT_EQ(Names(Find(Asking(16000), {"a", "b"})), "b: b1 b2") << "two of a low priority before one of a higher";
}

// By chance, against every set of pods.
TEST_F(VictimsTest, NoSmallerSetOfThesePrioritiesWouldDo) {
  std::mt19937 random(3);
  const auto upto = [&](int most) { return static_cast<int>(random() % static_cast<unsigned>(most)); };
  int found = 0;
  for (int round = 0; round < 300; ++round) {
    const std::string name = "n" + std::to_string(round);
    Node(name, 2);
    for (int i = 0; i < 6; ++i) {
      Run(name + std::to_string(i), name + "-" + std::to_string(upto(2)), 2000 * (1 + upto(4)), 10 * upto(3));
    }
    const device::Pod pod = Asking(2000 * (4 + upto(5)), 1 + upto(2), 15);
    const std::string_view names[] = {name};
    if (filter_.Decide(pod, names, {}).outcome == Outcome::kPlaced) continue;
    const auto victims = Find(pod, {name});
    std::size_t fewest = 99;
    std::vector<device::Pod> pods;
    ledger_.ForEachPod([&](const PodRecord& record) {
      if (ledger_.node(record.node).name() == name && record.priority < 15) pods.push_back({});
      if (!pods.empty() && pods.back().uid.empty()) pods.back().uid = record.uid;
    });
    std::int32_t highest = 0;
    if (victims) {
      for (const PodRecord* victim : victims->pods) highest = std::max(highest, victim->priority);
    }
    for (unsigned set = 1; set < 1U << pods.size(); ++set) {
      Ledger copy(vendors_);
      copy.SetCards(name, 0, testing::Cards(name, 2, 16000));
      Filter other(copy, vendors_, {});
      std::size_t gone = 0;
      bool cheap = true;
      ledger_.ForEachPod([&](const PodRecord& record) {
        if (ledger_.node(record.node).name() != name) return;
        const auto at =
            std::find_if(pods.begin(), pods.end(), [&](const device::Pod& p) { return p.uid == record.uid; });
        if (at != pods.end() && (set >> (at - pods.begin()) & 1U) != 0) {
          ++gone;
          cheap = cheap && record.priority <= highest;
          return;
        }
        device::Pod stays = testing::PodOf(record.uid, testing::Wants(1, 1));
        copy.Assume(stays, name, record.allocation, 1000);
      });
      const bool fits = other.Decide(pod, names, {}).outcome == Outcome::kPlaced;
      ASSERT_FALSE(fits && !victims) << round;
      if (fits && cheap) fewest = std::min(fewest, gone);
    }
    if (!victims) continue;
    ++found;
    ASSERT_EQ(victims->pods.size(), fewest) << round;
  }
  EXPECT_GT(found, 100);
}

}  // namespace
}  // namespace hami::sched
