// SPDX-License-Identifier: Apache-2.0

#include "sched/victims.h"

#include <algorithm>
#include <tuple>

#include "sched/grant.h"

namespace hami::sched {
namespace {

constexpr int kMostTrials = 64;  // of sets smaller than the one that was found first; a microsecond or two each

using Pods = std::vector<const PodRecord*>;

device::MiB Memory(const PodRecord& pod) {
  device::MiB memory = 0;
  for (const PodCharge& card : pod.charge.cards) memory += card.memory;
  return memory;
}

// The node with some of its pods taken off.
class Trial {
 public:
  Trial(const Node& node, const device::Vendors& vendors, const Preemptor& preemptor)
      : node_(node), vendors_(vendors), preemptor_(preemptor) {}

  void Remove(const PodRecord& pod) { node_.Revert(pod.charge); }
  void Restore(const PodRecord& pod) { node_.Apply(pod.charge); }
  bool Fits(Placement* placement = nullptr) const {
    return Evaluate(node_, preemptor_.plan, vendors_, preemptor_.room, preemptor_.fragments, placement).fits;
  }
  // Whether it fits when WANTED more of PODS go, from number FROM on; CHOSEN are those. At most LEFT are tried.
  bool Search(const Pods& pods, std::size_t from, std::size_t wanted, Pods& chosen, int& left) {
    if (wanted == 0) return left-- > 0 && Fits();
    for (std::size_t i = from; i + wanted <= pods.size() && left > 0; ++i) {
      Remove(*pods[i]);
      chosen.push_back(pods[i]);
      if (Search(pods, i + 1, wanted - 1, chosen, left)) return true;
      chosen.pop_back();
      Restore(*pods[i]);
    }
    return false;
  }
  const Node& node() const { return node_; }

 private:
  Node node_;
  const device::Vendors& vendors_;
  const Preemptor& preemptor_;
};

// Lowest priority first, and of one priority those that free the most.
Pods Candidates(const Ledger& ledger, const Node& node, std::int32_t priority, std::span<const PodRecord* const> gone,
                const Spared& spared) {
  Pods pods;
  for (const PodId id : node.pods) {
    const PodRecord& pod = ledger.pod(id);
    const bool may_go = pod.bound && !pod.unreadable && pod.priority < priority && !pod.charge.cards.empty();
    if (may_go && std::find(gone.begin(), gone.end(), &pod) == gone.end() && !spared(pod.uid)) pods.push_back(&pod);
  }
  std::sort(pods.begin(), pods.end(), [](const PodRecord* a, const PodRecord* b) {
    const device::MiB x = Memory(*a);
    const device::MiB y = Memory(*b);
    return std::tie(a->priority, y, a->uid) < std::tie(b->priority, x, b->uid);
  });
  return pods;
}

}  // namespace

std::optional<Victims> FewestVictims(const Ledger& ledger, NodeId id, const device::Vendors& vendors,
                                     const Preemptor& preemptor, std::span<const PodRecord* const> gone,
                                     const Spared& spared) {
  const Node& node = ledger.node(id);
  Trial trial(node, vendors, preemptor);
  for (const PodRecord* pod : gone) trial.Remove(*pod);
  Pods pods = Candidates(ledger, node, preemptor.priority, gone, spared);
  Pods victims;
  bool fits = trial.Fits();
  // One priority after the other, so that none goes while lower ones would do.
  for (std::size_t i = 0; !fits && i < pods.size(); ++i) {
    trial.Remove(*pods[i]);
    victims.push_back(pods[i]);
    const bool level = i + 1 == pods.size() || pods[i + 1]->priority != pods[i]->priority;
    fits = level && trial.Fits();
  }
  if (!fits) return std::nullopt;
  pods = victims;
  // Those that free little first, and the highest priorities before others.
  for (auto pod = victims.rbegin(); pod != victims.rend(); ++pod) {
    trial.Restore(**pod);
    if (trial.Fits()) {
      *pod = nullptr;
    } else {
      trial.Remove(**pod);
    }
  }
  std::erase(victims, nullptr);
  for (const PodRecord* pod : victims) trial.Restore(*pod);
  int left = kMostTrials;
  for (std::size_t fewer = 1; fewer < victims.size() && left > 0; ++fewer) {
    Pods chosen;
    if (!trial.Search(pods, 0, fewer, chosen, left)) continue;
    victims = chosen;
    for (const PodRecord* pod : victims) trial.Restore(*pod);
    break;
  }
  for (const PodRecord* pod : victims) trial.Remove(*pod);
  Placement placement;
  if (!trial.Fits(&placement)) return std::nullopt;
  return Victims{node.name(), victims, MakeAllocation(trial.node(), preemptor.plan, vendors, placement)};
}

bool CostsLess(const Victims& a, const Victims& b) {
  const auto cost = [](const Victims& one) {
    std::int64_t highest = INT64_MIN;
    std::int64_t sum = 0;
    for (const PodRecord* pod : one.pods) {
      highest = std::max<std::int64_t>(highest, pod->priority);
      sum += pod->priority;
    }
    return std::tuple(highest, one.pods.size(), sum);
  };
  const auto x = cost(a);
  const auto y = cost(b);
  return x == y ? a.node < b.node : x < y;
}

}  // namespace hami::sched
