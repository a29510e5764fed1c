// SPDX-License-Identifier: Apache-2.0

#include "sched/decision.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>

#include "base/strings.h"

namespace hami::sched {
namespace {

std::string List(const std::vector<std::string>& items, std::size_t most) {
  if (most == 0 || items.size() <= most) return base::Join(items, ",");
  return base::Join({items.begin(), items.begin() + static_cast<std::ptrdiff_t>(most)}, ",") + ",…";
}

// `3/8 CardInsufficientMemory, 5/8 CardTypeMismatch` → its words; a text without counts is a word by itself.
std::vector<std::string> Kinds(const std::string& reason) {
  const bool counted = !reason.empty() && reason[0] >= '0' && reason[0] <= '9';
  if (!counted) return {reason};
  std::vector<std::string> kinds;
  for (const std::string& part : base::Split(reason, ',')) {
    const std::string_view entry = base::Trim(part);
    const std::size_t blank = entry.find(' ');
    kinds.emplace_back(blank == std::string_view::npos ? entry : entry.substr(blank + 1));
  }
  return kinds;
}

Event Success(const Decision& decision, std::size_t max_nodes) {
  if (decision.offered.size() > 1) {  // kube-scheduler chooses
    return {false, "FilteringSucceed",
            base::Concat({"find ", std::to_string(decision.offered.size()), " fit nodes among ",
                          std::to_string(decision.candidates), " nodes, the best is node(", decision.node, ")"})};
  }
  if (decision.fits.empty()) {  // it was not asked for every node's answer
    return {false, "FilteringSucceed",
            base::Concat({"find fit node(", decision.node, ") among ", std::to_string(decision.candidates), " nodes"})};
  }
  std::vector<std::string> scores;
  for (const NodeScore& fit : decision.fits) {
    std::array<char, 64> score = {};
    std::snprintf(score.data(), score.size(), "%.2f", static_cast<double>(fit.score));
    scores.push_back(base::Concat({fit.node, ":", score.data()}));
  }
  const std::size_t fits = decision.fits.size();
  return {false, "FilteringSucceed",
          base::Concat({"find fit node(", decision.node, "), ", std::to_string(decision.candidates - fits),
                        " nodes not fit, ", std::to_string(fits), " nodes fit(", List(scores, max_nodes), ")"})};
}

std::vector<Event> Failure(const Decision& decision, std::size_t max_nodes) {
  std::map<std::string, std::vector<std::string>> kinds;
  for (const NodeReason& failure : decision.failures) {
    for (const std::string& kind : Kinds(failure.reason)) kinds[kind].push_back(failure.node);
  }
  std::vector<Event> events;
  for (auto& [kind, nodes] : kinds) {
    std::sort(nodes.begin(), nodes.end());
    events.push_back({true, "FilteringFailed",
                      base::Concat({std::to_string(nodes.size()), " nodes ", kind, "(", List(nodes, max_nodes), ")"})});
  }
  events.push_back(
      {true, "FilteringFailed",
       base::Concat({"no available node, ", std::to_string(decision.failures.size()), " nodes do not meet"})});
  if (!decision.evicts.empty()) {
    events.push_back({false, "Preempting",
                      base::Concat({"room is made on node(", decision.node, ") by the eviction of ",
                                    std::to_string(decision.evicts.size()),
                                    " pods of lower priority: ", List(decision.evicts, max_nodes)})});
  }
  return events;
}

}  // namespace

void SortFits(std::vector<NodeScore>& fits, bool spread) {
  std::sort(fits.begin(), fits.end(), [&](const NodeScore& a, const NodeScore& b) {
    if (a.score != b.score) return spread ? a.score > b.score : a.score < b.score;
    return a.node > b.node;
  });
}

std::vector<Event> EventsOf(const Decision& decision, std::size_t max_nodes) {
  switch (decision.outcome) {
    case Outcome::kNotOurs:
      return {};
    case Outcome::kPlaced:
      return {Success(decision, max_nodes)};
    case Outcome::kNoFit:
      return Failure(decision, max_nodes);
    case Outcome::kError:
      break;
  }
  return {{true, "FilteringFailed", decision.error}};
}

}  // namespace hami::sched
