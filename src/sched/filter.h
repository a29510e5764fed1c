// SPDX-License-Identifier: Apache-2.0
//
// Chooses a node for a pod. Reads the ledger and changes nothing of it: whoever calls charges the decision (Ledger's
// Assume) before the next one is made. Among the fitting candidates the fullest node wins under binpack and the
// emptiest under spread; equal scores go to the smallest name in byte order.

#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sched/decision.h"
#include "sched/ledger.h"
#include "sched/plan.h"
#include "sched/shape_index.h"
#include "sched/victims.h"
#include "sched/workload.h"

namespace hami::sched {

struct FilterOptions {
  device::UnixSeconds now = 0;
  bool explain = false;   // list every fit and every failure, also when a node was found
  std::size_t offer = 0;  // so many of the nodes that fit are named, best first
};

struct FilterCounters {
  std::uint64_t decisions = 0;
  std::uint64_t nodes_asked = 0;  // verdicts worked out
  std::uint64_t shapes_built = 0;
};

class Filter {
 public:
  // HOSTS: what the fragmentation policy knows of CPU and memory.
  Filter(const Ledger& ledger, const device::Vendors& vendors, PolicyDefaults defaults, const HostBooks& hosts);
  Filter(const Ledger& ledger, const device::Vendors& vendors, PolicyDefaults defaults)
      : Filter(ledger, vendors, std::move(defaults), NoHosts()) {}

  // Among NAMES (an unknown one fails as unregistered). The pod must not be charged any more: Ledger::Forget first.
  Decision Decide(const device::Pod& pod, std::span<const std::string_view> names, const FilterOptions& options);
  // Among all registered nodes.
  Decision DecideAny(const device::Pod& pod, const FilterOptions& options);

  // The pods that would have to go from one of NAMES so that POD fits there; nothing: nowhere, or it is no pod of ours.
  // Looks at a bounded number of nodes. GONE: those that go in any case, by what names only a node.
  std::optional<Victims> FindVictims(const device::Pod& pod, std::span<const std::string_view> names,
                                     const Spared& spared, std::span<const PodRecord* const> gone = {});

  // Fragmentation is a default: every pod is part of the workload, and CPU and memory of nodes matter.
  bool learns() const { return learns_; }
  // A pod that runs already is part of the workload, too.
  void Learn(const device::Pod& pod);
  WorkloadBook& workload() { return workload_; }

  const FilterCounters& counters() const { return counters_; }

 private:
  struct Question {
    Plan plan;
    std::vector<QuotaRoom> room;  // empty: no quota can matter
    std::string key;
  };
  struct Shape {
    std::string key;
    ShapeIndex index;
  };
  // Nothing when DECISION already answers: an error, or a pod that asks for no device.
  std::optional<Question> MakeQuestion(const device::Pod& pod, Decision& decision);
  static const HostBooks& NoHosts();
  FragmentView View() const { return {&workload_.Current(), &hosts_, ledger_.most_cards()}; }
  std::vector<QuotaRoom> Room(const device::Pod& pod, const Plan& plan) const;
  bool QuotaCanMatter(const Plan& plan, int vendor, const QuotaRoom& room) const;
  ShapeIndex& Current(const Question& question);
  // The MOST best of NAMES that fit, best first. GUESSED: their ids, as the ledger guesses them.
  std::vector<NodeScore> Best(const ShapeIndex& index, std::span<const std::string_view> names,
                              std::span<const NodeId> guessed, std::size_t most) const;
  void Place(const device::Pod& pod, const Question& question, const Node& node, device::UnixSeconds now,
             Decision& decision) const;

  const Ledger& ledger_;
  const device::Vendors& vendors_;
  PolicyDefaults defaults_;
  const HostBooks& hosts_;
  const bool learns_;
  WorkloadBook workload_;
  // Most recently used first.
  std::list<Shape> shapes_;
  std::unordered_map<std::string_view, std::list<Shape>::iterator> by_key_;
  std::vector<std::uint64_t> seen_;
  std::uint64_t round_ = 0;
  FilterCounters counters_;
};

}  // namespace hami::sched
