// SPDX-License-Identifier: Apache-2.0

#include "plugin/resolve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/annotations.h"
#include "plugin/preferred.h"
#include "plugin/testing/allocation_world.h"

namespace hami::plugin {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Record GivenRecord(const PodView& pod, int container, std::vector<std::string> slots) {
  Record record;
  record.owner = {pod.ns, pod.name, pod.uid};
  record.container = container;
  record.container_name = "c" + std::to_string(container);
  record.grant = pod.allocated.at(static_cast<std::size_t>(container));
  record.slots = Sorted(std::move(slots));
  record.folder = "containers/x";
  record.cache = "x.cache";
  return record;
}

class ResolveTest : public ::testing::Test {
 protected:
  Resolution Ask(const std::vector<std::string>& slots) { return Resolve(slots, slots.size(), situation_, records_); }
  void Add(PodView pod) { situation_.pods.push_back(Ptr(std::move(pod))); }

  ResolveTest() { situation_.node = kNode; }

  Situation situation_;
  Records records_;
};

const device::PodGrant kTwo = {{ShareOf(0, 1000), ShareOf(1, 1000)}};

TEST_F(ResolveTest, GivenLockOwnerGone_WhenOneOtherPodFits_ThenThatOneIsServed) {
  Add(BoundPod("a", kOne));
  situation_.lock = LockOwner{"default", "gone"};
  const auto found = Ask({SlotId(CardName(0), 0)});
  ASSERT_TRUE(found.choice);
  EXPECT_EQ(found.choice->pod->name, "a");
}

TEST_F(ResolveTest, GivenLockOwnerEnded_WhenAnotherFits_ThenOwnerIsNotServed) {
  PodView ended = BoundPod("a", kOne);
  ended.status_phase = "Failed";
  Add(ended);
  Add(BoundPod("b", kOne));
  situation_.lock = LockOwner{"default", "a"};
  EXPECT_EQ(Ask({SlotId(CardName(0), 0)}).choice->pod->name, "b");
}

TEST_F(ResolveTest, GivenLockOwnerOfOtherSize_WhenOneFits_ThenThatOneIsServed) {
  Add(BoundPod("a", kTwo));
  Add(BoundPod("b", kOne, 500));
  situation_.lock = LockOwner{"default", "a"};
  EXPECT_EQ(Ask({SlotId(CardName(0), 0)}).choice->pod->name, "b");
}

TEST_F(ResolveTest, GivenLock_WhenOlderPodFitsToo_ThenOwnerIsServedForCertain) {
  Add(BoundPod("a", kOne, 1));
  Add(BoundPod("b", kOne, 2));
  situation_.lock = LockOwner{"default", "b"};
  const auto found = Ask({SlotId(CardName(0), 0)});
  EXPECT_EQ(found.choice->pod->name, "b");
  EXPECT_FALSE(found.choice->assumed);
}

TEST_F(ResolveTest, GivenPodWithPhaseSuccess_WhenWithoutLock_ThenNoCandidate) {
  PodView done = BoundPod("a", kOne);
  done.bind_phase = device::kPhaseSuccess;
  Add(done);
  EXPECT_FALSE(Ask({SlotId(CardName(0), 0)}).choice);
  situation_.lock = LockOwner{"default", "a"};
  EXPECT_TRUE(Ask({SlotId(CardName(0), 0)}).choice);
}

TEST_F(ResolveTest, GivenPodsElsewhereFailedOrRunning_WhenAsked_ThenNoneIsServed) {
  PodView elsewhere = BoundPod("a", kOne);
  elsewhere.node = "node-2";
  PodView assigned_elsewhere = BoundPod("b", kOne);
  assigned_elsewhere.assigned_node = "node-2";
  PodView failed = BoundPod("c", kOne);
  failed.bind_phase = device::kPhaseFailed;
  PodView running = BoundPod("d", kOne);
  running.status_phase = "Running";
  for (PodView* pod : {&elsewhere, &assigned_elsewhere, &failed, &running}) Add(*pod);
  const auto found = Ask({SlotId(CardName(0), 0)});
  EXPECT_FALSE(found.choice);
  EXPECT_THAT(found.why, HasSubstr("no pod is on its way to node node-1"));
}

TEST_F(ResolveTest, GivenOnlyPodsOfOtherSizesWhenAskedThenTheReasonNamesThem) {
  Add(BoundPod("a", kTwo));
  EXPECT_THAT(Ask({SlotId(CardName(0), 0)}).why, HasSubstr("default/a (next: 2)"));
}

TEST_F(ResolveTest, GivenLikePods_WhenSlotsAreOnYoungersGpu_ThenThatOneIsServed) {
  situation_.concurrent = true;
  Add(BoundPod("a", {{ShareOf(0, 1000)}}, 1));
  Add(BoundPod("b", {{ShareOf(1, 1000)}}, 2));
  EXPECT_EQ(Ask({SlotId(CardName(1), 4)}).choice->pod->name, "b");
  EXPECT_EQ(Ask({SlotId(CardName(0), 4)}).choice->pod->name, "a");
  EXPECT_TRUE(Ask({SlotId(CardName(0), 4)}).choice->assumed);
}

TEST_F(ResolveTest, GivenUnlikePods_WhenSlotsOnYoungersGpu_ThenOldestIsServed) {
  Add(BoundPod("a", {{ShareOf(0, 1000)}}, 1));
  Add(BoundPod("b", {{ShareOf(1, 2000)}}, 2));
  EXPECT_EQ(Ask({SlotId(CardName(1), 4)}).choice->pod->name, "a");
}

TEST_F(ResolveTest, GivenLikeGrants_WhenUsesDiffer_ThenOldestIsServedAsUnlike) {
  situation_.concurrent = true;
  Add(BoundPod("a", {{ShareOf(0, 1000)}}, 1));
  PodView urgent = BoundPod("b", {{ShareOf(1, 1000)}}, 2);
  urgent.containers[0].priority = 0;
  Add(urgent);
  const auto found = Ask({SlotId(CardName(1), 4)});
  EXPECT_EQ(found.choice->pod->name, "a");
  EXPECT_FALSE(found.choice->alike);
}

TEST(AlikeTest, GivenTwoPods_WhenCompared_ThenShareSettingsMatterNamesDoNot) {
  const PodView a = BoundPod("a", kOne);
  PodView b = BoundPod("b", kOne);
  b.containers[0].name = "another";
  b.ns = "elsewhere";
  EXPECT_TRUE(Alike(a, b));
  for (const auto change : std::vector<void (*)(ContainerView&)>{
           [](ContainerView& c) { c.init = true; }, [](ContainerView& c) { c.control_disabled = true; },
           [](ContainerView& c) { c.priority = 0; }, [](ContainerView& c) { c.core_policy = CorePolicy::kForce; },
           [](ContainerView& c) { c.oversubscribe = true; }, [](ContainerView& c) { c.runs_as = 7; }}) {
    PodView other = b;
    change(other.containers[0]);
    EXPECT_FALSE(Alike(a, other));
  }
  PodView with_helper = b;
  with_helper.containers.emplace_back().priority = 0;
  EXPECT_TRUE(Alike(a, with_helper)) << "it has no share";
  PodView c = a;
  c.containers[0].control_disabled = b.containers[0].control_disabled = true;
  EXPECT_FALSE(Alike(b, c)) << "it may count in one namespace only";
  b.ns = c.ns;
  EXPECT_TRUE(Alike(b, c));
}

// A1: not the first of the list.
TEST_F(ResolveTest, GivenUnlikePods_WhenYoungerIsListedFirst_ThenOldestIsServed) {
  Add(BoundPod("a", {{ShareOf(0, 1000)}}, 2));
  Add(BoundPod("b", {{ShareOf(1, 2000)}}, 1));
  EXPECT_EQ(Ask({SlotId(CardName(0), 4)}).choice->pod->name, "b");
}

TEST_F(ResolveTest, GivenPartlyServedPod_WhenOlderWaits_ThenPartlyServedGoesOn) {
  Add(BoundPod("a", kOne, 1));
  const PodView two = BoundPod("b", {{ShareOf(0, 1000)}, {ShareOf(1, 1000)}}, 2);
  Add(two);
  records_.push_back(GivenRecord(two, 0, {SlotId(CardName(0), 0)}));
  const auto found = Ask({SlotId(CardName(1), 0)});
  EXPECT_EQ(found.choice->pod->name, "b");
  EXPECT_EQ(found.choice->container, 1);
}

TEST_F(ResolveTest, GivenInitContainersSlots_WhenGivenOn_ThenItsPodIsServed) {
  Add(BoundPod("a", kOne, 1));
  PodView two = BoundPod("b", {{ShareOf(0, 1000)}, {ShareOf(0, 1000)}}, 2);
  two.containers[0].init = true;
  Add(two);
  Add(BoundPod("c", kOne, 0));
  situation_.lock = LockOwner{"default", "a"};
  records_.push_back(GivenRecord(two, 0, {SlotId(CardName(0), 3)}));
  const auto found = Ask({SlotId(CardName(0), 3)});
  EXPECT_EQ(found.choice->pod->name, "b");
  EXPECT_EQ(found.choice->container, 1);
}

TEST_F(ResolveTest, GivenSameSlotsAgain_WhenNobodyElseWaits_ThenRecordIsAnswer) {
  const PodView pod = BoundPod("a", kOne);
  Add(pod);
  records_.push_back(GivenRecord(pod, 0, {SlotId(CardName(0), 3)}));
  EXPECT_EQ(Ask({SlotId(CardName(0), 3)}).recorded, &records_[0]);
  EXPECT_EQ(Ask({SlotId(CardName(0), 4)}).recorded, nullptr);
}

TEST_F(ResolveTest, GivenOwedRow_WhenAnnotationSaysServed_ThenRecordWins) {
  PodView pod = BoundPod("a", kOne);
  pod.bind_phase = device::kPhaseSuccess;
  pod.to_allocate = {{}};
  Add(pod);
  Record owed = GivenRecord(pod, 0, {});
  owed.owed = true;
  owed.grant = {ShareOf(1, 1000)};
  records_.push_back(owed);
  const auto found = Ask({SlotId(CardName(1), 0)});
  ASSERT_TRUE(found.choice);
  EXPECT_EQ(found.choice->grant, owed.grant);
}

TEST(PreferredTest, GivenGrantsGpus_WhenSlotsAreFree_ThenLowestOnThemAreChosen) {
  const std::vector<std::string> available = {SlotId(CardName(0), 10), SlotId(CardName(1), 10), SlotId(CardName(1), 2)};
  EXPECT_THAT(PreferSlots(available, {}, 1, {ShareOf(1, 1000)}), ElementsAre(SlotId(CardName(1), 2)));
}

TEST(PreferredTest, GivenMustIncludeSlots_WhenOnGrantsGpu_ThenTheyCoverIt) {
  const std::string must = SlotId(CardName(0), 7);
  EXPECT_THAT(PreferSlots({must, SlotId(CardName(0), 1), SlotId(CardName(1), 1)}, {must}, 2,
                          {ShareOf(0, 1000), ShareOf(1, 1000)}),
              ElementsAre(must, SlotId(CardName(1), 1)));
}

TEST(PreferredTest, GivenNoSlotOnGrantsGpu_WhenAsked_ThenOnlyMustIncludeReturns) {
  const std::string must = SlotId(CardName(0), 7);
  EXPECT_THAT(PreferSlots({must, SlotId(CardName(0), 1)}, {must}, 2, {ShareOf(0, 1000), ShareOf(1, 1000)}),
              ElementsAre(must));
}

TEST(RecordTest, GivenRecordsWhenTheyAreWrittenAndReadThenTheyAreTheSame) {
  const PodView pod = BoundPod("a", kTwo);
  Record record = GivenRecord(pod, 0, {SlotId(CardName(1), 1), SlotId(CardName(0), 1)});
  record.assumed = record.alike = true;
  record.given_at = 77;
  record.library = "/usr/local/vgpu/libvgpu.so.x";
  Record owed = GivenRecord(BoundPod("b", kOne), 0, {});
  owed.owed = true;
  const auto read = DecodeRecords(EncodeRecords({record, owed}));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, (Records{record, owed}));
}

TEST(RecordTest, GivenATextThatIsNotWholeWhenItIsReadThenItIsRefused) {
  const std::string good = EncodeRecords({GivenRecord(BoundPod("a", kOne), 0, {SlotId(CardName(0), 1)})});
  for (const std::string& bad :
       {good.substr(0, good.size() / 2), std::string("{}"), std::string("[]"),
        std::string(R"({"version":2,"records":[]})"), std::string(R"({"version":1,"records":[{}]})")}) {
    EXPECT_FALSE(DecodeRecords(bad)) << bad;
  }
  std::string escaping = good;
  escaping.replace(escaping.find("containers/x"), 12, "containers/..");
  EXPECT_FALSE(DecodeRecords(escaping));
}

TEST(PodViewTest, WhenRead_ThenInitContainersComeFirstAndOnlyLiteralsCount) {
  const auto pod = ReadPodView(*base::ParseJson(R"({
    "metadata": {"name": "p", "namespace": "n", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z", "annotations": {
      "hami.io/bind-time": "123", "hami.io/bind-phase": "allocating", "hami.io/vgpu-node": "node-1",
      "hami.io/vgpu-devices-to-allocate": ";GPU-a,NVIDIA,2500,25:;", "hami.io/vgpu-devices-allocated": ";GPU-a,NVIDIA,2500,25:;",
      "hami.io/dcu-devices-to-allocate": ";;"}},
    "spec": {"nodeName": "node-1", "securityContext": {"runAsUser": 7},
      "initContainers": [{"name": "i"}],
      "containers": [{"name": "c", "securityContext": {"runAsUser": 8}, "env": [
        {"name": "CUDA_DISABLE_CONTROL", "value": "T"}, {"name": "CUDA_TASK_PRIORITY", "value": "0"},
        {"name": "GPU_CORE_UTILIZATION_POLICY", "valueFrom": {}}]}]},
    "status": {"phase": "Pending"}})"));
  ASSERT_TRUE(pod);
  ASSERT_EQ(pod->containers.size(), 2u);
  EXPECT_TRUE(pod->containers[0].init);
  EXPECT_EQ(pod->containers[0].runs_as, 7u);
  EXPECT_EQ(pod->containers[1].runs_as, 8u);
  EXPECT_TRUE(pod->containers[1].control_disabled);
  EXPECT_EQ(pod->containers[1].priority, 0);
  EXPECT_EQ(pod->bind_time, 123);
  EXPECT_TRUE(pod->deleting);
  EXPECT_FALSE(pod->others_pending);
  ASSERT_EQ(pod->to_allocate.size(), 2u);
  EXPECT_EQ(pod->to_allocate[1][0].memory, 2500);
}

TEST(PodViewTest, GivenOtherVendorsPart_WhenStillToBeGiven_ThenPodIsNotDone) {
  const auto pod = ReadPodView(*base::ParseJson(
      R"({"metadata": {"name": "p", "annotations": {"hami.io/Ascend910B-devices-to-allocate": "x,Ascend910B,1,1:;"}}})"));
  ASSERT_TRUE(pod);
  EXPECT_TRUE(pod->others_pending);
}

TEST(PodViewTest, GivenUnreadableGrant_WhenPodIsRead_ThenReasonIsKept) {
  const auto pod = ReadPodView(*base::ParseJson(
      R"({"metadata": {"name": "p", "annotations": {"hami.io/vgpu-devices-to-allocate": "GPU-a,NVIDIA:;"}}})"));
  ASSERT_TRUE(pod);
  EXPECT_THAT(pod->grant_error, HasSubstr("missing fields"));
}

TEST(LockTest, GivenLockForms_WhenRead_ThenOnlyCompleteFormHasOwner) {
  EXPECT_EQ(ReadLock("2026-08-01T10:00:00Z,ns,pod"), (LockOwner{"ns", "pod"}));
  for (const char* bad : {"2026-08-01T10:00:00Z", "", "a,b", "a,b,c,d", "t,,p", "t,n,"}) EXPECT_FALSE(ReadLock(bad));
}

}  // namespace
}  // namespace hami::plugin
