// SPDX-License-Identifier: Apache-2.0
//
// EventRecorder writes core/v1 Events from a thread of its own, so that what is recorded never waits for the API
// server. It waits for a moment before it writes, and writes what has come together behind one another. Bounded: when
// the queue is full the oldest is dropped. The same event again raises a count: in the queue without a call, later by
// one patch of the Event that was written. Events are news, not truth: a write that fails is not repeated.

#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "kube/client.h"
#include "kube/timestamp.h"

namespace hami::kube {

enum class EventType { kNormal, kWarning };

// What an event is about.
struct EventTarget {
  std::string kind = "Pod";
  std::string api_version = "v1";
  std::string ns;  // empty for objects of the cluster
  std::string name;
  std::string uid;
};

struct RecorderOptions {
  std::string component;  // source.component
  std::string host;       // source.host
  std::size_t most_queued = 1000;
  std::size_t most_remembered = 4096;  // written events that may still be counted up
  std::chrono::seconds memory{600};
  std::size_t most_message_bytes = 1024;  // the API's own limit
  net::Duration call_timeout = std::chrono::seconds(5);
  net::Duration gather = std::chrono::milliseconds(10);
  std::function<WallTime()> clock = [] { return std::chrono::system_clock::now(); };
};

class EventRecorder {
 public:
  // CLIENT must outlive this.
  EventRecorder(Client& client, RecorderOptions options);
  ~EventRecorder() { Stop({}); }
  EventRecorder(const EventRecorder&) = delete;
  EventRecorder& operator=(const EventRecorder&) = delete;

  // Never blocks on the network.
  void Record(const EventTarget& target, EventType type, std::string_view reason, std::string_view message);
  // Goes on writing what is queued for at most GRACE, drops the rest.
  void Stop(net::Duration grace);
  // Waits until all that was recorded so far is written or dropped; false at DEADLINE.
  bool Flush(net::Deadline deadline);

  struct Counters {
    std::uint64_t recorded = 0;
    std::uint64_t created = 0;
    std::uint64_t patched = 0;
    std::uint64_t dropped = 0;  // from a full queue, or at the end
    std::uint64_t failed = 0;
  };
  Counters counters() const;

 private:
  struct Pending {
    std::string key;
    EventTarget target;
    EventType type;
    std::string reason;
    std::string message;
    WallTime first;
    WallTime last;
    int count = 1;
  };
  struct Written {
    std::string key;
    std::string name;
    int count = 0;
    WallTime last;
  };

  void Run();
  std::list<Pending> TakeSome();
  void Write(std::list<Pending>& events);
  bool CountUp(const Pending& pending);
  void Remember(Pending& pending, std::string name);
  std::string NewName(const Pending& pending);
  // Written out, and not built as a tree first: it is as long as many and as plain as all.
  std::string Document(const Pending& pending, std::string_view name) const;

  Client& client_;
  const RecorderOptions options_;
  net::Canceller cut_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Pending> queue_;
  std::unordered_map<std::string_view, std::list<Pending>::iterator> queued_;  // by their own keys
  bool writing_ = false;
  bool stopping_ = false;
  int flushing_ = 0;  // threads that wait for the queue to be written
  Counters counters_;

  // Of the writing thread alone: the most recently used first.
  std::list<Written> written_;
  std::unordered_map<std::string_view, std::list<Written>::iterator> by_key_;  // by their own keys
  std::uint64_t serial_ = 0;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace hami::kube
