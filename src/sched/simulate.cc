// SPDX-License-Identifier: Apache-2.0

#include "sched/simulate.h"

#include <utility>

#include "sched/evaluate.h"
#include "sched/node.h"

namespace hami::sched {

Decision Simulate(const device::Pod& pod, std::span<const SimulatedNode> nodes, const device::Vendors& vendors,
                  const PolicyDefaults& defaults, std::span<const QuotaRoom> room) {
  Decision decision;
  decision.candidates = nodes.size();
  const base::Result<Plan> plan = MakePlan(pod, vendors, defaults);
  if (!plan) {
    decision.error = plan.error().message;
    return decision;
  }
  decision.outcome = Outcome::kNotOurs;
  if (plan->empty()) return decision;
  for (const SimulatedNode& simulated : nodes) {
    Node node(simulated.name, vendors.size());
    for (std::size_t v = 0; v < vendors.size(); ++v) {
      // Annotations that can not be read register nothing.
      if (auto cards = vendors[v]->ReadNode(simulated.facts())) {
        node.SetCards(static_cast<int>(v), *cards, vendors);
      }
    }
    Verdict verdict = Evaluate(node, *plan, vendors, room);
    if (verdict.fits) {
      decision.fits.push_back({simulated.name, verdict.score});
    } else {
      decision.failures.push_back({simulated.name, std::move(verdict.reason)});
    }
  }
  SortFits(decision.fits, plan->spread_nodes);
  decision.outcome = decision.fits.empty() ? Outcome::kNoFit : Outcome::kPlaced;
  if (!decision.fits.empty()) {
    decision.node = decision.fits.back().node;
    decision.score = decision.fits.back().score;
  }
  return decision;
}

}  // namespace hami::sched
