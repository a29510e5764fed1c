// SPDX-License-Identifier: Apache-2.0

#include "scheduler/extender.h"

#include <utility>

#include "base/strings.h"
#include "sched/simulate.h"
#include "scheduler/extender_body.h"

namespace hami::scheduler {
namespace {

constexpr Millis kLookAgain = 100;  // while the books are not complete

std::string Refusal(std::string_view error) {
  FilterResult result;
  result.error = error;
  return WriteFilterResult(result);
}

// What waits for its bind call is kept for minutes. No pod of an API server is refused by this.
std::string TooLarge(const device::Pod& pod) {
  constexpr std::size_t kMostNameBytes = 253;
  constexpr std::size_t kMostAnnotationBytes = 256U << 10U;
  for (const auto& [what, text] : {std::pair("name", &pod.name), {"namespace", &pod.ns}, {"uid", &pod.uid}}) {
    if (text->size() <= kMostNameBytes) continue;
    return base::Concat({"the pod's ", what, " has ", std::to_string(text->size()), " bytes, more than the ",
                         std::to_string(kMostNameBytes), " of any name"});
  }
  std::size_t bytes = 0;
  for (const auto& [key, value] : pod.annotations) bytes += key.size() + value.size();
  if (bytes <= kMostAnnotationBytes) return {};
  return base::Concat({"the pod's annotations have ", std::to_string(bytes), " bytes, more than the API server's ",
                       std::to_string(kMostAnnotationBytes)});
}

Reply NoBody() { return {400, "Please send a request body"}; }

}  // namespace

bool Extender::WaitUntilReady(const Abandoned& abandoned) {
  while (!ready_()) {
    if (abandoned() || time_.Sleep(kLookAgain)) return false;
  }
  return true;
}

Reply Extender::Filter(std::string_view text, const Abandoned& abandoned) {
  if (text.empty()) return NoBody();
  filters_.fetch_add(1, std::memory_order_relaxed);
  const auto refuse = [this](std::string_view error) -> Reply {
    errors_.fetch_add(1, std::memory_order_relaxed);
    return {200, Refusal(error)};
  };
  base::Result<FilterBody> read = ReadFilterBody(text);
  if (!read) return refuse(read.error().message);
  FilterBody& body = *read;
  if (!body.pod) return refuse("extender args missing pod");
  if (body.nodes.empty() && body.names_text.empty()) return refuse("extender args missing nodes");
  if (!body.pod_is_object) return refuse("the pod is not a JSON object");
  if (const std::string why = TooLarge(body.pod->pod); !why.empty()) return refuse(why);
  if (!WaitUntilReady(abandoned)) return refuse("context cancelled");
  return {200, body.nodes.empty() ? Place(body) : Simulate(body)};
}

void Extender::Count(const sched::Decision& decision) {
  std::atomic<std::uint64_t>* counter = &errors_;
  if (decision.outcome == sched::Outcome::kPlaced) counter = &placed_;
  if (decision.outcome == sched::Outcome::kNoFit) counter = &no_fit_;
  if (decision.outcome == sched::Outcome::kNotOurs) counter = &not_ours_;
  counter->fetch_add(1, std::memory_order_relaxed);
}

std::string Extender::Place(FilterBody& body) {
  const bool explain = body.names.size() <= options_.explain_nodes;
  // The books take the pod.
  const std::string ns = body.pod->pod.ns;
  const std::string name = body.pod->pod.name;
  const std::string uid = body.pod->pod.uid;
  const sched::Decision decision = books_.Locked([&](State& state) {
    return state.Place(std::move(*body.pod), body.names, time_.Now() / 1000,
                       PlaceOptions{explain, options_.offer_nodes, options_.preempt});
  });
  Count(decision);
  for (const sched::Event& event : EventsOf(decision, options_.event_nodes)) record_({ns, name, uid}, event);
  if (options_.decided) options_.decided({ns, name, uid}, decision);
  FilterResult result;
  switch (decision.outcome) {
    case sched::Outcome::kNotOurs:
      result.node_names = body.names_text;
      break;
    case sched::Outcome::kPlaced:
      result.node_names = options_.offer_nodes > 0 ? NamesOf(decision.offered) : OneName(decision.node);
      break;
    case sched::Outcome::kNoFit:
      result.failed = &decision.failures;
      break;
    case sched::Outcome::kError:
      result.error = decision.error;
      break;
  }
  return WriteFilterResult(result);
}

std::string Extender::Simulate(const FilterBody& body) {
  simulated_.fetch_add(1, std::memory_order_relaxed);
  const auto nodes = ReadSimulatedNodes(body.nodes);
  if (!nodes) return Refusal(nodes.error().message);
  const device::Pod& pod = body.pod->pod;
  const auto room = books_.Locked([&](State& state) {
    state.Simulated(pod.uid, time_.Now() / 1000);
    return state.ledger.quotas().Rooms(pod.ns, pod.traits);
  });
  const sched::Decision decision = sched::Simulate(pod, *nodes, books_.vendors(), books_.defaults(), room);
  if (decision.outcome == sched::Outcome::kError) return Refusal(decision.error);
  FilterResult result;
  if (decision.outcome == sched::Outcome::kNotOurs) {
    result.nodes = body.nodes;
    result.node_names = body.names_text;
    return WriteFilterResult(result);
  }
  result.failed = &decision.failures;
  if (decision.outcome == sched::Outcome::kPlaced) {
    result.nodes = base::Concat({R"({"metadata":{},"items":[)", FindNodeText(body.nodes, decision.node), "]}"});
  }
  return WriteFilterResult(result);
}

Reply Extender::Prioritize(std::string_view text) {
  if (text.empty()) return NoBody();
  const base::Result<FilterBody> body = ReadFilterBody(text);
  // kube-scheduler goes on without the scores of an extender that it does not understand.
  if (!body || !body->pod) return {400, body ? "extender args missing pod" : body.error().message};
  const std::vector<sched::NodeScore> offered = books_.Locked([&](State& state) {
    const Pending* pending = state.FindPending(body->pod->pod.uid);
    return pending == nullptr ? std::vector<sched::NodeScore>() : pending->offered;
  });
  return {200, WritePriorities(body->names, offered)};
}

Reply Extender::Preempt(std::string_view text) {
  if (text.empty()) return NoBody();
  const base::Result<FilterBody> body = ReadFilterBody(text);
  if (!body || !body->pod) return {400, body ? "extender args missing pod" : body.error().message};
  const base::Result<std::vector<MetaVictims>> asked = ReadVictims(body->victims);
  if (!asked) return {400, asked.error().message};
  std::vector<MetaVictims> answer;
  books_.Locked([&](State& state) {
    for (const MetaVictims& one : *asked) {
      std::vector<const sched::PodRecord*> gone;
      for (const std::string& uid : one.uids) {
        if (state.IsBoundTo(uid, one.node)) gone.push_back(state.ledger.FindPod(uid));
      }
      const std::string_view names[] = {one.node};
      const auto none = [](std::string_view) { return false; };
      const auto found = state.filter.FindVictims(body->pod->pod, names, none, gone);
      if (!found) continue;
      answer.push_back(one);
      for (const sched::PodRecord* pod : found->pods) answer.back().uids.push_back(pod->uid);
    }
  });
  return {200, WriteVictims(answer)};
}

Reply Extender::Bind(std::string_view text, const Abandoned& abandoned) {
  if (text.empty()) return NoBody();
  const base::Result<BindRequest> request = ReadBindBody(text);
  if (!request) return {200, WriteBindResult(request.error().message)};
  const base::Status bound = binder_.Bind(*request, abandoned);
  return {200, WriteBindResult(bound ? std::string_view() : std::string_view(bound.error().message))};
}

Extender::Counters Extender::counters() const {
  return {filters_.load(), placed_.load(), no_fit_.load(), not_ours_.load(), simulated_.load(), errors_.load()};
}

}  // namespace hami::scheduler
