// SPDX-License-Identifier: Apache-2.0

#include "page/live.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "base/json.h"

namespace hami::page {
namespace {

using testing::HasSubstr;

class LiveTest : public testing::Test {
 protected:
  LiveTest() { live_.Start(); }
  ~LiveTest() override {
    stop_.Cancel();
    live_.Stop();
  }
  static Snapshot With(const std::string& name) {
    Snapshot snapshot;
    snapshot.nodes.emplace_back().name = name;
    return snapshot;
  }
  std::string Answer(const Ask& ask) {
    return live_.Answer(ask, [] { return false; });
  }

  net::Canceller stop_;
  std::mutex mutex_;
  Snapshot now_ = With("first");
  Live live_{"epoch",
             "1.0",
             {[this] {
                const std::scoped_lock lock(mutex_);
                return now_;
              },
              [] { return 1000; }},
             stop_};
};

TEST_F(LiveTest, AReaderThatWaitsIsToldOfTheChange) {
  const auto first = base::ParseJson(Answer({}));
  ASSERT_TRUE(first);
  EXPECT_EQ(first->at("epoch"), "epoch");
  const auto revision = base::GetUint(first->as_object(), "revision");
  ASSERT_TRUE(revision);
  auto waiting = std::async(std::launch::async, [&] { return Answer({"epoch", *revision, 30}); });
  EXPECT_EQ(waiting.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
  {
    const std::scoped_lock lock(mutex_);
    now_ = With("second");
  }
  const std::string told = waiting.get();
  EXPECT_THAT(told, HasSubstr("\"second\""));
  EXPECT_THAT(told, HasSubstr(R"("gone":["first"])"));
}

TEST_F(LiveTest, AReaderOfAnotherStartIsToldEverythingAtOnce) {
  EXPECT_THAT(Answer({"before", 7, 30}), HasSubstr(R"("full":true)"));
}

TEST_F(LiveTest, TheEndEndsEveryWait) {
  const auto first = base::ParseJson(Answer({}));
  const auto revision = base::GetUint(first->as_object(), "revision");
  auto waiting = std::async(std::launch::async, [&] { return Answer({"epoch", *revision, 30}); });
  stop_.Cancel();
  EXPECT_EQ(waiting.wait_for(std::chrono::seconds(10)), std::future_status::ready);
}

TEST(ParseAsk, WhatIsNotUnderstoodIsRefused) {
  EXPECT_EQ(ParseAsk("/v1/state")->since, 0U);
  EXPECT_EQ(ParseAsk("/v1/state?")->wait, 0U);
  const auto ask = ParseAsk("/v1/state?since=ab-1.42&wait=30");
  ASSERT_TRUE(ask);
  EXPECT_EQ(ask->epoch, "ab-1");
  EXPECT_EQ(ask->since, 42U);
  EXPECT_EQ(ask->wait, 30U);
  for (const char* bad : {"?since=42", "?since=.42", "?since=e.", "?since=e.-1", "?wait=31", "?wait=", "?wait=1&wait=2",
                          "?other=1", "?since=e.1&", "?%zz=1", "?wait=1e3", "?since=e.99999999999999999999"}) {
    EXPECT_FALSE(ParseAsk(std::string("/v1/state") + bad)) << bad;
  }
}

}  // namespace
}  // namespace hami::page
