// SPDX-License-Identifier: Apache-2.0
//
// Kunlun: whole cards, and vXPUs of a quarter, a half or all of one. Cards of a container lie together: a node's cards,
// by index, are two wings of four, and a card is linked to its wing and to its twin in the other.

#include <algorithm>
#include <array>
#include <initializer_list>

#include "base/strings.h"
#include "device/amount.h"
#include "device/annotations.h"
#include "device/json_edit.h"
#include "device/vendors/plain.h"
#include "device/vendors/sections.h"

namespace hami::device {
namespace {

constexpr MiB kCardMemory = 98304;
constexpr std::array<MiB, 3> kSlices = {kCardMemory / 4, kCardMemory / 2, kCardMemory};
constexpr int kWing = 4;

// Positions of cards that may be taken, in order.
using Places = std::vector<int>;

bool Has(const Places& places, int place) { return std::find(places.begin(), places.end(), place) != places.end(); }

bool HasAll(const Places& places, const std::array<int, 4>& wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&](int place) { return Has(places, place); });
}

bool Linked(int a, int b) { return a / kWing == b / kWing || a % kWing == b % kWing; }

// From the wing that WANTED leaves whole, or the least torn.
Places FromOneWing(const Places& free, int wanted) {
  std::array<Places, 2> wings;
  for (const int place : free) wings[place < kWing ? 0 : 1].push_back(place);
  std::vector<int> sizes = {1, 3, 2, 4};
  if (wanted % 2 == 0) sizes = {2, 3, 4};
  for (const int size : sizes) {
    if (size < wanted) continue;
    for (const Places& wing : wings) {
      if (wing.size() == static_cast<std::size_t>(size)) return {wing.begin(), wing.begin() + wanted};
    }
  }
  return {};
}

Places QuadOf(const Places& free) {
  constexpr std::array<std::array<int, 4>, 6> kQuads = {
      {{0, 1, 4, 5}, {2, 3, 6, 7}, {0, 2, 4, 6}, {1, 3, 5, 7}, {0, 3, 4, 7}, {1, 2, 5, 6}}};
  Places last;
  for (const auto& quad : kQuads) {
    if (!HasAll(free, quad)) continue;
    last.assign(quad.begin(), quad.end());
    if (free.size() < 6) return last;
    Places rest;
    for (const int place : free) {
      if (!Has(last, place)) rest.push_back(place);
    }
    if (rest.size() == 2 && Linked(rest[0], rest[1])) return last;
  }
  return last;
}

// WANTED of FREE, which is in order; nothing: they do not lie well.
Places Together(const Places& free, int wanted) {
  if (wanted == 2 * kWing) return free.size() == 2 * kWing ? free : Places{};
  if (wanted != 1 && wanted != 2 && wanted != 4) return {};
  Places found = FromOneWing(free, wanted);
  if (!found.empty()) return found;
  if (wanted == 4) return QuadOf(free);
  for (int place = 0; wanted == 2 && place < kWing; ++place) {
    if (Has(free, place) && Has(free, place + kWing)) return {place, place + kWing};
  }
  return {};
}

int Gaps(int cards) { return cards == kWing ? 0 : cards == 1 ? 2 : 1; }

// How torn a set of cards leaves the wings.
int Torn(const std::vector<int>& indexes) {
  if (indexes.empty()) return 1;
  const auto left = std::count_if(indexes.begin(), indexes.end(), [](int index) { return index < kWing; });
  return Gaps(static_cast<int>(left)) + Gaps(static_cast<int>(indexes.size()) - static_cast<int>(left));
}

class KunlunVendor : public PlainVendor {
 public:
  using PlainVendor::PlainVendor;

  FitResult Fit(const FitInput& input) const override {
    Picks order;
    for (const int card : input.walk) {
      Pick pick;
      pick.card = card;
      order.push_back(pick);
    }
    order = ByIndex(input, std::move(order));
    FitResult result;
    Places free;
    for (std::size_t place = 0; place < order.size(); ++place) {
      const auto reason = WhyNot(input, input.cards[static_cast<std::size_t>(order[place].card)]);
      if (!reason) free.push_back(static_cast<int>(place));
      if (reason && *reason != Reason::kNumaNotFit) result.reasons.Add(*reason);
    }
    for (const int place : Together(free, input.request.count)) {
      Pick pick = order[static_cast<std::size_t>(place)];
      Fill(input, pick);
      if (input.quota != nullptr && !input.quota->Admits(result.picks, pick)) {
        result.reasons.Add(Reason::kResourceQuotaNotFit);
        return result;
      }
      result.picks.push_back(pick);
    }
    result.fits = !result.picks.empty();
    if (!result.fits && result.reasons.count(Reason::kCardUuidMismatch) == 0) result.reasons.Add(Reason::kNumaNotFit);
    return result;
  }

 protected:
  // NumaNotFit: it is not to be had, which no reason of its own says.
  virtual std::optional<Reason> WhyNot(const FitInput& input, const CardView& card) const {
    if (!input.rules.AcceptsUuid(card.device->uuid)) return Reason::kCardUuidMismatch;
    return card.usable && card.state.slots == 0 ? std::nullopt : std::optional<Reason>(Reason::kNumaNotFit);
  }
  virtual void Fill(const FitInput&, Pick&) const {}
};

class KunlunCards final : public KunlunVendor {
 public:
  using KunlunVendor::KunlunVendor;

  int SharesOf(const Device&) const override { return 1; }
  bool has_bonus() const override { return true; }
  // Spread takes the lowest score.
  float Bonus(const BonusInput& input) const override {
    std::vector<int> before;
    std::vector<int> added;
    for (const CardView& card : input.cards) {
      if (card.device->type != key()) return 0;
      if (card.state.slots > 0) before.push_back(card.device->index);
    }
    for (const Picks& picks : input.picks) {
      for (const Pick& pick : picks) added.push_back(CardAt(input.cards, pick).index);
    }
    constexpr std::array<float, 4> kBonus = {3000, 2000, 1000, 0};
    const int step = Torn(added) - Torn(before) + 1;
    const float bonus = step >= 0 && step < 4 ? kBonus[static_cast<std::size_t>(step)] : 1000;
    return input.spread ? -bonus : bonus;
  }

  void Annotate(const GrantInfo& grant, StringMap& out) const override {
    for (const auto& row : WithCards(grant)) {
      if (!row.empty()) out["BAIDU_COM_DEVICE_IDX"] = IndexesOf(row);
    }
  }

 protected:
  base::Result<NodeCards> CountCards(const NodeFacts& node) const override {
    const std::int64_t count = CapacityOf(node, spec().count_resource);
    Device card;
    card.type = key();
    card.count = kWholeCard;
    card.memory = kCardMemory;
    card.cores = kWholeCard;
    NodeCards cards;
    cards.devices = CardsLike(card, node, "kunlun", count);
    for (Device& device : cards.devices) device.numa = device.index >= static_cast<int>(count) / 2 ? 1 : 0;
    return cards;
  }
};

// The smallest slice that holds MEMORY; more than a card is a card.
MiB SliceFor(MiB memory) {
  const auto* slice = std::find_if(kSlices.begin(), kSlices.end(), [&](MiB one) { return one >= memory; });
  return memory == 0 || slice == kSlices.end() ? kCardMemory : *slice;
}

class KunlunShares final : public KunlunVendor {
 public:
  using KunlunVendor::KunlunVendor;

  base::Result<std::optional<Request>> ParseRequest(const Container& container) const override {
    auto request = PlainVendor::ParseRequest(container);
    HAMI_TRY(request);
    if (!*request) return request;
    (*request)->memory = SliceFor((*request)->memory);
    (*request)->memory_percent = kPercentUnset;
    (*request)->cores = static_cast<int>((*request)->memory * kWholeCard / kCardMemory);
    return request;
  }

  base::Result<bool> Mutate(base::json::object& object, PodDraft& pod, Warnings& warnings) const override {
    const auto uses = PlainVendor::Mutate(object, pod, warnings);
    HAMI_TRY(uses);
    if (!*uses) return false;
    const auto memory = Memory(ReadContainer(object), spec().memory_resource);
    HAMI_TRY(memory);
    if (!*memory) return true;
    const std::string slice = std::to_string(SliceFor(**memory));
    SetQuantity(object, "limits", spec().memory_resource, slice);
    SetQuantity(object, "requests", spec().memory_resource, slice);
    return true;
  }

 protected:
  std::optional<Reason> WhyNot(const FitInput& input, const CardView& card) const override {
    if (!input.rules.AcceptsUuid(card.device->uuid)) return Reason::kCardUuidMismatch;
    const CardState& used = card.state;
    if (input.mutex && used.slots > 0) return Reason::kExclusiveDeviceAllocateConflict;
    const bool alike = used.slots == 0 || used.memory / used.slots == input.request.memory;
    const bool fits = card.usable && used.slots < card.device->count && alike &&
                      card.device->memory - used.memory >= input.request.memory;
    return fits ? std::nullopt : std::optional<Reason>(Reason::kNumaNotFit);
  }
  void Fill(const FitInput& input, Pick& pick) const override {
    pick.memory = input.request.memory;
    pick.cores = input.request.cores;
  }
};

void ListCards(PlainSpec& spec) {
  spec.use_uuid.push_back(base::Concat({kHamiDomain, "use-xpu-uuid"}));
  spec.avoid_uuid.push_back(base::Concat({kHamiDomain, "no-use-xpu-uuid"}));
  spec.ListUuids("baidu.com");
}

}  // namespace

void AddKunlun(const OtherSections& config, Vendors& out) {
  const Section section(config, "kunlun");
  PlainSpec whole{.key = "kunlun",
                  .count_resource = section.Text("resourceCountName"),
                  .count_only = true,
                  .allocated = std::string(kKunlunAllocated),
                  .takes_lock = false};
  ListCards(whole);
  AddNamed(std::make_unique<KunlunCards>(std::move(whole)), out);
  PlainSpec shares{.key = "XPU",
                   .count_resource = section.Text("resourceVCountName"),
                   .memory_resource = section.Text("resourceVMemoryName"),
                   .registered = base::Concat({kHamiDomain, "node-register-xpu"}),
                   .handshake = base::Concat({kHamiDomain, "node-handshake-xpu"})};
  shares.GrantAs("xpu");
  ListCards(shares);
  AddNamed(std::make_unique<KunlunShares>(std::move(shares)), out);
}

}  // namespace hami::device
