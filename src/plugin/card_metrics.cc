// SPDX-License-Identifier: Apache-2.0

#include "plugin/card_metrics.h"

#include "base/exposition.h"

namespace hami::plugin {

// The reasons are those of health.h: a few words each, of a small number.
std::string RenderCardMetrics(const std::string& node, const Cards& cards) {
  base::Exposition page;
  page.Family("hami_device_plugin_gpu_healthy", base::Exposition::Type::kGauge, "1 while the GPU is given out");
  for (const auto* list : {&cards.cards, &cards.parts}) {
    for (const Card& card : *list) {
      page.Sample(base::LabelText{{"node", node}, {"device_uuid", card.uuid}, {"reason", card.trouble}},
                  std::uint64_t{card.healthy ? 1U : 0U});
    }
  }
  for (const SickInstance& one : cards.sick) {
    page.Sample(base::LabelText{{"node", node}, {"device_uuid", one.uuid}, {"reason", one.trouble}}, std::uint64_t{0});
  }
  return page.Take();
}

}  // namespace hami::plugin
