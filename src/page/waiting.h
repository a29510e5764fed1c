// SPDX-License-Identifier: Apache-2.0
//
// The pods that found no node, each with what every node answered the last time. A pod leaves when it is placed, bound
// or deleted, and when nothing has asked for it for a while. What is kept is bounded, whatever tenants submit: beyond
// it the oldest pods lose the names of nodes, and then go. Thread-safe; never held while a decision is made.

#pragma once

#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "page/snapshot.h"

namespace hami::page {

class Waiting {
 public:
  static constexpr std::size_t kMostPods = 1000;
  static constexpr std::size_t kMostNames = 200'000;
  // kube-scheduler asks again for each such pod within 5 minutes.
  static constexpr device::UnixSeconds kForgetAfter = 900;

  void Refused(std::string_view ns, std::string_view name, std::string_view uid,
               const std::vector<sched::NodeReason>& failures, device::UnixSeconds now);
  void Gone(std::string_view uid);
  // Oldest first.
  std::vector<WaitingPod> List(device::UnixSeconds now);

 private:
  void Trim();

  std::mutex mutex_;
  std::map<std::string, WaitingPod, std::less<>> by_uid_;
  std::size_t names_ = 0;
};

}  // namespace hami::page
