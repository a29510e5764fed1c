// SPDX-License-Identifier: Apache-2.0

#include "page/waiting.h"

#include <algorithm>

namespace hami::page {
namespace {

std::size_t NamesOf(const WaitingPod& pod) {
  std::size_t names = 0;
  for (const NodesReason& group : pod.reasons) names += group.nodes.size();
  return names;
}

bool Older(const WaitingPod& a, const WaitingPod& b) {
  if (a.since != b.since) return a.since < b.since;
  return a.uid < b.uid;
}

}  // namespace

void Waiting::Refused(std::string_view ns, std::string_view name, std::string_view uid,
                      const std::vector<sched::NodeReason>& failures, device::UnixSeconds now) {
  // Sorted before the lock is taken.
  std::vector<NodesReason> reasons = GroupReasons(failures, failures.size() <= kMostNames);
  const std::scoped_lock lock(mutex_);
  const auto [found, is_new] = by_uid_.try_emplace(std::string(uid));
  WaitingPod& pod = found->second;
  names_ -= NamesOf(pod);
  if (is_new) pod.since = now;
  pod.ns = ns;
  pod.name = name;
  pod.uid = uid;
  pod.last = now;
  ++pod.tries;
  pod.reasons = std::move(reasons);
  names_ += NamesOf(pod);
  Trim();
}

void Waiting::Gone(std::string_view uid) {
  const std::scoped_lock lock(mutex_);
  const auto found = by_uid_.find(uid);
  if (found == by_uid_.end()) return;
  names_ -= NamesOf(found->second);
  by_uid_.erase(found);
}

void Waiting::Trim() {
  while (names_ > kMostNames || by_uid_.size() > kMostPods) {
    const bool only_names = by_uid_.size() <= kMostPods;
    auto oldest = by_uid_.end();
    for (auto at = by_uid_.begin(); at != by_uid_.end(); ++at) {
      if (only_names && NamesOf(at->second) == 0) continue;
      if (oldest == by_uid_.end() || at->second.last < oldest->second.last) oldest = at;
    }
    if (oldest == by_uid_.end()) return;
    names_ -= NamesOf(oldest->second);
    if (only_names) {
      for (NodesReason& group : oldest->second.reasons) group.nodes.clear();
    } else {
      by_uid_.erase(oldest);
    }
  }
}

std::vector<WaitingPod> Waiting::List(device::UnixSeconds now) {
  std::vector<WaitingPod> list;
  {
    const std::scoped_lock lock(mutex_);
    for (auto at = by_uid_.begin(); at != by_uid_.end();) {
      if (now - at->second.last <= kForgetAfter) {
        list.push_back((at++)->second);
      } else {
        names_ -= NamesOf(at->second);
        at = by_uid_.erase(at);
      }
    }
  }
  std::sort(list.begin(), list.end(), Older);
  return list;
}

}  // namespace hami::page
