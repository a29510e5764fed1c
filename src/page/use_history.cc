// SPDX-License-Identifier: Apache-2.0

#include "page/use_history.h"

#include <algorithm>

#include "base/strings.h"
#include "page/render.h"

namespace hami::page {
namespace {

constexpr const char* kNoMonitor = "no hami-monitor is found for this node (hami-scheduler --page-monitors)";

std::string Bounded(std::string_view problem) { return base::Printable(problem.substr(0, UseHistory::kMostProblem)); }

}  // namespace

void UseHistory::Add(std::vector<Sample>& samples, const device::ShareUse& share, device::UnixSeconds now) {
  // A clock that was set back: what is later than now is no history.
  while (!samples.empty() && samples.back().time / kSlot >= now / kSlot) samples.pop_back();
  Sample sample;
  sample.time = now;
  sample.used = static_cast<std::int32_t>(share.used);
  sample.limit = static_cast<std::int32_t>(share.limit);
  sample.core_percent = static_cast<std::int16_t>(share.core_percent.value_or(-1));
  sample.core_limit = static_cast<std::int16_t>(share.core_limit);
  samples.push_back(sample);
}

bool UseHistory::Trim(NodeUse& node, device::UnixSeconds now) {
  for (auto at = node.shares.begin(); at != node.shares.end();) {
    std::vector<Sample>& samples = at->second;
    const auto young =
        std::find_if(samples.begin(), samples.end(), [now](const Sample& sample) { return sample.time > now - kSpan; });
    samples.erase(samples.begin(), young);
    if (!samples.empty()) {
      ++at;
      continue;
    }
    at = node.shares.erase(at);
    --shares_;
  }
  return !node.shares.empty();
}

void UseHistory::Answered(std::string_view node, const device::UseReport& report, device::UnixSeconds now) {
  const std::scoped_lock lock(mutex_);
  NodeUse& use = nodes_[std::string(node)];
  Trim(use, now);
  use.answered = now;
  use.problem.clear();
  use.left_out = 0;
  for (const device::ShareUse& share : report.shares) {
    Key key{share.ns, share.pod, share.container, share.uuid};
    auto found = use.shares.find(key);
    if (found == use.shares.end()) {
      if (shares_ >= kMostShares) {
        ++use.left_out;
        continue;
      }
      ++shares_;
      found = use.shares.try_emplace(std::move(key)).first;
    }
    Add(found->second, share, now);
  }
}

void UseHistory::Silent(std::string_view node, std::string_view problem, device::UnixSeconds now) {
  const std::scoped_lock lock(mutex_);
  NodeUse& use = nodes_[std::string(node)];
  Trim(use, now);
  use.problem = Bounded(problem);
}

void UseHistory::ListProblem(std::string_view problem) {
  const std::scoped_lock lock(mutex_);
  list_problem_ = Bounded(problem);
}

void UseHistory::Listed(const std::vector<std::string>& nodes, device::UnixSeconds now) {
  const std::scoped_lock lock(mutex_);
  list_problem_.clear();
  for (auto at = nodes_.begin(); at != nodes_.end();) {
    if (std::binary_search(nodes.begin(), nodes.end(), at->first)) {
      ++at;
      continue;
    }
    at->second.problem = kNoMonitor;
    at = Trim(at->second, now) ? std::next(at) : nodes_.erase(at);
  }
}

std::size_t UseHistory::shares() const {
  const std::scoped_lock lock(mutex_);
  return shares_;
}

std::string UseHistory::Render(std::string_view node, device::UnixSeconds now) const {
  const std::scoped_lock lock(mutex_);
  static const NodeUse kNone{{}, 0, kNoMonitor, 0};
  const auto found = nodes_.find(node);
  const NodeUse& use = found == nodes_.end() ? kNone : found->second;
  std::string out;
  Members members(out);
  members.Count("schema", 1);
  members.Flag("asked", true);
  members.Text("node", node);
  members.Count("time", now);
  members.Count("answered", use.answered);
  members.Text("problem", list_problem_.empty() ? use.problem : list_problem_);
  members.Count("left_out", use.left_out);
  ListWriter shares(members.Name("shares"));
  for (const auto& [key, samples] : use.shares) {
    Members one(shares.Next());
    one.Text("namespace", std::get<0>(key));
    one.Text("pod", std::get<1>(key));
    one.Text("container", std::get<2>(key));
    one.Text("uuid", std::get<3>(key));
    ListWriter list(one.Name("samples"));
    for (const Sample& sample : samples) {
      if (sample.time <= now - kSpan || sample.time > now) continue;
      ListWriter numbers(list.Next());
      for (const std::int64_t number : {sample.time, std::int64_t{sample.used}, std::int64_t{sample.limit},
                                        std::int64_t{sample.core_percent}, std::int64_t{sample.core_limit}}) {
        AppendNumber(numbers.Next(), number);
      }
      numbers.End();
    }
    list.End();
    one.End();
  }
  shares.End();
  members.End();
  out += '\n';
  return out;
}

}  // namespace hami::page
