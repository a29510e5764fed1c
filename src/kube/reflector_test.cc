// SPDX-License-Identifier: Apache-2.0

#include "kube/reflector.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "kube/store.h"
#include "kube/testing/fake_apiserver.h"
#include "kube/views.h"

namespace hami::kube {
namespace {

using namespace std::chrono_literals;

json::value ObjectOf(const std::string& name, const std::string& uid, std::uint64_t version) {
  return {
      {"metadata", {{"name", name}, {"namespace", "ns"}, {"uid", uid}, {"resourceVersion", std::to_string(version)}}}};
}

// Keeps what it is told, and checks that it is told in a possible order.
class Recorder : public Handler {
 public:
  void OnChange(const Change& change) override {
    const std::string name(change.name);
    const std::string uid(change.uid);
    EXPECT_EQ(change.ns, "ns");
    const auto known = uids_.find(name);
    if (change.restored) ++restored_;
    switch (change.type) {
      case ChangeType::kAdded:
        EXPECT_EQ(known, uids_.end()) << "added twice: " << name;
        uids_[name] = uid;
        break;
      case ChangeType::kModified:
        ASSERT_NE(known, uids_.end()) << "modified before added: " << name;
        EXPECT_EQ(known->second, uid);
        break;
      case ChangeType::kDeleted:
        ASSERT_NE(known, uids_.end()) << "deleted before added: " << name;
        EXPECT_EQ(known->second, uid);
        uids_.erase(known);
        versions_.erase(name);
        return;
    }
    versions_[name] = std::string(change.object->at("metadata").at("resourceVersion").as_string());
  }
  void OnListed() override { ++listed_; }

  // name → uid, name → version
  const std::map<std::string, std::string>& uids() const { return uids_; }
  const std::map<std::string, std::string>& versions() const { return versions_; }
  int listed() const { return listed_; }
  int restored() const { return restored_; }

 private:
  std::map<std::string, std::string> uids_;
  std::map<std::string, std::string> versions_;
  int listed_ = 0;
  int restored_ = 0;
};

// A collection that changes at random, behind a server that fails at random in every way a real one may: lists and
// watches that break off, expired versions, events repeated, events of different objects out of order, changes during a
// list, restarted lists, watches that end at once. After CALLS calls it is honest, and ends the reflector once it has
// told everything.
class Chaos : public ListWatcher {
 public:
  Chaos(unsigned seed, int calls) : random_(seed), calls_left_(calls) {}
  Reflector* reflector = nullptr;

  Result<std::string> List(const ListSink& sink, const net::Canceller&) override {
    const bool honest = --calls_left_ < 0;
    if (!honest && Chance(20)) return Fail(Reason::kServerError, "chaos");
    const std::uint64_t version = version_;
    const auto snapshot = objects_;
    for (const auto& [name, object] : snapshot) {
      if (!honest && Chance(3)) return Fail(Reason::kTransport, "chaos");
      if (!honest && Chance(2)) {
        sink.restart();
        return List(sink, {});
      }
      if (!honest && Chance(20)) Mutate();
      sink.item(ObjectOf(name, object.uid, object.version));
    }
    return std::to_string(version);
  }

  Status Watch(const std::string& from, std::chrono::seconds, const OnWatchEvent& on_event,
               const net::Canceller&) override {
    const bool honest = --calls_left_ < 0;
    std::uint64_t at = std::stoull(from);
    for (int step = 0; step < 6; ++step) {
      if (!honest) {
        for (int i = Below(4); i > 0; --i) Mutate();
        if (Chance(5)) compacted_ = version_;
      }
      if (at < compacted_) return Fail(Reason::kExpired, "too old");
      for (const Event& event : Window(at, !honest)) {
        on_event(event.type, ObjectOf(event.name, event.uid, event.version));
      }
      at = version_;
      if (honest) {
        reflector->Cancel();
        return {};
      }
      if (Chance(30)) on_event(WatchType::kBookmark, {{"metadata", {{"resourceVersion", std::to_string(at)}}}});
      if (Chance(15)) return Fail(Reason::kTransport, "chaos");
      if (Chance(15)) return {};
    }
    return {};
  }

  void ExpireAll() { compacted_ = version_ + 1; }
  std::map<std::string, std::string> Uids() const {
    std::map<std::string, std::string> uids;
    for (const auto& [name, object] : objects_) uids[name] = object.uid;
    return uids;
  }
  std::map<std::string, std::string> Versions() const {
    std::map<std::string, std::string> versions;
    for (const auto& [name, object] : objects_) versions[name] = std::to_string(object.version);
    return versions;
  }

 private:
  struct Object {
    std::string uid;
    std::uint64_t version;
  };
  struct Event {
    WatchType type;
    std::string name;
    std::string uid;
    std::uint64_t version;
  };

  int Below(int limit) { return static_cast<int>(random_() % static_cast<unsigned>(limit)); }
  bool Chance(int percent) { return Below(100) < percent; }

  void Mutate() {
    const std::string name = "o" + std::to_string(Below(6));
    const auto found = objects_.find(name);
    ++version_;
    if (found == objects_.end()) {
      const std::string uid = "u" + std::to_string(version_);
      objects_[name] = {uid, version_};
      history_.push_back({WatchType::kAdded, name, uid, version_});
    } else if (Chance(40)) {
      history_.push_back({WatchType::kDeleted, name, found->second.uid, version_});
      objects_.erase(found);
    } else {
      found->second.version = version_;
      history_.push_back({WatchType::kModified, name, found->second.uid, version_});
    }
  }

  // The events after AT: each object's in order; between objects, in disorder if asked; some twice.
  std::vector<Event> Window(std::uint64_t at, bool disorder) {
    std::vector<Event> events;
    for (const Event& event : history_) {
      if (event.version > at) events.push_back(event);
    }
    if (!disorder) return events;
    for (std::size_t i = 1; i < events.size(); ++i) {
      if (events[i - 1].name != events[i].name && Chance(40)) std::swap(events[i - 1], events[i]);
    }
    std::vector<Event> repeated;
    for (const Event& event : events) {
      repeated.push_back(event);
      if (event.type != WatchType::kDeleted && Chance(20)) repeated.push_back(event);
    }
    return repeated;
  }

  std::mt19937 random_;
  int calls_left_;
  std::map<std::string, Object> objects_;
  std::vector<Event> history_;
  std::uint64_t version_ = 1;
  std::uint64_t compacted_ = 0;
};

ReflectorOptions Impatient() {
  ReflectorOptions options;
  options.warn = [](const std::string&) {};
  options.random = [] { return 0.5; };
  options.sleep = [](net::Duration, const net::Canceller& stop) { return stop.cancelled(); };
  return options;
}

TEST(ReflectorProperty, GivenAnyChaosWhenItEndsThenTheHandlerKnowsExactlyWhatExists) {
  std::uint64_t watches = 0;
  std::uint64_t lists = 0;
  for (unsigned seed = 1; seed <= 500; ++seed) {
    Chaos source(seed, 40);
    Recorder handler;
    Reflector reflector(source, handler, Impatient());
    source.reflector = &reflector;
    reflector.Run();
    ASSERT_EQ(handler.uids(), source.Uids()) << "seed " << seed;
    ASSERT_EQ(handler.versions(), source.Versions()) << "seed " << seed;
    EXPECT_EQ(reflector.size(), handler.uids().size());
    watches += reflector.counters().watches;
    lists += reflector.counters().lists;
  }
  // The chaos reached both halves of the reflector.
  EXPECT_GT(watches, 5000U);
  EXPECT_GT(lists, 2000U);
}

// Plays one answer after another; each may be a list or a watch.
class Script : public ListWatcher {
 public:
  std::vector<std::function<Result<std::string>(const ListSink&)>> lists;
  std::vector<std::function<Status(const std::string&, const OnWatchEvent&)>> watches;
  Reflector* reflector = nullptr;
  std::vector<std::chrono::seconds> timeouts;

  Result<std::string> List(const ListSink& sink, const net::Canceller&) override { return Next(lists, list_)(sink); }
  Status Watch(const std::string& from, std::chrono::seconds timeout, const OnWatchEvent& on_event,
               const net::Canceller&) override {
    timeouts.push_back(timeout);
    if (watch_ == watches.size()) {
      reflector->Cancel();
      return {};
    }
    return Next(watches, watch_)(from, on_event);
  }

 private:
  template <typename T>
  static T& Next(std::vector<T>& answers, std::size_t& at) {
    EXPECT_LT(at, answers.size());
    return answers.at(at++);
  }
  std::size_t list_ = 0;
  std::size_t watch_ = 0;
};

class ReflectorScript : public ::testing::Test {
 protected:
  void Run(ReflectorOptions options = Impatient()) {
    Reflector reflector(script_, handler_, std::move(options));
    script_.reflector = &reflector;
    reflector.Run();
    counters_ = reflector.counters();
  }
  static std::function<Result<std::string>(const ListSink&)> ListOf(std::vector<json::value> items,
                                                                    std::string version) {
    return [items, version](const ListSink& sink) -> Result<std::string> {
      for (const json::value& item : items) sink.item(item);
      return version;
    };
  }

  Script script_;
  Recorder handler_;
  Reflector::Counters counters_;
};

TEST_F(ReflectorScript, GivenABookmarkWhenTheWatchBreaksThenTheNextBeginsThere) {
  std::string began;
  script_.lists = {ListOf({ObjectOf("a", "u1", 5)}, "5")};
  script_.watches = {[](const std::string&, const OnWatchEvent& on_event) -> Status {
                       on_event(WatchType::kBookmark, {{"metadata", {{"resourceVersion", "90"}}}});
                       return Fail(Reason::kTransport, "cut");
                     },
                     [&](const std::string& from, const OnWatchEvent&) -> Status {
                       began = from;
                       return {};
                     }};
  Run();
  EXPECT_EQ(began, "90");
  EXPECT_EQ(counters_.lists, 1U);
}

TEST_F(ReflectorScript, GivenAMissedDeletionWhenListedAgainThenItIsToldWithTheUid) {
  script_.lists = {ListOf({ObjectOf("a", "u1", 5), ObjectOf("b", "u2", 6)}, "6"),
                   ListOf({ObjectOf("b", "u3", 9)}, "9")};
  script_.watches = {[](const std::string&, const OnWatchEvent&) -> Status { return Fail(Reason::kExpired, "old"); }};
  Run();
  // The recorder has checked the uids of both deletions.
  EXPECT_EQ(handler_.uids(), (std::map<std::string, std::string>{{"b", "u3"}}));
  EXPECT_EQ(handler_.listed(), 2);
}

TEST_F(ReflectorScript, GivenRestoredServer_WhenListed_ThenOlderVersionsAreBelieved) {
  script_.lists = {ListOf({ObjectOf("a", "u1", 500)}, "500"), ListOf({ObjectOf("a", "u1", 20)}, "21")};
  script_.watches = {[](const std::string&, const OnWatchEvent&) -> Status { return Fail(Reason::kExpired, "old"); },
                     [](const std::string& from, const OnWatchEvent& on_event) -> Status {
                       EXPECT_EQ(from, "21");
                       on_event(WatchType::kModified, ObjectOf("a", "u1", 22));
                       return {};
                     }};
  Run();
  EXPECT_EQ(handler_.versions().at("a"), "22");
}

TEST_F(ReflectorScript, GivenWatchFromFuture_WhenServerRestored_ThenAllListedAsOlder) {
  Error from_the_future;
  from_the_future.message = "Too large resource version: 500, current: 21";
  from_the_future.reason = Reason::kTimeout;
  from_the_future.code = 504;
  script_.lists = {ListOf({ObjectOf("a", "u1", 500)}, "500"), ListOf({ObjectOf("a", "u1", 20)}, "21")};
  script_.watches = {
      [&](const std::string&, const OnWatchEvent&) -> Status { return tl::unexpected(from_the_future); }};
  Run();
  EXPECT_EQ(handler_.versions().at("a"), "20");
  EXPECT_EQ(handler_.restored(), 1);
}

TEST_F(ReflectorScript, GivenEventsOlderThanKnown_WhenTheyCome_ThenNothingChanges) {
  std::string began;
  script_.lists = {ListOf({ObjectOf("a", "u1", 5)}, "5")};
  script_.watches = {[](const std::string&, const OnWatchEvent& on_event) -> Status {
                       on_event(WatchType::kModified, ObjectOf("a", "u1", 10));
                       on_event(WatchType::kModified, ObjectOf("a", "u1", 7));
                       on_event(WatchType::kDeleted, ObjectOf("a", "u0", 6));
                       return Fail(Reason::kTransport, "cut");
                     },
                     [&](const std::string& from, const OnWatchEvent&) -> Status {
                       began = from;
                       return {};
                     }};
  Run();
  EXPECT_EQ(handler_.versions(), (std::map<std::string, std::string>{{"a", "10"}}));
  EXPECT_EQ(counters_.stale, 2U);
  EXPECT_EQ(began, "10");
}

TEST_F(ReflectorScript, GivenFailuresWhenTheyGoOnThenPausesGrowAndSuccessResetsThem) {
  std::vector<net::Duration> pauses;
  ReflectorOptions options = Impatient();
  options.random = [] { return 0.0; };
  options.sleep = [&](net::Duration span, const net::Canceller& stop) {
    pauses.push_back(span);
    return stop.cancelled();
  };
  const auto failure = [](const ListSink&) -> Result<std::string> { return Fail(Reason::kServerError, "no"); };
  script_.lists = {failure, failure, failure, ListOf({}, "1")};
  script_.watches = {[](const std::string&, const OnWatchEvent&) -> Status { return Fail(Reason::kTransport, "cut"); }};
  Run(options);
  ASSERT_GE(pauses.size(), 4U);
  EXPECT_EQ(pauses[0], 500ms);
  EXPECT_EQ(pauses[1], 1s);
  EXPECT_EQ(pauses[2], 2s);
  EXPECT_EQ(pauses[3], 500ms);
}

TEST_F(ReflectorScript, GivenRelistInterval_WhenPassed_ThenWhatTheWatchLostIsFound) {
  net::Deadline now = net::Deadline{} + 1h;
  ReflectorOptions options = Impatient();
  options.now = [&] { return now; };
  options.relist_interval = 60s;
  script_.lists = {ListOf({}, "1"), ListOf({ObjectOf("lost", "u", 2)}, "3")};
  script_.watches = {[&](const std::string&, const OnWatchEvent&) -> Status {
    now += 61s;
    return {};
  }};
  Run(options);
  EXPECT_EQ(handler_.uids().count("lost"), 1U);
  // No watch is asked to last beyond the next list.
  for (const auto timeout : script_.timeouts) EXPECT_LE(timeout, 60s);
}

class ReflectorLive : public ::testing::Test {
 protected:
  static json::value Pod(int number, int state) {
    return {{"metadata", {{"name", "p" + std::to_string(number)}, {"namespace", "ns"}}}, {"state", state}};
  }
  template <typename Done>
  static bool Eventually(Done done) {
    const net::Deadline end = net::After(30s);
    while (!done()) {
      if (net::Clock::now() > end) return false;
      std::this_thread::sleep_for(2ms);
    }
    return true;
  }
  FakeApiServer server_;
  std::unique_ptr<Client> client_ = *Client::Make(server_.config());
};

TEST_F(ReflectorLive, GivenConnection_WhenItFailsInEveryWay_ThenStoreEqualsServer) {
  ApiListWatcher source(*client_, kPods, "", {}, 7);
  Store<Metadata> store([](const json::value& object) { return ReadMetadata(object); });
  ReflectorOptions options;
  options.warn = [](const std::string&) {};
  options.backoff_first = 1ms;
  options.backoff_most = 20ms;
  Reflector reflector(source, store, options);
  reflector.Start();
  std::mt19937 random(7);
  for (int i = 0; i < 600; ++i) {
    const int number = static_cast<int>(random() % 40);
    if (random() % 3 == 0) {
      server_.Remove(kPods, "ns", "p" + std::to_string(number));
    } else {
      server_.Put(kPods, Pod(number, i));
    }
    if (i % 60 == 10) server_.DropWatches();
    if (i % 90 == 20) server_.Compact();
    if (i % 70 == 30) server_.SendBookmarks();
    if (i % 100 == 40) server_.Add({.kind = FakeFault::Kind::kDropBefore, .method = "GET", .times = 2});
    if (i % 100 == 80) server_.Add({.kind = FakeFault::Kind::kStatus, .method = "GET", .times = 2, .status = 500});
  }
  const auto versions = [&] {
    std::map<std::string, std::string> map;
    for (const auto& object : store.All()) map[object->name] = object->uid + " " + object->resource_version;
    return map;
  };
  std::map<std::string, std::string> truth;
  for (const json::value& object : server_.All(kPods)) {
    const auto metadata = *ReadMetadata(object);
    truth[metadata.name] = metadata.uid + " " + metadata.resource_version;
  }
  EXPECT_TRUE(Eventually([&] { return reflector.synced() && versions() == truth; }));
  EXPECT_EQ(versions(), truth);
  reflector.Stop();
}

// Writes itself and knows what it wrote, all but what it was told to doubt.
class Writer : public Handler {
 public:
  void OnChange(const Change& change) override {
    const std::scoped_lock lock(mutex_);
    if (change.object != nullptr) seen_[std::string(change.name)] = ReadMetadata(*change.object)->resource_version;
    ++told_;
  }
  bool Knows(const Identity& object) const {
    const std::scoped_lock lock(mutex_);
    const auto found = seen_.find(std::string(object.name));
    return found != seen_.end() && found->second == object.version;
  }
  void Wrote(const std::string& name, const std::string& version) {
    const std::scoped_lock lock(mutex_);
    seen_[name] = version;
  }
  int told() const {
    const std::scoped_lock lock(mutex_);
    return told_;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::string> seen_;
  int told_ = 0;
};

TEST_F(ReflectorLive, GivenHandlersOwnWrites_WhenTheyReturn_ThenOnlyOthersAreTold) {
  const auto put = [&](int state) {
    return std::stoull(ReadMetadata(server_.Put(kPods, Pod(1, state)))->resource_version);
  };
  std::uint64_t version = put(0);
  ApiListWatcher source(*client_, kPods);
  Writer handler;
  ReflectorOptions options;
  options.knows = [&](const Identity& object) { return handler.Knows(object); };
  Reflector reflector(source, handler, options);
  reflector.Start();
  ASSERT_TRUE(Eventually([&] { return server_.watching() == 1; }));
  ASSERT_EQ(handler.told(), 1);
  handler.Wrote("p1", std::to_string(version + 1));
  ASSERT_EQ(put(1), version + 1);
  ASSERT_TRUE(Eventually([&] { return reflector.counters().echoes == 1; }));
  EXPECT_EQ(handler.told(), 1);
  version = put(2);
  ASSERT_TRUE(Eventually([&] { return handler.told() == 2; }));
  // An echo is a version like any other: the list that finds it unchanged has nothing to tell.
  handler.Wrote("p1", std::to_string(version + 1));
  ASSERT_EQ(put(3), version + 1);
  ASSERT_TRUE(Eventually([&] { return reflector.counters().echoes == 2; }));
  server_.Compact();
  server_.DropWatches();
  ASSERT_TRUE(Eventually([&] { return server_.watching() == 1 && reflector.counters().watches > 1; }));
  EXPECT_EQ(handler.told(), 2);
  reflector.Stop();
}

TEST_F(ReflectorLive, GivenAWatchInProgressWhenStoppedThenItEndsSoon) {
  ApiListWatcher source(*client_, kPods);
  Recorder handler;
  Reflector reflector(source, handler);
  reflector.Start();
  ASSERT_TRUE(Eventually([&] { return server_.watching() == 1; }));
  const net::Deadline begin = net::Clock::now();
  reflector.Stop();
  EXPECT_LT(net::Clock::now() - begin, 10s);
}

TEST(StoreTest, GivenChangesWhenToldThenReadersSeeThemAndListenersBothStates) {
  std::vector<std::string> heard;
  Store<Metadata> store(
      [](const json::value& object) { return ReadMetadata(object); },
      [&](const auto& before, const auto& after) {
        heard.push_back((before ? before->resource_version : "-") + ">" + (after ? after->resource_version : "-"));
      });
  const json::value first = ObjectOf("a", "u", 1);
  const json::value second = ObjectOf("a", "u", 2);
  store.OnChange({ChangeType::kAdded, "ns", "a", "u", &first});
  const auto held = store.Get("ns", "a");
  store.OnChange({ChangeType::kModified, "ns", "a", "u", &second});
  EXPECT_EQ(store.Get("ns", "a")->resource_version, "2");
  EXPECT_EQ(held->resource_version, "1");
  store.OnChange({ChangeType::kDeleted, "ns", "a", "u", nullptr});
  EXPECT_EQ(store.Get("ns", "a"), nullptr);
  EXPECT_EQ(heard, (std::vector<std::string>{"->1", "1>2", "2>-"}));
}

}  // namespace
}  // namespace hami::kube
