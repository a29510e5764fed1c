// SPDX-License-Identifier: Apache-2.0
//
// What must hold whatever happens. A stream of random numbers drives a small cluster through every kind of event; after
// each, the books are compared with books rebuilt from the last state of every object, and each decision with one made
// without an index. Cards, quotas and pods are small so that they collide.

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "device/allocation_codec.h"
#include "kube/testing/json_patch.h"
#include "sched/json_patch.h"
#include "sched/testing/reference.h"
#include "sched/testing/samples.h"
#include "sched/webhook.h"

namespace hami::sched {
namespace {

using device::Pod;

// The same cases every time, and no hours of shrinking; RC_PARAMS="max_success=10000" in the environment looks further.
[[maybe_unused]] const int kSeeded = setenv("RC_PARAMS", "seed=20260801 noshrink=1", 0);

using Stream = std::vector<std::uint32_t>;

// Numbers from a stream; zeros when it has run dry, so that shrinking always ends.
class Dice {
 public:
  explicit Dice(Stream stream) : stream_(std::move(stream)) {}
  bool empty() const { return at_ >= stream_.size(); }
  int Below(int n) { return empty() ? 0 : static_cast<int>(stream_[at_++] % static_cast<unsigned>(n)); }
  template <typename T>
  T One(std::initializer_list<T> of) {
    return *(of.begin() + Below(static_cast<int>(of.size())));
  }

 private:
  Stream stream_;
  std::size_t at_ = 0;
};

std::string NodeName(int i) { return "n" + std::to_string(i); }

device::NodeCards RandomCards(Dice& dice, const std::string& node) {
  device::NodeCards cards;
  const int count = dice.Below(4);
  for (int i = 0; i < count; ++i) {
    device::Device card = testing::Card(node + "-" + std::to_string(i), 1000 * (1 + dice.Below(3)), dice.Below(2));
    card.count = 1 + dice.Below(4);
    card.index = i;
    card.healthy = dice.Below(8) != 0;
    card.cordoned = dice.Below(8) == 0;
    if (dice.Below(4) == 0) {
      card.mode = device::kModeMig;
      card.mig_profiles = {{"1g.5gb", card.memory / 4, 25, 1, {{0, 1}, {1, 1}, {2, 1}, {3, 1}}},
                           {"2g.10gb", card.memory / 2, 50, 2, {{0, 2}, {2, 2}}},
                           {"4g.20gb", card.memory, 100, 4, {{0, 4}}}};
    }
    cards.devices.push_back(std::move(card));
  }
  if (dice.Below(2) == 0) {
    for (int i = 0; i < count * count; ++i) cards.pair_scores.push_back(dice.Below(5) * 10);
  }
  return cards;
}

device::Container RandomContainer(Dice& dice) {
  device::Container container;
  if (dice.Below(5) == 0) return container;
  container = testing::Wants(1 + dice.Below(3), dice.One({0, 100, 250, 500, 900}), dice.One({0, 0, 10, 50, 100}));
  if (dice.Below(4) == 0) container.limits["nvidia.com/gpumem-percentage"] = std::to_string(dice.Below(110));
  return container;
}

Pod RandomPod(Dice& dice, int serial) {
  Pod pod = testing::PodOf("uid-" + std::to_string(serial), RandomContainer(dice));
  if (dice.Below(2) == 0) return pod;  // the common case
  pod.ns = dice.One<const char*>({"default", "limited"});
  if (dice.Below(4) == 0) pod.containers.push_back(RandomContainer(dice));
  for (int i = dice.Below(6) - 3; i > 0; --i) {
    device::InitContainer init;
    static_cast<device::Container&>(init) = RandomContainer(dice);
    init.sidecar = dice.Below(2) == 0;
    pod.init_containers.push_back(std::move(init));
  }
  pod.annotations["hami.io/node-scheduler-policy"] = dice.One<const char*>({"binpack", "spread"});
  pod.annotations["hami.io/gpu-scheduler-policy"] =
      dice.One<const char*>({"binpack", "spread", "mutex", "topology-aware", "numa,binpack"});
  if (dice.Below(4) == 0) pod.annotations["nvidia.com/numa-bind"] = "true";
  if (dice.Below(6) == 0) pod.annotations["nvidia.com/use-gpuuuid"] = "n0-0,n1-0,n2-1";
  return pod;
}

// What a rebuild needs: the last state of every object.
struct World {
  std::map<std::string, device::NodeCards> nodes;
  struct Holder {
    Pod pod;
    std::string node;
    device::Allocation allocation;
    device::UnixSeconds deadline = 0;
    bool bound = false;
  };
  std::map<std::string, Holder> pods;
  std::map<std::string, device::StringMap> quotas;
};

void Rebuild(const World& world, Ledger& ledger) {
  for (const auto& [name, hard] : world.quotas) ledger.quotas().Set("limited", name, hard);
  // Pods before their nodes: the other order than in life.
  for (const auto& [uid, holder] : world.pods) {
    ledger.Assume(holder.pod, holder.node, holder.allocation, holder.deadline);
    if (holder.pod.init_done) {
      Pod seen = holder.pod;
      seen.node_name = holder.node;
      ledger.UpsertPod(seen);
    }
    if (holder.bound) ledger.Confirm(uid);
  }
  for (const auto& [name, cards] : world.nodes) ledger.SetCards(name, 0, cards);
}

// Everything of the books that a decision could see.
std::string Describe(const Ledger& ledger) {
  std::vector<std::string> lines;
  ledger.ForEachNode([&](const Node& node) {
    std::string line = node.name() + " " + std::to_string(node.base_score()) + (node.readable() ? "" : " unreadable");
    for (std::size_t i = 0; i < node.devices().size(); ++i) {
      const device::CardState& used = node.used()[i];
      line += " [" + node.devices()[i].uuid + " " + std::to_string(used.memory) + " " + std::to_string(used.cores) +
              " " + std::to_string(used.slots) + (node.usable(i) ? "]" : " unusable]");
    }
    std::vector<std::string> places;
    for (const device::MigInstance& one : node.instances()) {
      places.push_back(" " + std::to_string(one.card) + ":" + std::to_string(one.placement.start) + "+" +
                       std::to_string(one.placement.size));
    }
    std::sort(places.begin(), places.end());
    for (const std::string& place : places) line += place;
    lines.push_back(std::move(line));
  });
  ledger.ForEachPod([&](const PodRecord& pod) {
    lines.push_back(pod.uid + " on " + ledger.node(pod.node).name() + (pod.bound ? " bound" : " charged"));
  });
  for (const auto& line : ledger.quotas().Lines()) {
    if (line.used != 0 || line.limit) {
      lines.push_back(line.ns + " " + line.resource + " " + std::to_string(line.used) + " of " +
                      (line.limit ? std::to_string(*line.limit) : "-"));
    }
  }
  std::sort(lines.begin(), lines.end());
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

// How much of what matters the random events really met: a property over nothing would hold, too.
struct Coverage {
  int placed = 0;
  int refused = 0;
  int compared = 0;  // with the reference
  int mig = 0;
  int quota = 0;
  int several = 0;  // more than one share

  void Count(const Decision& decision) {
    (decision.outcome == Outcome::kPlaced ? placed : refused) += 1;
    mig += decision.allocation.reservations.empty() ? 0 : 1;
    for (const auto& failure : decision.failures) {
      quota += failure.reason.find("ResourceQuotaNotFit") == std::string::npos ? 0 : 1;
    }
    int shares = 0;
    for (const auto& [vendor, grant] : decision.allocation.grants) {
      for (const auto& row : grant) shares += static_cast<int>(row.size());
    }
    several += shares > 1 ? 1 : 0;
  }
  void Expect(int least) const {
    EXPECT_GE(placed, least);
    EXPECT_GE(refused, least);
    EXPECT_GE(compared, least / 10);
    EXPECT_GE(mig, least / 10);
    EXPECT_GE(quota, least / 10);
    EXPECT_GE(several, least / 10);
  }
};

class Driver {
 public:
  inline static Coverage coverage;

  Driver(Stream stream, bool cards_change)
      : dice_(std::move(stream)),
        cards_change_(cards_change),
        vendors_(testing::NvidiaOnly()),
        ledger_(vendors_),
        filter_(ledger_, vendors_, {}) {
    for (int i = 0; i < 5; ++i) SetCards(NodeName(i));
  }

  void Run(const std::function<void(const World&, const Ledger&)>& check) {
    while (!dice_.empty()) {
      Step();
      check(world_, ledger_);
    }
  }

 private:
  void Step() {
    ++now_;
    switch (dice_.Below(12)) {
      case 0:
        if (cards_change_) SetCards(NodeName(dice_.Below(6)));
        break;
      case 1:
        if (cards_change_) RemoveNode(NodeName(dice_.Below(6)));
        break;
      case 2:
        SetQuota();
        break;
      case 3:
        Remove();
        break;
      case 4:
        Bind();
        break;
      case 5:
        Expire();
        break;
      case 6:
        FinishInit();
        break;
      default:
        Place();
    }
  }

  void SetCards(const std::string& name) {
    world_.nodes[name] = RandomCards(dice_, name);
    ledger_.SetCards(name, 0, world_.nodes[name]);
  }
  void RemoveNode(const std::string& name) {
    world_.nodes.erase(name);
    ledger_.RemoveNode(name);
  }
  // Limits only grow out of nothing: a limit below what is in use says nothing about decisions.
  void SetQuota() {
    const std::string name = dice_.One<const char*>({"q1", "q2"});
    if (world_.quotas.contains(name)) return;
    if (!cards_change_ && !world_.pods.empty()) return;
    const device::StringMap hard = {{"limits.nvidia.com/gpumem", std::to_string(500 * (1 + dice_.Below(8)))},
                                    {"limits.nvidia.com/gpucores", std::to_string(60 * (1 + dice_.Below(8)))}};
    world_.quotas[name] = hard;
    ledger_.quotas().Set("limited", name, hard);
  }
  std::string AnyPod() {
    if (world_.pods.empty()) return "";
    return std::next(world_.pods.begin(), dice_.Below(static_cast<int>(world_.pods.size())))->first;
  }
  void Remove() {
    const std::string uid = AnyPod();
    ledger_.RemovePod(uid);
    world_.pods.erase(uid);
  }
  void Bind() {
    const std::string uid = AnyPod();
    RC_ASSERT(ledger_.Confirm(uid) == !uid.empty());
    if (uid.empty()) return;
    World::Holder& holder = world_.pods[uid];
    holder.bound = true;
    Pod seen = holder.pod;
    seen.node_name = holder.node;
    ledger_.UpsertPod(seen);
  }
  void Expire() {
    const device::UnixSeconds until = now_ - 3;
    ledger_.ExpireBefore(until);
    std::erase_if(world_.pods,
                  [&](const auto& entry) { return !entry.second.bound && entry.second.deadline <= until; });
  }
  void FinishInit() {
    const std::string uid = AnyPod();
    if (uid.empty() || !world_.pods[uid].bound || world_.pods[uid].pod.init_containers.empty()) return;
    World::Holder& holder = world_.pods[uid];
    holder.pod.init_done = true;
    Pod seen = holder.pod;
    seen.node_name = holder.node;
    ledger_.UpsertPod(seen);
  }

  void Place() {
    // Now and then a pod that is charged and not bound comes back.
    std::string uid = dice_.Below(4) == 0 ? AnyPod() : "";
    if (!uid.empty() && world_.pods[uid].bound) uid.clear();
    Pod pod = uid.empty() ? RandomPod(dice_, serial_++) : world_.pods[uid].pod;
    ledger_.Forget(pod.uid);
    world_.pods.erase(pod.uid);

    std::vector<std::string> names;
    for (int i = 0; i < 6; ++i) {
      if (dice_.Below(4) != 0) names.push_back(NodeName(i));
    }
    const std::vector<std::string_view> views(names.begin(), names.end());
    const Decision decision = filter_.Decide(pod, views, {now_, true});
    CheckAgainstFresh(pod, views, decision);
    if (decision.outcome != Outcome::kNotOurs) coverage.Count(decision);
    if (decision.outcome != Outcome::kPlaced) return;
    World::Holder holder{testing::Written(pod, decision, false), decision.node, decision.allocation, now_ + 5, false};
    ledger_.Assume(pod, decision.node, decision.allocation, holder.deadline);
    ledger_.UpsertPod(pod);         // a view from before the decision changes nothing
    ledger_.UpsertPod(holder.pod);  // nor does its own echo
    world_.pods[pod.uid] = std::move(holder);
  }

  void CheckAgainstFresh(const Pod& pod, std::span<const std::string_view> names, const Decision& decision) {
    Ledger ledger(vendors_);
    Rebuild(world_, ledger);
    Filter fresh(ledger, vendors_, {});
    const Decision again = fresh.Decide(pod, names, {now_, true});
    RC_ASSERT(again.outcome == decision.outcome);
    RC_ASSERT(again.node == decision.node);
    RC_ASSERT(again.annotations == decision.annotations);
    RC_ASSERT(again.fits == decision.fits);
    RC_ASSERT(again.failures == decision.failures);
    const Decision brief = filter_.Decide(pod, names, {now_, false});
    RC_ASSERT(brief.node == decision.node);
    const std::optional<ReferenceAnswer> reference = AskReference(ledger_, pod, names);
    if (!reference) return;
    ++coverage.compared;
    RC_ASSERT(reference->node == decision.node);
    if (!reference->node.empty()) {
      RC_ASSERT(device::EncodeGrant(decision.allocation.grants.at(0).second) == reference->allocated);
    }
  }

  Dice dice_;
  bool cards_change_;
  device::Vendors vendors_;
  Ledger ledger_;
  Filter filter_;
  World world_;
  device::UnixSeconds now_ = 1000;
  int serial_ = 0;
};

// rapidcheck draws numbers up to its size; beyond its nominal 100 they degenerate.
Stream LongStream() {
  return *rc::gen::container<Stream>(800, rc::gen::resize(100, rc::gen::arbitrary<std::uint32_t>()));
}

TEST(SchedProperty, GivenAnyEvents_WhenRebuiltFromScratch_ThenTheBooksAreTheSame) {
  EXPECT_TRUE(rc::check([] {
    Driver(LongStream(), true).Run([](const World& world, const Ledger& ledger) {
      const device::Vendors vendors = testing::NvidiaOnly();
      Ledger fresh(vendors);
      Rebuild(world, fresh);
      RC_ASSERT(Describe(ledger) == Describe(fresh));
    });
  }));
  Driver::coverage.Expect(500);
}

void CheckCard(const Node& node, std::size_t i) {
  const device::Device& card = node.devices()[i];
  const device::CardState& used = node.used()[i];
  RC_ASSERT(used.memory >= 0 && used.slots >= 0 && used.cores >= 0);
  RC_ASSERT(used.memory <= card.memory);
  RC_ASSERT(used.slots <= card.count);
  RC_ASSERT(used.cores <= card.cores);
}

TEST(SchedProperty, GivenAnyEvents_ThenNothingIsGivenTwice) {
  Driver::coverage = {};
  EXPECT_TRUE(rc::check([] {
    Driver(LongStream(), false).Run([](const World&, const Ledger& ledger) {
      ledger.ForEachNode([](const Node& node) {
        for (std::size_t i = 0; i < node.devices().size(); ++i) CheckCard(node, i);
      });
      for (const auto& line : ledger.quotas().Lines()) RC_ASSERT(!line.limit || line.used <= *line.limit);
    });
  }));
  Driver::coverage.Expect(500);
}

// Instances of different pods never overlap (those of one pod's init and app containers may).
TEST(SchedProperty, GivenAnyEvents_ThenMigInstancesOfTwoPodsDoNotOverlap) {
  EXPECT_TRUE(rc::check([] {
    Driver(LongStream(), false).Run([](const World& world, const Ledger&) {
      for (auto a = world.pods.begin(); a != world.pods.end(); ++a) {
        for (auto b = std::next(a); b != world.pods.end(); ++b) {
          for (const auto& x : a->second.allocation.reservations) {
            for (const auto& y : b->second.allocation.reservations) {
              const bool gone = a->second.pod.init_done || b->second.pod.init_done;
              RC_ASSERT(gone || x.gpu_uuid != y.gpu_uuid || !device::Overlap(x.placement, y.placement));
            }
          }
        }
      }
    });
  }));
}

base::json::value RandomJson(Dice& dice, int depth) {
  switch (dice.Below(depth > 0 ? 6 : 4)) {
    case 0:
      return nullptr;
    case 1:
      return dice.Below(3);
    case 2:
      return dice.One<const char*>({"", "a", "b/~"});
    case 3:
      return dice.Below(2) == 0;
    case 4: {
      base::json::array array;
      for (int i = dice.Below(4); i > 0; --i) array.push_back(RandomJson(dice, depth - 1));
      return array;
    }
    default: {
      base::json::object object;
      for (int i = dice.Below(4); i > 0; --i) {
        object[dice.One<const char*>({"", "x", "a/b", "~1", "y"})] = RandomJson(dice, depth - 1);
      }
      return object;
    }
  }
}

TEST(SchedProperty, GivenAnyDocuments_WhenDiffIsApplied_ThenOneBecomesTheOther) {
  EXPECT_TRUE(rc::check([](Stream stream) {
    Dice dice(std::move(stream));
    const auto from = RandomJson(dice, 4);
    const auto to = RandomJson(dice, 4);
    auto changed = from;
    RC_ASSERT(kube::ApplyJsonPatch(changed, DiffJson(from, to)).has_value());
    RC_ASSERT(changed == to);
  }));
}

// One event costs the same in a large cluster as in a small one.
TEST(LedgerCost, GivenAnySize_WhenEventComes_ThenItTouchesEquallyManyNodes) {
  const device::Vendors vendors = testing::NvidiaOnly();
  std::vector<std::uint64_t> asked;
  for (const int nodes : {10, 1000}) {
    Ledger ledger(vendors);
    Filter filter(ledger, vendors, {});
    for (int i = 0; i < nodes; ++i) ledger.SetCards(NodeName(i), 0, testing::Cards(NodeName(i), 4));
    const auto place = [&](const std::string& uid) {
      const Pod pod = testing::PodOf(uid, testing::Wants(1, 1000));
      const Decision decision = filter.DecideAny(pod, {1});
      ledger.Assume(pod, decision.node, decision.allocation, 100);
    };
    place("first");
    const LedgerCounters before = ledger.counters();
    const std::uint64_t asked_before = filter.counters().nodes_asked;
    place("second");
    ledger.Forget("first");
    place("third");
    EXPECT_EQ(ledger.counters().nodes_touched - before.nodes_touched, 3U);
    EXPECT_EQ(ledger.counters().pods_charged - before.pods_charged, 3U);
    asked.push_back(filter.counters().nodes_asked - asked_before);
  }
  EXPECT_EQ(asked[0], asked[1]);
  EXPECT_LE(asked[0], 3U);
}

}  // namespace
}  // namespace hami::sched
