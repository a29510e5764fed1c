// SPDX-License-Identifier: Apache-2.0

#include "sched/evaluate.h"

#include <boost/container/small_vector.hpp>
#include <cmath>
#include <optional>

namespace hami::sched {
namespace {

using boost::container::small_vector;
using device::CardView;
using device::MigInstance;

// Costs of cards that differ by less than a thousandth of a card are the same: rounding must not choose.
constexpr double kCostSteps = 1000;

// Holds everything that the pod was given so far, and asks whether one more share stays inside the quota.
class Gate final : public device::QuotaGate {
 public:
  Gate(const Plan& plan, const Placement& placed, const QuotaRoom& room, int container, int vendor,
       std::span<const CardView> cards, const device::Vendors& vendors)
      : plan_(plan),
        room_(room),
        container_(container),
        cards_(cards),
        vendor_(*vendors[static_cast<std::size_t>(vendor)]) {
    for (const Placed& one : placed) {
      if (one.vendor != vendor) continue;
      for (const device::Pick& pick : one.picks) Add(one.container, pick, before_);
    }
  }

  bool Admits(std::span<const device::Pick> chosen, const device::Pick& next) const override {
    std::vector<Entry> entries = before_;
    for (const device::Pick& pick : chosen) Add(container_, pick, entries);
    Add(container_, next, entries);
    std::int64_t memory = 0;
    std::int64_t cores = 0;
    for (const CardCharge& charge : Collapse(entries, false)) {
      memory += charge.memory;
      cores += charge.cores;
    }
    return room_.Admits(memory, cores);
  }

 private:
  void Add(int container, const device::Pick& pick, std::vector<Entry>& entries) const {
    const Role role = plan_.containers[static_cast<std::size_t>(container)].role;
    const device::Device& card = *cards_[static_cast<std::size_t>(pick.card)].device;
    entries.push_back({pick.card, container, role, pick.memory, vendor_.CorePercent(card, pick.cores)});
  }

  const Plan& plan_;
  const QuotaRoom& room_;
  int container_;
  std::span<const CardView> cards_;
  const device::Vendor& vendor_;
  std::vector<Entry> before_;
};

class Evaluation {
 public:
  Evaluation(const Node& node, const Plan& plan, const device::Vendors& vendors, std::span<const QuotaRoom> room,
             const FragmentView* fragments)
      : node_(node), plan_(plan), vendors_(vendors), room_(room), fragments_(fragments) {
    const std::size_t n = node.devices().size();
    views_.reserve(n);
    for (std::size_t i = 0; i < n; ++i) {
      views_.push_back({&node.devices()[i], node.lower_type(i), node.used()[i], node.usable(i)});
    }
    instances_.assign(node.instances().begin(), node.instances().end());
    if (fragments_ != nullptr) host_ = fragments_->hosts->Room(node.name());
  }

  Verdict Run(Placement* placement) {
    if (!node_.readable()) return Fail(device::kNodeUsageUnavailable);
    if (!node_.registered()) return Fail(device::kNodeUnregistered);
    const double before = ByCost() ? MeasureBefore() : 0;
    if (!PlaceAll(Role::kSidecar, false)) return Fail(reason_);
    if (!PlaceAll(Role::kInit, true)) return Fail(reason_);
    if (!PlaceAll(Role::kApp, false)) return Fail(reason_);
    Verdict verdict{true, ByCost() ? CostScore(before) : node_.base_score() + Bonus(), {}};
    if (placement != nullptr) *placement = std::move(placed_);
    return verdict;
  }

 private:
  bool ByCost() const { return plan_.fragment_nodes && fragments_ != nullptr; }
  // What the node is before the pod; from then on its CPU and memory count as given.
  double MeasureBefore() {
    measure_.emplace(node_, std::span<const CardView>(views_.data(), views_.size()), vendors_, host_,
                     *fragments_->workload);
    const double before = measure_->Total();
    host_ = After(host_, plan_.host);
    measure_->SetHost(host_);
    return before;
  }
  // The views are as they were before.
  void Remeasure() {
    if (measure_) {
      measure_.emplace(node_, std::span<const CardView>(views_.data(), views_.size()), vendors_, host_,
                       *fragments_->workload);
    }
  }
  const Fragments& Measure() {
    if (!measure_) MeasureBefore();
    return *measure_;
  }
  float CostScore(double before) const {
    return PlacementScore(measure_->Total() - before, measure_->free_share(), host_, *fragments_);
  }

  static Verdict Fail(std::string reason) { return {false, 0, std::move(reason)}; }

  // ALONE: each container sees the cards as they were before any of them.
  bool PlaceAll(Role role, bool alone) {
    for (std::size_t i = 0; i < plan_.containers.size(); ++i) {
      const ContainerPlan& container = plan_.containers[i];
      if (container.role != role || container.asks.empty()) continue;
      if (!alone) {
        if (!PlaceContainer(static_cast<int>(i))) return false;
        continue;
      }
      const auto views = views_;
      const auto instances = instances_;
      if (!PlaceContainer(static_cast<int>(i))) return false;
      views_ = views;
      instances_ = instances;
      Remeasure();
    }
    return true;
  }

  bool PlaceContainer(int index) {
    const ContainerPlan& container = plan_.containers[static_cast<std::size_t>(index)];
    // Scores are those before any vendor of this container was placed.
    small_vector<float, 16> scores;
    for (const CardView& view : views_) {
      scores.push_back(CardScore(*view.device, view.state, container, vendors_, plan_.weights));
    }
    for (const Ask& ask : container.asks) {
      if (!PlaceAsk(index, ask, {scores.data(), scores.size()})) return false;
    }
    return true;
  }

  bool PlaceAsk(int container, const Ask& ask, std::span<const float> scores) {
    const auto vendor_index = static_cast<std::size_t>(ask.vendor);
    const device::Vendor& vendor = *vendors_[vendor_index];
    const DevicePolicy& policy = plan_.policies[vendor_index];
    const bool by_cost = policy.fragmentation && fragments_ != nullptr;
    const small_vector<int, 16> walk = by_cost ? WalkByCost(ask, policy) : Walk(ask.vendor, policy, scores);

    static const QuotaRoom kNoQuota;
    const QuotaRoom& room = room_.empty() ? kNoQuota : room_[vendor_index];
    const Gate gate(plan_, placed_, room, container, ask.vendor, {views_.data(), views_.size()}, vendors_);
    std::vector<device::Picks> earlier;
    for (const Placed& one : placed_) {
      if (one.vendor == ask.vendor) earlier.push_back(one.picks);
    }
    const device::FitInput input{.cards = {views_.data(), views_.size()},
                                 .walk = {walk.data(), walk.size()},
                                 .instances = {instances_.data(), instances_.size()},
                                 .pair_scores = node_.pair_scores(),
                                 .earlier = earlier,
                                 .request = ask.request,
                                 .rules = plan_.rules[vendor_index],
                                 .mutex = policy.mutex,
                                 .topology = policy.topology,
                                 .quota = room.limited() ? &gate : nullptr};
    if (static_cast<std::size_t>(ask.request.count) > walk.size() && !vendor.MaySharePhysicalCards(input)) {
      reason_ = device::kNodeInsufficientDevice;
      return false;
    }
    device::FitResult result = vendor.Fit(input);
    if (!result.fits) {
      reason_ = result.reasons.Text(result.judged > 0 ? static_cast<std::size_t>(result.judged) : walk.size());
      return false;
    }
    for (const device::Pick& pick : result.picks) Use(pick, plan_.marks[vendor_index]);
    placed_.push_back({container, ask.vendor, std::move(result.picks)});
    return true;
  }

  small_vector<int, 16> Walk(int vendor, const DevicePolicy& policy, std::span<const float> scores) const {
    small_vector<CardRank, 16> ranks;
    for (std::size_t i = 0; i < views_.size(); ++i) {
      if (!node_.belongs(i, vendor)) continue;
      const device::Device& device = *views_[i].device;
      ranks.push_back({static_cast<int>(i), scores[i], device.numa, views_[i].state.slots, device.index});
    }
    return Ordered(ranks, policy);
  }

  // Whether card I is the same as the one before it, with as much in use.
  bool LikeBefore(std::size_t i) const {
    if (i == 0 || views_[i].state != views_[i - 1].state || views_[i].usable != views_[i - 1].usable) return false;
    const device::Device& a = *views_[i - 1].device;
    const device::Device& b = *views_[i].device;
    return a.type == b.type && a.mode == b.mode && a.memory == b.memory && a.cores == b.cores && a.count == b.count &&
           a.cordoned == b.cordoned;
  }

  // Cards whose use costs least first; of several cards each is judged as if it were the only one.
  small_vector<int, 16> WalkByCost(const Ask& ask, const DevicePolicy& policy) {
    const Fragments& measure = Measure();
    const device::Vendor& vendor = *vendors_[static_cast<std::size_t>(ask.vendor)];
    const device::CardRules& rules = plan_.rules[static_cast<std::size_t>(ask.vendor)];
    const FragmentTuning& tuning = fragments_->workload->tuning;
    small_vector<CardRank, 16> ranks;
    double before = 0;
    for (std::size_t i = 0; i < views_.size(); ++i) {
      if (!node_.belongs(i, ask.vendor)) continue;
      const device::Device& device = *views_[i].device;
      if (!LikeBefore(i)) {
        const device::Want want = vendor.WantOf(device, ask.request, rules).value_or(device::Want{});
        before = measure.With(i, want.memory, want.cores);
      }
      const double cost = before;
      ranks.push_back({static_cast<int>(i), -std::round(tuning.growth * cost * kCostSteps), device.numa,
                       views_[i].state.slots, device.index, measure.free_share(i)});
    }
    return Ordered(ranks, policy);
  }

  static small_vector<int, 16> Ordered(small_vector<CardRank, 16>& ranks, const DevicePolicy& policy) {
    OrderCards({ranks.data(), ranks.size()}, policy);
    small_vector<int, 16> walk;
    for (const CardRank& rank : ranks) walk.push_back(rank.card);
    return walk;
  }

  void Use(const device::Pick& pick, device::Marks marks) {
    if (measure_) {
      const auto card = static_cast<std::size_t>(pick.card);
      const device::Vendor& vendor = *vendors_[static_cast<std::size_t>(node_.vendor_of(card))];
      measure_->Take(card, pick.memory, vendor.CoreParts(pick.cores));
    }
    device::CardState& state = views_[static_cast<std::size_t>(pick.card)].state;
    state.memory += pick.memory;
    state.cores += pick.cores;
    ++state.slots;
    AddMarks(state, marks, 1);
    if (pick.profile >= 0) instances_.push_back({pick.card, pick.placement});
  }

  float Bonus() const {
    float bonus = 0;
    for (std::size_t v = 0; v < vendors_.size(); ++v) {
      if (!vendors_[v]->has_bonus()) continue;
      std::vector<device::Picks> picks;
      for (const Placed& one : placed_) {
        if (one.vendor == static_cast<int>(v)) picks.push_back(one.picks);
      }
      if (picks.empty()) continue;
      small_vector<CardView, 16> before = views_;
      for (std::size_t i = 0; i < before.size(); ++i) before[i].state = node_.used()[i];
      bonus += vendors_[v]->Bonus({{before.data(), before.size()}, picks, plan_.rules[v], plan_.spread_nodes});
    }
    return bonus;
  }

  const Node& node_;
  const Plan& plan_;
  const device::Vendors& vendors_;
  std::span<const QuotaRoom> room_;
  const FragmentView* fragments_;
  HostRoom host_;  // until it is measured, before the pod
  std::optional<Fragments> measure_;
  small_vector<CardView, 16> views_;
  small_vector<MigInstance, 8> instances_;
  Placement placed_;
  std::string reason_;
};

}  // namespace

float CardScore(const device::Device& device, const device::CardState& used, const ContainerPlan& container,
                const device::Vendors& vendors, const device::ScoringWeights& weights) {
  if (device.count == 0 || device.cores == 0 || device.memory == 0) return 0;
  std::int64_t slots = used.slots;
  std::int64_t cores = used.cores;
  device::MiB memory = used.memory;
  for (const Ask& ask : container.asks) {
    // Cards register under their model, so for most vendors this never holds; kept, because placement depends on it.
    if (vendors[static_cast<std::size_t>(ask.vendor)]->key() != device.type) continue;
    const device::Request& request = ask.request;
    const bool by_percent = request.memory_percent != 0 && request.memory_percent != device::kPercentUnset;
    slots += 1;
    cores += request.cores;
    memory += by_percent ? device.memory * request.memory_percent / 100 : request.memory;
  }
  const auto part = [](int weight, std::int64_t amount, std::int64_t all) {
    return static_cast<float>(weight) * (static_cast<float>(amount) / static_cast<float>(all));
  };
  return 10.0F * (part(weights.slot, slots, device.count) + part(weights.core, cores, device.cores) +
                  part(weights.memory, memory, device.memory));
}

Verdict Evaluate(const Node& node, const Plan& plan, const device::Vendors& vendors, std::span<const QuotaRoom> room,
                 const FragmentView* fragments, Placement* placement) {
  return Evaluation(node, plan, vendors, room, plan.Fragments() ? fragments : nullptr).Run(placement);
}

}  // namespace hami::sched
