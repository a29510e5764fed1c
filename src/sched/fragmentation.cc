// SPDX-License-Identifier: Apache-2.0

#include "sched/fragmentation.h"

#include <algorithm>
#include <limits>
#include <optional>

namespace hami::sched {
namespace {

constexpr int kWholeCard = 100;

double PartOf(std::int64_t amount, std::int64_t all) {
  if (all <= 0) return 1;  // a card that does not have it is not short of it
  return std::clamp(static_cast<double>(amount) / static_cast<double>(all), 0.0, 1.0);
}

}  // namespace

double PartOfCard(const device::Vendor& vendor, const device::Device& card, const device::Request& request,
                  const device::CardRules& rules) {
  if (const int shares = vendor.SharesOf(card); shares > 0) return PartOf(1, shares);
  const std::optional<device::Want> want = vendor.WantOf(card, request, rules);
  if (!want) return 0;
  const std::int64_t cores = vendor.AllCoreParts(card);
  return std::max(card.memory > 0 ? PartOf(want->memory, card.memory) : 0, cores > 0 ? PartOf(want->cores, cores) : 0);
}

Fragments::Fragments(const Node& node, std::span<const device::CardView> cards, const device::Vendors& vendors,
                     const HostRoom& host, const Workload& workload)
    : node_(node), cards_(cards), vendors_(vendors), workload_(workload) {
  for (std::size_t i = 0; i < cards_.size(); ++i) {
    const device::Vendor& vendor = *vendors_[static_cast<std::size_t>(node_.vendor_of(i))];
    units_.push_back({vendor.AllCoreParts(*cards_[i].device), vendor.SharesOf(*cards_[i].device)});
    states_.push_back(cards_[i].state);
    states_.back().cores = vendor.CoreParts(states_.back().cores);
    free_.push_back(FreeShare(i, states_.back()));
    all_free_ += free_.back();
  }
  for (const RequestClass& one : workload_.classes) {
    Uses uses;
    if (one.same_cards && !uses_.empty()) {
      uses.cards = uses_.back().cards;
    } else {
      for (std::size_t i = 0; i < cards_.size(); ++i) {
        if (free_[i] <= 0 || !CanUse(one, i, states_[i])) continue;
        ++uses.cards.cards;
        uses.cards.share += free_[i];
      }
    }
    uses_.push_back(uses);
  }
  SetHost(host);
}

void Fragments::SetHost(const HostRoom& host) {
  for (std::size_t c = 0; c < uses_.size(); ++c) {
    const RequestClass& one = workload_.classes[c];
    uses_[c].host_fits = !host.known || (one.host.cpu <= host.free.cpu && one.host.memory <= host.free.memory);
    uses_[c].most = MostByHost(one, host);
  }
}

double Fragments::FreeShare(std::size_t card, const device::CardState& state) const {
  const device::Device& device = *cards_[card].device;
  const bool closed = !cards_[card].usable || device.cordoned || device.IsMig() || state.slots >= device.count;
  if (closed) return 0;
  if (const int shares = units_[card].shares; shares > 0) return PartOf(shares - state.slots, shares);
  return std::min(PartOf(device.memory - state.memory, device.memory),
                  PartOf(units_[card].cores - state.cores, units_[card].cores));
}

device::CardState Fragments::Plus(device::CardState state, device::MiB memory, std::int64_t cores) {
  state.memory += memory;
  state.cores += cores;
  ++state.slots;
  return state;
}

void Fragments::Take(std::size_t card, device::MiB memory, std::int64_t cores) {
  const device::CardState after = Plus(states_[card], memory, cores);
  const double free_after = FreeShare(card, after);
  for (std::size_t c = 0; c < uses_.size(); ++c) {
    const RequestClass& one = workload_.classes[c];
    uses_[c].cards =
        one.same_cards && c > 0 ? uses_[c - 1].cards : Changed(one, uses_[c].cards, card, after, free_after);
  }
  all_free_ += free_after - free_[card];
  states_[card] = after;
  free_[card] = free_after;
}

double Fragments::MostByHost(const RequestClass& one, const HostRoom& host) const {
  double pods = std::numeric_limits<double>::infinity();
  if (!host.known || !workload_.tuning.by_host) return pods;
  const auto limit = [&](std::int64_t free, std::int64_t each) {
    if (each > 0)
      pods = std::min(pods, static_cast<double>(std::max<std::int64_t>(free, 0)) / static_cast<double>(each));
  };
  limit(host.free.cpu, one.host.cpu);
  limit(host.free.memory, one.host.memory);
  for (std::size_t i = 0; i < cards_.size(); ++i) {
    if (!node_.belongs(i, one.ask.vendor)) continue;
    const device::Vendor& vendor = *vendors_[static_cast<std::size_t>(one.ask.vendor)];
    return pods * one.ask.request.count * PartOfCard(vendor, *cards_[i].device, one.ask.request, one.rules);
  }
  return 0;
}

// As the vendors' own rules, but for quotas, NUMA nodes and lists of UUIDs, which are no property of a workload.
bool Fragments::CanUse(const RequestClass& one, std::size_t card, const device::CardState& state) const {
  if (!node_.belongs(card, one.ask.vendor)) return false;
  const device::CardView& view = cards_[card];
  const device::Device& device = *view.device;
  if (units_[card].shares == 0) {
    const device::Vendor& vendor = *vendors_[static_cast<std::size_t>(one.ask.vendor)];
    const std::optional<device::Want> want = vendor.WantOf(device, one.ask.request, one.rules);
    if (!want || device.memory - state.memory < want->memory) return false;
    const std::int64_t all = units_[card].cores;
    const int cores = std::min(want->cores, static_cast<int>(std::max<std::int64_t>(all, 0)));
    if (want->cores > 0 && (all - state.cores < cores || all <= 0)) return false;
    if (cores == kWholeCard && all == kWholeCard && state.slots > 0) return false;
    if (cores == 0 && all != 0 && state.cores == all) return false;
  }
  const bool any_type = one.rules.use_types.empty() && one.rules.avoid_types.empty();
  return (any_type || one.rules.AcceptsType(view.lower_type)) &&
         (one.rules.mode.empty() || one.rules.mode.find(device.mode) != std::string::npos);
}

double Fragments::Part(const RequestClass& one, const Uses& uses, const Cards& cards, double all_free) {
  const bool fits = uses.host_fits && cards.cards >= one.ask.request.count;
  return one.weight * (fits ? all_free - std::min(cards.share, uses.most) : all_free);
}

Fragments::Cards Fragments::Changed(const RequestClass& one, Cards cards, std::size_t card,
                                    const device::CardState& after, double free_after) const {
  if (free_[card] > 0 && CanUse(one, card, states_[card])) {
    --cards.cards;
    cards.share -= free_[card];
  }
  if (free_after > 0 && CanUse(one, card, after)) {
    ++cards.cards;
    cards.share += free_after;
  }
  return cards;
}

double Fragments::Total() const {
  double total = 0;
  for (std::size_t c = 0; c < uses_.size(); ++c)
    total += Part(workload_.classes[c], uses_[c], uses_[c].cards, all_free_);
  return total;
}

double Fragments::With(std::size_t card, device::MiB memory, std::int64_t cores) const {
  const device::CardState after = Plus(states_[card], memory, cores);
  const double free_after = FreeShare(card, after);
  const double all_after = all_free_ - free_[card] + free_after;
  double total = 0;
  Cards cards;
  for (std::size_t c = 0; c < uses_.size(); ++c) {
    const RequestClass& one = workload_.classes[c];
    if (!one.same_cards || c == 0) cards = Changed(one, uses_[c].cards, card, after, free_after);
    total += Part(one, uses_[c], cards, all_after);
  }
  return total;
}

NodeFragments FragmentsOf(const Node& node, const device::Vendors& vendors, const HostRoom& host,
                          const Workload& workload) {
  boost::container::small_vector<device::CardView, 16> views;
  for (std::size_t i = 0; i < node.devices().size(); ++i) {
    views.push_back({&node.devices()[i], node.lower_type(i), node.used()[i], node.usable(i)});
  }
  const Fragments fragments(node, {views.data(), views.size()}, vendors, host, workload);
  return {fragments.free_share(), fragments.Total()};
}

float PlacementScore(double growth, double free_share_after, const HostRoom& host_after, const FragmentView& view) {
  double left = free_share_after / static_cast<double>(std::max<std::size_t>(view.most_cards, 1));
  if (host_after.known) left += PartOf(host_after.free.cpu, std::max<std::int64_t>(view.hosts->largest().cpu, 1));
  const FragmentTuning tuning = view.workload == nullptr ? FragmentTuning() : view.workload->tuning;
  return static_cast<float>(-tuning.growth * growth - tuning.fullness * left);
}

HostRoom After(HostRoom host, const HostAmounts& amounts) {
  host.free.cpu -= amounts.cpu;
  host.free.memory -= amounts.memory;
  return host;
}

}  // namespace hami::sched
