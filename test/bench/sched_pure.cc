// SPDX-License-Identifier: Apache-2.0

#include "test/bench/sched_pure.h"

#include <chrono>
#include <deque>
#include <string>
#include <string_view>

#include "sched/testing/samples.h"

namespace hami::bench {
namespace {

namespace st = sched::testing;
using Clock = std::chrono::steady_clock;

constexpr device::UnixSeconds kNow = 1'800'000'000;
constexpr device::MiB kCard = 81'559;
constexpr auto kSpan = std::chrono::milliseconds(500);
constexpr std::size_t kCharged = 64;  // pods at once, so that the cluster stays as full as it is

std::string NodeName(int i) { return "node-" + std::to_string(i); }

class Decider {
 public:
  Decider(int nodes, int running) {
    for (int i = 0; i < nodes; ++i) ledger_.SetCards(NodeName(i), 0, st::Cards("GPU-" + NodeName(i), 8, kCard));
    for (int i = 0; i < running; ++i) {
      const device::Pod pod = st::PodOf("running-" + std::to_string(i), st::Wants(1, 8000 + i % 5));
      ledger_.UpsertPod(st::Written(pod, filter_.DecideAny(pod, {kNow}), true));
    }
  }

  double PerSecond(const std::vector<std::string_view>& names) {
    std::deque<std::string> charged;
    int placed = 0;
    int asked = 0;
    const auto begin = Clock::now();
    while (Clock::now() - begin < kSpan) {
      const device::Pod pod = st::PodOf("new-" + std::to_string(asked++), st::Wants(1, 2000));
      const sched::Decision decision = filter_.Decide(pod, names, {kNow});
      if (decision.outcome != sched::Outcome::kPlaced) continue;
      ++placed;
      ledger_.Assume(pod, decision.node, decision.allocation, kNow + 300);
      charged.push_back(pod.uid);
      if (charged.size() <= kCharged) continue;
      ledger_.Forget(charged.front());
      charged.pop_front();
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    for (const std::string& uid : charged) ledger_.Forget(uid);
    return placed / seconds;
  }

 private:
  const device::Vendors vendors_ = st::NvidiaOnly();
  sched::Ledger ledger_{vendors_};
  sched::Filter filter_{ledger_, vendors_, {}};
};

}  // namespace

std::vector<double> PureDecisions(int nodes, int running, const std::vector<std::size_t>& names) {
  Decider decider(nodes, running);
  std::vector<double> rates;
  for (const std::size_t count : names) {
    // From all over the cluster, as kube-scheduler's sample is.
    std::vector<std::string> sample;
    for (std::size_t i = 0; i < count; ++i) {
      sample.push_back(NodeName(static_cast<int>(i * static_cast<std::size_t>(nodes) / count)));
    }
    rates.push_back(decider.PerSecond({sample.begin(), sample.end()}));
  }
  return rates;
}

}  // namespace hami::bench
