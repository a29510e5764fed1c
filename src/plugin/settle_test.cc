// SPDX-License-Identifier: Apache-2.0

#include "plugin/settle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/annotations.h"
#include "plugin/testing/allocation_world.h"

namespace hami::plugin {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

const std::vector<std::string> kX = {SlotId(CardName(0), 0)};
const std::vector<std::string> kY = {SlotId(CardName(1), 0)};

Record Given(const PodView& pod, const std::vector<std::string>& slots, bool assumed = true) {
  Record record;
  record.owner = {pod.ns, pod.name, pod.uid};
  record.container_name = "c0";
  record.grant = pod.allocated.at(0);
  record.slots = slots;
  record.assumed = assumed;
  record.folder = "shares/" + pod.name;
  record.cache = "r.cache";
  record.given_at = 1000;
  return record;
}

class SettleTest : public ::testing::Test {
 protected:
  const PodView a_ = BoundPod("a", {{ShareOf(0, 1000)}});
  const PodView b_ = BoundPod("b", {{ShareOf(1, 1000)}});
  std::vector<PodPtr> pods_ = {Ptr(a_), Ptr(b_)};
};

TEST_F(SettleTest, GivenAssumedOwner_WhenKubeletNamesIt_ThenItIsKnown) {
  const Settled settled = Settle({Given(a_, kX)}, pods_, Holdings{{"default", "a", "c0", kX}}, {1000});
  EXPECT_FALSE(settled.records.at(0).assumed);
  EXPECT_THAT(settled.exchanges, IsEmpty());
}

TEST_F(SettleTest, GivenServedPods_WhenKubeletNamesThemSwapped_ThenRecordsSwap) {
  const Settled settled = Settle({Given(a_, kX), Given(b_, kY)}, pods_,
                                 Holdings{{"default", "b", "c0", kX}, {"default", "a", "c0", kY}}, {1000});
  ASSERT_THAT(settled.exchanges, SizeIs(1));
  EXPECT_TRUE(settled.exchanges[0].alike);
  EXPECT_EQ(settled.records[0].owner.name, "b");
  EXPECT_EQ(settled.records[0].grant, a_.allocated[0]);
  EXPECT_EQ(settled.records[1].owner.name, "a");
}

TEST_F(SettleTest, GivenPodGone_WhenOtherHoldsItsSlots_ThenGrantMovesNoneIsOwed) {
  const Holdings holdings = {{"default", "b", "c0", kX}};
  Settled settled = Settle({Given(a_, kX)}, {Ptr(b_)}, holdings, {5000});
  ASSERT_THAT(settled.exchanges, SizeIs(1));
  settled = Settle(settled.records, {Ptr(b_)}, holdings, {5000 + kRecordGrace});
  ASSERT_THAT(settled.records, SizeIs(1));
  EXPECT_EQ(settled.records[0].owner.name, "b");
  const Desired desired = DesiredAnnotations(b_, settled.records);
  EXPECT_EQ(desired.changes.at(kAllocated), device::EncodeGrant(a_.allocated));
}

TEST_F(SettleTest, GivenKubeletNamingEndedPod_WhenSettled_ThenOnlyLivingCounts) {
  PodView ended = a_;
  ended.status_phase = "Succeeded";
  const Settled settled = Settle({Given(b_, kX)}, {Ptr(ended), Ptr(b_)},
                                 Holdings{{"default", "a", "c0", kX}, {"default", "b", "c0", kX}}, {1000});
  EXPECT_THAT(settled.exchanges, IsEmpty());
  EXPECT_EQ(settled.records.at(0).owner.name, "b");
}

TEST_F(SettleTest, GivenAnswerNeverTaken_WhenLookedFor_ThenPodIsOwedGrantAgain) {
  const Settled settled = Settle({Given(a_, kX)}, pods_, Holdings{}, {1000, true});
  ASSERT_THAT(settled.records, SizeIs(1));
  EXPECT_TRUE(settled.records[0].owed);
  EXPECT_EQ(settled.records[0].folder, "shares/a") << "for the case that the same slots are asked for again";
  PodView served = a_;
  served.bind_phase = device::kPhaseSuccess;
  served.to_allocate = {{}};
  const Desired desired = DesiredAnnotations(served, settled.records);
  EXPECT_EQ(desired.changes.at(device::kBindPhase), device::kPhaseAllocating);
  EXPECT_EQ(desired.changes.at(kToAllocate), device::EncodeGrant(a_.allocated));
}

TEST_F(SettleTest, GivenUnreportedInitContainer_WhenLookedFor_ThenNothingIsOwed) {
  PodView pod = a_;
  pod.containers[0].init = true;
  const Settled settled = Settle({Given(pod, kX)}, {Ptr(pod)}, Holdings{}, {1000, true});
  EXPECT_FALSE(settled.records.at(0).owed);
}

TEST_F(SettleTest, GivenRecordsOfEndedOrLongGonePods_WhenSettled_ThenTheyGo) {
  PodView ended = a_;
  ended.status_phase = "Failed";
  const Records records = {Given(a_, kX, false), Given(b_, kY, false)};
  EXPECT_THAT(Settle(records, {Ptr(ended), Ptr(b_)}, {}, {1001}).dropped, SizeIs(1));
  EXPECT_THAT(Settle(records, {}, {}, {1001}).dropped, IsEmpty()) << "the watch may lag";
  EXPECT_THAT(Settle(records, {}, {}, {1000 + kRecordGrace}).dropped, SizeIs(2));
}

TEST_F(SettleTest, GivenEndedAssumedPod_WhenYoung_ThenRecordWaitsForKubelet) {
  PodView ended = a_;
  ended.status_phase = "Failed";
  EXPECT_THAT(Settle({Given(a_, kX)}, {Ptr(ended), Ptr(b_)}, Holdings{}, {1001}).records, SizeIs(1));
}

// A kubelet before Kubernetes 1.34 goes on naming pods that have ended.
TEST_F(SettleTest, EndedWhileOnlyAssumedAndStillNamed_TheRecordGoes) {
  PodView ended = a_;
  ended.status_phase = "Succeeded";
  const Holdings holdings = {{"default", "a", "c0", kX}};
  EXPECT_THAT(Settle({Given(a_, kX)}, {Ptr(ended)}, holdings, {1000 + kRecordGrace}).dropped, SizeIs(1));
  EXPECT_THAT(Settle({Given(a_, kX)}, {Ptr(b_)}, holdings, {1000 + kRecordGrace}).dropped, IsEmpty())
      << "named and not known: it may have come since";
}

TEST_F(SettleTest, IsHeld_ByAPodThatHasNotEnded) {
  PodView ended = a_;
  ended.status_phase = "Failed";
  PodView again = a_;
  again.uid = "uid-again";
  const Holdings a_holds = {{"default", "a", "c0", kX}};
  EXPECT_TRUE(IsHeld(kX, a_holds, pods_));
  EXPECT_FALSE(IsHeld(kY, a_holds, pods_));
  EXPECT_FALSE(IsHeld(kX, a_holds, {Ptr(ended)}));
  EXPECT_TRUE(IsHeld(kX, a_holds, {Ptr(ended), Ptr(again)})) << "made anew under the same name";
  EXPECT_TRUE(IsHeld(kX, {{"default", "a", "c0", kX}, {"default", "b", "c0", kX}}, {Ptr(ended), Ptr(b_)}));
}

TEST_F(SettleTest, GivenSlotsGivenAnew_WhenSuperseded_ThenOnlyOthersLoseThem) {
  Records records = {Given(a_, kX), Given(b_, kX)};
  Supersede(records, kX, b_.uid);
  EXPECT_THAT(records[0].slots, IsEmpty());
  EXPECT_EQ(records[1].slots, kX);
}

TEST_F(SettleTest, GivenAFailedPodWhenAnnotationsAreDerivedThenItsPhaseStays) {
  PodView failed = a_;
  failed.bind_phase = device::kPhaseFailed;
  EXPECT_FALSE(DesiredAnnotations(failed, {Given(a_, kX)}).changes.contains(device::kBindPhase));
}

}  // namespace
}  // namespace hami::plugin
