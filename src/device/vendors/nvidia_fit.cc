// SPDX-License-Identifier: Apache-2.0
//
// Which cards of a node a container gets. Cards are tried in the order that the policy made; each is refused with the
// first reason that applies or collected.

#include <algorithm>

#include "device/vendors/mig_placement.h"
#include "device/vendors/nvidia.h"
#include "device/vendors/topology.h"

namespace hami::device {
namespace {

constexpr int kWholeCard = 100;

class Walk {
 public:
  explicit Walk(const FitInput& input) : in_(input), wanted_(static_cast<std::size_t>(input.request.count)) {}

  FitResult Run() {
    for (const int card : in_.walk) {
      // One card of MIG instances may serve the container several times.
      while (TryCard(card) && Card(card).IsMig() && !Complete()) {
      }
      if (Complete()) break;
    }
    return Finish();
  }

 private:
  const Device& Card(int card) const { return *in_.cards[static_cast<std::size_t>(card)].device; }

  // Topology collects every card that fits and chooses among them at the end.
  bool Complete() const { return !in_.topology && result_.picks.size() == wanted_; }

  // True when the card was collected.
  bool TryCard(int index) {
    const CardView& view = in_.cards[static_cast<std::size_t>(index)];
    const Device& card = *view.device;
    if (!view.usable) return Refuse(Reason::kCardNotHealth);
    if (card.cordoned) return Refuse(Reason::kCardCordoned);
    if (!in_.rules.AcceptsType(view.lower_type) || !AcceptsMode(card)) return Refuse(Reason::kCardTypeMismatch);
    if (in_.rules.numa_bind) EnterNuma(card.numa);
    if (!in_.rules.AcceptsUuid(card.uuid)) return Refuse(Reason::kCardUuidMismatch);
    return TryAmounts(index, view);
  }

  // A card without a mode is in every list of modes, as the empty text is part of every text.
  bool AcceptsMode(const Device& card) const {
    return in_.rules.mode.empty() || in_.rules.mode.find(card.mode) != std::string::npos;
  }

  // Cards come grouped by NUMA node; leaving one throws away what it gave, unless topology already has enough there.
  void EnterNuma(int numa) {
    if (in_numa_ && numa == numa_) return;
    if (!in_.topology) {
      result_.reasons.Add(Reason::kNumaNotFit, static_cast<int>(result_.picks.size()));
    } else if (result_.picks.size() >= wanted_) {
      held_ = result_.picks;
    }
    result_.picks.clear();
    in_numa_ = true;
    numa_ = numa;
  }

  bool TryAmounts(int index, const CardView& view) {
    const Device& card = *view.device;
    CardState used = view.state;
    for (const Pick& pick : result_.picks) {
      if (pick.card != index) continue;
      used.memory += pick.memory;
      used.cores += pick.cores;
      ++used.slots;
    }
    if (used.slots >= card.count) return Refuse(Reason::kCardTimeSlicingExhausted);
    if (in_.mutex && view.state.slots > 0) return Refuse(Reason::kExclusiveDeviceAllocateConflict);

    Pick pick;
    pick.card = index;
    pick.memory = Memory(card);
    pick.cores = std::min(in_.request.cores, kWholeCard);
    if (!QuotaAdmits(pick)) return Refuse(Reason::kResourceQuotaNotFit);
    if (card.memory - used.memory < pick.memory) return Refuse(Reason::kCardInsufficientMemory);
    if (card.cores - used.cores < pick.cores) return Refuse(Reason::kCardInsufficientCore);
    if (card.cores == kWholeCard && pick.cores == kWholeCard && view.state.slots > 0) {
      return Refuse(Reason::kExclusiveDeviceAllocateConflict);
    }
    if (card.cores != 0 && used.cores == card.cores && pick.cores == 0) {
      return Refuse(Reason::kCardComputeUnitsExhausted);
    }
    if (card.IsMig() && !PlaceMig(card, pick)) return false;
    result_.picks.push_back(pick);
    return true;
  }

  MiB Memory(const Device& card) const {
    if (in_.request.memory > 0) return in_.request.memory;
    if (in_.request.memory_percent == kPercentUnset) return 0;
    return card.memory * in_.request.memory_percent / 100;
  }

  bool QuotaAdmits(const Pick& pick) const {
    if (in_.quota == nullptr) return true;
    if (!in_.topology) return in_.quota->Admits({result_.picks.data(), result_.picks.size()}, pick);
    // Of what topology collects only some is kept; the largest could be.
    Picks largest = result_.picks;
    std::stable_sort(largest.begin(), largest.end(), [](const Pick& a, const Pick& b) { return a.memory > b.memory; });
    return in_.quota->Admits({largest.data(), std::min(largest.size(), wanted_ - 1)}, pick);
  }

  bool PlaceMig(const Device& card, Pick& pick) {
    std::vector<MigPlacement> taken;
    for (const MigInstance& instance : in_.instances) {
      if (instance.card == pick.card) taken.push_back(instance.placement);
    }
    for (const Pick& other : result_.picks) {
      if (other.card == pick.card) taken.push_back(other.placement);
    }
    const auto choice = ChooseMig(card.mig_profiles, pick.memory, taken);
    if (!choice) return Refuse(Reason::kCardMigTopologyInfeasible);
    const MigProfile& profile = card.mig_profiles[static_cast<std::size_t>(choice->profile)];
    pick.profile = choice->profile;
    pick.placement = choice->placement;
    pick.memory = profile.memory;
    pick.cores = profile.cores;
    // The instance is larger than what was asked for, and the quota counts the instance.
    return QuotaAdmits(pick) || Refuse(Reason::kResourceQuotaNotFit);
  }

  bool Refuse(Reason reason) {
    result_.reasons.Add(reason);
    return false;
  }

  FitResult Finish() {
    if (result_.picks.size() < wanted_ && !held_.empty()) result_.picks = held_;
    result_.fits = result_.picks.size() >= wanted_;
    if (!result_.fits) {
      if (!result_.picks.empty()) {
        result_.reasons.Add(Reason::kAllocatedCardsInsufficientRequest, static_cast<int>(result_.picks.size()));
      }
    } else if (result_.picks.size() > wanted_) {
      KeepClosest();
    }
    return std::move(result_);
  }

  void KeepClosest() {
    const std::size_t n = in_.cards.size();
    const auto pair = [&](int a, int b) -> std::int64_t {
      if (in_.pair_scores.empty()) return 0;
      const auto row = static_cast<std::size_t>(result_.picks[static_cast<std::size_t>(a)].card);
      const auto column = static_cast<std::size_t>(result_.picks[static_cast<std::size_t>(b)].card);
      return in_.pair_scores[row * n + column];
    };
    Picks kept;
    for (const int position : ChooseClosest(static_cast<int>(result_.picks.size()), static_cast<int>(wanted_), pair)) {
      kept.push_back(result_.picks[static_cast<std::size_t>(position)]);
    }
    result_.picks = std::move(kept);
  }

  const FitInput& in_;
  std::size_t wanted_;
  FitResult result_;
  Picks held_;  // the last NUMA node that had enough for topology to choose from
  bool in_numa_ = false;
  int numa_ = 0;
};

}  // namespace

FitResult NvidiaVendor::Fit(const FitInput& input) const { return Walk(input).Run(); }

bool NvidiaVendor::MaySharePhysicalCards(const FitInput& input) const {
  if (!input.rules.mode.empty() && input.rules.mode.find(kModeMig) == std::string::npos) return false;
  return std::any_of(input.walk.begin(), input.walk.end(),
                     [&](int card) { return input.cards[static_cast<std::size_t>(card)].device->IsMig(); });
}

}  // namespace hami::device
