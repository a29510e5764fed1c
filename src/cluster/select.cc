// SPDX-License-Identifier: Apache-2.0

#include <string.h>  // strverscmp

#include <algorithm>
#include <vector>

#include "cluster/fields.h"
#include "cluster/tables.h"

namespace hami::cluster {
namespace {

// By name, numbers in it by what they count: node-2 comes before node-10, as on the page.
std::vector<const json::value*> NodesOf(const json::object& document) {
  std::vector<const json::value*> nodes;
  for (const json::value& node : List(document, "nodes")) nodes.push_back(&node);
  std::stable_sort(nodes.begin(), nodes.end(), [](const json::value* a, const json::value* b) {
    return strverscmp(Text(Object(*a), "name").c_str(), Text(Object(*b), "name").c_str()) < 0;
  });
  return nodes;
}

json::object CardRow(const json::object& node, const json::object& card) {
  json::object row{{"node", Text(node, "name")}};
  for (const auto& [key, value] : card) row[key] = value;
  row["state"] = StateOf(card);
  return row;
}

json::object NodeRow(const json::object& node) {
  std::int64_t memory = 0, used = 0, cores = 0, used_cores = 0, shares = 0, unusable = 0;
  for (const json::value& value : List(node, "cards")) {
    const json::object& card = Object(value);
    memory += Number(card, "memory_mib");
    used += Number(card, "used_memory_mib");
    cores += Number(card, "cores");
    used_cores += Number(card, "used_cores");
    shares += Number(card, "used_shares");
    unusable += StateOf(card) == "healthy" ? 0 : 1;
  }
  const bool readable = !node.contains("readable") || node.at("readable") != false;
  return {{"name", Text(node, "name")},
          {"cards", List(node, "cards").size()},
          {"unusable_cards", unusable},
          {"memory_mib", memory},
          {"used_memory_mib", used},
          {"cores", cores},
          {"used_cores", used_cores},
          {"used_shares", shares},
          {"pods", List(node, "pods").size()},
          {"readable", readable},
          {"lock", node.contains("lock") ? node.at("lock") : json::value()}};
}

json::array Cards(const json::object& document) {
  json::array rows;
  for (const json::value* node : NodesOf(document)) {
    for (const json::value& card : List(Object(*node), "cards")) rows.push_back(CardRow(Object(*node), Object(card)));
  }
  return rows;
}

json::array Nodes(const json::object& document) {
  json::array rows;
  for (const json::value* node : NodesOf(document)) rows.push_back(NodeRow(Object(*node)));
  return rows;
}

json::object PodRow(const json::object& node, const json::object& pod) {
  std::int64_t memory = 0, cores = 0;
  json::array cards;
  for (const json::value& value : List(pod, "shares")) {
    const json::object& share = Object(value);
    memory += Number(share, "memory_mib");
    cores += Number(share, "cores");
    const std::int64_t card = Number(share, "card");
    const json::array& all = List(node, "cards");
    const bool known = card >= 0 && static_cast<std::size_t>(card) < all.size();
    cards.push_back(known ? json::value(Text(Object(all[static_cast<std::size_t>(card)]), "uuid")) : json::value());
  }
  return {{"namespace", Text(pod, "namespace")},
          {"name", Text(pod, "name")},
          {"state", Text(pod, "state")},
          {"node", Text(node, "name")},
          {"cards", cards},
          {"memory_mib", memory},
          {"cores", cores}};
}

json::object WaitingRow(const json::object& pod) {
  return {{"namespace", Text(pod, "namespace")},
          {"name", Text(pod, "name")},
          {"state", "waiting"},
          {"since", Number(pod, "since")},
          {"reasons", List(pod, "reasons")}};
}

json::array Pods(const json::object& document, const std::string& ns) {
  json::array rows;
  const auto wanted = [&](const json::object& pod) { return ns.empty() || Text(pod, "namespace") == ns; };
  for (const json::value& value : List(document, "waiting")) {
    if (wanted(Object(value))) rows.push_back(WaitingRow(Object(value)));
  }
  for (const json::value* node : NodesOf(document)) {
    for (const json::value& pod : List(Object(*node), "pods")) {
      if (wanted(Object(pod))) rows.push_back(PodRow(Object(*node), Object(pod)));
    }
  }
  return rows;
}

json::array Locks(const json::object& document, const std::string& ns) {
  json::array rows;
  for (const json::value* value : NodesOf(document)) {
    const json::object& node = Object(*value);
    const json::value* lock = node.if_contains("lock");
    if (lock == nullptr || !lock->is_object()) continue;
    if (!ns.empty() && Text(lock->get_object(), "namespace") != ns) continue;
    json::object row{{"node", Text(node, "name")}};
    for (const auto& [key, member] : lock->get_object()) row[key] = member;
    rows.push_back(std::move(row));
  }
  return rows;
}

json::array Quotas(const json::object& document, const std::string& ns) {
  json::array rows;
  for (const json::value& line : List(document, "quotas")) {
    if (ns.empty() || Text(Object(line), "namespace") == ns) rows.push_back(line);
  }
  return rows;
}

json::object Top(const json::object& document) {
  json::array nodes = Nodes(document);
  std::stable_sort(nodes.begin(), nodes.end(), [](const json::value& a, const json::value& b) {
    return Number(Object(a), "used_memory_mib") > Number(Object(b), "used_memory_mib");
  });
  json::object sum{{"nodes_count", nodes.size()}, {"waiting", List(document, "waiting").size()}};
  for (const char* key :
       {"cards", "unusable_cards", "memory_mib", "used_memory_mib", "cores", "used_cores", "used_shares", "pods"}) {
    std::int64_t total = 0;
    for (const json::value& node : nodes) total += Number(Object(node), key);
    sum[key] = total;
  }
  sum["nodes"] = std::move(nodes);
  return sum;
}

base::Result<json::value> Why(const json::object& document, const Look& look) {
  const std::size_t slash = look.pod.find('/');
  const std::string ns = slash == std::string::npos ? look.ns : look.pod.substr(0, slash);
  const std::string name = slash == std::string::npos ? look.pod : look.pod.substr(slash + 1);
  json::array found;
  for (json::value& row : Pods(document, ns)) {
    if (Text(Object(row), "name") == name) found.push_back(std::move(row));
  }
  if (!found.empty()) return json::value(std::move(found));
  return base::Fail("no pod " + look.pod + " waits for a GPU or has one",
                    "a pod that asks for none is none of ours; hami cluster pods lists the others");
}

}  // namespace

base::Result<json::value> Select(const json::value& document, const Look& look) {
  const json::object& root = Object(document);
  switch (look.view) {
    case View::kTop:
      return json::value(Top(root));
    case View::kNodes:
      return json::value(Nodes(root));
    case View::kCards:
      return json::value(Cards(root));
    case View::kPods:
      return json::value(Pods(root, look.ns));
    case View::kWhy:
      return Why(root, look);
    case View::kLocks:
      return json::value(Locks(root, look.ns));
    case View::kQuotas:
      return json::value(Quotas(root, look.ns));
  }
  return json::value();
}

}  // namespace hami::cluster
