// SPDX-License-Identifier: Apache-2.0
//
// Moore Threads: sixteenths of a card's cores and memory in units of 512 MiB, both as totals over the cards that are
// asked. A pod stays on the card that it got first.

#include <algorithm>
#include <array>

#include "base/strings.h"
#include "device/json_edit.h"
#include "device/quantity.h"
#include "device/vendors/plain.h"
#include "device/vendors/sections.h"

namespace hami::device {
namespace {

constexpr std::int64_t kMemoryUnit = 512;  // MiB
constexpr std::int64_t kCoresOfCard = 16;
constexpr std::int64_t kMemoryOfCard = 96;  // units, of the largest share
constexpr std::array<std::int64_t, 7> kSizes = {2, 4, 8, 16, 32, 64, 96};
constexpr std::int64_t kMostAsked = 1'000'000;

class MthreadsVendor final : public PlainVendor {
 public:
  using PlainVendor::PlainVendor;

  base::Result<std::optional<Request>> ParseRequest(const Container& container) const override {
    auto request = PlainVendor::ParseRequest(container);
    HAMI_TRY(request);
    if (!*request) return request;
    (*request)->memory /= (*request)->count;
    const auto cores = Amount(container, spec().core_resource);
    HAMI_TRY(cores);
    (*request)->cores = static_cast<int>(std::min<std::int64_t>(cores->value_or(0) / (*request)->count, kWholeCard));
    return request;
  }

  base::Result<bool> Mutate(base::json::object& object, PodDraft& pod, Warnings& warnings) const override {
    const Container container = ReadContainer(object);
    const std::string* text = Find(container.limits, spec().count_resource);
    if (text == nullptr) return PlainVendor::Mutate(object, pod, warnings);
    const auto count = ParseQuantity(*text);
    if (!count || count->value <= 0 || count->value > kMostAsked) {
      return base::Fail(base::Concat({spec().count_resource, " ", base::Printable(*text), " must be greater than 0"}));
    }
    const std::string* memory = Find(container.limits, spec().memory_resource);
    if (count->value > 1 || memory == nullptr) {
      SetQuantity(object, "limits", spec().core_resource, std::to_string(kCoresOfCard * count->value));
      SetQuantity(object, "limits", spec().memory_resource, std::to_string(kMemoryOfCard * count->value));
      if (count->value > 1) pod.added["mthreads.com/request-gpu-num"] = std::to_string(count->value);
      return true;
    }
    const auto size = ParseQuantity(*memory);
    if (!size || std::find(kSizes.begin(), kSizes.end(), size->value) == kSizes.end()) {
      return base::Fail(base::Concat({spec().memory_resource, " ", base::Printable(*memory),
                                      " must be one of 2, 4, 8, 16, 32, 64, 96 (times 512 MiB)"}));
    }
    return true;
  }

  void Annotate(const GrantInfo& grant, StringMap& out) const override {
    for (const auto& row : WithCards(grant)) {
      if (!row.empty()) out["mthreads.com/gpu-index"] = IndexesOf(row);
    }
    out["mthreads.com/predicate-time"] = Nanoseconds(grant.now);
    out["mthreads.com/predicate-node"] = grant.node;
  }

 protected:
  base::Result<NodeCards> CountCards(const NodeFacts& node) const override {
    const std::int64_t cores = CapacityOf(node, spec().core_resource);
    Device card;
    card.type = key();
    card.count = kWholeCard;
    card.cores = static_cast<int>(kCoresOfCard);
    card.memory =
        CapacityOf(node, spec().memory_resource) * kMemoryUnit * kCoresOfCard / std::max<std::int64_t>(cores, 1);
    NodeCards cards;
    cards.devices = CardsLike(card, node, "mthreads", cores / kCoresOfCard);
    return cards;
  }
  std::optional<Reason> Late(const FitInput& input, const CardView& card, const Picks& /*so_far*/) const override {
    return OffTheFirstCard(input, card);
  }

 public:
  bool Registers(const NodeFacts& node) const override {
    return CapacityOf(node, spec().core_resource) >= kCoresOfCard;
  }
};

}  // namespace

void AddMthreads(const OtherSections& config, Vendors& out) {
  const Section section(config, "mthreads");
  PlainSpec spec{.key = "Mthreads",
                 .count_resource = section.Text("resourceCountName"),
                 .memory_resource = section.Text("resourceMemoryName"),
                 .core_resource = section.Text("resourceCoreName"),
                 .memory_unit = kMemoryUnit,
                 .takes_lock = false};
  spec.GrantAs("mthreads-vgpu");
  spec.to_allocate.clear();
  spec.ListUuids("mthreads.ai");
  AddNamed(std::make_unique<MthreadsVendor>(std::move(spec)), out);
}

}  // namespace hami::device
