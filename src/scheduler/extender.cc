// SPDX-License-Identifier: Apache-2.0

#include "scheduler/extender.h"

#include "base/strings.h"
#include "scheduler/extender_body.h"

namespace hami::scheduler {
namespace {

constexpr Millis kLookAgain = 100;  // while the books are not complete

std::string Refusal(std::string_view error) {
  FilterResult result;
  result.error = error;
  return WriteFilterResult(result);
}

Reply NoBody() { return {400, "Please send a request body"}; }

}  // namespace

struct Extender::FilterArgs {
  FilterBody body;
  Candidate candidate;
};

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
  FilterArgs args;
  base::Result<FilterBody> body = ReadFilterBody(text);
  if (!body) return refuse(body.error().message);
  args.body = *std::move(body);
  if (args.body.pod.empty()) return refuse("extender args missing pod");
  if (args.body.nodes.empty() && args.body.names_text.empty()) return refuse("extender args missing nodes");
  base::Result<Candidate> candidate = ReadCandidate(args.body.pod);
  if (!candidate) return refuse(candidate.error().message);
  args.candidate = *std::move(candidate);
  if (!WaitUntilReady(abandoned)) return refuse("context cancelled");
  return {200, args.body.nodes.empty() ? Place(args) : Simulate(args)};
}

void Extender::Count(const sched::Decision& decision) {
  std::atomic<std::uint64_t>* counter = &errors_;
  if (decision.outcome == sched::Outcome::kPlaced) counter = &placed_;
  if (decision.outcome == sched::Outcome::kNoFit) counter = &no_fit_;
  if (decision.outcome == sched::Outcome::kNotOurs) counter = &not_ours_;
  counter->fetch_add(1, std::memory_order_relaxed);
}

std::string Extender::Place(FilterArgs& args) {
  const bool explain = args.body.names.size() <= options_.explain_nodes;
  // The books take the pod.
  const std::string ns = args.candidate.pod.ns;
  const std::string name = args.candidate.pod.name;
  const std::string uid = args.candidate.pod.uid;
  const sched::Decision decision = books_.Locked([&](State& state) {
    return state.Place(std::move(args.candidate), args.body.names, time_.Now() / 1000, explain);
  });
  Count(decision);
  for (const sched::Event& event : EventsOf(decision, options_.event_nodes)) record_({ns, name, uid}, event);
  FilterResult result;
  switch (decision.outcome) {
    case sched::Outcome::kNotOurs:
      result.node_names = args.body.names_text;
      break;
    case sched::Outcome::kPlaced:
      result.node_names = OneName(decision.node);
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

std::string Extender::Simulate(const FilterArgs& args) {
  simulated_.fetch_add(1, std::memory_order_relaxed);
  const auto nodes = ReadSimulatedNodes(args.body.nodes);
  if (!nodes) return Refusal(nodes.error().message);
  const sched::Decision decision =
      books_.Read([&](const State& state) { return state.filter.Simulate(args.candidate.pod, *nodes); });
  if (decision.outcome == sched::Outcome::kError) return Refusal(decision.error);
  FilterResult result;
  if (decision.outcome == sched::Outcome::kNotOurs) {
    result.nodes = args.body.nodes;
    result.node_names = args.body.names_text;
    return WriteFilterResult(result);
  }
  result.failed = &decision.failures;
  if (decision.outcome == sched::Outcome::kPlaced) {
    result.nodes = base::Concat({R"({"metadata":{},"items":[)", FindNodeText(args.body.nodes, decision.node), "]}"});
  }
  return WriteFilterResult(result);
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
