// SPDX-License-Identifier: Apache-2.0

#include "page/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

namespace hami::page {
namespace {

using testing::HasSubstr;

class SamplerTest : public testing::Test {
 protected:
  Sampler Make() {
    return {history_,
            {[this] { return found_; }, [this](const MonitorAddress& monitor) { return Ask(monitor); },
             [] { return device::UnixSeconds{6000}; }},
            std::chrono::milliseconds(1),
            stop_};
  }
  base::Result<device::UseReport> Ask(const MonitorAddress& monitor) {
    ++asked_;
    if (monitor.node == "broken") return base::Fail("no answer");
    if (monitor.node == "liar") return device::UseReport{"a", {}};
    return device::UseReport{monitor.node, {{"team", "p", "main", "GPU-1", 1, 2, 100, 3}}};
  }
  std::string Said(const std::string& node) { return history_.Render(node, 6000); }

  net::Canceller stop_;
  UseHistory history_;
  base::Result<std::vector<MonitorAddress>> found_ = std::vector<MonitorAddress>();
  std::atomic<int> asked_ = 0;
};

TEST_F(SamplerTest, EveryMonitorIsAskedOnceARound) {
  for (int i = 0; i < 100; ++i) found_->push_back({"n" + std::to_string(100 + i), "h", 1, true});
  Make().RunOnce();
  EXPECT_EQ(asked_, 100);
  EXPECT_EQ(history_.shares(), 100U);
  EXPECT_THAT(Said("n142"), HasSubstr(R"([6000,1,2,3,100])"));
}

TEST_F(SamplerTest, WhatIsWrongWithANodeIsSaidOfThatNodeAlone) {
  found_ = std::vector<MonitorAddress>{
      {"a", "h", 1, true}, {"broken", "h", 1, true}, {"liar", "h", 1, true}, {"slow", "h", 1, false}};
  Make().RunOnce();
  EXPECT_THAT(Said("a"), HasSubstr(R"("problem":"")"));
  EXPECT_THAT(Said("broken"), HasSubstr("no answer"));
  EXPECT_THAT(Said("liar"), HasSubstr("says that it is that of node a"));
  EXPECT_THAT(Said("slow"), HasSubstr("not ready"));
  EXPECT_EQ(asked_, 3) << "one that is not ready is not asked";
  found_ = base::Fail("forbidden");
  Make().RunOnce();
  EXPECT_THAT(Said("a"), HasSubstr("forbidden"));
  EXPECT_EQ(history_.shares(), 1U) << "what was known stays";
}

TEST_F(SamplerTest, ItGoesOnUntilItIsStopped) {
  found_->push_back({"a", "h", 1, true});
  Sampler sampler = Make();
  sampler.Start();
  while (asked_ < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  stop_.Cancel();
  sampler.Stop();
  const int asked = asked_;
  sampler.RunOnce();
  EXPECT_EQ(asked_, asked) << "nothing is asked after the stop";
}

}  // namespace
}  // namespace hami::page
