// SPDX-License-Identifier: Apache-2.0

#include "kube/recorder.h"

#include <gtest/gtest.h>

#include "kube/testing/fake_apiserver.h"

namespace hami::kube {
namespace {

using namespace std::chrono_literals;

class RecorderTest : public ::testing::Test {
 protected:
  std::unique_ptr<EventRecorder> NewRecorder(std::size_t most_queued = 1000) {
    RecorderOptions options;
    options.component = "hami-scheduler";
    options.host = "here";
    options.most_queued = most_queued;
    options.clock = [this] { return now_.load(); };
    return std::make_unique<EventRecorder>(*client_, options);
  }
  static EventTarget Pod(const std::string& name) { return {"Pod", "v1", "ns", name, "uid-" + name}; }

  FakeApiServer server_;
  std::unique_ptr<Client> client_ = *Client::Make(server_.config());
  std::atomic<WallTime> now_ = WallTime{std::chrono::seconds(1'700'000'000)};
};

TEST_F(RecorderTest, GivenAnEventWhenRecordedThenItIsWrittenWithAllItsParts) {
  const auto recorder = NewRecorder();
  recorder->Record(Pod("a"), EventType::kWarning, "FilteringFailed", "no available node");
  ASSERT_TRUE(recorder->Flush(net::After(30s)));
  const auto events = server_.All(kEvents, "ns");
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].at("involvedObject").at("uid"), "uid-a");
  EXPECT_EQ(events[0].at("reason"), "FilteringFailed");
  EXPECT_EQ(events[0].at("message"), "no available node");
  EXPECT_EQ(events[0].at("type"), "Warning");
  EXPECT_EQ(events[0].at("source").at("component"), "hami-scheduler");
  EXPECT_EQ(events[0].at("firstTimestamp"), "2023-11-14T22:13:20Z");
  EXPECT_EQ(events[0].at("count"), 1);
}

TEST_F(RecorderTest, GivenTheSameEventAgainWhenRecordedThenItsCountRises) {
  const auto recorder = NewRecorder();
  for (int i = 0; i < 3; ++i) {
    recorder->Record(Pod("a"), EventType::kNormal, "R", "m");
    ASSERT_TRUE(recorder->Flush(net::After(30s)));
    now_ = now_.load() + 1s;
  }
  recorder->Record(Pod("a"), EventType::kNormal, "R", "another");
  ASSERT_TRUE(recorder->Flush(net::After(30s)));
  EXPECT_EQ(recorder->counters().created, 2U);
  EXPECT_EQ(recorder->counters().patched, 2U);
  std::multiset<std::int64_t> counts;
  for (const auto& event : server_.All(kEvents)) counts.insert(event.at("count").as_int64());
  EXPECT_EQ(counts, (std::multiset<std::int64_t>{1, 3}));
}

TEST_F(RecorderTest, GivenAnEventThatExpiredWhenItHappensAgainThenItIsWrittenAnew) {
  const auto recorder = NewRecorder();
  recorder->Record(Pod("a"), EventType::kNormal, "R", "m");
  ASSERT_TRUE(recorder->Flush(net::After(30s)));
  const auto events = server_.All(kEvents);
  ASSERT_EQ(events.size(), 1U);
  server_.Remove(kEvents, "ns", std::string(events[0].at("metadata").at("name").as_string()));
  recorder->Record(Pod("a"), EventType::kNormal, "R", "m");
  ASSERT_TRUE(recorder->Flush(net::After(30s)));
  EXPECT_EQ(server_.Count(kEvents), 1U);
}

TEST_F(RecorderTest, GivenCreateOnlyRole_WhenEventHappensAgain_ThenWrittenAnew) {
  server_.Add({.kind = FakeFault::Kind::kStatus, .method = "PATCH", .times = 10, .status = 403});
  const auto recorder = NewRecorder();
  for (int i = 0; i < 3; ++i) {
    recorder->Record(Pod("a"), EventType::kNormal, "R", "m");
    ASSERT_TRUE(recorder->Flush(net::After(30s)));
  }
  EXPECT_EQ(server_.Count(kEvents), 3U);
  EXPECT_EQ(recorder->counters().failed, 0U);
}

TEST_F(RecorderTest, GivenASlowServerWhenTheQueueIsFullThenTheOldestAreDropped) {
  server_.Add({.kind = FakeFault::Kind::kDelay, .method = "POST", .delay = 200ms});
  const auto recorder = NewRecorder(3);
  recorder->Record(Pod("first"), EventType::kNormal, "R", "m");
  // Wait until it is being written, so that the queue is empty again.
  while (server_.Asked("POST") == 0) std::this_thread::yield();
  for (int i = 0; i < 10; ++i) recorder->Record(Pod(std::to_string(i)), EventType::kNormal, "R", "m");
  ASSERT_TRUE(recorder->Flush(net::After(30s)));
  EXPECT_EQ(recorder->counters().dropped, 7U);
  std::set<std::string> names;
  for (const auto& event : server_.All(kEvents)) {
    names.insert(std::string(event.at("involvedObject").at("name").as_string()));
  }
  EXPECT_EQ(names, (std::set<std::string>{"first", "7", "8", "9"}));
}

TEST_F(RecorderTest, GivenAServerThatRefusesWhenRecordedThenTheRecorderGoesOn) {
  server_.Add({.kind = FakeFault::Kind::kStatus, .method = "POST", .status = 403});
  const auto recorder = NewRecorder();
  recorder->Record(Pod("a"), EventType::kNormal, "R", "m");
  recorder->Record(Pod("b"), EventType::kNormal, "R", "m");
  ASSERT_TRUE(recorder->Flush(net::After(30s)));
  EXPECT_EQ(recorder->counters().failed, 1U);
  EXPECT_EQ(server_.Count(kEvents), 1U);
}

TEST_F(RecorderTest, GivenALongMessageWhenRecordedThenItIsCutBetweenCharacters) {
  const auto recorder = NewRecorder();
  std::string message;
  while (message.size() < 3000) message += "\xC3\xA4";
  recorder->Record(Pod("a"), EventType::kNormal, "R", message);
  ASSERT_TRUE(recorder->Flush(net::After(30s)));
  const auto events = server_.All(kEvents);
  ASSERT_EQ(events.size(), 1U);
  const std::string written(events[0].at("message").as_string());
  EXPECT_LE(written.size(), 1024U);
  EXPECT_TRUE(written.ends_with("\xC3\xA4..."));
}

TEST_F(RecorderTest, GivenGatheredEvents_WhenManyOrWaitedFor_ThenTheyAreWritten) {
  RecorderOptions options;
  options.gather = 1h;
  EventRecorder recorder(*client_, options);
  for (int i = 0; i < 32; ++i) recorder.Record(Pod(std::to_string(i)), EventType::kNormal, "R", "m");
  const net::Deadline end = net::After(30s);
  while (server_.Count(kEvents) < 32 && net::Clock::now() < end) std::this_thread::yield();
  EXPECT_EQ(server_.Count(kEvents), 32U);
  recorder.Record(Pod("waited for"), EventType::kNormal, "R", "m");
  ASSERT_TRUE(recorder.Flush(net::After(30s)));
  EXPECT_EQ(server_.Count(kEvents), 33U);
  recorder.Record(Pod("last"), EventType::kNormal, "R", "m");
  recorder.Stop(30s);
  EXPECT_EQ(server_.Count(kEvents), 34U);
}

TEST_F(RecorderTest, GivenAHangingServerWhenStoppedThenItEndsSoon) {
  server_.Add({.kind = FakeFault::Kind::kDelay, .method = "POST", .delay = 500ms});
  const auto recorder = NewRecorder();
  for (int i = 0; i < 10; ++i) recorder->Record(Pod(std::to_string(i)), EventType::kNormal, "R", "m");
  recorder->Stop(10ms);
  const auto counters = recorder->counters();
  EXPECT_EQ(counters.created + counters.failed + counters.dropped, 10U);
}

TEST_F(RecorderTest, GivenLongPodName_WhenEventIsWritten_ThenServerTakesItsName) {
  const auto recorder = NewRecorder();
  std::string name(253, 'a');
  for (std::size_t i = 200; i < name.size(); i += 2) name[i] = '-';
  recorder->Record(Pod(name), EventType::kNormal, "R", "m");
  recorder->Record(Pod(std::string(50, 'b')), EventType::kNormal, "R", "m");
  ASSERT_TRUE(recorder->Flush(net::After(30s)));
  const auto events = server_.All(kEvents, "ns");
  ASSERT_EQ(events.size(), 2U);
  for (const auto& event : events) {
    const std::string written(event.at("metadata").at("name").as_string());
    EXPECT_LE(written.size(), 253U);
    EXPECT_EQ(written.find("-."), std::string::npos) << written;
    const std::string target(event.at("involvedObject").at("name").as_string());
    EXPECT_TRUE(target == name || written.starts_with(target + ".")) << written;
  }
}

}  // namespace
}  // namespace hami::kube
