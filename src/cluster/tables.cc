// SPDX-License-Identifier: Apache-2.0

#include "cluster/tables.h"

#include <algorithm>

#include "base/strings.h"
#include "base/units.h"
#include "cluster/fields.h"
#include "kube/timestamp.h"

namespace hami::cluster {
namespace {

using base::Printable;
using base::Style;
using base::Table;

constexpr auto kRight = Table::Align::kRight;
constexpr std::size_t kBarCells = 16;
constexpr std::size_t kMostNames = 8;

std::string Memory(const json::object& row, std::string_view key) {
  return base::FormatBytes(static_cast<std::uint64_t>(std::max<std::int64_t>(0, Number(row, key))) * base::kMiB);
}

std::string Count(const json::object& row, std::string_view key) { return std::to_string(Number(row, key)); }

std::string Percent(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? std::to_string(100 * part / whole) + " %" : "-";
}

Style StyleOf(std::string_view state) {
  if (state == "healthy" || state == "bound") return Style::kGreen;
  if (state == "unhealthy" || state == "unreadable") return Style::kRed;
  return Style::kYellow;
}

std::string NodeState(const json::object& node) {
  if (!Flag(node, "readable")) return "a grant cannot be read";
  if (Number(node, "unusable_cards") > 0) return Count(node, "unusable_cards") + " cards not usable";
  return node.contains("lock") && node.at("lock").is_object() ? "locked" : "healthy";
}

std::vector<std::string> NodeLines(const json::array& nodes, bool bars, const base::Terminal& terminal) {
  std::vector<Table::Column> columns{{"NODE"}, {"CARDS", kRight}, {"MEMORY", kRight}, {"OF", kRight}};
  if (bars) columns.push_back({""});
  for (const char* title : {"CORES", "SHARES", "PODS"}) columns.push_back({title, kRight});
  columns.push_back({"STATE"});
  Table table(std::move(columns));
  for (const json::value& value : nodes) {
    const json::object& node = Object(value);
    const std::string state = NodeState(node);
    std::vector<Table::Cell> row{Printable(Text(node, "name")), Count(node, "cards"), Memory(node, "used_memory_mib"),
                                 Memory(node, "memory_mib")};
    const auto memory = static_cast<double>(std::max<std::int64_t>(1, Number(node, "memory_mib")));
    const double part = static_cast<double>(Number(node, "used_memory_mib")) / memory;
    if (bars) row.push_back(base::Bar(terminal, std::clamp(part, 0.0, 1.0), kBarCells));
    row.push_back(Percent(Number(node, "used_cores"), Number(node, "cores")));
    row.push_back(Count(node, "used_shares"));
    row.push_back(Count(node, "pods"));
    row.push_back({state, StyleOf(state)});
    table.Add(std::move(row));
  }
  if (table.empty()) return {"no node has registered a card; hami doctor cluster says why"};
  return table.Lines(terminal);
}

std::vector<std::string> TopLines(const json::object& top, const base::Terminal& terminal) {
  std::vector<std::string> lines{base::Concat(
      {Count(top, "nodes_count"), " nodes, ", Count(top, "cards"), " cards (", Count(top, "unusable_cards"),
       " not usable), memory ", Memory(top, "used_memory_mib"), " of ", Memory(top, "memory_mib"), " given (",
       Percent(Number(top, "used_memory_mib"), Number(top, "memory_mib")), "), cores ",
       Percent(Number(top, "used_cores"), Number(top, "cores")), ", ", Count(top, "pods"), " pods, ",
       Count(top, "waiting"), " wait"})};
  for (std::string& line : NodeLines(List(top, "nodes"), true, terminal)) lines.push_back(std::move(line));
  return lines;
}

std::vector<std::string> CardLines(const json::array& cards, const base::Terminal& terminal) {
  Table table({{"NODE"},
               {"CARD", kRight},
               {"TYPE"},
               {"MODE"},
               {"MEMORY", kRight},
               {"OF", kRight},
               {"CORES", kRight},
               {"SHARES", kRight},
               {"STATE"},
               {"UUID"}});
  for (const json::value& value : cards) {
    const json::object& card = Object(value);
    const std::string state = Text(card, "state");
    table.Add({Printable(Text(card, "node")),
               Count(card, "index"),
               Printable(Text(card, "type")),
               Printable(Text(card, "mode")),
               Memory(card, "used_memory_mib"),
               Memory(card, "memory_mib"),
               Count(card, "used_cores") + " %",
               Count(card, "used_shares") + "/" + Count(card, "shares"),
               {state, StyleOf(state)},
               Printable(Text(card, "uuid"))});
  }
  if (table.empty()) return {"no node has registered a card; hami doctor cluster says why"};
  return table.Lines(terminal);
}

std::string FirstReason(const json::object& pod) {
  const json::array& reasons = List(pod, "reasons");
  return reasons.empty() ? "" : Text(Object(reasons.front()), "reason");
}

std::vector<std::string> PodLines(const json::array& pods, const base::Terminal& terminal) {
  Table table(
      {{"NAMESPACE"}, {"POD"}, {"STATE"}, {"NODE"}, {"CARDS", kRight}, {"MEMORY", kRight}, {"CORES", kRight}, {"WHY"}});
  for (const json::value& value : pods) {
    const json::object& pod = Object(value);
    const std::string state = Text(pod, "state");
    const bool waits = state == "waiting";
    table.Add({Printable(Text(pod, "namespace")),
               Printable(Text(pod, "name")),
               {state, StyleOf(state)},
               waits ? "-" : Printable(Text(pod, "node")),
               waits ? "-" : std::to_string(List(pod, "cards").size()),
               waits ? "-" : Memory(pod, "memory_mib"),
               waits ? "-" : Count(pod, "cores") + " %",
               waits ? Printable(FirstReason(pod)) : ""});
  }
  if (table.empty()) return {"no pod has a GPU or waits for one"};
  return table.Lines(terminal);
}

std::string NamesOf(const json::object& group) {
  std::string text;
  const json::array& nodes = List(group, "nodes");
  for (std::size_t i = 0; i < std::min(nodes.size(), kMostNames); ++i) {
    const json::string* name = nodes[i].if_string();
    text += (text.empty() ? "" : ", ") + (name == nullptr ? "?" : Printable(*name));
  }
  const std::int64_t more = Number(group, "count") - static_cast<std::int64_t>(std::min(nodes.size(), kMostNames));
  if (more > 0) text += (text.empty() ? "" : " ") + ("+" + std::to_string(more));
  return text;
}

std::vector<std::string> WhyLines(const json::array& pods, std::int64_t now, const base::Terminal& terminal) {
  std::vector<std::string> lines;
  for (const json::value& value : pods) {
    const json::object& pod = Object(value);
    const std::string name = Printable(Text(pod, "namespace") + "/" + Text(pod, "name"));
    if (Text(pod, "state") != "waiting") {
      lines.push_back(base::Concat({name, " is ", Text(pod, "state"), " on ", Printable(Text(pod, "node")), ": ",
                                    std::to_string(List(pod, "cards").size()), " cards, ", Memory(pod, "memory_mib"),
                                    ", ", Count(pod, "cores"), " % of cores"}));
      continue;
    }
    lines.push_back(name + " waits for " + base::FormatAge(now - Number(pod, "since")));
    Table table({{"NODES", kRight}, {"WHY NOT"}, {"WHICH"}});
    for (const json::value& group : List(pod, "reasons")) {
      table.Add({Count(Object(group), "count"), Printable(Text(Object(group), "reason")), NamesOf(Object(group))});
    }
    if (table.empty()) lines.emplace_back("no node is registered");
    for (std::string& line : table.Lines(terminal)) lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<std::string> LockLines(const json::array& locks, std::int64_t now, const base::Terminal& terminal) {
  Table table({{"NODE"}, {"HOLDER"}, {"SINCE"}, {"AGE", kRight}});
  for (const json::value& value : locks) {
    const json::object& lock = Object(value);
    const std::string pod = Text(lock, "pod");
    const auto since = kube::ParseUnixTime(Text(lock, "since"));
    table.Add({Printable(Text(lock, "node")),
               pod.empty() ? "names no pod" : Printable(Text(lock, "namespace") + "/" + pod),
               Printable(Text(lock, "since")), since ? base::FormatAge(std::max<std::int64_t>(0, now - *since)) : "-"});
  }
  if (table.empty()) return {"no node is locked"};
  return table.Lines(terminal);
}

std::vector<std::string> QuotaLines(const json::array& quotas, const base::Terminal& terminal) {
  Table table({{"NAMESPACE"}, {"RESOURCE"}, {"USED", kRight}, {"LIMIT", kRight}});
  for (const json::value& value : quotas) {
    const json::object& line = Object(value);
    const bool limited = line.contains("limit") && line.at("limit").is_number();
    table.Add({Printable(Text(line, "namespace")), Printable(Text(line, "resource")), Count(line, "used"),
               limited ? Count(line, "limit") : "none"});
  }
  if (table.empty()) return {"no namespace holds or limits anything"};
  return table.Lines(terminal);
}

}  // namespace

std::vector<std::string> Lines(const json::value& selected, const Look& look, std::int64_t now,
                               const base::Terminal& terminal) {
  static const json::array kNone;
  const json::array& list = selected.is_array() ? selected.get_array() : kNone;
  switch (look.view) {
    case View::kTop:
      return TopLines(Object(selected), terminal);
    case View::kNodes:
      return NodeLines(list, false, terminal);
    case View::kCards:
      return CardLines(list, terminal);
    case View::kPods:
      return PodLines(list, terminal);
    case View::kWhy:
      return WhyLines(list, now, terminal);
    case View::kLocks:
      return LockLines(list, now, terminal);
    case View::kQuotas:
      return QuotaLines(list, terminal);
  }
  return {};
}

}  // namespace hami::cluster
