// SPDX-License-Identifier: Apache-2.0
//
// What is usually asked for: classes of requests with their frequencies, learnt from the pods that were seen. Recent
// pods weigh more. The number of classes is bounded, and the picture that placements go by (`Current`) changes only
// when the frequencies have: what was worked out by it stays good until then.
//
// CPU and memory vary more than shares of cards do. A class therefore stands for one request of cards, and its pods'
// own amounts of CPU and memory are represented by the middle of each third.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "device/lists.h"
#include "sched/host_books.h"
#include "sched/plan.h"

namespace hami::sched {

struct RequestClass {
  Ask ask;
  device::CardRules rules;  // types and mode; lists of UUIDs are no property of a workload
  HostAmounts host;
  double weight = 0;  // the part of all requests that it stands for; of all classes together 1
  // It asks for the same cards as the class before it, and differs from it in CPU and memory alone: what that can use
  // need not be asked again.
  bool same_cards = false;
};

// What a placement is scored by. Other values than these are for comparisons: docs/results/placement.md.
struct FragmentTuning {
  double growth = 1;      // the part of the growth of F
  double fullness = 0.1;  // of what the node has left
  bool by_host = true;    // F is bounded by what CPU and memory leave
};

struct Workload {
  std::vector<RequestClass> classes;  // most frequent first
  std::uint64_t version = 0;          // another number for another content
  FragmentTuning tuning{};
};

// What the containers of PLAN ask for, without weights.
std::vector<RequestClass> ClassesOf(const Plan& plan);

class WorkloadBook {
 public:
  // A pod that asks as PLAN says. Counts once per pod, however often it is asked for; one that came back after tens of
  // thousands of others counts again.
  void See(std::string_view uid, const Plan& plan);
  const Workload& Current() const { return current_; }
  // From now on exactly this: what is seen changes nothing.
  void Fix(std::vector<RequestClass> classes);
  void Tune(const FragmentTuning& tuning) { current_.tuning = tuning; }

 private:
  struct Seen {
    Ask ask;
    device::CardRules rules;
    double weight = 0;
    std::vector<HostAmounts> hosts;  // of the latest pods
    std::size_t next_host = 0;
  };

  bool FirstTime(std::string_view uid);
  void Count(const Ask& ask, const device::CardRules& rules, const HostAmounts& host);
  void DropRarest();
  std::vector<RequestClass> Picture() const;
  void Revise();

  std::map<std::string, Seen> seen_;
  std::unordered_set<std::uint64_t> young_, old_;  // digests of uids
  double next_weight_ = 1;
  double total_ = 0;
  std::uint64_t pods_ = 0;
  std::uint64_t revise_at_ = 1;
  bool fixed_ = false;
  Workload current_;
};

}  // namespace hami::sched
