// SPDX-License-Identifier: Apache-2.0

#include "cli/demo_verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace hami::cli {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

Evidence Good() {
  Evidence evidence;
  evidence.name = "x";
  evidence.limit_bytes = 1000;
  evidence.peak_in_share = evidence.peak_on_gpu = 1000;
  evidence.most_processes = 1;
  evidence.wait_status = 0;
  evidence.report = {{"cuda_total", 1000}, {"nvml_total", 1000}};
  return evidence;
}

Evidence Killed() {
  Evidence evidence = Good();
  evidence.must_be_killed = true;
  evidence.wait_status = SIGKILL;
  evidence.held_when_killed = 500;
  evidence.back_after_ms = 20;
  return evidence;
}

TEST(Verdicts, GivenAllInOrder_WhenJudged_ThenNoFault) {
  EXPECT_THAT(Judge(Good()).faults, IsEmpty());
  EXPECT_THAT(Judge(Killed()).faults, IsEmpty());
  EXPECT_THAT(Judge(Killed()).summary, HasSubstr("500 B back after 20 ms"));
}

TEST(Verdicts, GivenOneByteTooMuch_WhenJudged_ThenFault) {
  Evidence evidence = Good();
  evidence.peak_on_gpu = 1001;
  EXPECT_THAT(Judge(evidence).faults, Contains(HasSubstr("1 bytes over the limit in the GPU's")));
  evidence = Good();
  evidence.peak_in_share = 1001;
  EXPECT_THAT(Judge(evidence).faults, Contains(HasSubstr("the share's")));
}

TEST(Verdicts, GivenNothingMeasured_WhenJudged_ThenFault) {
  Evidence evidence = Good();
  evidence.peak_on_gpu = 0;
  EXPECT_THAT(Judge(evidence).faults, Contains(HasSubstr("no use at all")));
  evidence = Good();
  evidence.report.erase("nvml_total");
  EXPECT_THAT(Judge(evidence).faults, Contains(HasSubstr("nvml_total")));
}

TEST(Verdicts, GivenWholeCardSeen_WhenJudged_ThenFault) {
  Evidence evidence = Good();
  evidence.report["cuda_total"] = 80000;
  EXPECT_THAT(Judge(evidence).faults, Contains(HasSubstr("cuda_total was 80000")));
}

TEST(Verdicts, GivenWrongEnding_WhenJudged_ThenFault) {
  Evidence evidence = Good();
  evidence.wait_status = 1 << 8;
  EXPECT_THAT(Judge(evidence).faults, Contains(HasSubstr("status 1")));
  evidence.wait_status = std::nullopt;
  EXPECT_THAT(Judge(evidence).faults, Contains(HasSubstr("did not end")));
  evidence = Killed();
  evidence.wait_status = 0;
  EXPECT_THAT(Judge(evidence).faults, Contains(HasSubstr("should have been killed")));
  evidence = Killed();
  evidence.back_after_ms.reset();
  EXPECT_THAT(Judge(evidence).faults, Contains(HasSubstr("did not come back")));
}

TEST(Verdicts, GivenRefusals_WhenTheyShouldOrShouldNotBe_ThenJudged) {
  Evidence evidence = Good();
  evidence.refusals = 3;
  EXPECT_THAT(Judge(evidence).faults, Contains(HasSubstr("stayed within")));
  evidence.must_be_refused = true;
  EXPECT_THAT(Judge(evidence).faults, IsEmpty());
  evidence.refusals = 0;
  EXPECT_THAT(Judge(evidence).faults, Contains(HasSubstr("never refused")));
}

}  // namespace
}  // namespace hami::cli
