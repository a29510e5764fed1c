// SPDX-License-Identifier: Apache-2.0

#include "monitor/gc.h"

#include <gtest/gtest.h>

namespace hami::monitor {
namespace {

using std::chrono::seconds;

constexpr seconds kResync{300};

GcFacts Abandoned() {
  GcFacts facts;
  facts.unwanted_for = kResync;
  facts.unchanged_for = kResync;
  return facts;
}

TEST(Gc, GivenAnAbandonedDirectory_WhenItIsOldEnough_ThenItMayGo) { EXPECT_TRUE(MayRemove(Abandoned(), kResync)); }

TEST(Gc, GivenAnyReasonToKeep_ThenItStays) {
  GcFacts facts = Abandoned();
  facts.living = true;
  EXPECT_FALSE(MayRemove(facts, kResync)) << "a process lives, whatever the API server says";
  facts = Abandoned();
  facts.unwanted_for = kResync - seconds(1);
  EXPECT_FALSE(MayRemove(facts, kResync)) << "the pod may not have arrived in the watch yet";
  facts = Abandoned();
  facts.unchanged_for = kResync - seconds(1);
  EXPECT_FALSE(MayRemove(facts, kResync)) << "the directory is new";
}

TEST(Gc, GivenProcessesNobodyCanJudge_ThenItStaysUntilSilentForLong) {
  GcFacts facts = Abandoned();
  facts.doubtful = true;
  facts.unwanted_for = kSilence;
  facts.silent_for = kSilence - seconds(1);
  EXPECT_FALSE(MayRemove(facts, kResync));
  facts.silent_for = kSilence;
  EXPECT_TRUE(MayRemove(facts, kResync));
}

TEST(Gc, GivenClockSetForward_ThenItsSilenceAloneRemovesNothing) {
  GcFacts facts = Abandoned();
  facts.doubtful = true;
  facts.unchanged_for = facts.silent_for = std::chrono::hours(24 * 365);
  EXPECT_FALSE(MayRemove(facts, kResync));
}

TEST(Gc, GivenClockSetBack_ThenWhatSeemsMadeInTheFutureStays) {
  GcFacts facts = Abandoned();
  facts.unchanged_for = -std::chrono::hours(1);
  EXPECT_FALSE(MayRemove(facts, kResync));
}

}  // namespace
}  // namespace hami::monitor
