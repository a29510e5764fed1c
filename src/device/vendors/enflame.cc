// SPDX-License-Identifier: Apache-2.0
//
// Enflame: whole cards, and slices of a card in the sizes that its node offers (DRS). A pod asks for slices by their
// number, or for memory and cores and gets the smallest size that holds them.

#include <algorithm>
#include <charconv>

#include "base/strings.h"
#include "device/amount.h"
#include "device/json_edit.h"
#include "device/json_fields.h"
#include "device/register_codec.h"
#include "device/vendors/plain.h"
#include "device/vendors/sections.h"

namespace hami::device {
namespace {

namespace json = base::json;

constexpr MiB kMiBOfGB = 1024;
constexpr std::size_t kMostProfiles = 32;
// Of a request, in the cores of its share: a number of slices, and no percentage.
constexpr int kSlices = 0;

class EnflameCards final : public PlainVendor {
 public:
  using PlainVendor::PlainVendor;

 protected:
  base::Result<NodeCards> CountCards(const NodeFacts& node) const override {
    Device card;
    card.type = key();
    card.count = 1;
    card.memory = kWholeCard;
    card.cores = kWholeCard;
    NodeCards cards;
    cards.devices = CardsLike(card, node, "GCU", CapacityOf(node, spec().count_resource));
    return cards;
  }
  std::optional<Reason> Early(const FitInput&, const CardView& card) const override {
    return card.state.slots > 0 ? std::optional<Reason>(Reason::kExclusiveDeviceAllocateConflict) : std::nullopt;
  }
};

// `3g.20gb`: slices and GB.
std::optional<MigProfile> ReadProfile(std::string_view name) {
  MigProfile profile;
  profile.name = name;
  const char* end = name.data() + name.size();
  int gigabytes = 0;
  auto read = std::from_chars(name.data(), end, profile.slices);
  if (read.ec != std::errc() || std::string_view(read.ptr, end).substr(0, 2) != "g.") return std::nullopt;
  read = std::from_chars(read.ptr + 2, end, gigabytes);
  if (read.ec != std::errc() || profile.slices <= 0 || gigabytes <= 0 || gigabytes > kMostOfCard / kMiBOfGB)
    return std::nullopt;
  profile.memory = gigabytes * kMiBOfGB;
  return profile;
}

// The node's sizes, by memory, with their part of the largest.
std::vector<MigProfile> ReadProfiles(const json::object& table) {
  std::vector<MigProfile> profiles;
  int largest = 0;
  for (const auto& [name, id] : table) {
    auto profile = ReadProfile({name.data(), name.size()});
    if (!profile || profiles.size() == kMostProfiles) continue;
    largest = std::max(largest, profile->slices);
    profiles.push_back(*std::move(profile));
  }
  for (MigProfile& one : profiles) {
    one.cores = static_cast<int>((std::int64_t{one.slices} * kWholeCard + largest - 1) / largest);
  }
  std::stable_sort(profiles.begin(), profiles.end(), [](const auto& a, const auto& b) { return a.memory < b.memory; });
  return profiles;
}

class EnflameSlices final : public PlainVendor {
 public:
  using PlainVendor::PlainVendor;

  std::vector<std::string_view> node_annotations() const override { return {spec().registered}; }

  base::Result<std::optional<Request>> ParseRequest(const Container& container) const override {
    const auto slices = Amount(container, spec().count_resource);
    HAMI_TRY(slices);
    const auto memory = MemoryOf(container);
    HAMI_TRY(memory);
    const auto cores = Amount(container, spec().core_resource);
    HAMI_TRY(cores);
    Request request;
    request.count = 1;
    if (slices->value_or(0) > 0) {
      request.cores = static_cast<int>(**slices);
      request.memory_percent = kSlices;
      return std::optional<Request>(request);
    }
    if (memory->value_or(0) == 0 && cores->value_or(0) == 0) return std::optional<Request>();
    if (cores->value_or(0) > kWholeCard) {
      return tl::unexpected(Refusal(container, spec().core_resource, {"must be in range (0,100]", {}}));
    }
    request.memory = memory->value_or(0);
    request.cores = static_cast<int>(cores->value_or(0));
    return std::optional<Request>(request);
  }

  std::optional<Request> MostOf(const Container& container) const override {
    const auto asked = ParseRequest(container);
    if (asked && !*asked) return std::nullopt;
    return Request{1, 0, kWholeCard, kWholeCard};
  }

  base::Result<bool> Mutate(json::object& object, PodDraft&, Warnings&) const override {
    const Container container = ReadContainer(object);
    bool uses = false;
    for (const std::string* resource : {&spec().count_resource, &spec().memory_resource, &spec().core_resource}) {
      const std::string* text = TextOf(container, *resource);
      if (text == nullptr) continue;
      uses = true;
      const auto amount = resource == &spec().memory_resource ? MemoryOf(container) : Amount(container, *resource);
      HAMI_TRY(amount);
      if (resource == &spec().core_resource && (**amount <= 0 || **amount > kWholeCard)) {
        return base::Fail(*resource + " must be in range (0,100]");
      }
      if (**amount <= 0) return base::Fail(*resource + " must be greater than 0");
      SetQuantity(object, "limits", *resource, *text);
      SetQuantity(object, "requests", *resource, *text);
    }
    return uses;
  }

  base::Result<NodeCards> ReadNode(const NodeFacts& node) const override {
    NodeCards cards;
    if (!Registers(node)) return cards;
    const auto told = base::ParseJson(TextAt(node.annotations, spec().registered));
    if (!told || !told->is_object()) return base::Fail(spec().registered + " is no JSON object");
    const json::value* table = told->get_object().if_contains("profiles");
    if (table == nullptr || !table->is_object()) return base::Fail(spec().registered + " has no profiles");
    const std::vector<MigProfile> profiles = ReadProfiles(table->get_object());
    const auto add = [&](const json::object& item) -> base::Status {
      if (cards.devices.size() == kMostCards) return base::Fail("more cards than a node can have");
      Device card;
      const JsonFields fields(item, "device");
      HAMI_TRY(fields.Number("index", card.index));
      HAMI_TRY(fields.Number("capacity", card.count));
      HAMI_TRY(fields.Number("minor", card.group));
      card.uuid = base::Concat({node.name, "-enflame-drs-", std::to_string(card.index)});
      card.type = key();
      card.cores = kWholeCard;
      card.healthy = true;
      card.memory = profiles.empty() ? 0 : profiles.back().memory;
      card.mig_profiles = profiles;
      card.custom_info = json::serialize(table->get_object());
      const auto same = [&](const Device& other) { return other.uuid == card.uuid; };
      if (std::none_of(cards.devices.begin(), cards.devices.end(), same)) cards.devices.push_back(std::move(card));
      return {};
    };
    HAMI_TRY(JsonFields(told->get_object(), "capacity").List("devices", add));
    return cards;
  }

  void Annotate(const GrantInfo& grant, StringMap& out) const override {
    json::object containers;
    const auto rows = WithCards(grant);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].empty()) continue;
      const auto& [share, card] = rows[i].front();
      const MigProfile* profile = ProfileOf(*card, *share);
      const Container* container = ContainerAt(grant.pod, i);
      if (profile == nullptr || container == nullptr) continue;
      const json::object ids = CustomInfo(*card);
      const json::value* id = ids.if_contains(profile->name);
      containers[container->name] = json::object{{"allocated", false},
                                                 {"request", profile->slices},
                                                 {"profileID", id == nullptr ? json::value("") : *id},
                                                 {"profileName", profile->name}};
      out["enflame.com/gcu-assigned-id"] = card->uuid;
      out["enflame.com/gcu-assigned-index"] = std::to_string(card->index);
      out["enflame.com/gcu-assigned-minor"] = std::to_string(card->group);
      out["enflame.com/gcu-request-size"] = std::to_string(profile->slices);
    }
    out["enflame.com/gcu-assigned"] = "false";
    out["enflame.com/gcu-assigned-time"] = Nanoseconds(grant.now);
    out["assigned-containers"] = json::serialize(containers);
  }

  std::optional<Want> WantOf(const Device& card, const Request& request, const CardRules&) const override {
    const MigProfile* profile = Chosen(request, card);
    if (profile == nullptr) return std::nullopt;
    return Want{profile->memory, profile->cores, card.cores};
  }

 protected:
  std::optional<Reason> Early(const FitInput& input, const CardView& card) const override {
    return Chosen(input.request, *card.device) == nullptr ? std::optional<Reason>(Reason::kModeNotFit) : std::nullopt;
  }

 private:
  // GB as MiB; bytes are bytes. What is more GB than two cards have was meant as MiB, which a card decides.
  base::Result<std::optional<std::int64_t>> MemoryOf(const Container& container) const {
    const auto memory = Memory(container, spec().memory_resource);
    HAMI_TRY(memory);
    return std::optional<std::int64_t>(*memory);
  }

  static const MigProfile* Chosen(const Request& request, const Device& card) {
    const auto& profiles = card.mig_profiles;
    if (profiles.empty()) return nullptr;
    MiB memory = request.memory;
    if (memory > 2 * profiles.back().memory) memory /= kMiBOfGB;
    const auto fits = [&](const MigProfile& one) {
      if (request.memory_percent == kSlices) return one.slices == request.cores;
      return one.memory >= memory && one.cores >= request.cores;
    };
    const auto found = std::find_if(profiles.begin(), profiles.end(), fits);
    return found == profiles.end() ? nullptr : &*found;
  }

  static const MigProfile* ProfileOf(const Device& card, const Share& share) {
    const auto same = [&](const MigProfile& one) { return one.memory == share.memory && one.cores == share.cores; };
    const auto found = std::find_if(card.mig_profiles.begin(), card.mig_profiles.end(), same);
    return found == card.mig_profiles.end() ? nullptr : &*found;
  }
};

}  // namespace

void AddEnflame(const OtherSections& config, Vendors& out) {
  const Section section(config, "enflame");
  PlainSpec whole{.key = "GCU",
                  .count_resource = section.Text("resourceNameGCU"),
                  .default_cores = kWholeCard,
                  .exclusive = false,
                  .takes_lock = false};
  whole.GrantAs("enflame-gcu");
  AddNamed(std::make_unique<EnflameCards>(std::move(whole)), out);
  std::string slices = section.Text("resourceNameDRSGCU");
  if (slices.empty()) slices = section.Text("resourceNameVGCU");
  PlainSpec shares{.key = "Enflame",
                   .count_resource = std::move(slices),
                   .memory_resource = section.Text("resourceNameGCUMemory"),
                   .core_resource = section.Text("resourceNameGCUCore"),
                   .memory_unit = kMiBOfGB,
                   .exclusive = false,
                   .registered = "enflame.com/gcu-drs-capacity",
                   .takes_lock = false};
  shares.GrantAs("enflame-vgpu");
  shares.to_allocate.clear();
  shares.ListUuids("enflame.com");
  AddNamed(std::make_unique<EnflameSlices>(std::move(shares)), out);
}

}  // namespace hami::device
