// SPDX-License-Identifier: Apache-2.0

#include "sched/workload.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

namespace hami::sched {
namespace {

// A pod weighs half of what one does that comes this many later: days of a busy cluster, so that one large job does not
// turn the picture over.
constexpr double kHalfLife = 5000;
constexpr double kLargestWeight = 1e12;   // then all are scaled down: sums stay exact enough
constexpr std::size_t kMostSeen = 256;    // classes that are counted
constexpr std::size_t kMostUsed = 14;     // of which placements go by the most frequent
constexpr double kCovered = 0.97;         // or by fewer, when these are as much of all requests
constexpr std::size_t kHostSamples = 63;  // three thirds of 21
constexpr std::size_t kHostPoints = 3;
constexpr std::size_t kRemembered = 32768;   // uids in each of two generations
constexpr std::uint64_t kReviseEvery = 256;  // pods; more often while there are few
// The picture changes when a tenth of all requests is of another class than it says.
constexpr double kNews = 0.1;
constexpr double kHostNews = 1.25;

std::string KeyOf(const Ask& ask, const device::CardRules& rules) {
  std::string key;
  const auto number = [&](std::int64_t value) { key += std::to_string(value) + ";"; };
  const auto list = [&](const std::vector<std::string>& items) {
    for (const std::string& item : items) key += std::to_string(item.size()) + ";" + item;
    key += '|';
  };
  number(ask.vendor);
  number(ask.request.count);
  number(ask.request.memory);
  number(ask.request.memory_percent);
  number(ask.request.cores);
  list(rules.use_types);
  list(rules.avoid_types);
  key += rules.mode;
  return key;
}

// Whether CPU differs by more than a quarter.
bool OtherHost(const HostAmounts& a, const HostAmounts& b) {
  const auto apart = [](std::int64_t x, std::int64_t y) {
    return static_cast<double>(std::max(x, y)) > kHostNews * static_cast<double>(std::min(x, y));
  };
  return apart(a.cpu, b.cpu) || apart(a.memory, b.memory);
}

struct ByClass {
  double weight = 0;
  std::vector<HostAmounts> hosts;
};

std::map<std::string, ByClass> Gather(const std::vector<RequestClass>& classes) {
  std::map<std::string, ByClass> out;
  for (const RequestClass& one : classes) {
    ByClass& entry = out[KeyOf(one.ask, one.rules)];
    entry.weight += one.weight;
    entry.hosts.push_back(one.host);
  }
  return out;
}

// How much of all requests is of another class in A than in B, or asks for other amounts of its node: between 0 and 1.
double Distance(const std::vector<RequestClass>& a, const std::vector<RequestClass>& b) {
  std::map<std::string, ByClass> left = Gather(a);
  double apart = 0;
  for (const auto& [key, now] : Gather(b)) {
    const auto before = left.find(key);
    if (before == left.end()) {
      apart += now.weight;
      continue;
    }
    const bool other =
        !std::equal(now.hosts.begin(), now.hosts.end(), before->second.hosts.begin(), before->second.hosts.end(),
                    [](const HostAmounts& x, const HostAmounts& y) { return !OtherHost(x, y); });
    apart += other ? 2 * now.weight : std::abs(now.weight - before->second.weight);
    left.erase(before);
  }
  for (const auto& [key, gone] : left) apart += gone.weight;
  return apart / 2;
}

}  // namespace

std::vector<RequestClass> ClassesOf(const Plan& plan) {
  std::vector<RequestClass> classes;
  for (const ContainerPlan& container : plan.containers) {
    for (const Ask& ask : container.asks) {
      RequestClass& one = classes.emplace_back();
      one.ask = ask;
      one.rules = plan.rules[static_cast<std::size_t>(ask.vendor)];
      one.rules.use_uuids.clear();
      one.rules.avoid_uuids.clear();
      one.rules.numa_bind = false;
      one.host = plan.host;
    }
  }
  return classes;
}

bool WorkloadBook::FirstTime(std::string_view uid) {
  const std::uint64_t digest = std::hash<std::string_view>{}(uid);
  if (young_.count(digest) > 0 || old_.count(digest) > 0) return false;
  if (young_.size() >= kRemembered) old_ = std::exchange(young_, {});
  young_.insert(digest);
  return true;
}

void WorkloadBook::See(std::string_view uid, const Plan& plan) {
  if (fixed_ || !FirstTime(uid)) return;
  for (const RequestClass& one : ClassesOf(plan)) Count(one.ask, one.rules, one.host);
  ++pods_;
  if (pods_ >= revise_at_) Revise();
}

void WorkloadBook::Count(const Ask& ask, const device::CardRules& rules, const HostAmounts& host) {
  static const double growth = std::exp2(1 / kHalfLife);
  Seen& seen = seen_[KeyOf(ask, rules)];
  seen.ask = ask;
  seen.rules = rules;
  seen.weight += next_weight_;
  total_ += next_weight_;
  next_weight_ *= growth;
  if (seen.hosts.size() < kHostSamples) {
    seen.hosts.push_back(host);
  } else {
    seen.hosts[seen.next_host] = host;
    seen.next_host = (seen.next_host + 1) % kHostSamples;
  }
  if (seen_.size() > kMostSeen) DropRarest();
  if (next_weight_ < kLargestWeight) return;
  for (auto& [key, one] : seen_) one.weight /= kLargestWeight;
  total_ /= kLargestWeight;
  next_weight_ /= kLargestWeight;
}

void WorkloadBook::DropRarest() {
  const auto rarest = std::min_element(seen_.begin(), seen_.end(),
                                       [](const auto& a, const auto& b) { return a.second.weight < b.second.weight; });
  total_ -= rarest->second.weight;
  seen_.erase(rarest);
}

std::vector<RequestClass> WorkloadBook::Picture() const {
  std::vector<const Seen*> order;
  for (const auto& [key, seen] : seen_) order.push_back(&seen);
  std::stable_sort(order.begin(), order.end(), [](const Seen* a, const Seen* b) { return a->weight > b->weight; });
  double covered = 0;
  std::vector<RequestClass> out;
  for (std::size_t i = 0; i < order.size() && i < kMostUsed && covered < kCovered * total_; ++i) {
    const Seen& seen = *order[i];
    covered += seen.weight;
    std::vector<HostAmounts> hosts = seen.hosts;
    std::sort(hosts.begin(), hosts.end(), [](const HostAmounts& a, const HostAmounts& b) {
      return std::pair(a.cpu, a.memory) < std::pair(b.cpu, b.memory);
    });
    const bool varies = hosts.front() != hosts.back();
    const std::size_t points = varies ? kHostPoints : 1;
    for (std::size_t p = 0; p < points; ++p) {
      const HostAmounts& host = hosts[(2 * p + 1) * hosts.size() / (2 * points)];
      out.push_back({seen.ask, seen.rules, host, seen.weight / static_cast<double>(points), p > 0});
    }
  }
  for (RequestClass& one : out) one.weight /= covered;
  return out;
}

void WorkloadBook::Revise() {
  revise_at_ = pods_ + std::min(pods_, kReviseEvery);
  std::vector<RequestClass> picture = Picture();
  if (Distance(current_.classes, picture) <= kNews) return;
  current_ = {std::move(picture), current_.version + 1, current_.tuning};
}

void WorkloadBook::Fix(std::vector<RequestClass> classes) {
  double sum = 0;
  for (const RequestClass& one : classes) sum += one.weight;
  const RequestClass* before = nullptr;
  for (RequestClass& one : classes) {
    one.weight = sum > 0 ? one.weight / sum : 0;
    one.same_cards = before != nullptr && KeyOf(one.ask, one.rules) == KeyOf(before->ask, before->rules);
    before = &one;
  }
  current_ = {std::move(classes), current_.version + 1, current_.tuning};
  fixed_ = true;
}

}  // namespace hami::sched
