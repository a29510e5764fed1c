// SPDX-License-Identifier: Apache-2.0
//
// Reflector keeps a handler told about one collection of objects: a list, then a watch from there, again and again
// through broken connections, expired versions and server errors. It remembers of every object only its key, uid and
// version. Towards the handler the invariant holds at all times that for each key the calls read
// (Added Modified* Deleted)*: deletions that a watch missed are told after the next list, a name that came back with
// another uid is Deleted and then Added, a change that is already known or older than what is known is not told.

#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>

#include "kube/list_watch.h"
#include "kube/rate.h"

namespace hami::kube {

enum class ChangeType { kAdded, kModified, kDeleted };

struct Change {
  ChangeType type;
  std::string_view ns;
  std::string_view name;
  std::string_view uid;
  // The object, or its last state for a deletion that a watch reported; nullptr for one that a list revealed.
  const json::value* object;
  // It is older than what was told before: the server was restored from a backup.
  bool restored = false;
};

// Called on the reflector's thread, one call at a time. Nothing in a Change outlives the call.
class Handler {
 public:
  virtual ~Handler() = default;
  virtual void OnChange(const Change& change) = 0;
  // After every complete list: everything that existed at its time has been told.
  virtual void OnListed() {}
};

struct ReflectorOptions {
  std::string name = "objects";  // for messages
  // A watch lasts between one and two times this, so that those of many clients do not end together.
  std::chrono::seconds watch_timeout{300};
  // Lists anew after this long, whatever the watch says; 0: never. Heals what a faulty server or proxy lost.
  std::chrono::seconds relist_interval{0};
  net::Duration backoff_first = std::chrono::milliseconds(500);
  net::Duration backoff_most = std::chrono::seconds(30);
  // Whether there is nothing to learn from this version of an object that the handler has been told of: it is the
  // handler's own write, whose answer said the same. Then it is not told, and the event is not read whole.
  AlreadyKnown knows{};
  std::function<void(const std::string& message)> warn{};  // default: the log
  std::function<double()> random{};                        // in [0, 1); default: a generator of its own
  // Sleeps; true when the reflector is to stop. Default: real time.
  std::function<bool(net::Duration, const net::Canceller&)> sleep{};
  std::function<net::Deadline()> now{};  // default: the steady clock
};

class Reflector {
 public:
  // SOURCE and HANDLER must outlive this.
  Reflector(ListWatcher& source, Handler& handler, ReflectorOptions options = {});
  ~Reflector() { Stop(); }
  Reflector(const Reflector&) = delete;
  Reflector& operator=(const Reflector&) = delete;

  void Start();
  // Ends a list or watch in progress and returns when the handler will not be called again. Not from the handler.
  void Stop();
  // Start's thread runs this; tests may instead. Returns when STOP was thrown.
  void Run();
  void Cancel() { stop_.Cancel(); }

  // The first list is complete.
  bool synced() const { return synced_.load(std::memory_order_acquire); }

  // The handler has been told of all that happened up to this resourceVersion. 0: nothing is known, or the server's
  // versions are no numbers.
  std::uint64_t reached() const { return reached_.load(std::memory_order_acquire); }

  struct Counters {
    std::uint64_t lists = 0;
    std::uint64_t watches = 0;
    std::uint64_t changes = 0;
    std::uint64_t stale = 0;   // events dropped because something newer was known
    std::uint64_t echoes = 0;  // events dropped because the handler knew what they say
    std::uint64_t errors = 0;
  };
  Counters counters() const;
  std::size_t size() const { return size_.load(std::memory_order_relaxed); }

 private:
  struct Known {
    std::string uid;
    std::string version;
    std::uint64_t round = 0;  // of the list that showed it last
  };
  using Book = std::unordered_map<std::string, Known>;

  // True: go on at once; false: after a pause.
  bool ListOnce();
  bool WatchOnce();
  void Upsert(const json::value& object, bool from_list);
  void Remove(const json::value& object);
  void ForgetUnlisted();
  void Tell(ChangeType type, const std::string& key, std::string_view uid, const json::value* object,
            bool restored = false);
  bool OnEvent(WatchType type, const json::value& object);
  bool IsEcho(const Identity& object);
  void Report(const char* doing, const Error& error);
  void Reached(std::string_view version);

  ListWatcher& source_;
  Handler& handler_;
  ReflectorOptions options_;
  Backoff backoff_;
  net::Canceller stop_;
  std::thread thread_;

  // Of the running thread alone:
  Book book_;  // by "namespace/name"
  std::uint64_t round_ = 0;
  std::string version_;  // where the next watch begins
  bool need_list_ = true;
  net::Deadline next_list_ = net::kNever;
  std::string last_report_;

  std::atomic<bool> synced_ = false;
  std::atomic<std::uint64_t> reached_ = 0;
  std::atomic<std::size_t> size_ = 0;
  std::atomic<std::uint64_t> lists_ = 0, watches_ = 0, changes_ = 0, stale_ = 0, echoes_ = 0, errors_ = 0;
};

}  // namespace hami::kube
