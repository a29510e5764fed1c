// SPDX-License-Identifier: Apache-2.0
//
// How close two GPUs are, as one number: 10 to 60 for the nearest common ancestor on PCIe, and 100 for each NVLink
// between them, directly or through switches. Pure. A pair is worth 0 where only one side sees the link: that is a
// fault, and it is reported. A link that fails counts as not there; it spoils nothing else.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "device/register_codec.h"
#include "nvml/nvml.h"

namespace hami::plugin {

struct TopologyScore {
  device::PairScores scores;                                   // of every ordered pair, both ways alike
  std::vector<std::pair<std::string, std::string>> one_sided;  // UUIDs of pairs of which one end says no
};

TopologyScore ScoreTopology(const nvml::Topology& topology);

}  // namespace hami::plugin
