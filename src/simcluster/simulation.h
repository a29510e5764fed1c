// SPDX-License-Identifier: Apache-2.0
//
// A cluster on virtual time: pods arrive, are placed by src/sched itself, and end; nodes fail and come back. Everything
// else of Kubernetes is played in a few lines: kube-scheduler names the nodes with enough CPU and memory, in random
// order, and a pod without a GPU goes to the node with the least CPU in use. Deterministic: the same lists, options and
// seed give the same report.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sched/plan.h"
#include "sched/workload.h"
#include "simcluster/trace.h"

namespace hami::simcluster {

struct SimulationOptions {
  sched::PolicyDefaults policy;
  sched::FragmentTuning tuning{};
  // What pods usually ask for; empty: it is learnt from the pods of the list.
  std::vector<sched::RequestClass> workload{};
  // Only so many pods are submitted that their demand is this part of all cards; 0: every pod of the list.
  double demand = 0;
  std::uint64_t seed = 1;
  // Pods that arrive at one moment are learnt from before the first of them is placed, as by hami-scheduler's watch,
  // each as if there were so many of it; 0: each when its turn comes. Others than 1 are for comparisons.
  int ahead = 1;
  // Of 100 nodes that fit, how many kube-scheduler names (percentageOfNodesToScore).
  int sample_percent = 100;
};

// As hami-scheduler reads its --workload-file, with the resources that simulated pods ask for: `nvidia.com/gpu` and so
// on.
base::Result<std::vector<sched::RequestClass>> ReadWorkload(std::string_view text, const std::string& file);

struct Report {
  std::int64_t capacity = 0;        // thousandths of a card, at the start
  std::int64_t submitted = 0;       // demand of all pods that arrived
  std::int64_t allocated = 0;       // at the end
  std::int64_t most_allocated = 0;  // at any time
  double mean_allocated = 0;        // while pods arrive, from the middle of that time on
  std::size_t pods = 0;             // that ask for a card and arrived
  std::size_t refused = 0;          // that never found a place
  std::size_t waited = 0;           // that found one later than at first
  std::size_t lost = 0;             // ended with a failed node, and were submitted anew
  double free = 0;                  // cards, at the end: the free shares
  double fragmented = 0;            // of these, what a request of the workload could not use on average
  std::size_t whole_cards = 0;      // at the end: with nothing on them
};

// A pod that could go elsewhere.
struct Move {
  std::string pod;
  std::string from_node, from_card;
  std::string to_node, to_card;
};
struct Advice {
  std::vector<Move> moves;
  std::size_t freed = 0;  // whole cards
};

class Simulation {
 public:
  Simulation(const std::vector<TraceNode>& nodes, const SimulationOptions& options);
  ~Simulation();
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  // Submits PODS in the order of their arrival and runs to the last event.
  Report Run(const std::vector<TracePod>& pods);
  // Of the pods that run at the end: which, if moved, would free whole cards. Cards with the least on them first, at
  // most MOST_CARDS of them are tried; only shares of a card move, and only to cards that are in use already.
  Advice Advise(std::size_t most_cards);

 private:
  struct Cluster;
  std::unique_ptr<Cluster> cluster_;
};

}  // namespace hami::simcluster
