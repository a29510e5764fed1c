// SPDX-License-Identifier: Apache-2.0

#include "simcluster/report.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/strings.h"
#include "sched/policy.h"

namespace hami::simcluster {
namespace {

namespace json = base::json;

constexpr std::array<const char*, 3> kNodePolicies = {"binpack", "spread", "fragmentation"};
constexpr std::array<const char*, 5> kCardPolicies = {"binpack", "spread", "fragmentation", "mutex", "topology-aware"};

template <std::size_t N>
base::Status Known(const std::array<const char*, N>& policies, const std::string& name) {
  if (std::find(policies.begin(), policies.end(), name) != policies.end()) return {};
  const std::vector<std::string> all(policies.begin(), policies.end());
  const auto near = base::Nearest(name, all);
  return base::Fail("'" + base::Printable(name) + "' is no policy" + (near ? "; is it " + *near + "?" : ""),
                    "Policies: " + base::Join(all, ", ") + ", or NODE/CARD such as binpack/spread.");
}

std::string Text(const char* format, double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

double PercentOf(std::int64_t part, std::int64_t all) {
  return all == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(all);
}

json::object MoveOf(const Move& move) {
  return {{"pod", move.pod},
          {"from", {{"node", move.from_node}, {"card", move.from_card}}},
          {"to", {{"node", move.to_node}, {"card", move.to_card}}}};
}

}  // namespace

base::Result<std::vector<NamedPolicy>> ParsePolicies(const std::vector<std::string>& names) {
  std::vector<NamedPolicy> out;
  for (const std::string& name : names) {
    const std::size_t slash = name.find('/');
    NamedPolicy one{name, {name, name}, {}};
    if (slash != std::string::npos) one.policy = {name.substr(0, slash), name.substr(slash + 1)};
    HAMI_TRY(Known(kNodePolicies, one.policy.node));
    HAMI_TRY(Known(kCardPolicies, one.policy.device));
    out.push_back(std::move(one));
  }
  return out;
}

std::string TableOf(const std::vector<Row>& rows, bool with_advice) {
  std::size_t width = 6;
  for (const Row& row : rows) width = std::max(width, row.policy.size());
  const auto padded = [&](const std::string& text) { return text + std::string(width - text.size(), ' '); };
  std::string out = padded("POLICY") + "  ALLOCATED    PEAK  REFUSED  WAITED   LOST  FREE CARDS  FRAGMENTED  WHOLE\n";
  for (const Row& row : rows) {
    const Report& r = row.report;
    out += padded(row.policy) + Text("  %8.2f %%", PercentOf(r.allocated, r.capacity)) +
           Text(" %7.2f", PercentOf(r.most_allocated, r.capacity)) + Text("  %7.0f", static_cast<double>(r.refused)) +
           Text(" %7.0f", static_cast<double>(r.waited)) + Text(" %6.0f", static_cast<double>(r.lost)) +
           Text(" %11.1f", r.free) + Text(" %11.1f", r.fragmented) +
           Text(" %6.0f", static_cast<double>(r.whole_cards)) + "\n";
  }
  if (!with_advice) return out;
  for (const Row& row : rows) {
    out += base::Concat({"\n", row.policy, ": ", std::to_string(row.advice.moves.size()), " moves would free ",
                         std::to_string(row.advice.freed), " whole cards\n"});
    for (const Move& move : row.advice.moves) {
      out += base::Concat({"  ", base::Printable(move.pod), "  ", base::Printable(move.from_card), " -> ",
                           base::Printable(move.to_card), "\n"});
    }
  }
  return out;
}

json::object JsonOf(const std::vector<Row>& rows, bool with_advice) {
  json::array policies;
  for (const Row& row : rows) {
    const Report& r = row.report;
    json::object one{{"policy", row.policy},
                     {"capacity_milli", r.capacity},
                     {"submitted_milli", r.submitted},
                     {"allocated_milli", r.allocated},
                     {"most_allocated_milli", r.most_allocated},
                     {"mean_allocated_milli", r.mean_allocated},
                     {"pods", r.pods},
                     {"refused", r.refused},
                     {"waited", r.waited},
                     {"lost", r.lost},
                     {"free_cards", r.free},
                     {"fragmented_cards", r.fragmented},
                     {"whole_cards", r.whole_cards}};
    if (with_advice) {
      json::array moves;
      for (const Move& move : row.advice.moves) moves.push_back(MoveOf(move));
      one["advice"] = json::object{{"freed_cards", row.advice.freed}, {"moves", std::move(moves)}};
    }
    policies.push_back(std::move(one));
  }
  return {{"policies", std::move(policies)}};
}

}  // namespace hami::simcluster
