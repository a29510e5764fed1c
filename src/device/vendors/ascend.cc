// SPDX-License-Identifier: Apache-2.0
//
// Ascend: each chip of the configuration is a vendor of its own, told by its common word. A card is given whole, in the
// chip's templates (vNPU, hard split), or by memory and cores where its node supports that (hami-core, soft split).
// Cards of one network lie together, and the two halves of a 910C module are given together.

#include <algorithm>
#include <map>

#include "base/strings.h"
#include "device/amount.h"
#include "device/json_edit.h"
#include "device/vendors/plain.h"
#include "device/vendors/sections.h"

namespace hami::device {
namespace {

namespace json = base::json;

constexpr const char* kMode = "huawei.com/vnpu-mode";
constexpr const char* kSoftNode = "hami-vnpu-core";
constexpr int kHalves = 2;  // of a 910C module

struct Template {
  std::string name;
  MiB memory = 0;
};

struct Chip {
  MiB allocatable = 0;  // of a whole card
  MiB capacity = 0;
  std::vector<Template> templates;
  bool super_pod = false;
  bool soft = false;  // nodes support hami-core, unless they say otherwise
  bool overwrite_env = false;
  std::string runtime_class;
};

class AscendVendor final : public PlainVendor {
 public:
  AscendVendor(PlainSpec spec, Chip chip) : PlainVendor(std::move(spec)), chip_(std::move(chip)) {}

  std::vector<std::string_view> node_annotations() const override { return {kSoftNode}; }

  base::Result<bool> Mutate(json::object& object, PodDraft& pod, Warnings& warnings) const override {
    const auto uses = PlainVendor::Mutate(object, pod, warnings);
    HAMI_TRY(uses);
    if (!*uses) {
      if (chip_.overwrite_env) SetEnv(object, "ASCEND_VISIBLE_DEVICES", "");
      return false;
    }
    const Container container = ReadContainer(object);
    const auto count = Amount(container, spec().count_resource);
    HAMI_TRY(count);
    HAMI_TRY(WholeModules(object, count->value_or(0)));
    if (TextAt(pod.annotations, kMode) != kModeHamiCore) HAMI_TRY(HardSplit(object, container, count->value_or(0)));
    if (!chip_.runtime_class.empty() && base::GetString(pod.spec, "runtimeClassName").value_or("").empty()) {
      pod.spec["runtimeClassName"] = chip_.runtime_class;
    }
    return true;
  }

  bool has_bonus() const override { return spec().key.starts_with(kNetworked); }
  // The more of a container's cards are in one network, the better. Spread takes the lowest score.
  float Bonus(const BonusInput& input) const override {
    float bonus = 0;
    for (const Picks& picks : input.picks) {
      const auto alone = [&](const Pick& pick) { return CardAt(input.cards, pick).group < 0; };
      if (std::any_of(picks.begin(), picks.end(), alone)) return 0;
      constexpr float kWeight = 10;
      const auto together = static_cast<float>(ByGroup(input.cards, picks).front().size());
      bonus += kWeight * together / static_cast<float>(picks.size());
    }
    return input.spread ? -bonus : bonus;
  }

  void Annotate(const GrantInfo& grant, StringMap& out) const override {
    json::array cards;
    for (const ContainerGrant& row : grant.grant) {
      for (const Share& share : row) {
        json::object card{{"UUID", share.uuid}};
        if (!IsSoft(grant.rules)) card["temp"] = TemplateOf(share.memory);
        card["memory"] = share.memory;
        card["core"] = share.cores;
        cards.push_back(std::move(card));
      }
    }
    out["huawei.com/" + spec().key] = json::serialize(cards);
    out["predicate-time"] = std::to_string(grant.now);
  }

  // Soft shares are of percents, whatever number of cores the card registers.
  std::optional<Want> WantOf(const Device& card, const Request& request, const CardRules& rules) const override {
    std::optional<Want> want = PlainVendor::WantOf(card, request, rules);
    if (IsSoft(rules)) want->all_cores = kWholeCard;
    return want;
  }
  std::int64_t AllCoreParts(const Device& card) const override {
    return card.mode == kModeHamiCore ? kWholeCard : card.cores;
  }

  FitResult Fit(const FitInput& input) const override {
    FitResult result;
    const auto supports = [&](int card) { return CardOf(input, card).device->mode == kModeHamiCore; };
    if (IsSoft(input.rules) && !std::any_of(input.walk.begin(), input.walk.end(), supports)) {
      result.reasons.Add(Reason::kModeNotFit);
      return result;
    }
    result = PlainVendor::Fit(input);
    if (InModules(input)) result.judged = input.request.count;
    return result;
  }

 protected:
  void Adopt(Device& device, const NodeFacts& node) const override {
    device.group = static_cast<int>(NumberIn(CustomInfo(device), "NetworkID", -1));
    const std::string* soft = Find(node.annotations, kSoftNode);
    if (soft == nullptr ? chip_.soft : *soft == "true") device.mode = kModeHamiCore;
  }

  bool Chooses(const FitInput& input) const override {
    const auto networked = [&](int card) { return CardOf(input, card).device->group >= 0; };
    return InModules(input) ||
           (spec().key.starts_with(kNetworked) && std::all_of(input.walk.begin(), input.walk.end(), networked));
  }

  Picks Choose(const FitInput& input, Picks picks) const override {
    const auto wanted = static_cast<std::size_t>(input.request.count);
    Picks chosen;
    if (InModules(input)) {
      std::map<int, Picks> modules;
      for (const Pick& pick : ByIndex(input, std::move(picks)))
        modules[CardAt(input.cards, pick).index / kHalves].push_back(pick);
      for (const auto& [number, halves] : modules) {
        if (halves.size() == kHalves && chosen.size() < wanted)
          chosen.insert(chosen.end(), halves.begin(), halves.end());
      }
      return chosen;
    }
    if (wanted == 1) return {picks.front()};
    for (const Picks& network : ByGroup(input.cards, picks)) {
      for (const Pick& pick : network) {
        if (chosen.size() < wanted) chosen.push_back(pick);
      }
    }
    return chosen;
  }

 private:
  static constexpr std::string_view kNetworked = "Ascend910";
  static const CardView& CardOf(const FitInput& input, int card) { return input.cards[static_cast<std::size_t>(card)]; }
  static bool IsSoft(const CardRules& rules) { return TextAt(rules.words, kMode) == kModeHamiCore; }
  bool InModules(const FitInput& input) const { return spec().key == "Ascend910C" && input.request.count > 1; }

  // The smallest template that holds MEMORY; empty: a whole card.
  std::string TemplateOf(MiB memory) const {
    const auto fits = [&](const Template& one) { return one.memory >= memory; };
    const auto found = std::find_if(chip_.templates.begin(), chip_.templates.end(), fits);
    return found == chip_.templates.end() ? std::string() : found->name;
  }

  void SetBoth(json::object& object, const std::string& resource, std::int64_t amount) const {
    for (const char* kind : {"limits", "requests"}) SetQuantity(object, kind, resource, std::to_string(amount));
  }

  base::Status WholeModules(json::object& object, std::int64_t count) const {
    if (!chip_.super_pod) return {};
    if (count > 1 && count % kHalves != 0) {
      return base::Fail(base::Concat({spec().key, " device request must be 1 or 2*n, got ", std::to_string(count)}));
    }
    if (count == 1) SetBoth(object, spec().count_resource, kHalves);
    return {};
  }

  base::Status HardSplit(json::object& object, const Container& container, std::int64_t count) const {
    const auto cores = Amount(container, spec().core_resource);
    HAMI_TRY(cores);
    if (cores->value_or(0) > 0) {
      return base::Fail(spec().core_resource + " is only supported in hami-core (soft split) mode");
    }
    if (spec().memory_resource.empty()) return {};
    const auto asked = Memory(container, spec().memory_resource);
    HAMI_TRY(asked);
    const MiB memory = asked->value_or(0) > 0 ? Rounded(**asked) : chip_.allocatable;
    if (memory == 0 && *asked) {
      return base::Fail(
          base::Concat({spec().memory_resource, " ", base::Printable(*TextOf(container, spec().memory_resource)),
                        " is invalid: a card has ", std::to_string(chip_.capacity), " MiB"}));
    }
    if (memory == 0) return {};
    if (count > 1 && memory != chip_.allocatable) return base::Fail("vNPU not supported for multiple devices");
    SetBoth(object, spec().memory_resource, (memory + spec().memory_unit - 1) / spec().memory_unit);
    return {};
  }

  // 0: more than a card has.
  MiB Rounded(MiB memory) const {
    for (const Template& one : chip_.templates) {
      if (one.memory >= memory) return one.memory;
    }
    return memory <= chip_.capacity ? chip_.allocatable : 0;
  }

  Chip chip_;
};

Chip ReadChip(const Section& section) {
  Chip chip;
  chip.allocatable = section.Integer("memoryAllocatable");
  chip.capacity = section.Integer("memoryCapacity");
  chip.super_pod = section.Flag("superPod");
  chip.overwrite_env = section.Flag("overwriteEnv");
  chip.runtime_class = section.Text("runtimeClassName");
  for (const Section& one : section.Inner("templates").Members()) {
    chip.templates.push_back({one.Text("name"), one.Integer("memory")});
  }
  std::stable_sort(chip.templates.begin(), chip.templates.end(),
                   [](const Template& a, const Template& b) { return a.memory < b.memory; });
  return chip;
}

}  // namespace

void AddAscend(const OtherSections& config, Vendors& out) {
  const Section section(config, "vnpus");
  for (const Section& one : section.Inner("configs").Members()) {
    const std::string word = one.Text("commonWord");
    if (word.empty()) continue;
    Chip chip = ReadChip(one);
    chip.soft = section.Flag("hamiVnpuCore");
    PlainSpec spec{.key = word,
                   .count_resource = one.Text("resourceName"),
                   .memory_resource = one.Text("resourceMemoryName"),
                   .core_resource = one.Text("resourceCoreName"),
                   .memory_unit = std::max<std::int64_t>(one.Integer("memoryFactor"), 1),
                   .registered = base::Concat({kHamiDomain, "node-register-", word}),
                   .handshake = base::Concat({kHamiDomain, "node-handshake-", word}),
                   .use_uuid = {base::Concat({kHamiDomain, "use-", word, "-uuid"})},
                   .avoid_uuid = {base::Concat({kHamiDomain, "no-use-", word, "-uuid"})},
                   .words = {kMode}};
    spec.GrantAs(word);
    AddNamed(std::make_unique<AscendVendor>(std::move(spec), std::move(chip)), out);
  }
}

}  // namespace hami::device
