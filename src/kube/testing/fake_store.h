// SPDX-License-Identifier: Apache-2.0
//
// The state of a fake API server: objects, versions, history. Every write gets the next resourceVersion and becomes an
// event; events older than the history, or than the last Compact, are gone as in etcd. Objects are kept as text, and
// JSON is read and written outside the mutex, so that a benchmark measures its clients and not the queue in here. A
// test library: it does what clients can see, and checks no schema.

#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "net/time.h"

namespace hami::kube {

namespace json = base::json;

struct FakeObject {
  std::string text;
  std::size_t version_at = 0;  // where the version stands in it
  std::string uid;
  std::uint64_t version = 0;
  // What selectors ask for.
  std::map<std::string, std::string> labels;
  std::string name, ns, node_name, phase;

  json::value Value() const { return json::parse(text); }
};
using FakePtr = std::shared_ptr<const FakeObject>;

struct FakeEvent {
  std::uint64_t version = 0;
  std::string plural;
  FakePtr before;            // null: added
  FakePtr after;             // null: deleted
  std::string deleted_text;  // of a deletion: the last state with the deletion's version
};

// What a request came to: an object, or a refusal (status ≥ 400 with the words of a metav1.Status).
struct FakeOutcome {
  int status = 200;
  std::string reason;
  std::string message;
  FakePtr object;
};

// Equality and set-based selectors are more than we use: "a=b,c!=d,e" and metadata.name, metadata.namespace,
// spec.nodeName, status.phase.
class FakeSelector {
 public:
  // Nothing when a selector is not understood.
  static std::optional<FakeSelector> Parse(std::string_view labels, std::string_view fields, std::string ns);
  bool Matches(const FakePtr& object) const;

 private:
  enum class Operation { kEquals, kDiffers, kExists };
  struct Term {
    std::string key;
    Operation operation;
    std::string value;
  };
  static bool ParseTerms(std::string_view text, std::vector<Term>& terms);

  std::vector<Term> labels_;
  std::vector<Term> fields_;
  std::string ns_;  // empty: all
};

class FakeStore {
 public:
  explicit FakeStore(std::size_t most_history) : most_history_(most_history) {}

  FakeOutcome Create(std::string_view plural, std::string_view ns, json::value object);
  // The same without a document, for what comes often and says of itself no more than its names: an Event. Nothing
  // when TEXT says more, or is wrong.
  std::optional<FakeOutcome> CreatePlain(std::string_view plural, std::string_view ns, std::string_view text);
  // Changes what CHANGE makes of the current state; it says no by a status of its own. An object without a
  // resourceVersion, or with the current one, is accepted; any other is a conflict. Called again when somebody else
  // was faster.
  using Change = std::function<FakeOutcome(json::value& object)>;
  FakeOutcome Modify(std::string_view plural, std::string_view ns, std::string_view name, const Change& change);
  FakeOutcome Delete(std::string_view plural, std::string_view ns, std::string_view name);
  FakeOutcome Get(std::string_view plural, std::string_view ns, std::string_view name) const;

  struct Page {
    std::vector<FakePtr> objects;
    std::uint64_t version = 0;
    std::string last_key;  // where the next page begins; empty: complete
  };
  // At most LIMIT (0: all) of those after AFTER, in the order of their keys.
  Page List(std::string_view plural, const FakeSelector& selector, std::size_t limit, const std::string& after) const;
  std::size_t Count(std::string_view plural) const;

  struct Batch {
    std::vector<FakeEvent> events;
    std::uint64_t version = 0;  // of the store: everything up to it was looked at
    bool expired = false;       // AFTER lies before the history
  };
  // Events of PLURAL after version AFTER; waits for one until DEADLINE.
  Batch WaitForEvents(std::string_view plural, std::uint64_t after, net::Deadline deadline);
  std::uint64_t version() const;
  std::uint64_t oldest() const;  // the oldest version that can be watched from
  void Compact();
  void WakeAll();

 private:
  using Objects = std::map<std::string, FakePtr, std::less<>>;  // by "ns/name"
  struct Kind {
    Objects objects;
    std::uint64_t version = 0;        // of its last event
    std::condition_variable changed;  // whoever watches one kind is not woken for another
  };

  // Of an object that is new.
  FakeOutcome Add(std::string_view plural, const std::string& key, std::shared_ptr<FakeObject> made);
  // All with the mutex held.
  FakePtr Find(std::string_view plural, std::string_view key) const;
  Kind& KindOf(std::string_view plural);
  // MADE gets its version and takes the place of what is in SLOT, of an object of PLURAL.
  FakePtr Store(std::string_view plural, FakePtr& slot, std::shared_ptr<FakeObject> made);
  void Append(Kind& kind, FakeEvent event);

  mutable std::mutex mutex_;
  std::map<std::string, Kind, std::less<>> kinds_;  // by plural
  std::deque<FakeEvent> history_;
  const std::size_t most_history_;
  std::uint64_t version_ = 1;
  std::uint64_t compacted_ = 0;  // events up to this version are gone
  std::atomic<std::uint64_t> next_uid_ = 1;
  std::uint64_t wakes_ = 0;
};

}  // namespace hami::kube
