// SPDX-License-Identifier: Apache-2.0
//
// The answer to one Filter call and what follows from it: the node, the patch, the charge, the reasons, the events.

#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/types.h"

namespace hami::sched {

enum class Outcome {
  kNotOurs,  // the pod asks for no device: every candidate is as good as before
  kPlaced,
  kNoFit,
  kError,  // the request can not be answered
};

struct NodeReason {
  std::string node;
  std::string reason;
  bool operator==(const NodeReason&) const = default;
};

struct NodeScore {
  std::string node;
  float score = 0;
  bool operator==(const NodeScore&) const = default;
};

struct Decision {
  Outcome outcome = Outcome::kError;
  std::string error;
  std::string node;
  float score = 0;
  // Merge patch of the pod's annotations; nothing: remove the key. `hami.io/vgpu-node` is set as a label, too.
  std::vector<std::pair<std::string, std::optional<std::string>>> annotations;
  device::Allocation allocation;
  std::vector<NodeReason> failures;  // one per candidate that does not fit, when there is no fit or all was asked for
  std::vector<NodeScore> fits;       // worst to best, when all was asked for
  std::vector<NodeScore> offered;    // best to worst, when kube-scheduler is to choose
  std::size_t candidates = 0;
  std::vector<std::string> evicts;  // pods of lower priority that will go from NODE, where the pod then has its place
};

// Worst to best, so that the last is the one chosen.
void SortFits(std::vector<NodeScore>& fits, bool spread);

struct Event {
  bool warning = false;
  std::string reason;
  std::string message;
  bool operator==(const Event&) const = default;
};

// FilteringSucceed or FilteringFailed, one per failure kind and a last line. A list of nodes is cut after MAX_NODES
// (0: never), with `,…` in place of the rest.
std::vector<Event> EventsOf(const Decision& decision, std::size_t max_nodes = 0);

}  // namespace hami::sched
