// SPDX-License-Identifier: Apache-2.0
//
// MetaX: whole GPUs, and sGPUs by memory and cores with a quality of service. Of the latter a pod is of a class (online
// or offline) or of a policy, and a card serves one kind at a time: what its pods are is counted in the card's marks.
// Whole sGPUs of a container come from one link zone if they can.

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>

#include "base/strings.h"
#include "device/json_edit.h"
#include "device/json_fields.h"
#include "device/register_codec.h"
#include "device/vendors/plain.h"
#include "device/vendors/sections.h"

namespace hami::device {
namespace {

namespace json = base::json;

constexpr const char* kLosses = "metax-tech.com/gpu.topology.losses";
constexpr const char* kScores = "metax-tech.com/gpu.topology.scores";
constexpr const char* kClass = "metax-tech.com/sgpu-app-class";
constexpr const char* kPolicy = "metax-tech.com/sgpu-qos-policy";
constexpr const char* kTopology = "metax-tech.com/sgpu-topology-aware";
constexpr const char* kBestEffort = "best-effort";
// The marks, in the order of their bits.
enum Mark : std::uint8_t { kOnline, kOffline, kFirstPolicy };
constexpr std::array<std::string_view, 2> kClasses = {"online", "offline"};
constexpr std::array<std::string_view, 3> kPolicies = {kBestEffort, "fixed-share", "burst-share"};

template <std::size_t N>
int PlaceIn(const std::array<std::string_view, N>& words, std::string_view word) {
  const auto* found = std::find(words.begin(), words.end(), word);
  return found == words.end() ? -1 : static_cast<int>(found - words.begin());
}

class MetaxCards final : public PlainVendor {
 public:
  using PlainVendor::PlainVendor;

  std::vector<std::string_view> node_annotations() const override { return {kLosses, kScores}; }
  bool has_bonus() const override { return true; }
  // What COUNT cards cost the node's topology, or are worth to it, as its plugin tells.
  float Bonus(const BonusInput& input) const override {
    std::size_t count = 0;
    for (const Picks& picks : input.picks) count += picks.size();
    const auto told = base::ParseJson(CardAt(input.cards, input.picks.front().front()).custom_info);
    const json::value* table =
        told && told->is_object() ? told->get_object().if_contains(input.spread ? "s" : "l") : nullptr;
    if (table == nullptr || !table->is_object()) return 0;
    constexpr float kBest = 2000;
    return kBest - static_cast<float>(NumberIn(table->get_object(), std::to_string(count), 0));
  }

 protected:
  base::Result<NodeCards> CountCards(const NodeFacts& node) const override {
    Device card;
    card.type = key();
    card.count = 1;
    card.memory = 65536;
    card.cores = kWholeCard;
    json::object told;
    for (const auto& [name, annotation] : {std::pair("l", kLosses), std::pair("s", kScores)}) {
      const auto table = base::ParseJson(TextAt(node.annotations, annotation));
      if (table && table->is_object()) told[name] = *table;
    }
    card.custom_info = json::serialize(told);
    NodeCards cards;
    cards.devices = CardsLike(card, node, "metax", CapacityOf(node, spec().count_resource));
    return cards;
  }
  std::optional<Reason> Late(const FitInput& input, const CardView& card, const Picks&) const override {
    return OffTheFirstCard(input, card);
  }
};

// 10 for every two cards of one zone.
int LinksOf(std::span<const CardView> cards, const Picks& picks) {
  int links = 0;
  for (std::size_t a = 0; a < picks.size(); ++a) {
    const int zone = CardAt(cards, picks[a]).group;
    for (std::size_t b = a + 1; b < picks.size() && zone > 0; ++b)
      links += CardAt(cards, picks[b]).group == zone ? 10 : 0;
  }
  return links;
}

class MetaxShares final : public PlainVendor {
 public:
  MetaxShares(PlainSpec spec, bool topology) : PlainVendor(std::move(spec)), topology_(topology) {}

  std::vector<std::string_view> node_annotations() const override { return {spec().registered}; }
  Marks MarksOf(const StringMap& annotations) const override {
    const int of_class = PlaceIn(kClasses, TextAt(annotations, kClass));
    if (of_class >= 0) return static_cast<Marks>(1U << static_cast<unsigned>(of_class));
    const int policy = PlaceIn(kPolicies, TextAt(annotations, kPolicy));
    return policy < 0 ? Marks{0} : static_cast<Marks>(1U << static_cast<unsigned>(kFirstPolicy + policy));
  }
  std::vector<std::string_view> mark_annotations() const override { return {kClass, kPolicy}; }

  base::Result<bool> Mutate(json::object& object, PodDraft& pod, Warnings& warnings) const override {
    const auto uses = PlainVendor::Mutate(object, pod, warnings);
    HAMI_TRY(uses);
    if (!*uses) return false;
    if (const std::string* of_class = Find(pod.annotations, kClass)) {
      if (PlaceIn(kClasses, *of_class) < 0) return base::Fail(base::Concat({kClass, " must be online or offline"}));
      const auto count = Amount(ReadContainer(object), spec().count_resource);
      if (!count || count->value_or(0) != 1) {
        return base::Fail(base::Concat({spec().count_resource, " must be 1 with ", kClass}));
      }
      return true;
    }
    const std::string* policy = Find(pod.annotations, kPolicy);
    if (policy == nullptr || policy->empty()) {
      pod.added[kPolicy] = kBestEffort;
    } else if (PlaceIn(kPolicies, *policy) < 0) {
      return base::Fail(base::Concat({kPolicy, " must be best-effort, fixed-share or burst-share"}));
    }
    return true;
  }

  base::Result<NodeCards> ReadNode(const NodeFacts& node) const override {
    NodeCards cards;
    if (!Registers(node)) return cards;
    const auto read = [&](const json::object& item) -> base::Status {
      if (cards.devices.size() == kMostCards) return base::Fail("more cards than a node can have");
      Device card;
      const JsonFields fields(item, "device");
      HAMI_TRY(fields.Text("uuid", card.uuid));
      HAMI_TRY(fields.Number("totalDevCount", card.count));
      HAMI_TRY(fields.Number("totalCompute", card.cores));
      HAMI_TRY(fields.Number("totalVRam", card.memory));
      HAMI_TRY(fields.Number("numa", card.numa, -1));
      HAMI_TRY(fields.Bool("healthy", card.healthy));
      HAMI_TRY(fields.Text("qosPolicy", card.mode));
      HAMI_TRY(fields.Number("linkZone", card.group, std::numeric_limits<std::int32_t>::min()));
      if (PlaceIn(kPolicies, card.mode) < 0) card.mode.clear();
      card.type = key();
      card.index = static_cast<int>(cards.devices.size());
      const auto same = [&](const Device& other) { return other.uuid == card.uuid; };
      if (std::none_of(cards.devices.begin(), cards.devices.end(), same)) cards.devices.push_back(std::move(card));
      return {};
    };
    HAMI_TRY(ForEachObject(TextAt(node.annotations, spec().registered), spec().registered, read));
    return cards;
  }

  bool has_bonus() const override { return true; }
  // The score says nothing of the policy of nodes; spread takes the lowest.
  float Bonus(const BonusInput& input) const override {
    Picks taken;
    for (const Picks& picks : input.picks) taken.insert(taken.end(), picks.begin(), picks.end());
    int score = 0;
    if (IsOnline(input.rules)) {
      for (const Pick& pick : taken) score += Company(input.cards[static_cast<std::size_t>(pick.card)].state);
    } else if (Topology(input.rules) && taken.front().cores == kWholeCard) {
      score = LinkScore(input.cards, taken);
    }
    constexpr float kWeight = 10000;
    return static_cast<float>(score) * (input.spread ? -kWeight : kWeight);
  }

  void Annotate(const GrantInfo& grant, StringMap& out) const override {
    json::array containers;
    for (const ContainerGrant& row : grant.grant) {
      json::array shares;
      for (const Share& share : row) {
        shares.push_back({{"uuid", share.uuid}, {"compute", share.cores}, {"vRam", share.memory}});
      }
      containers.push_back(std::move(shares));
    }
    out["metax-tech.com/gpu-devices-allocated"] = json::serialize(containers);
    out["metax-tech.com/predicate-time"] = Nanoseconds(grant.now);
  }

 protected:
  std::optional<Want> WantOf(const Device& card, const Request& request, const CardRules& rules) const override {
    std::optional<Want> want = PlainVendor::WantOf(card, request, rules);
    if (IsOnline(rules)) want->cores = 0;
    return want;
  }
  bool JudgesCores(const FitInput& input) const override { return !IsOnline(input.rules); }

  std::optional<Reason> Early(const FitInput& input, const CardView& card) const override {
    const CardState& used = card.state;
    if (used.slots == 0) return std::nullopt;
    const std::string_view of_class = TextAt(input.rules.words, kClass);
    const bool classed = used.marked[kOnline] > 0 || used.marked[kOffline] > 0;
    const bool crowded = of_class == kClasses[kOffline] && used.marked[kOnline] > 0;
    if (of_class.empty() == classed || crowded) return Reason::kCardAppClassMismatch;
    if (!of_class.empty() || input.request.cores == kWholeCard) return std::nullopt;
    const std::string_view policy = PolicyOf(card);
    if (policy.empty() || policy == TextAt(input.rules.words, kPolicy)) return std::nullopt;
    return Reason::kCardQosPolicyMismatch;
  }

  bool Chooses(const FitInput& input) const override {
    return IsOnline(input.rules) || input.request.cores == kWholeCard;
  }
  Picks Choose(const FitInput& input, Picks picks) const override {
    return IsOnline(input.rules) ? ChooseOnline(input, std::move(picks)) : ChooseZone(input, picks);
  }

 private:
  static bool IsOnline(const CardRules& rules) { return TextAt(rules.words, kClass) == kClasses[kOnline]; }
  bool Topology(const CardRules& rules) const { return ParseBool(TextAt(rules.words, kTopology)).value_or(topology_); }

  // Of the pods on the card, which it will have switched to before its plugin says so; else as that says.
  static std::string_view PolicyOf(const CardView& card) {
    for (std::size_t i = 0; i < kPolicies.size(); ++i) {
      if (card.state.marked[kFirstPolicy + i] > 0) return kPolicies[i];
    }
    return card.device->mode;
  }

  // What it is worth to an online pod to share with those.
  static int Company(const CardState& used) {
    const int online = used.marked[kOnline];
    const int offline = used.marked[kOffline];
    return online == 0 ? -100 * offline : -20 * online - 2 * offline;
  }

  static Picks ChooseOnline(const FitInput& input, Picks picks) {
    const auto rank = [&](const Pick& pick) {
      const auto& marked = input.cards[static_cast<std::size_t>(pick.card)].state.marked;
      return std::tuple(marked[kOnline] == 0 && marked[kOffline] > 0, marked[kOnline], marked[kOffline]);
    };
    std::stable_sort(picks.begin(), picks.end(), [&](const Pick& a, const Pick& b) { return rank(a) < rank(b); });
    picks.resize(static_cast<std::size_t>(input.request.count));
    return picks;
  }

  // The smallest zone that has enough; else zones from small to large, and cards of no zone at last.
  static Picks ChooseZone(const FitInput& input, const Picks& picks) {
    const auto wanted = static_cast<std::size_t>(input.request.count);
    std::vector<Picks> zones = ByGroup(input.cards, picks);
    const auto zone_of = [&](const Picks& zone) { return CardAt(input.cards, zone.front()).group; };
    std::stable_sort(zones.begin(), zones.end(), [&](const Picks& a, const Picks& b) {
      if ((zone_of(a) > 0) != (zone_of(b) > 0)) return zone_of(a) > 0;
      return a.size() != b.size() ? a.size() < b.size() : zone_of(a) < zone_of(b);
    });
    Picks chosen;
    for (const Picks& zone : zones) {
      if (zone_of(zone) > 0 && zone.size() >= wanted) {
        chosen = ByIndex(input, zone);
        chosen.resize(wanted);
        return chosen;
      }
    }
    for (const Picks& zone : zones) {
      for (const Pick& pick : ByIndex(input, zone)) {
        if (chosen.size() < wanted) chosen.push_back(pick);
      }
    }
    return chosen;
  }

  // What the cards have in common, against what the idle ones lose of it.
  int LinkScore(std::span<const CardView> cards, const Picks& taken) const {
    Picks idle;
    Picks rest;
    for (std::size_t i = 0; i < cards.size(); ++i) {
      if (cards[i].device->type != key() || cards[i].state.slots > 0) continue;
      Pick pick;
      pick.card = static_cast<int>(i);
      idle.push_back(pick);
      const auto same = [&](const Pick& other) { return other.card == pick.card; };
      if (std::none_of(taken.begin(), taken.end(), same)) rest.push_back(pick);
    }
    const int gained = LinksOf(cards, taken);
    return 10 * gained - (LinksOf(cards, idle) - gained - LinksOf(cards, rest));
  }

  bool topology_;
};

}  // namespace

void AddMetax(const OtherSections& config, Vendors& out) {
  const Section section(config, "metax");
  PlainSpec whole{.key = "Metax-GPU",
                  .count_resource = section.Text("resourceCountName"),
                  .default_cores = kWholeCard,
                  .takes_lock = false};
  whole.GrantAs("metax-gpu");
  AddNamed(std::make_unique<MetaxCards>(std::move(whole)), out);
  PlainSpec shares{.key = "Metax-SGPU",
                   .count_resource = section.Text("resourceVCountName"),
                   .memory_resource = section.Text("resourceVMemoryName"),
                   .core_resource = section.Text("resourceVCoreName"),
                   .memory_unit = 1024,
                   .default_cores = kWholeCard,
                   .most_cores = kWholeCard,
                   .limits_only = true,
                   .registered = "metax-tech.com/node-gpu-devices",
                   .unhealthy = Reason::kCardUnhealthy,
                   .words = {kClass, kPolicy, kTopology}};
  shares.GrantAs("metax-sgpu");
  shares.ListUuids("metax-tech.com");
  AddNamed(std::make_unique<MetaxShares>(std::move(shares), section.Flag("sgpuTopologyAware")), out);
}

}  // namespace hami::device
