// SPDX-License-Identifier: Apache-2.0
//
// What kube-scheduler sends and expects back. Reading cuts the body into its parts without building a document of it: a
// request with five thousand names is a hundred kilobytes of which only the pod is looked into. Keys compare without
// case, as the Go side does. Total: every text is either understood or an error that says where it stops being JSON.

#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "sched/decision.h"
#include "sched/simulate.h"
#include "scheduler/binder.h"
#include "scheduler/books.h"

namespace hami::scheduler {

// Many times the nodes of any cluster. A name needs several times its text while it is looked for.
inline constexpr std::size_t kMostNames = 1'000'000;

// Views into the body, which must outlive this.
struct FilterBody {
  std::optional<Candidate> pod;  // nothing: absent or null
  bool pod_is_object = false;
  std::string_view nodes;       // JSON of a NodeList; empty: absent or null
  std::string_view names_text;  // JSON of the names; empty: absent or null
  std::string_view victims;     // JSON of what a preemption would evict by node; empty: absent or null
  std::vector<std::string_view> names;
  std::vector<std::string> decoded;  // names that were written with escapes
};

// What kube-scheduler would evict on one node.
struct MetaVictims {
  std::string node;
  std::vector<std::string> uids;
  std::int64_t budgets = 0;  // disruption budgets that this violates
};

base::Result<FilterBody> ReadFilterBody(std::string_view body);
// The nodes of a simulation, one at a time: the list may be larger than is good to hold.
base::Result<std::vector<sched::SimulatedNode>> ReadSimulatedNodes(std::string_view nodes);
// The text of the item called NAME.
std::string FindNodeText(std::string_view nodes, std::string_view name);
// By their uids, or as whole pods. Errors: what is neither.
base::Result<std::vector<MetaVictims>> ReadVictims(std::string_view text);
std::string WriteVictims(const std::vector<MetaVictims>& nodes);
base::Result<BindRequest> ReadBindBody(std::string_view body);

// The fields of an ExtenderFilterResult as JSON; empty: null.
struct FilterResult {
  std::string nodes;
  std::string node_names;
  const std::vector<sched::NodeReason>* failed = nullptr;
  std::string_view error;
};
std::string WriteFilterResult(const FilterResult& result);
std::string WriteBindResult(std::string_view error);
// ["NAME"].
std::string OneName(std::string_view name);
std::string NamesOf(const std::vector<sched::NodeScore>& nodes);

// A HostPriorityList: from 0 to 10, as the protocol has it. Of OFFERED, best to worst, the first has 10 and no other
// has: kube-scheduler draws lots between nodes of one score. What is not among them has 0.
std::string WritePriorities(std::span<const std::string_view> names, const std::vector<sched::NodeScore>& offered);

}  // namespace hami::scheduler
