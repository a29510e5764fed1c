// SPDX-License-Identifier: Apache-2.0

#include "scheduler/counters.h"

#include <string_view>
#include <utility>

namespace hami::scheduler {
namespace {

constexpr auto kCounter = base::Exposition::Type::kCounter;

class Collector {
 public:
  void Gauge(std::string_view name, std::string_view help, double value) {
    readings_.push_back({name, base::Exposition::Type::kGauge, help, "", "", value});
  }
  void Counter(std::string_view name, std::string_view help, std::uint64_t value) {
    readings_.push_back({name, kCounter, help, "", "", static_cast<double>(value)});
  }
  void Counters(std::string_view name, std::string_view help, std::string_view label,
                std::initializer_list<std::pair<std::string_view, std::uint64_t>> values) {
    for (const auto& [label_value, value] : values) {
      readings_.push_back({name, kCounter, help, label, label_value, static_cast<double>(value)});
    }
  }
  std::vector<Reading> Take() { return std::move(readings_); }

 private:
  std::vector<Reading> readings_;
};

}  // namespace

std::vector<Reading> AllReadings(const AllCounters& all) {
  Collector out;
  out.Gauge("hami_scheduler_leader", "1 while /filter is answered here", all.leads ? 1 : 0);
  out.Gauge("hami_scheduler_synced", "1 once pods, nodes and quotas have been listed", all.synced ? 1 : 0);
  out.Gauge("hami_scheduler_binds_alone", "1 while no other scheduler binds, so that bindings need no ticket on a node",
            all.bind_mode == BindMode::kAlone ? 1 : 0);
  out.Counter("hami_scheduler_filter_requests_total", "Requests to /filter, those that still wait included",
              all.extender.filters);
  out.Counters("hami_scheduler_filters_total", "Answers of /filter", "outcome",
               {{"placed", all.extender.placed},
                {"no_fit", all.extender.no_fit},
                {"not_ours", all.extender.not_ours},
                {"simulated", all.extender.simulated},
                {"error", all.extender.errors}});
  out.Counters("hami_scheduler_binds_total", "Answers of /bind; an unknown one counts once more when it is known",
               "outcome",
               {{"bound", all.binder.bound}, {"failed", all.binder.failed}, {"unknown", all.binder.unknown}});
  out.Counter("hami_scheduler_bind_contentions_total", "Times that a bind call found its node taken",
              all.binder.contended);
  out.Counter("hami_scheduler_bind_redecisions_total", "Bind calls that decided anew because the node had changed",
              all.binder.asked_again);
  out.Counter("hami_scheduler_expired_total", "Charges taken back because no bind call came", all.keeper.expired);
  out.Counters("hami_scheduler_node_writes_total", "Handshakes written on nodes", "result",
               {{"done", all.keeper.node_writes}, {"failed", all.keeper.node_write_errors}});
  out.Counter("hami_scheduler_api_calls_total", "Calls to the API server, lists and watches included",
              all.client.calls);
  out.Counter("hami_scheduler_api_retries_total", "Calls that the API server asked to repeat later",
              all.client.retries);
  const auto& cache = all.cache;
  out.Counters("hami_scheduler_watch_changes_total", "Changes of objects that were told", "resource",
               {{"pods", cache.pods.changes}, {"nodes", cache.nodes.changes}, {"quotas", cache.quotas.changes}});
  out.Counters("hami_scheduler_lists_total", "Complete lists read", "resource",
               {{"pods", cache.pods.lists}, {"nodes", cache.nodes.lists}, {"quotas", cache.quotas.lists}});
  out.Counters("hami_scheduler_watch_errors_total", "Lists and watches that failed", "resource",
               {{"pods", cache.pods.errors}, {"nodes", cache.nodes.errors}, {"quotas", cache.quotas.errors}});
  out.Counters("hami_scheduler_events_total", "Events of pods", "result",
               {{"created", all.recorder.created},
                {"patched", all.recorder.patched},
                {"dropped", all.recorder.dropped},
                {"failed", all.recorder.failed}});
  const BooksCounters& books = all.books;
  out.Gauge("hami_scheduler_books_nodes", "Nodes with cards or pods in the books", static_cast<double>(books.nodes));
  out.Gauge("hami_scheduler_books_pods", "Pods in the books", static_cast<double>(books.pods));
  out.Gauge("hami_scheduler_books_pending", "Pods placed and not known to be bound",
            static_cast<double>(books.pending));
  out.Counter("hami_scheduler_books_events_total", "Changes of the books", books.ledger.events);
  out.Counter("hami_scheduler_books_nodes_touched_total", "Nodes whose books changed, over all events",
              books.ledger.nodes_touched);
  out.Counter("hami_scheduler_books_pods_charged_total", "Pods added to or taken from a node's sums",
              books.ledger.pods_charged);
  out.Counter("hami_scheduler_decisions_total", "Decisions made", books.filter.decisions);
  out.Counter("hami_scheduler_verdicts_total", "Nodes asked whether a pod fits, over all decisions",
              books.filter.nodes_asked);
  return out.Take();
}

}  // namespace hami::scheduler
