// SPDX-License-Identifier: Apache-2.0

#include "plugin/topology_score.h"

#include <algorithm>

namespace hami::plugin {
namespace {

using nvml::Ancestor;
using nvml::LinkPeer;
using nvml::NvLink;
using Gpu = nvml::Topology::Gpu;

constexpr int kPerLink = 100;

int AncestorScore(const std::optional<Ancestor>& ancestor) {
  if (!ancestor) return 0;
  switch (*ancestor) {
    case Ancestor::kSameBoard:
      return 60;
    case Ancestor::kOneSwitch:
      return 50;
    case Ancestor::kManySwitches:
      return 40;
    case Ancestor::kHostBridge:
      return 30;
    case Ancestor::kNumaNode:
      return 20;
    case Ancestor::kSystem:
      return 10;
  }
  return 0;
}

int DirectLinks(const Gpu& from, const Gpu& to) {
  return static_cast<int>(std::count_if(from.links.begin(), from.links.end(), [&](const NvLink& link) {
    return link.up && !to.bus_id.empty() && link.peer_bus_id == to.bus_id;
  }));
}

int SwitchLinks(const Gpu& gpu) {
  return static_cast<int>(std::count_if(gpu.links.begin(), gpu.links.end(),
                                        [](const NvLink& link) { return link.up && link.peer == LinkPeer::kSwitch; }));
}

struct PairLinks {
  int count = 0;
  bool one_sided = false;
};

PairLinks LinksBetween(const Gpu& a, const Gpu& b) {
  const int there = DirectLinks(a, b);
  const int back = DirectLinks(b, a);
  if ((there == 0) != (back == 0)) return {0, true};
  if (there != 0) return {std::min(there, back), false};
  return {std::min(SwitchLinks(a), SwitchLinks(b)), false};
}

}  // namespace

TopologyScore ScoreTopology(const nvml::Topology& topology) {
  TopologyScore out;
  const std::size_t count = topology.gpus.size();
  for (std::size_t a = 0; a < count; ++a) {
    const Gpu& one = topology.gpus[a];
    out.scores[one.uuid];  // a lone GPU has an entry, too
    for (std::size_t b = a + 1; b < count; ++b) {
      const Gpu& other = topology.gpus[b];
      const PairLinks links = LinksBetween(one, other);
      const int score = links.one_sided ? 0 : AncestorScore(topology.ancestors[a * count + b]) + kPerLink * links.count;
      out.scores[one.uuid][other.uuid] = score;
      out.scores[other.uuid][one.uuid] = score;
      if (links.one_sided) out.one_sided.emplace_back(one.uuid, other.uuid);
    }
  }
  return out;
}

}  // namespace hami::plugin
