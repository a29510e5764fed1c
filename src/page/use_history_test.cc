// SPDX-License-Identifier: Apache-2.0

#include "page/use_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"

namespace hami::page {
namespace {

namespace json = base::json;

using testing::ElementsAre;
using testing::HasSubstr;

device::ShareUse AShare(const std::string& pod, device::MiB used = 100) {
  return {"team", pod, "main", "GPU-1", used, 3000, 30, 25};
}

json::object Look(const UseHistory& history, device::UnixSeconds now, const std::string& node = "n") {
  auto value = base::ParseJson(history.Render(node, now));
  EXPECT_TRUE(value) << value.error().message;
  return value->as_object();
}

// Pods that the document has, each with the amounts of its samples.
std::vector<std::string> Lines(const json::object& document) {
  std::vector<std::string> lines;
  for (const json::value& share : document.at("shares").as_array()) {
    std::string line(share.at("pod").as_string());
    for (const json::value& sample : share.at("samples").as_array()) {
      line += " " + std::to_string(sample.at(0).as_int64()) + ":" + std::to_string(sample.at(1).as_int64());
    }
    lines.push_back(line);
  }
  return lines;
}

TEST(UseHistory, AShareHasASampleAMinuteAgainstItsLimits) {
  UseHistory history;
  history.Listed({"n"}, 6000);
  history.Answered("n", {"n", {AShare("p", 100)}}, 6000);
  history.Answered("n", {"n", {AShare("p", 150)}}, 6030);
  device::ShareUse resized = AShare("p", 200);
  resized.limit = 2000;
  resized.core_percent.reset();
  history.Answered("n", {"n", {resized}}, 6061);
  const json::object document = Look(history, 6070);
  EXPECT_EQ(document.at("answered"), 6061);
  EXPECT_EQ(document.at("problem"), "");
  ASSERT_EQ(document.at("shares").as_array().size(), 1U);
  const json::value& share = document.at("shares").at(0);
  EXPECT_EQ(share.at("namespace"), "team");
  EXPECT_EQ(share.at("container"), "main");
  EXPECT_EQ(share.at("uuid"), "GPU-1");
  EXPECT_EQ(share.at("samples"), base::ParseJson("[[6030,150,3000,25,30],[6061,200,2000,-1,30]]").value());
}

TEST(UseHistory, AfterAnHourASampleGoesAndWithTheLastOneTheShare) {
  UseHistory history;
  for (int minute = 0; minute <= 90; ++minute) {
    device::UseReport report{"n", {AShare("stays", minute)}};
    if (minute == 0) report.shares.push_back(AShare("went"));
    history.Answered("n", report, 60'000 + 60 * minute);
    if (minute == 59) {
      EXPECT_EQ(history.shares(), 2U);
      EXPECT_EQ(Look(history, 60'000 + 60 * 59).at("shares").as_array().size(), 2U);
    }
  }
  const json::object document = Look(history, 60'000 + 60 * 90);
  EXPECT_EQ(history.shares(), 1U);
  ASSERT_EQ(document.at("shares").as_array().size(), 1U);
  const json::array& samples = document.at("shares").at(0).at("samples").as_array();
  EXPECT_EQ(samples.size(), 60U);
  EXPECT_EQ(samples.front().at(1), 31);
  EXPECT_EQ(samples.back().at(1), 90);
}

TEST(UseHistory, AMonitorThatIsSilentIsSaidAndItsHistoryStaysAWhile) {
  UseHistory history;
  EXPECT_THAT(std::string(Look(history, 1).at("problem").as_string()), HasSubstr("no monitor has been looked for"));
  history.Listed({"n"}, 6000);
  history.Answered("n", {"n", {AShare("p")}}, 6000);
  history.Silent("n", "hami-monitor does not answer: connection refused", 6060);
  json::object document = Look(history, 6060);
  EXPECT_EQ(document.at("problem"), "hami-monitor does not answer: connection refused");
  EXPECT_EQ(document.at("answered"), 6000);
  EXPECT_THAT(Lines(document), ElementsAre("p 6000:100"));
  history.Answered("n", {"n", {}}, 6120);
  EXPECT_EQ(Look(history, 6120).at("problem"), "");
  // Its pod went: the node is there as long as it has history.
  history.Listed({}, 6180);
  EXPECT_THAT(std::string(Look(history, 6180).at("problem").as_string()), HasSubstr("no hami-monitor is found"));
  EXPECT_EQ(history.shares(), 1U);
  history.Listed({}, 6000 + UseHistory::kSpan);
  EXPECT_EQ(history.shares(), 0U);
  EXPECT_EQ(Look(history, 9700).at("answered"), 0);
  // The list itself cannot be had.
  history.ListProblem("forbidden");
  EXPECT_EQ(Look(history, 9700).at("problem"), "forbidden");
}

TEST(UseHistory, AClockThatIsSetBackLeavesNoLaterSample) {
  UseHistory history;
  history.Listed({"n"}, 1);
  history.Answered("n", {"n", {AShare("p", 1)}}, 60'000);
  history.Answered("n", {"n", {AShare("p", 2)}}, 60'600);
  history.Answered("n", {"n", {AShare("p", 3)}}, 60'300);
  EXPECT_THAT(Lines(Look(history, 60'300)), ElementsAre("p 60000:1 60300:3"));
  EXPECT_THAT(Lines(Look(history, 60'100)), ElementsAre("p 60000:1")) << "what is later than now is not shown";
}

TEST(UseHistory, BeyondItsRoomSharesAreLeftOutAndCounted) {
  UseHistory history;
  history.Listed({"n", "other"}, 1);
  constexpr std::size_t kEach = 1000;
  for (std::size_t i = 0; i * kEach < UseHistory::kMostShares; ++i) {
    device::UseReport report{"n" + std::to_string(i), {}};
    for (std::size_t k = 0; k < kEach; ++k) report.shares.push_back(AShare("p" + std::to_string(k)));
    history.Answered(report.node, report, 6000);
  }
  EXPECT_EQ(history.shares(), UseHistory::kMostShares);
  history.Answered("other", {"other", {AShare("a"), AShare("b")}}, 6000);
  EXPECT_EQ(history.shares(), UseHistory::kMostShares);
  EXPECT_EQ(Look(history, 6000, "other").at("left_out"), 2);
  // There is room again once others are old.
  history.Listed({"other"}, 6000 + UseHistory::kSpan);
  history.Answered("other", {"other", {AShare("a"), AShare("b")}}, 6000 + UseHistory::kSpan);
  EXPECT_EQ(history.shares(), 2U);
  EXPECT_EQ(Look(history, 6000 + UseHistory::kSpan, "other").at("left_out"), 0);
}

TEST(UseHistory, WhateverNamesHoldTheDocumentIsJson) {
  UseHistory history;
  history.Listed({"n\""}, 1);
  history.Answered("n\"", {"n\"", {{"a\"", "b\\", "c\n", "</script>", 1, 2, 100, std::nullopt}}}, 60);
  history.Silent("n\"", std::string(5000, '"') + "\x01", 60);
  const json::object document = Look(history, 60, "n\"");
  EXPECT_EQ(document.at("shares").at(0).at("uuid"), "</script>");
  EXPECT_EQ(document.at("problem").as_string().size(), UseHistory::kMostProblem);
}

}  // namespace
}  // namespace hami::page
