// SPDX-License-Identifier: Apache-2.0

#include "plugin/health.h"

#include <gtest/gtest.h>

#include "plugin/xid_policy.h"

namespace hami::plugin {
namespace {

constexpr const char* kGpu = "GPU-1";

Reading Good() { return {}; }
Reading Bad(nvml::Condition condition) {
  Reading reading;
  reading.condition = condition;
  reading.trouble = "driver's words";
  return reading;
}

bool GivenOut(const HealthBook& book) { return !book.Current().contains(kGpu); }

// Looks well every ten seconds from FROM until the GPU is given out; the time that took, or -1 within LIMIT.
UnixSeconds TimeToRecover(HealthBook& book, UnixSeconds from, UnixSeconds limit = 3600) {
  for (UnixSeconds now = from; now <= from + limit; now += 10) {
    book.Look(kGpu, Good(), now);
    if (GivenOut(book)) return now - from;
  }
  return -1;
}

TEST(HealthTest, GivenAFatalXid_WhenItComes_ThenTheGpuIsOutAtOnceAndSaysWhy) {
  HealthBook book;
  book.Condemn(kGpu, XidText(48), 1000);
  EXPECT_FALSE(GivenOut(book));
  EXPECT_EQ(book.Current().at(kGpu), "XID 48 (double-bit ECC error)");
  const auto changes = book.TakeChanges();
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes[0].from, HealthState::kHealthy);
  EXPECT_EQ(changes[0].to, HealthState::kUnhealthy);
  EXPECT_TRUE(book.TakeChanges().empty());
}

TEST(HealthTest, GivenUnhealthyGpu_WhenWell_ThenBackAfterQuietAndProbation) {
  HealthBook book;
  book.Condemn(kGpu, "XID 74", 1000);
  EXPECT_EQ(TimeToRecover(book, 1000), 60 + 30);
}

TEST(HealthTest, GivenRelapses_WhenRepeated_ThenWaitGrowsFourthInDayIsFinal) {
  HealthBook book;
  UnixSeconds now = 1000;
  for (const UnixSeconds wait : {60 + 30, 300 + 30, 900 + 30}) {
    book.Condemn(kGpu, "XID 62", now);
    const UnixSeconds took = TimeToRecover(book, now);
    EXPECT_EQ(took, wait);
    now += took + 100;
  }
  book.Condemn(kGpu, "XID 62", now);
  EXPECT_EQ(book.StateOf(kGpu), HealthState::kOut);
  EXPECT_EQ(TimeToRecover(book, now, 2 * 24 * 3600), -1);
}

TEST(HealthTest, GivenTroublesOnOtherDays_WhenCounted_ThenOldAreForgotten) {
  HealthBook book;
  for (int day = 0; day < 10; ++day) {
    const UnixSeconds now = 1000 + day * UnixSeconds{25 * 3600};
    book.Condemn(kGpu, "XID 62", now);
    EXPECT_EQ(TimeToRecover(book, now), 90) << day;
  }
}

TEST(HealthTest, GivenGpuThatIsOut_WhenCordonIsLifted_ThenProbationFollows) {
  HealthBook book;
  for (int i = 0; i < 4; ++i) {
    book.Condemn(kGpu, "XID 62", 1000 + i * 2000);
    if (i < 3) {
      ASSERT_GE(TimeToRecover(book, 1000 + i * 2000), 0);
    }
  }
  ASSERT_EQ(book.StateOf(kGpu), HealthState::kOut);
  book.Readmit(kGpu, 10000);
  EXPECT_FALSE(GivenOut(book));
  EXPECT_EQ(TimeToRecover(book, 10000), 30);
  EXPECT_TRUE(book.Journal(10100).empty());
}

TEST(HealthTest, GivenTroubleInProbation_WhenItComes_ThenItIsARelapse) {
  HealthBook book;
  book.Condemn(kGpu, "XID 62", 1000);
  book.Look(kGpu, Good(), 1060);
  ASSERT_EQ(book.StateOf(kGpu), HealthState::kProbation);
  EXPECT_FALSE(GivenOut(book));
  book.Suspect(kGpu, "XID 94", 1070);  // what would only be suspicious otherwise
  EXPECT_EQ(book.StateOf(kGpu), HealthState::kUnhealthy);
  EXPECT_EQ(TimeToRecover(book, 1070), 300 + 30);
}

TEST(HealthTest, GivenLostGpu_WhenItStaysLost_ThenQuietTimeBeginsAtReturn) {
  HealthBook book;
  for (UnixSeconds now = 1000; now <= 5000; now += 10) book.Look(kGpu, Bad(nvml::Condition::kLost), now);
  EXPECT_NE(book.Current().at(kGpu).find("lost"), std::string::npos);
  EXPECT_EQ(TimeToRecover(book, 5010), 50 + 30);  // one trouble, however long
  EXPECT_EQ(book.Journal(5200).at(kGpu).troubles.size(), 1U);
}

TEST(HealthTest, GivenOneFailedReading_WhenTheNextIsGood_ThenNothingHappened) {
  HealthBook book;
  book.Look(kGpu, Bad(nvml::Condition::kFails), 1000);
  EXPECT_EQ(book.StateOf(kGpu), HealthState::kSuspect);
  EXPECT_TRUE(GivenOut(book));
  book.Look(kGpu, Good(), 1010);
  EXPECT_EQ(book.StateOf(kGpu), HealthState::kHealthy);
  book.Look(kGpu, Bad(nvml::Condition::kFails), 1020);
  book.Look(kGpu, Bad(nvml::Condition::kFails), 1030);
  EXPECT_FALSE(GivenOut(book));
}

TEST(HealthTest, GivenContainedError_WhenRepairPending_ThenTroubleUntilReset) {
  Reading pending;
  pending.reset_pending = true;
  HealthBook book;
  book.Look(kGpu, pending, 990);
  EXPECT_EQ(book.StateOf(kGpu), HealthState::kHealthy);  // by itself it is no reason
  book.Suspect(kGpu, XidText(63), 1000);
  book.Look(kGpu, pending, 1000);
  EXPECT_FALSE(GivenOut(book));
  for (UnixSeconds now = 1010; now < 3000; now += 10) book.Look(kGpu, pending, now);
  EXPECT_EQ(book.StateOf(kGpu), HealthState::kUnhealthy);
  EXPECT_EQ(book.Current().at(kGpu), "XID 63 (a row is remapped or a page retired); memory repair waits for a reset");
  EXPECT_GE(TimeToRecover(book, 3000), 80);
}

TEST(HealthTest, GivenAContainedError_WhenNothingIsPending_ThenTheGpuStays) {
  HealthBook book;
  book.Suspect(kGpu, XidText(94), 1000);
  // A look that began before the error can not clear it.
  book.Look(kGpu, Good(), 1000);
  EXPECT_EQ(book.StateOf(kGpu), HealthState::kSuspect);
  book.Look(kGpu, Good(), 1001);
  EXPECT_EQ(book.StateOf(kGpu), HealthState::kHealthy);
  EXPECT_TRUE(book.Journal(1001).empty());
}

// A machine that boots with its clock far ahead, until it hears the time.
TEST(HealthTest, GivenClockSetBack_WhenGpuAnswersWell_ThenItIsBackNoLater) {
  constexpr UnixSeconds kAhead = 1000 + 7 * 24 * 3600;
  HealthBook unhealthy;
  unhealthy.Condemn(kGpu, "XID 74", kAhead);
  EXPECT_EQ(TimeToRecover(unhealthy, 1000), 60 + 30);
  HealthBook probation;
  probation.Condemn(kGpu, "XID 74", kAhead);
  probation.Look(kGpu, Good(), kAhead + 60);
  ASSERT_EQ(probation.StateOf(kGpu), HealthState::kProbation);
  for (UnixSeconds now = 1000; now <= 1030; now += 10) probation.Look(kGpu, Good(), now);
  EXPECT_EQ(probation.StateOf(kGpu), HealthState::kHealthy);
  HealthBook suspect;
  suspect.Suspect(kGpu, XidText(94), kAhead);
  suspect.Look(kGpu, Good(), 1000);
  EXPECT_EQ(suspect.StateOf(kGpu), HealthState::kSuspect) << "that look may have begun before the error";
  suspect.Look(kGpu, Good(), 1010);
  EXPECT_EQ(suspect.StateOf(kGpu), HealthState::kHealthy);
}

TEST(HealthTest, GivenReadingsThatSaySo_WhenJudged_ThenEachIsTrouble) {
  Reading worn_out;
  worn_out.worn_out = true;
  Reading unlisted;
  unlisted.listed = false;
  for (const Reading& reading : {worn_out, unlisted, Bad(nvml::Condition::kResetRequired)}) {
    HealthBook book;
    book.Look(kGpu, reading, 1000);
    EXPECT_FALSE(GivenOut(book));
  }
}

TEST(HealthTest, GivenRestart_WhenJournalIsRead_ThenUnhealthyGpuStaysSo) {
  HealthBook before;
  before.Condemn(kGpu, "XID 48", 1000);
  before.Look(kGpu, Good(), 1060);  // in probation: not out of the wood
  const auto journal = DecodeJournal(EncodeJournal(before.Journal(1070)));
  ASSERT_TRUE(journal);
  HealthBook after;
  after.Restore(*journal, 1080);
  EXPECT_FALSE(GivenOut(after));
  EXPECT_EQ(after.Current().at(kGpu), "XID 48");
  EXPECT_EQ(TimeToRecover(after, 1080), 90);
  // The trouble still counts.
  after.Condemn(kGpu, "XID 48", 1200);
  EXPECT_EQ(TimeToRecover(after, 1200), 330);
}

TEST(HealthTest, GivenAJournal_WhenItIsWrittenAndRead_ThenNothingIsLost) {
  HealthJournal journal;
  journal["GPU-a"] = {HealthState::kOut, "XID 79 \"quoted\"", 5, {1, 2, 3, 4}};
  journal["GPU-b"] = {HealthState::kHealthy, "", 9, {9}};
  const auto back = DecodeJournal(EncodeJournal(journal));
  ASSERT_TRUE(back);
  EXPECT_EQ(*back, journal);
  EXPECT_EQ(EncodeJournal({}), "");
}

TEST(HealthTest, GivenTextThatIsNoJournal_WhenRead_ThenItIsRefused) {
  for (const char* text : {"x", "[]", R"({"a":1})", R"({"a":{"state":"suspect"}})",
                           R"({"a":{"state":"out","troubles":[-1]}})", R"({"a":{"state":"out","troubles":["1"]}})"}) {
    EXPECT_FALSE(DecodeJournal(text)) << text;
  }
}

TEST(XidPolicyTest, GivenNoWishes_WhenJudged_ThenClassesAreThoseOfCatalogue) {
  const XidPolicy policy;
  for (const unsigned code : {13U, 31U, 43U, 45U, 68U, 109U}) EXPECT_EQ(policy.Judge(code), XidClass::kIgnored) << code;
  for (const unsigned code : {63U, 64U, 94U}) EXPECT_EQ(policy.Judge(code), XidClass::kSuspicious) << code;
  for (const unsigned code : {48U, 62U, 74U, 79U, 95U, 119U, 120U, 9999U}) {
    EXPECT_EQ(policy.Judge(code), XidClass::kFatal) << code;
  }
}

TEST(XidPolicyTest, GivenDisabledCodes_WhenJudged_ThenGarbageSkippedRestIgnored) {
  const XidPolicy policy(" 48, x,-62 ,, 74", "");
  EXPECT_EQ(policy.Judge(48), XidClass::kIgnored);
  EXPECT_EQ(policy.Judge(74), XidClass::kIgnored);
  EXPECT_EQ(policy.Judge(62), XidClass::kFatal);
  EXPECT_TRUE(policy.readings_count());
}

TEST(XidPolicyTest, GivenAllDisabled_WhenOneIsEnabled_ThenThatOneCounts) {
  const XidPolicy policy("ALL", "48,13");
  EXPECT_EQ(policy.Judge(48), XidClass::kFatal);
  EXPECT_EQ(policy.Judge(13), XidClass::kFatal);
  EXPECT_EQ(policy.Judge(74), XidClass::kIgnored);
  EXPECT_FALSE(policy.readings_count());
}

TEST(XidPolicyTest, GivenXidsDisabled_WhenTheGpuIsLost_ThenReadingsStillCount) {
  const XidPolicy policy("xids", "");
  EXPECT_EQ(policy.Judge(79), XidClass::kIgnored);
  EXPECT_TRUE(policy.readings_count());
}

TEST(XidPolicyTest, GivenAllEnabled_WhenJudged_ThenEvenApplicationErrorsCount) {
  EXPECT_EQ(XidPolicy("13", "all").Judge(13), XidClass::kFatal);
}

}  // namespace
}  // namespace hami::plugin
