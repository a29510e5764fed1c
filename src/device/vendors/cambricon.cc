// SPDX-License-Identifier: Apache-2.0
//
// Cambricon's MLUs: the node's capacity tells how many cards there are and how large, its plugin reads one profile per
// pod, and takes pods one at a time by a lock of its own.

#include <algorithm>

#include "base/strings.h"
#include "device/vendors/plain.h"
#include "device/vendors/sections.h"

namespace hami::device {
namespace {

constexpr std::int64_t kMemoryUnit = 256;  // MiB

class CambriconVendor final : public PlainVendor {
 public:
  using PlainVendor::PlainVendor;

  void Annotate(const GrantInfo& grant, StringMap& out) const override {
    for (const auto& row : WithCards(grant)) {
      if (row.empty()) continue;
      const auto& [share, card] = row.front();
      out["CAMBRICON_DSMLU_ASSIGNED"] = "false";
      out["CAMBRICON_DSMLU_PROFILE"] = base::Concat({std::to_string(card->index), "_", std::to_string(share->cores),
                                                     "_", std::to_string(share->memory / kMemoryUnit)});
      return;
    }
  }

  bool Registers(const NodeFacts& node) const override { return CapacityOf(node, spec().core_resource) >= kWholeCard; }

 protected:
  base::Result<NodeCards> CountCards(const NodeFacts& node) const override {
    const std::int64_t cores = CapacityOf(node, spec().core_resource);
    Device card;
    card.type = key();
    card.count = kWholeCard;
    card.cores = kWholeCard;
    card.memory =
        CapacityOf(node, spec().memory_resource) * kMemoryUnit * kWholeCard / std::max<std::int64_t>(cores, 1);
    NodeCards cards;
    cards.devices = CardsLike(card, node, "cambricon-mlu", cores / kWholeCard);
    return cards;
  }
};

}  // namespace

void AddCambricon(const OtherSections& config, Vendors& out) {
  const Section section(config, "cambricon");
  PlainSpec spec{.key = "MLU",
                 .count_resource = section.Text("resourceCountName"),
                 .memory_resource = section.Text("resourceMemoryName"),
                 .core_resource = section.Text("resourceCoreName"),
                 .memory_unit = kMemoryUnit,
                 .default_cores = kWholeCard,
                 .takes_lock = false,
                 .own_lock = "cambricon.com/dsmlu.lock"};
  spec.GrantAs("cambricon-mlu");
  spec.ListUuids("cambricon.com");
  AddNamed(std::make_unique<CambriconVendor>(std::move(spec)), out);
}

}  // namespace hami::device
