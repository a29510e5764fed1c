// SPDX-License-Identifier: Apache-2.0
//
// The verbs of kube-scheduler's extender protocol: a JSON body in, a JSON body out. Every failure is answered in
// the protocol's own field, so that it becomes the pod's event and the next cycle tries again; only a request without
// any body is refused by status. Filter decides and charges, and writes nothing to the cluster. Thread-safe.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "scheduler/binder.h"
#include "scheduler/books.h"
#include "scheduler/events.h"

namespace hami::scheduler {

struct ExtenderOptions {
  // Up to this many candidates an event lists every node and its score; above, the decision is not slowed down for it.
  std::size_t explain_nodes = 100;
  // The API's limit of a message is 1024 bytes; a longer list of nodes is cut.
  std::size_t event_nodes = 40;
  // So many nodes are named to kube-scheduler, which chooses. 0: HAMi's way, the one where the pod goes.
  std::size_t offer_nodes = 0;
  // Where a pod finds no place, pods of lower priority are to go.
  bool preempt = false;
  // Told of each decision, after it was made and without the books' mutex.
  std::function<void(const PodName& pod, const sched::Decision& decision)> decided{};
};

// Of --extender-mode=prioritize. kube-scheduler scores each of them by all its plugins, for every pod.
inline constexpr std::size_t kOfferedNodes = 100;

struct FilterBody;

struct Reply {
  int status = 200;
  std::string body;
};

// True: the client has gone.
using Abandoned = std::function<bool()>;

class Extender {
 public:
  // READY: may pods be placed (books complete, and we lead)? Filter waits for it.
  Extender(Books& books, Binder& binder, Time& time, RecordEvent record, std::function<bool()> ready,
           ExtenderOptions options = {})
      : books_(books),
        binder_(binder),
        time_(time),
        record_(std::move(record)),
        ready_(std::move(ready)),
        options_(options) {}

  Reply Filter(std::string_view body, const Abandoned& abandoned);
  // How good the nodes are that a Filter has named for this pod. Always an answer: what is not known scores 0.
  Reply Prioritize(std::string_view body);
  // kube-scheduler's choice of pods that go for another: nodes where that would give it no GPU are left out, and where
  // more have to go for its GPUs than for the rest, they are added. Of its own choice nothing is taken out: each of
  // them is one that it could not leave where it is.
  Reply Preempt(std::string_view body);
  Reply Bind(std::string_view body, const Abandoned& abandoned);

  struct Counters {
    std::uint64_t filters = 0;
    std::uint64_t placed = 0;
    std::uint64_t no_fit = 0;
    std::uint64_t not_ours = 0;
    std::uint64_t simulated = 0;
    std::uint64_t errors = 0;
  };
  Counters counters() const;

 private:
  std::string Place(FilterBody& body);
  std::string Simulate(const FilterBody& body);
  bool WaitUntilReady(const Abandoned& abandoned);
  void Count(const sched::Decision& decision);

  Books& books_;
  Binder& binder_;
  Time& time_;
  const RecordEvent record_;
  const std::function<bool()> ready_;
  const ExtenderOptions options_;
  std::atomic<std::uint64_t> filters_ = 0, placed_ = 0, no_fit_ = 0, not_ours_ = 0, simulated_ = 0, errors_ = 0;
};

}  // namespace hami::scheduler
