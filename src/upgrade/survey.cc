// SPDX-License-Identifier: Apache-2.0

#include <algorithm>

#include "base/strings.h"
#include "upgrade/plan.h"

namespace hami::upgrade {
namespace {

std::int64_t ReplicasOf(const Side& side, std::string_view pointer) {
  boost::system::error_code failed;
  const json::value* found = side.deployment.find_pointer(pointer, failed);
  return found != nullptr && found->is_int64() ? found->get_int64() : 0;
}

json::object SideOf(const Side& side) {
  return {
      {"release", side.ns + "/" + side.scheduler},      {"scheduler", side.deployment.is_object()},
      {"replicas", ReplicasOf(side, "/spec/replicas")}, {"available", ReplicasOf(side, "/status/availableReplicas")},
      {"plugin", side.daemon_set.is_object()},          {"webhook", side.hook.is_object()}};
}

const char* PluginOf(const NodeState& node) {
  if (node.hami && node.ours) return "both";
  if (node.hami) return "HAMi";
  return node.ours ? "ours" : "none";
}

// "3 nodes".
std::string Counted(std::size_t count, const char* what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

}  // namespace

json::value Survey(const Cluster& cluster) {
  json::array nodes;
  for (const NodeState& node : cluster.nodes) {
    if (!node.hami && !node.ours && node.running == 0) continue;
    nodes.push_back(json::object{{"name", node.name()},
                                 {"plugin", PluginOf(node)},
                                 {"ready", node.ready},
                                 {"pods", node.running},
                                 {"allocating", node.allocating},
                                 {"lock", node.lock}});
  }
  return json::object{{"hami", SideOf(cluster.hami)}, {"ours", SideOf(cluster.ours)}, {"nodes", std::move(nodes)}};
}

std::string SurveyText(const Cluster& cluster) {
  std::string text;
  for (const Side* side : {&cluster.hami, &cluster.ours}) {
    text += base::Concat({side->called, ": "});
    if (side->deployment.is_object()) {
      text += base::Concat({"scheduler ", side->ns, "/", side->scheduler, ", ",
                            std::to_string(ReplicasOf(*side, "/status/availableReplicas")), " of ",
                            std::to_string(ReplicasOf(*side, "/spec/replicas")), " replicas ready"});
    } else {
      text += base::Concat({"no scheduler ", side->ns, "/", side->scheduler});
    }
    text += side->daemon_set.is_object() ? "" : base::Concat({"; no plugin ", side->ns, "/", side->plugin});
    text += side->hook.is_object() ? "\n" : base::Concat({"; no webhook ", side->webhook, "\n"});
  }
  std::vector<const NodeState*> shown;
  for (const NodeState& node : cluster.nodes) {
    if (node.hami || node.ours || node.running > 0) shown.push_back(&node);
  }
  std::size_t widest = 4;
  for (const NodeState* node : shown) widest = std::max(widest, node->name().size());
  const auto padded = [](std::string word, std::size_t width) {
    word.resize(std::max(word.size(), width), ' ');
    return word;
  };
  text += Counted(shown.size(), "node") + " with a plugin or GPU pods\n";
  if (!shown.empty()) text += padded("NODE", widest) + "  PLUGIN  READY  PODS  LOCK\n";
  for (const NodeState* node : shown) {
    text += base::Concat({padded(node->name(), widest), "  ", padded(PluginOf(*node), 6), "  ",
                          padded(node->ready ? "yes" : "no", 5), "  ", padded(std::to_string(node->running), 4), "  ",
                          node->lock.empty() ? "-" : node->lock, "\n"});
  }
  return text;
}

}  // namespace hami::upgrade
