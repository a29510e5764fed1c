// SPDX-License-Identifier: Apache-2.0

#include "device/vendors/plain.h"

#include <algorithm>
#include <limits>
#include <map>

#include "base/strings.h"
#include "device/amount.h"
#include "device/json_edit.h"
#include "device/quantity.h"
#include "device/register_codec.h"

namespace hami::device {
namespace {

using base::Result;
namespace json = base::json;

constexpr std::int64_t kInt32Max = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kNanosecondsOfSecond = 1'000'000'000;

std::vector<std::string> ListOf(const StringMap& annotations, const std::vector<std::string>& keys) {
  std::vector<std::string> all;
  for (const std::string& key : keys) {
    for (std::string& member : SplitList(TextAt(annotations, key))) all.push_back(std::move(member));
  }
  return all;
}

std::vector<std::string> TypesOf(const StringMap& annotations, const std::string& key) {
  if (key.empty()) return {};
  std::vector<std::string> types = ListOf(annotations, {key});
  for (std::string& type : types) type = base::ToLower(type);
  return types;
}

}  // namespace

void PlainSpec::GrantAs(std::string_view word) {
  to_allocate = base::Concat({kHamiDomain, word, "-devices-to-allocate"});
  allocated = base::Concat({kHamiDomain, word, "-devices-allocated"});
}

void PlainSpec::ListUuids(std::string_view domain) {
  use_uuid.push_back(base::Concat({domain, "/use-gpuuuid"}));
  avoid_uuid.push_back(base::Concat({domain, "/nouse-gpuuuid"}));
}

QuotaResources PlainVendor::quota_resources() const {
  return {spec_.memory_resource, spec_.core_resource, std::max<std::int64_t>(spec_.memory_unit, 1)};
}

std::vector<std::string_view> PlainVendor::resources() const {
  std::vector<std::string_view> names;
  for (const std::string* name : {&spec_.count_resource, &spec_.memory_resource, &spec_.core_resource}) {
    if (!name->empty()) names.emplace_back(*name);
  }
  return names;
}

const std::string* PlainVendor::TextOf(const Container& container, const std::string& resource) const {
  if (resource.empty()) return nullptr;
  return spec_.limits_only ? Find(container.limits, resource) : container.Resource(resource);
}

base::Error PlainVendor::Refusal(const Container& container, const std::string& resource,
                                 const base::Error& error) const {
  const std::string* text = TextOf(container, resource);
  return {base::Concat({"container ", base::Printable(container.name), ": ", resource, " ",
                        base::Printable(text == nullptr ? std::string_view() : std::string_view(*text)), " ",
                        error.message, error.hint.empty() ? "" : ": ", error.hint}),
          {}};
}

Result<std::optional<std::int64_t>> PlainVendor::Amount(const Container& container, const std::string& resource) const {
  const std::string* text = TextOf(container, resource);
  if (text == nullptr) return std::optional<std::int64_t>();
  const Result<std::int64_t> amount = ReadCount(*text, kInt32Max);
  if (!amount) return tl::unexpected(Refusal(container, resource, amount.error()));
  return std::optional<std::int64_t>(*amount);
}

Result<std::optional<MiB>> PlainVendor::Memory(const Container& container, const std::string& resource) const {
  const std::string* text = TextOf(container, resource);
  if (text == nullptr) return std::optional<MiB>();
  const auto memory = ReadMemory(*text, spec_.memory_unit, kMostOfCard);
  if (!memory) return tl::unexpected(Refusal(container, resource, memory.error()));
  return std::optional<MiB>(memory->mib);
}

Result<std::optional<Request>> PlainVendor::ParseRequest(const Container& container) const {
  const auto count = Amount(container, spec_.count_resource);
  HAMI_TRY(count);
  if (count->value_or(0) == 0) return std::optional<Request>();
  Request request;
  request.count = static_cast<int>(**count);
  const auto memory = Memory(container, spec_.memory_resource);
  HAMI_TRY(memory);
  request.memory = memory->value_or(0);
  if (request.memory == 0) request.memory_percent = kWholeCard;
  const auto cores = Amount(container, spec_.core_resource);
  HAMI_TRY(cores);
  if (*cores && (**cores < spec_.least_cores || (spec_.most_cores > 0 && **cores > spec_.most_cores))) {
    const std::string bounds =
        base::Concat({"is not from ", std::to_string(spec_.least_cores), " to ", std::to_string(spec_.most_cores)});
    return tl::unexpected(Refusal(container, spec_.core_resource, {bounds, {}}));
  }
  request.cores = static_cast<int>(std::min<std::int64_t>(cores->value_or(spec_.default_cores), kWholeCard));
  return std::optional<Request>(request);
}

std::optional<Request> PlainVendor::MostOf(const Container& container) const {
  const auto asked = ParseRequest(container);
  if (asked) return *asked;
  const auto count = Amount(container, spec_.count_resource);
  Request request;
  request.count = count ? static_cast<int>(count->value_or(0)) : 0;
  request.memory_percent = kWholeCard;
  request.cores = kWholeCard;
  if (request.count == 0) return std::nullopt;
  return request;
}

CardRules PlainVendor::ParseRules(const StringMap& annotations) const {
  CardRules rules;
  rules.use_types = TypesOf(annotations, spec_.use_type);
  rules.avoid_types = TypesOf(annotations, spec_.avoid_type);
  rules.use_uuids = ListOf(annotations, spec_.use_uuid);
  rules.avoid_uuids = ListOf(annotations, spec_.avoid_uuid);
  for (const std::string& word : spec_.words) {
    if (const std::string* text = Find(annotations, word)) rules.words.emplace(word, *text);
  }
  return rules;
}

bool Vendor::Registers(const NodeFacts& node) const {
  return !base::Trim(TextAt(node.annotations, register_annotation())).empty();
}

bool PlainVendor::Registers(const NodeFacts& node) const {
  const bool counted = CapacityOf(node, spec_.count_resource) > 0;
  if (spec_.registered.empty()) return counted;
  return Vendor::Registers(node) && (counted || !spec_.needs_capacity);
}

Result<NodeCards> PlainVendor::CountCards(const NodeFacts& /*node*/) const { return NodeCards{}; }

Result<NodeCards> PlainVendor::ReadNode(const NodeFacts& node) const {
  NodeCards cards;
  if (!Registers(node)) return cards;
  if (spec_.registered.empty()) return CountCards(node);
  const std::string_view text = TextAt(node.annotations, spec_.registered);
  auto devices = spec_.legacy_register ? DecodeRegisterLegacy(text) : DecodeRegisterJson(text);
  HAMI_TRY(devices);
  for (Device& device : *devices) {
    const auto same = [&](const Device& other) { return other.uuid == device.uuid; };
    // Two cards of one name could not be told apart in any grant.
    if (std::any_of(cards.devices.begin(), cards.devices.end(), same)) continue;
    device.mode.clear();  // MIG is NVIDIA's
    device.mig_profiles.clear();
    if (spec_.count_only) device.cores = kWholeCard;
    Adopt(device, node);
    device.custom_info.clear();
    cards.devices.push_back(std::move(device));
  }
  return cards;
}

std::string_view PlainVendor::GrantType(const Device& device) const {
  return spec_.keeps_type ? std::string_view(device.type) : key();
}

Result<bool> PlainVendor::Mutate(json::object& object, PodDraft& /*pod*/, Warnings& warnings) const {
  const Container container = ReadContainer(object);
  const std::string* count = Find(container.limits, spec_.count_resource);
  const auto quantity = count == nullptr ? Result<Quantity>(Quantity{}) : ParseQuantity(*count);
  if (!spec_.count_resource.empty() && count != nullptr && (!quantity || quantity->value != 0)) return true;
  for (const std::string* resource : {&spec_.memory_resource, &spec_.core_resource}) {
    if (TextOf(container, *resource) == nullptr) continue;
    warnings.push_back(base::Concat(
        {"container ", container.name, ": ", *resource, " gives nothing: no ", spec_.count_resource, " is asked"}));
  }
  return false;
}

// Cards are tried in the order that the policy made.
class PlainWalk {
 public:
  PlainWalk(const PlainVendor& vendor, const FitInput& input)
      : vendor_(vendor), in_(input), wanted_(static_cast<std::size_t>(input.request.count)) {}

  FitResult Run() {
    const bool chooses = vendor_.Chooses(in_);
    for (const int card : in_.walk) {
      if (!chooses && result_.picks.size() == wanted_) break;
      Try(card);
    }
    const int collected = static_cast<int>(result_.picks.size());
    if (chooses && result_.picks.size() >= wanted_) result_.picks = vendor_.Choose(in_, std::move(result_.picks));
    result_.fits = result_.picks.size() == wanted_;
    if (!result_.fits && collected > 0) result_.reasons.Add(Reason::kAllocatedCardsInsufficientRequest, collected);
    return std::move(result_);
  }

 private:
  void Try(int index) {
    const CardView& view = in_.cards[static_cast<std::size_t>(index)];
    Pick pick;
    pick.card = index;
    if (const auto reason = Judge(view, pick)) {
      result_.reasons.Add(*reason);
    } else {
      result_.picks.push_back(pick);
    }
  }

  std::optional<Reason> Judge(const CardView& view, Pick& pick) {
    const Device& card = *view.device;
    if (!view.usable) return vendor_.spec().unhealthy;
    if (!in_.rules.AcceptsType(view.lower_type)) return Reason::kCardTypeMismatch;
    if (const auto reason = vendor_.Early(in_, view)) return reason;
    if (!in_.rules.AcceptsUuid(card.uuid)) return Reason::kCardUuidMismatch;
    if (view.state.slots >= card.count) return Reason::kCardTimeSlicingExhausted;
    if (in_.mutex && view.state.slots > 0) return Reason::kExclusiveDeviceAllocateConflict;
    if (!vendor_.spec().count_only) {
      if (const auto reason = JudgeAmounts(view, pick)) return reason;
    }
    return vendor_.Late(in_, view, result_.picks);
  }

  std::optional<Reason> JudgeAmounts(const CardView& view, Pick& pick) {
    const Device& card = *view.device;
    const Want want = vendor_.WantOf(card, in_.request, in_.rules).value_or(Want{});
    pick.memory = want.memory;
    pick.cores = want.cores;
    if (!QuotaAdmits(pick)) return Reason::kResourceQuotaNotFit;
    if (card.memory - view.state.memory < want.memory) return Reason::kCardInsufficientMemory;
    if (!vendor_.JudgesCores(in_)) return std::nullopt;
    if (want.all_cores - view.state.cores < want.cores) return Reason::kCardInsufficientCore;
    if (vendor_.spec().exclusive && want.all_cores == kWholeCard && want.cores == kWholeCard && view.state.slots > 0) {
      return Reason::kExclusiveDeviceAllocateConflict;
    }
    if (want.all_cores != 0 && view.state.cores == want.all_cores && want.cores == 0) {
      return Reason::kCardComputeUnitsExhausted;
    }
    return std::nullopt;
  }

  // Of what is collected only some is kept; the largest could be.
  bool QuotaAdmits(const Pick& pick) const {
    if (in_.quota == nullptr) return true;
    Picks largest = result_.picks;
    std::stable_sort(largest.begin(), largest.end(), [](const Pick& a, const Pick& b) { return a.memory > b.memory; });
    return in_.quota->Admits({largest.data(), std::min(largest.size(), wanted_ - 1)}, pick);
  }

  const PlainVendor& vendor_;
  const FitInput& in_;
  std::size_t wanted_;
  FitResult result_;
};

std::optional<Want> Vendor::WantOf(const Device& card, const Request& request, const CardRules& /*rules*/) const {
  MiB memory = request.memory;
  if (memory == 0 && request.memory_percent != kPercentUnset)
    memory = card.memory * request.memory_percent / kWholeCard;
  return Want{memory, request.cores, card.cores};
}

FitResult PlainVendor::Fit(const FitInput& input) const { return PlainWalk(*this, input).Run(); }

std::int64_t CapacityOf(const NodeFacts& node, const std::string& resource) {
  const std::string* text = resource.empty() ? nullptr : Find(node.capacity, resource);
  return text == nullptr ? 0 : ReadCount(*text, kInt32Max).value_or(0);
}

std::vector<Device> CardsLike(const Device& model, const NodeFacts& node, std::string_view word, std::int64_t count) {
  std::vector<Device> cards;
  for (int i = 0; i < std::min(count, static_cast<std::int64_t>(kMostCards)); ++i) {
    cards.push_back(model);
    cards.back().uuid = base::Concat({node.name, "-", word, "-", std::to_string(i)});
    cards.back().index = i;
    cards.back().healthy = true;
  }
  return cards;
}

const Device& CardAt(std::span<const CardView> cards, const Pick& pick) {
  return *cards[static_cast<std::size_t>(pick.card)].device;
}

Picks ByIndex(const FitInput& input, Picks picks) {
  std::stable_sort(picks.begin(), picks.end(), [&](const Pick& a, const Pick& b) {
    return CardAt(input.cards, a).index < CardAt(input.cards, b).index;
  });
  return picks;
}

std::vector<Picks> ByGroup(std::span<const CardView> cards, const Picks& picks) {
  std::map<int, Picks> groups;
  for (const Pick& pick : picks) groups[CardAt(cards, pick).group].push_back(pick);
  std::vector<Picks> out;
  for (auto& [number, group] : groups) out.push_back(std::move(group));
  std::stable_sort(out.begin(), out.end(), [](const Picks& a, const Picks& b) { return a.size() > b.size(); });
  return out;
}

json::object CustomInfo(const Device& device) {
  auto value = device.custom_info.empty() ? Result<json::value>(json::value()) : base::ParseJson(device.custom_info);
  return value && value->is_object() ? std::move(value->get_object()) : json::object();
}

std::int64_t NumberIn(const json::object& object, std::string_view key, std::int64_t otherwise) {
  const json::value* value = object.if_contains(json::string_view(key.data(), key.size()));
  if (value == nullptr) return otherwise;
  const std::int64_t number = value->is_int64() ? value->get_int64() : otherwise;
  return number >= 0 && number <= kInt32Max ? number : otherwise;
}

std::vector<std::vector<ShareAndCard>> WithCards(const GrantInfo& grant) {
  std::vector<std::vector<ShareAndCard>> rows;
  for (const ContainerGrant& container : grant.grant) {
    auto& row = rows.emplace_back();
    for (const Share& share : container) {
      const auto card = std::find_if(grant.cards.begin(), grant.cards.end(),
                                     [&](const Device& one) { return one.uuid == share.uuid; });
      if (card != grant.cards.end()) row.emplace_back(&share, &*card);
    }
  }
  return rows;
}

std::string IndexesOf(const std::vector<ShareAndCard>& row) {
  std::vector<std::string> indexes;
  for (const auto& [share, card] : row) indexes.push_back(std::to_string(card->index));
  return base::Join(indexes, ",");
}

std::optional<Reason> OffTheFirstCard(const FitInput& input, const CardView& card) {
  const auto other = [&](const Pick& pick) {
    return input.cards[static_cast<std::size_t>(pick.card)].device != card.device;
  };
  const auto off = [&](const Picks& picks) { return std::any_of(picks.begin(), picks.end(), other); };
  if (std::none_of(input.earlier.begin(), input.earlier.end(), off)) return std::nullopt;
  return Reason::kCardNotFoundCustomFilterRule;
}

std::string Nanoseconds(UnixSeconds now) { return std::to_string(now * kNanosecondsOfSecond); }

}  // namespace hami::device
