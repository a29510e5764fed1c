// SPDX-License-Identifier: Apache-2.0

#include "scheduler/evictor.h"

#include <algorithm>
#include <map>

#include "base/log.h"
#include "base/strings.h"

namespace hami::scheduler {
namespace {

std::string NameOf(const Owner& pod) { return base::Concat({pod.ns, "/", pod.name}); }

}  // namespace

bool Evictor::Evict(const Eviction& eviction, bool only_try) {
  const kube::Status gone = api_.Evict(eviction.victim, only_try);
  if (gone) {
    if (only_try) return true;
    evicted_.fetch_add(1, std::memory_order_relaxed);
    record_({eviction.victim.ns, eviction.victim.name, eviction.victim.uid},
            {false, "Preempted",
             base::Concat({"evicted for pod ", NameOf(eviction.preemptor), ", which has a higher priority"})});
    return true;
  }
  const kube::Reason reason = gone.error().reason;
  // Another pod has its name now.
  if (reason == kube::Reason::kNotFound || reason == kube::Reason::kConflict) return true;
  refused_.fetch_add(1, std::memory_order_relaxed);
  const bool budget = reason == kube::Reason::kTooManyRequests;
  const std::string why = base::Concat(
      {"pod ", NameOf(eviction.victim), " cannot be evicted for ", NameOf(eviction.preemptor), ": ",
       gone.error().message,
       reason == kube::Reason::kForbidden ? "; --preemption needs the right to create pods/eviction" : ""});
  if (!budget) base::LogWarning(why);
  record_({eviction.preemptor.ns, eviction.preemptor.name, eviction.preemptor.uid}, {true, "PreemptionRefused", why});
  return false;
}

void Evictor::RunOnce() {
  std::map<std::string, std::vector<Eviction>> by_preemptor;
  for (Eviction& one : books_.Locked([](State& state) { return state.TakeEvictions(); })) {
    by_preemptor[one.preemptor.uid].push_back(std::move(one));
  }
  for (const auto& [uid, evictions] : by_preemptor) {
    const auto refused =
        std::find_if(evictions.begin(), evictions.end(), [&](const Eviction& one) { return !Evict(one, true); });
    const auto stays =
        refused != evictions.end()
            ? refused
            : std::find_if(evictions.begin(), evictions.end(), [&](const Eviction& one) { return !Evict(one, false); });
    if (stays != evictions.end()) books_.Locked([&](State& state) { state.EvictionRefused(*stays); });
  }
}

}  // namespace hami::scheduler
