// SPDX-License-Identifier: Apache-2.0
//
// One allocation after the other, with everything that can go wrong on the way. The letters are those of
// docs/develop/hazards.md.

#include "plugin/allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/annotations.h"
#include "plugin/testing/allocation_world.h"

namespace hami::plugin {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class AllocatorTest : public ::testing::Test {
 protected:
  void SetUp() override { allocator_ = world_.NewAllocator(false); }
  void Lock(const std::string& pod) { world_.lock = "2026-08-01T10:00:00Z,default," + pod; }
  Response MustAllocate(const std::vector<std::string>& slots) {
    auto response = allocator_->Allocate(slots);
    EXPECT_TRUE(response) << response.error().message;
    return response ? *response : Response();
  }

  World world_;
  std::unique_ptr<Allocator> allocator_;
};

TEST_F(AllocatorTest, GivenPodWithLock_WhenAllocated_ThenTwoWritesAndNoRead) {
  world_.Add(BoundPod("a", kOne));
  Lock("a");
  const Response response = MustAllocate({kSlot});
  EXPECT_EQ(response.environment.at("CUDA_DEVICE_MEMORY_LIMIT_0"), "1000m");
  EXPECT_EQ(world_.writes, 2);
  EXPECT_EQ(world_.reads, 0);
  EXPECT_EQ(world_.Pod("a").bind_phase, device::kPhaseSuccess);
  EXPECT_FALSE(world_.lock);
  EXPECT_THAT(world_.Pod("a").to_allocate, ElementsAre(IsEmpty()));
  EXPECT_EQ(world_.Pod("a").allocated, kOne);
}

TEST_F(AllocatorTest, GivenAWatchThatLagsWhenItCatchesUpAtOnceThenNobodyIsAsked) {
  allocator_->SetConcurrent(true);
  world_.lagging = world_.soon = true;
  world_.Add(BoundPod("a", kOne));
  MustAllocate({kSlot});
  EXPECT_EQ(world_.reads, 0);
  EXPECT_EQ(allocator_->records().at(0).owner.name, "a");
}

// A write to the disk takes milliseconds, and may take a tenth of a second; the next pod waits for it.
TEST_F(AllocatorTest, GivenPodsThatComeAndEnd_WhenServed_ThenOneDiskWriteForEach) {
  for (const char* name : {"a", "b", "c"}) {
    world_.Add(BoundPod(name, kOne));
    Lock(name);
    ASSERT_TRUE(allocator_->Allocate({SlotId(CardName(0), 0)}));
    world_.api.at(std::string("uid-") + name).status_phase = "Succeeded";
    allocator_->Tend();
    EXPECT_TRUE(allocator_->records().empty());
  }
  EXPECT_EQ(world_.saves, 3);
}

TEST_F(AllocatorTest, GivenAssumedOwner_WhenConfirmed_ThenNoWriteUntilNextGrant) {
  allocator_->SetConcurrent(true);
  for (const char* name : {"a", "b"}) world_.Add(BoundPod(name, kOne));
  ASSERT_TRUE(allocator_->Allocate({kSlot}));
  ASSERT_TRUE(allocator_->records().at(0).assumed);
  const std::string owner = allocator_->records().at(0).owner.name;
  world_.holdings = {{"default", owner, "c0", {kSlot}}};
  allocator_->Tend();
  EXPECT_FALSE(allocator_->records().at(0).assumed);
  EXPECT_EQ(world_.saves, 1);
  // A death forgets it, and the kubelet says it again.
  allocator_ = world_.NewAllocator(true);
  EXPECT_TRUE(allocator_->records().at(0).assumed);
  allocator_->Tend();
  EXPECT_FALSE(allocator_->records().at(0).assumed);
}

// A1
TEST_F(AllocatorTest, GivenLockOfGonePod_WhenAnotherAsks_ThenServedAndLockGoes) {
  world_.Add(BoundPod("a", kOne));
  Lock("gone");
  MustAllocate({kSlot});
  EXPECT_EQ(world_.Pod("a").bind_phase, device::kPhaseSuccess);
  EXPECT_TRUE(world_.lock);
  allocator_->Tend();
  EXPECT_FALSE(world_.lock);
}

// A1: the lock of a pod that is about to be bound is nobody's business.
TEST_F(AllocatorTest, GivenLockOfUnboundPod_WhenTended_ThenLockStays) {
  PodView pod = BoundPod("a", kOne);
  pod.node.clear();
  world_.Add(pod);
  Lock("a");
  allocator_->Tend();
  EXPECT_TRUE(world_.lock);
}

// A1
TEST_F(AllocatorTest, GivenServedPod_WhenSlotsOfOtherSizeAsked_ThenNotServedAgain) {
  world_.Add(BoundPod("a", kOne));
  MustAllocate({kSlot});
  world_.Hold("a", "c0", {kSlot});
  const auto again = allocator_->Allocate({SlotId(CardName(1), 0)});
  ASSERT_FALSE(again);
  EXPECT_THAT(again.error().message, HasSubstr("no pod is on its way"));
}

// A2
TEST_F(AllocatorTest, GivenSilentApi_WhenPodCanNotBeFound_ThenOutcomeWrittenLater) {
  Lock("a");
  world_.lagging = true;
  world_.Add(BoundPod("a", kOne));
  world_.refuse = {kube::Reason::kTimeout};
  EXPECT_FALSE(allocator_->Allocate({kSlot}));
  world_.Pod("a").status_phase = "Failed";  // as the kubelet does
  world_.Deliver();
  allocator_->Tend();
  EXPECT_EQ(world_.Pod("a").bind_phase, device::kPhaseFailed);
  EXPECT_FALSE(world_.lock);
}

// A2
TEST_F(AllocatorTest, GivenUnreadableGrant_WhenAsked_ThenPodIsMarkedAndLockGoes) {
  PodView pod = BoundPod("a", {});
  pod.grant_error = "missing fields";
  world_.Add(pod);
  Lock("a");
  EXPECT_FALSE(allocator_->Allocate({kSlot}));
  EXPECT_EQ(world_.Pod("a").bind_phase, device::kPhaseFailed);
  EXPECT_FALSE(world_.lock);
}

// A3
TEST_F(AllocatorTest, GivenAnApiThatFailsOnceWhenAllocatedThenTheWriteIsRepeated) {
  world_.Add(BoundPod("a", kOne));
  world_.refuse = {kube::Reason::kTransport};
  MustAllocate({kSlot});
  EXPECT_EQ(world_.Pod("a").bind_phase, device::kPhaseSuccess);
}

// A3: the watch knows nothing, the API server has to be asked and refuses, the records and the lock have to be mended.
TEST_F(AllocatorTest, GivenEveryWayToAsk_ThenNoCallMayTakeMoreThanTwoSeconds) {
  world_.lagging = true;
  allocator_->SetConcurrent(true);
  world_.Add(BoundPod("a", kOne));
  MustAllocate({kSlot});
  Lock("gone");
  allocator_->Tend();
  allocator_->Prefer({{kSlot}, {}, 1});
  EXPECT_GE(world_.reads, 2);
  EXPECT_GE(world_.writes, 2);
  EXPECT_GT(world_.longest_call, net::Duration::zero());
  EXPECT_LE(world_.longest_call, std::chrono::seconds(2));
}

// A3: the kubelet admits no other pod meanwhile.
TEST_F(AllocatorTest, GivenABudgetThatIsSpentWhenACallFailsThenItIsNotRepeated) {
  world_.Add(BoundPod("a", kOne));
  world_.budget = net::Duration::zero();
  allocator_ = world_.NewAllocator(false);
  world_.refuse.assign(12, kube::Reason::kTimeout);
  EXPECT_FALSE(allocator_->Allocate({kSlot}));
  EXPECT_LE(world_.writes, 2) << "the outcome, and that the pod failed";
}

TEST_F(AllocatorTest, GivenFailingApi_WhenAllocated_ThenKubeletToldAndNothingHeld) {
  world_.Add(BoundPod("a", kOne));
  world_.refuse.assign(12, kube::Reason::kTimeout);
  EXPECT_FALSE(allocator_->Allocate({kSlot}));
  EXPECT_THAT(allocator_->records(), IsEmpty());
  EXPECT_THAT(world_.folders, IsEmpty());
  EXPECT_THAT(world_.warnings, Contains("a:AllocateFailed"));
}

TEST_F(AllocatorTest, GivenPodOfSameName_WhenKnownOneIsGone_ThenNewServedForItself) {
  world_.Add(BoundPod("a", kOne));
  world_.lagging = true;
  world_.Deliver();
  PodView next = BoundPod("a", kOne);
  next.uid = "uid-next";
  world_.api.clear();
  world_.Add(next);
  MustAllocate({kSlot});
  EXPECT_EQ(allocator_->records().at(0).owner.uid, "uid-next");
  EXPECT_EQ(world_.api.at("uid-next").bind_phase, device::kPhaseSuccess);
}

// A4
TEST_F(AllocatorTest, GivenTwoContainers_WhenSecondFails_ThenWholePodIsFailed) {
  world_.Add(BoundPod("a", {{ShareOf(0, 1000)}, {{"GPU-of-another-life", "NVIDIA", 1000, 0}}}));
  Lock("a");
  MustAllocate({kSlot});
  EXPECT_EQ(world_.Pod("a").bind_phase, device::kPhaseAllocating);
  EXPECT_TRUE(world_.lock) << "there is a container to come";
  const auto second = allocator_->Allocate({SlotId(CardName(1), 0)});
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message, HasSubstr("no GPU of this node"));
  EXPECT_THAT(world_.annotations["uid-a"][kAllocateFailure], HasSubstr("no GPU of this node"));
  EXPECT_THAT(world_.warnings, Contains("a:AllocateFailed"));
  EXPECT_EQ(world_.Pod("a").bind_phase, device::kPhaseFailed);
  EXPECT_FALSE(world_.lock);
  world_.Pod("a").status_phase = "Failed";
  allocator_->Tend();
  EXPECT_THAT(allocator_->records(), IsEmpty());
  EXPECT_THAT(world_.folders, IsEmpty());
}

// A pod that the watch has shown to be gone is no candidate, however lately it was listed: its successor is served.
TEST_F(AllocatorTest, DeletedPodThatWasListed_IsNoCandidate) {
  PodView bad = BoundPod("web-0", {{{"GPU-of-another-life", "NVIDIA", 1000, 0}}}, 1);
  bad.to_allocate[0].push_back(ShareOf(1, 1000));  // two devices
  bad.allocated = bad.to_allocate;
  bad.asks = {AskFor(bad.allocated[0])};
  world_.Add(bad);
  Lock("web-0");
  EXPECT_FALSE(allocator_->Allocate({kSlot})) << "it is listed";
  world_.api.clear();
  world_.lagging = true;
  world_.Deliver();
  PodView next = BoundPod("web-0", kOne, 2);
  next.uid = "uid-next";
  world_.Add(next);
  world_.Deliver();
  MustAllocate({kSlot});
  EXPECT_EQ(world_.reads, 1) << "only for the first";
  EXPECT_EQ(world_.api.at("uid-next").bind_phase, device::kPhaseSuccess);
}

// The lock says a name, and two pods may have had it.
TEST_F(AllocatorTest, FailedPredecessor_DoesNotTakeTheLockOfItsSuccessor) {
  PodView old = BoundPod("web-0", kOne, 1);
  old.grant_error = "missing fields";
  old.deleting = true;
  world_.Add(old);
  PodView next = BoundPod("web-0", {{ShareOf(0, 1000), ShareOf(1, 1000)}}, 2);
  next.uid = "uid-next";
  world_.Add(next);
  Lock("web-0");
  EXPECT_FALSE(allocator_->Allocate({kSlot}));
  EXPECT_EQ(world_.Pod("web-0").bind_phase, device::kPhaseFailed);
  EXPECT_TRUE(world_.lock);
}

TEST_F(AllocatorTest, LockOfAPodThatIsGone_GoesThoughItWasListed) {
  world_.lagging = true;
  world_.Add(BoundPod("a", {{ShareOf(0, 1000), ShareOf(1, 1000)}}));
  Lock("a");
  EXPECT_FALSE(allocator_->Allocate({kSlot}));
  world_.Deliver();
  world_.api.clear();
  world_.Deliver();
  allocator_->Tend();
  EXPECT_FALSE(world_.lock);
}

// Its record stays for a minute, and what is known of it is known.
TEST_F(AllocatorTest, ServedPodThatIsDeleted_MakesNobodyAsk) {
  world_.Add(BoundPod("a", kOne));
  MustAllocate({kSlot});
  world_.lagging = true;
  world_.Deliver();
  world_.api.clear();
  world_.Add(BoundPod("b", kOne));
  world_.Deliver();
  world_.reads = 0;
  MustAllocate({SlotId(CardName(0), 1)});
  EXPECT_EQ(world_.reads, 0);
}

// HAMi before 2.x writes no owner into the lock.
TEST_F(AllocatorTest, LockWithoutAnOwner_GoesWithTheServedPodOrInTime) {
  world_.lock = "2026-08-01T10:00:00Z";
  world_.Add(BoundPod("a", kOne));
  MustAllocate({kSlot});
  EXPECT_FALSE(world_.lock);
  world_.lock = "2026-08-01T10:01:00Z";
  allocator_->Tend();
  EXPECT_TRUE(world_.lock) << "its pod may be on its way";
  world_.now += 59;
  allocator_->Tend();
  EXPECT_TRUE(world_.lock);
  world_.now += 1;
  allocator_->Tend();
  EXPECT_FALSE(world_.lock);
}

TEST_F(AllocatorTest, LockOwnerWithoutAnyGrant_IsMarkedWhenItFailed) {
  PodView pod = BoundPod("a", {});
  world_.Add(pod);
  Lock("a");
  allocator_->Tend();
  EXPECT_EQ(world_.Pod("a").bind_phase, device::kPhaseAllocating);
  world_.Pod("a").status_phase = "Failed";
  allocator_->Tend();
  EXPECT_EQ(world_.Pod("a").bind_phase, device::kPhaseFailed);
  EXPECT_FALSE(world_.lock);
}

// A5
TEST_F(AllocatorTest, GivenOtherVendorsPart_WhenOursIsDone_ThenPhaseAndLockWait) {
  PodView pod = BoundPod("a", kOne);
  pod.others_pending = true;
  world_.Add(pod);
  Lock("a");
  MustAllocate({kSlot});
  EXPECT_EQ(world_.Pod("a").bind_phase, device::kPhaseAllocating);
  EXPECT_TRUE(world_.lock);
  world_.Pod("a").others_pending = false;
  allocator_->Tend();
  EXPECT_EQ(world_.Pod("a").bind_phase, device::kPhaseSuccess);
  allocator_->Tend();
  EXPECT_FALSE(world_.lock);
}

// A5: a lock that could not be released is released as soon as that works.
TEST_F(AllocatorTest, GivenFailedRelease_ThenAnswerStandsAndLockGoesLater) {
  world_.Add(BoundPod("a", kOne));
  Lock("a");
  world_.refuse_release = 1;
  MustAllocate({kSlot});
  EXPECT_TRUE(world_.lock);
  allocator_->Tend();
  EXPECT_FALSE(world_.lock);
}

// A6
TEST_F(AllocatorTest, GivenGrantOnSecondGpu_WhenAdviceIsAsked_ThenSlotIsOnThatGpu) {
  world_.Add(BoundPod("a", {{ShareOf(1, 1000)}}));
  EXPECT_THAT(allocator_->Prefer({{kSlot, SlotId(CardName(1), 5)}, {}, 1}), ElementsAre(SlotId(CardName(1), 5)));
}

TEST_F(AllocatorTest, GivenSlotsOfOtherGpu_WhenAllocated_ThenChargedGpuIsGiven) {
  world_.Add(BoundPod("a", {{ShareOf(1, 1000)}}));
  EXPECT_EQ(MustAllocate({kSlot}).environment.at("NVIDIA_VISIBLE_DEVICES"), CardName(1));
}

// A8
TEST_F(AllocatorTest, GivenNoSlotsWhenAllocatedThenThatIsAnErrorAndNoDeath) {
  EXPECT_FALSE(allocator_->Allocate({}));
  EXPECT_THAT(allocator_->Prefer({{}, {}, 0}), IsEmpty());
}

// A8
TEST_F(AllocatorTest, GivenNoRoomForFolder_WhenAllocated_ThenPodFailsNothingHeld) {
  world_.Add(BoundPod("a", kOne));
  Lock("a");
  world_.full_disk = true;
  const auto refused = allocator_->Allocate({kSlot});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("no space left"));
  EXPECT_EQ(world_.Pod("a").bind_phase, device::kPhaseFailed);
  EXPECT_FALSE(world_.lock);
  EXPECT_THAT(allocator_->records(), IsEmpty());
}

// A8
TEST_F(AllocatorTest, GivenRunningInitContainer_WhenNextIsServed_ThenFolderStays) {
  PodView pod = BoundPod("a", {{ShareOf(0, 1000)}, {ShareOf(0, 1000)}});
  pod.containers[0].init = true;
  world_.Add(pod);
  MustAllocate({kSlot});
  MustAllocate({kSlot});
  EXPECT_EQ(world_.folders.size(), 2u);
  EXPECT_TRUE(world_.folders.contains("containers/uid-a_c0"));
  EXPECT_TRUE(world_.folders.contains("containers/uid-a_c1"));
}

// A9
TEST_F(AllocatorTest, GivenPodWithControlDisabled_WhenAssumed_ThenLibraryIsMounted) {
  const auto mounts_preload = [](const Response& response) {
    return std::any_of(response.mounts.begin(), response.mounts.end(),
                       [](const Mount& mount) { return mount.container_path == "/etc/ld.so.preload"; });
  };
  PodView pod = BoundPod("a", kOne);
  pod.containers[0].control_disabled = true;
  world_.Add(pod);
  EXPECT_FALSE(mounts_preload(MustAllocate({kSlot})));
  pod.uid = "uid-b";
  pod.name = "b";
  world_.Add(pod);
  allocator_->SetConcurrent(true);
  EXPECT_TRUE(mounts_preload(MustAllocate({SlotId(CardName(0), 1)})));
}

// A9: nobody is sent here together with pods that he is unlike, so what a pod says of its share is certain before it is
// certain which pod it is; and where that is not kept, nothing is.
TEST_F(AllocatorTest, GivenAssumedOwner_WhenAllInFlightAreAlike_ThenItsWordCounts) {
  allocator_->SetConcurrent(true);
  PodView pod = BoundPod("a", kOne, 1);
  pod.containers[0].control_disabled = true;
  world_.Add(pod);
  pod.name = "b";
  pod.uid = "uid-b";
  world_.Add(pod);
  MustAllocate({kSlot});
  ASSERT_TRUE(allocator_->records().at(0).assumed);
  EXPECT_TRUE(allocator_->records().at(0).alike);
  world_.Add(BoundPod("c", kOne, 3));  // says nothing
  MustAllocate({SlotId(CardName(0), 1)});
  EXPECT_FALSE(allocator_->records().at(1).alike);
}

// A10
TEST_F(AllocatorTest, GivenSlotWithMigInItsName_WhenAllocated_ThenGrantIsConsumed) {
  world_.Add(BoundPod("a", kOne));
  MustAllocate({"GPU-MIG-like-name-0"});
  EXPECT_EQ(world_.Pod("a").bind_phase, device::kPhaseSuccess);
}

TEST_F(AllocatorTest, GivenSameQuestionTwice_WhenNobodyElseWaits_ThenAnswerIsSame) {
  world_.Add(BoundPod("a", kOne));
  const Response first = MustAllocate({kSlot});
  EXPECT_EQ(MustAllocate({kSlot}), first);
  EXPECT_EQ(allocator_->records().size(), 1u);
}

TEST_F(AllocatorTest, GivenDeathAfterRecord_ThenNextLifeKeepsItAndWritesOutcome) {
  world_.Add(BoundPod("a", kOne));
  Lock("a");
  world_.kill_at = 2;  // record, folder, then the patch
  EXPECT_THROW((void)allocator_->Allocate({kSlot}), Killed);
  allocator_ = world_.NewAllocator(false);
  EXPECT_EQ(allocator_->records().size(), 1u);
  world_.Pod("a").status_phase = "Failed";
  allocator_->Tend();
  EXPECT_EQ(world_.Pod("a").bind_phase, device::kPhaseFailed);
  EXPECT_FALSE(world_.lock);
  EXPECT_THAT(allocator_->records(), IsEmpty());
}

// While one plugin takes over from another both look after the same records.
TEST_F(AllocatorTest, RecordsOfAnotherPlugin_AreTakenOver) {
  world_.Add(BoundPod("a", kOne));
  MustAllocate({kSlot});
  world_.Hold("a", "c0", {kSlot});
  const std::unique_ptr<Allocator> other = world_.NewAllocator(false);
  world_.Add(BoundPod("b", kOne));
  ASSERT_TRUE(other->Allocate({SlotId(CardName(0), 1)}));
  world_.Hold("b", "c0", {SlotId(CardName(0), 1)});
  world_.others_saved = true;
  allocator_->Tend();
  EXPECT_EQ(allocator_->records().size(), 2u);
}

TEST_F(AllocatorTest, GivenRecordsThatCanNotBeReadWhenItStartsThenItRefuses) {
  world_.disk = "{\"version\":1,\"records\":[";
  EXPECT_EQ(world_.NewAllocator(false), nullptr);
}

TEST_F(AllocatorTest, GivenLikePods_WhenKubeletNamesOther_ThenEachSwapsInOneWrite) {
  allocator_->SetConcurrent(true);
  world_.Add(BoundPod("a", {{ShareOf(0, 1000)}}, 1));
  world_.Add(BoundPod("b", {{ShareOf(1, 1000)}}, 2));
  MustAllocate({kSlot});  // taken for a's
  EXPECT_EQ(world_.Pod("a").bind_phase, device::kPhaseSuccess);
  world_.Hold("b", "c0", {kSlot});
  world_.writes = 0;
  allocator_->Tend();
  EXPECT_EQ(world_.writes, 2);
  EXPECT_EQ(world_.Pod("b").allocated, (device::PodGrant{{ShareOf(0, 1000)}}));
  EXPECT_EQ(world_.Pod("b").bind_phase, device::kPhaseSuccess);
  EXPECT_EQ(world_.Pod("a").allocated, (device::PodGrant{{ShareOf(1, 1000)}}));
  EXPECT_EQ(world_.Pod("a").to_allocate, (device::PodGrant{{ShareOf(1, 1000)}}));
  EXPECT_EQ(world_.Pod("a").bind_phase, device::kPhaseAllocating);
  EXPECT_TRUE(world_.links.contains("containers/uid-b_c0"));
  EXPECT_EQ(MustAllocate({SlotId(CardName(1), 0)}).environment.at("NVIDIA_VISIBLE_DEVICES"), CardName(1));
}

TEST_F(AllocatorTest, GivenKubeletsBookClosed_WhenTended_ThenNoExchangeUntilRetry) {
  allocator_->SetConcurrent(true);
  world_.Add(BoundPod("a", kOne));
  MustAllocate({kSlot});
  world_.book_works = false;
  EXPECT_TRUE(allocator_->Tend());
  world_.book_works = true;
  world_.Hold("a", "c0", {kSlot});
  EXPECT_FALSE(allocator_->Tend());
}

}  // namespace
}  // namespace hami::plugin
