// SPDX-License-Identifier: Apache-2.0
//
// Pods that say of themselves what only the scheduler may say, and pods that nobody placed.

#include "plugin/origin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/annotations.h"
#include "device/grant_seal.h"
#include "plugin/testing/allocation_world.h"

namespace hami::plugin {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class OriginTest : public ::testing::Test {
 protected:
  void SetUp() override { Start(true); }
  void Start(bool concurrent) { allocator_ = world_.NewAllocator(concurrent); }
  void Lock(const std::string& pod) { world_.lock = "2026-08-01T10:00:00Z,default," + pod; }
  // What the kubelet is told, if it is refused.
  std::string Refusal(const std::vector<std::string>& slots = {kSlot}) {
    const auto response = allocator_->Allocate(slots);
    return response ? std::string() : response.error().message;
  }
  void ExpectServed(const std::vector<std::string>& slots = {kSlot}) {
    const auto response = allocator_->Allocate(slots);
    EXPECT_TRUE(response) << response.error().message;
  }

  World world_;
  std::unique_ptr<Allocator> allocator_;
};

// Another scheduler placed it, and it wrote the rest by itself.
TEST_F(OriginTest, ForeignScheduler_IsRefusedWithAnEvent) {
  PodView pod = BoundPod("a", {{ShareOf(0, 40960, 100)}});
  pod.scheduler_name = "default-scheduler";
  world_.Add(pod);
  EXPECT_THAT(Refusal(), HasSubstr("never placed pod default/a"));
  EXPECT_THAT(world_.warnings, Contains("a:NotPlaced"));
  EXPECT_EQ(world_.Pod("a").bind_phase, device::kPhaseFailed);
  EXPECT_THAT(allocator_->records(), IsEmpty());
}

// The node's lock is proof: HAMi's scheduler may have any name.
TEST_F(OriginTest, ForeignSchedulerWithTheLock_IsServed) {
  PodView pod = BoundPod("a", kOne);
  pod.scheduler_name = "my-scheduler";
  world_.Add(pod);
  Lock("a");
  ExpectServed();
}

TEST_F(OriginTest, NamedScheduler_IsServed) {
  world_.rules.schedulers = {"hami-*"};
  Start(true);
  PodView pod = BoundPod("a", kOne);
  pod.scheduler_name = "hami-two";
  world_.Add(pod);
  ExpectServed();
}

TEST_F(OriginTest, GrantBeyondTheRequest_IsRefused) {
  struct Case {
    const char* what;
    void (*change)(PodView&);
  };
  const std::vector<Case> cases = {
      {"1000", [](PodView& pod) { pod.asks[0].limits["nvidia.com/gpumem"] = "999"; }},
      {"30 percent", [](PodView& pod) { pod.asks[0].limits["nvidia.com/gpucores"] = "29"; }},
      {"asks for 2", [](PodView& pod) { pod.asks[0].limits["nvidia.com/gpu"] = "2"; }},
      {"not what it was granted", [](PodView& pod) { pod.to_allocate[0][0].memory = 900; }},
      {"0 percent", [](PodView& pod) { pod.allocated[0][0].cores = pod.to_allocate[0][0].cores = 0; }},
      {"-5 MiB", [](PodView& pod) { pod.allocated[0][0].memory = pod.to_allocate[0][0].memory = -5; }},
      {"0 MiB", [](PodView& pod) { pod.allocated[0][0].memory = pod.to_allocate[0][0].memory = 0; }},
      {"no time of binding", [](PodView& pod) { pod.bind_time = 0; }},
      {"time of binding", [](PodView& pod) { pod.bind_time = 1'000'000; }},
      {"time of binding", [](PodView& pod) { pod.bound_at = 10'000; }},
  };
  for (const Case& one : cases) {
    world_.api.clear();
    PodView pod = BoundPod("a", kOne);
    one.change(pod);
    world_.Add(pod);
    Start(true);
    const bool two = pod.asks[0].limits["nvidia.com/gpu"] == "2";
    EXPECT_THAT(two ? Refusal({kSlot, SlotId(CardName(1), 0)}) : Refusal(), HasSubstr(one.what));
    EXPECT_THAT(world_.annotations["uid-a"][kAllocateFailure], HasSubstr(one.what));
    EXPECT_EQ(world_.Pod("a").bind_phase, device::kPhaseFailed) << one.what;
  }
}

// Parts of a card are rounded down, a whole card is what it registered, and fewer are no harm.
TEST_F(OriginTest, GrantWithinTheRequest_IsServed) {
  const std::vector<std::pair<device::StringMap, device::MiB>> cases = {
      {{{"nvidia.com/gpu", "1"}, {"nvidia.com/gpumem-percentage", "33"}}, 27033},
      {{{"nvidia.com/gpu", "1"}}, 81920},
      {{{"nvidia.com/gpu", "1"}, {"nvidia.com/gpumem", "2000"}}, 1000},
  };
  for (const auto& [limits, memory] : cases) {
    world_.api.clear();
    world_.disk = EncodeRecords({});
    PodView pod = BoundPod("a", {{ShareOf(0, memory)}});
    pod.asks[0].limits = limits;
    world_.Add(pod);
    Start(true);
    ExpectServed();
  }
}

TEST_F(OriginTest, GrantBeyondTheCard_IsRefused) {
  world_.Add(BoundPod("a", {{ShareOf(0, 80000)}}));
  ExpectServed();
  world_.Hold("a", "c0", {kSlot});
  world_.Add(BoundPod("b", {{ShareOf(0, 2000)}}, 200));
  EXPECT_THAT(Refusal({SlotId(CardName(0), 1)}), HasSubstr("80000 of 81920 MiB are given"));
  world_.Pod("a").status_phase = "Succeeded";
  world_.Add(BoundPod("c", {{ShareOf(0, 2000)}}, 300));
  ExpectServed({SlotId(CardName(0), 2)});
}

// The scheduler counts the largest init container, or all others together.
TEST_F(OriginTest, InitContainersShareTheCard_AreServed) {
  PodView pod = BoundPod("a", {{ShareOf(0, 60000)}, {ShareOf(0, 50000)}});
  pod.containers[0].init = true;
  world_.Add(pod);
  ExpectServed();
  ExpectServed();
}

TEST_F(OriginTest, KeyedWithoutSealOrLock_IsRefused) {
  world_.rules.keyed = true;
  world_.rules.sealed = [](const PodView& pod) { return pod.claims.at(device::kGrantSeal) == "good"; };
  Start(true);
  world_.Add(BoundPod("a", kOne));
  EXPECT_THAT(Refusal(), HasSubstr("no annotation hami-cpp/grant-seal"));
  PodView forged = BoundPod("b", kOne);
  forged.claims[device::kGrantSeal] = "bad";
  world_.Add(forged);
  Lock("b");
  EXPECT_THAT(Refusal(), HasSubstr("hami-cpp/grant-seal is not of its grant"));
  // With a seal the scheduler's name and the plugin's own reading of requests do not matter.
  PodView sealed = BoundPod("c", kOne);
  sealed.claims[device::kGrantSeal] = "good";
  sealed.scheduler_name = "any";
  sealed.asks[0].limits["nvidia.com/gpumem"] = "1";
  world_.Add(sealed);
  ExpectServed();
}

// What the plugin writes of a grant is sealed as the scheduler's own words are.
TEST_F(OriginTest, AnnotationWrittenAnew_IsSealedAnew) {
  world_.rules.keyed = true;
  world_.rules.sealed = [](const PodView&) { return true; };
  world_.rules.seal = [](const PodView& pod, const device::StringMap& claims) {
    return pod.uid + " " + claims.at(kAllocated);
  };
  Start(true);
  PodView pod = BoundPod("a", kOne);
  pod.claims[device::kGrantSeal] = "s";
  world_.Add(pod);
  ExpectServed();
  EXPECT_FALSE(world_.annotations["uid-a"].contains(device::kGrantSeal)) << "it says the same as before";
  world_.Hold("a", "c0", {kSlot});
  world_.Pod("a").status_phase = "Running";
  world_.Pod("a").allocated.clear();
  allocator_->Tend();
  EXPECT_EQ(world_.annotations["uid-a"][device::kGrantSeal], "uid-a " + device::EncodeGrant(kOne));
}

// Once it is served, nothing that a pod says changes what its other containers get.
TEST_F(OriginTest, RowChangedAfterTheFirst_IsServedAsItWas) {
  world_.Add(BoundPod("a", {{ShareOf(0, 1000)}, {ShareOf(1, 1000)}}));
  ExpectServed();
  world_.Pod("a").to_allocate = world_.Pod("a").allocated = {{}, {ShareOf(1, 80000)}};
  const auto second = allocator_->Allocate({SlotId(CardName(1), 0)});
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ(second->environment.at("CUDA_DEVICE_MEMORY_LIMIT_0"), "1000m");
}

// Without the webhook a pod was bound by the cluster's own scheduler. It came first, so it is the one that asks.
TEST_F(OriginTest, StrangerBeforeTheRightful_IsRefusedAndTheOtherServed) {
  PodView stranger = UnplacedPod("x", 1);
  PodView rightful = BoundPod("a", kOne);
  stranger.bound_at = rightful.bound_at = 100;
  stranger.arrival = 7;
  rightful.arrival = 8;
  world_.Add(stranger);
  world_.Add(rightful);
  Lock("a");
  EXPECT_THAT(Refusal(), HasSubstr("hami-scheduler never placed pod default/x"));
  EXPECT_THAT(world_.warnings, ElementsAre("x:NotPlaced"));
  EXPECT_TRUE(world_.lock) << "it is the other's";
  ExpectServed();
  EXPECT_EQ(allocator_->records().at(0).owner.name, "a");
  EXPECT_EQ(world_.Pod("a").bind_phase, device::kPhaseSuccess);
}

TEST_F(OriginTest, StrangerAfterTheRightful_IsRefusedAfterwards) {
  PodView stranger = UnplacedPod("x", 1);
  PodView rightful = BoundPod("a", kOne);
  rightful.bound_at = 100;
  stranger.bound_at = 101;
  world_.Add(stranger);
  world_.Add(rightful);
  ExpectServed();
  EXPECT_EQ(allocator_->records().at(0).owner.name, "a");
  world_.Hold("a", "c0", {kSlot});
  EXPECT_THAT(Refusal({SlotId(CardName(0), 1)}), HasSubstr("hami-scheduler never placed pod default/x"));
}

// A stranger of another size is not the one that asks, and one that the kubelet is done with is not, either.
TEST_F(OriginTest, StrangersThatCannotBeAsking_DelayNobody) {
  PodView larger = UnplacedPod("x", 2);
  PodView admitted = UnplacedPod("y", 1);
  admitted.admitted = true;
  PodView rightful = BoundPod("a", kOne);
  larger.bound_at = admitted.bound_at = 1;
  rightful.bound_at = 100;
  for (const PodView& pod : {larger, admitted, rightful}) world_.Add(pod);
  ExpectServed();
}

// The order was not known: then the kubelet's word counts, and the rightful pod still gets its share.
TEST_F(OriginTest, StrangerHoldsTheGrant_RightfulIsStillServed) {
  world_.Add(BoundPod("a", kOne));
  world_.Add(UnplacedPod("x", 1));
  ExpectServed();
  world_.Hold("x", "c0", {kSlot});
  world_.Pod("x").status_phase = "Running";
  allocator_->Tend();
  EXPECT_THAT(world_.warnings, Contains("x:NotPlaced"));
  EXPECT_EQ(world_.Pod("a").allocated, kOne);
  EXPECT_EQ(world_.Pod("a").bind_phase, device::kPhaseAllocating);
  ExpectServed({SlotId(CardName(0), 1)});
  EXPECT_EQ(allocator_->records().at(0).owner.name, "a");
}

class ForgottenTest : public OriginTest {
 protected:
  // Two pods that run, each with what the kubelet holds for it.
  void RunTwo() {
    for (const char* name : {"a", "b"}) {
      world_.Add(BoundPod(name, {{ShareOf(name[0] - 'a', 1000)}}, name[0]));
      Lock(name);
      ExpectServed({SlotId(CardName(name[0] - 'a'), 0)});
      PodView& pod = world_.Pod(name);
      pod.status_phase = "Running";
      pod.bound_at = name[0];
      world_.Hold(name, "c0", {SlotId(CardName(name[0] - 'a'), 0)});
    }
    allocator_->Tend();
  }
  std::string CardOf(const std::vector<std::string>& slots) {
    const auto response = allocator_->Allocate(slots);
    return response ? response->environment.at("NVIDIA_VISIBLE_DEVICES") : response.error().message;
  }
};

TEST_F(ForgottenTest, KubeletWithoutItsCheckpoint_IsToldWhatWasRecorded) {
  RunTwo();
  world_.holdings.clear();
  const std::vector<std::string> all = {SlotId(CardName(0), 0), SlotId(CardName(0), 1), SlotId(CardName(1), 0)};
  EXPECT_THAT(allocator_->Prefer({all, {}, 1}), ElementsAre(SlotId(CardName(0), 0)));
  EXPECT_EQ(CardOf({SlotId(CardName(0), 0)}), CardName(0));
  world_.Hold("a", "c0", {SlotId(CardName(0), 0)});
  // The kubelet is free to choose others.
  EXPECT_EQ(CardOf({SlotId(CardName(0), 1)}), CardName(1));
  world_.Hold("b", "c0", {SlotId(CardName(0), 1)});
  allocator_->Tend();
  EXPECT_EQ(world_.Pod("a").allocated, (device::PodGrant{{ShareOf(0, 1000)}}));
  EXPECT_EQ(world_.Pod("b").allocated, (device::PodGrant{{ShareOf(1, 1000)}}));
  EXPECT_EQ(world_.folders.size(), 2u);
  EXPECT_THAT(Refusal({SlotId(CardName(1), 1)}), HasSubstr("no pod is on its way"));
}

TEST_F(ForgottenTest, StrangerWhileOthersRun_IsNotGivenTheirs) {
  RunTwo();
  world_.Add(UnplacedPod("x", 1));
  EXPECT_THAT(Refusal({SlotId(CardName(0), 1)}), HasSubstr("never placed pod default/x"));
  world_.holdings.clear();
  EXPECT_THAT(Refusal({SlotId(CardName(0), 1)}), ::testing::Not(HasSubstr("default/x")));
}

// A share's folder may be lost with the checkpoint.
TEST_F(ForgottenTest, FolderIsLostToo_IsMadeAnew) {
  RunTwo();
  world_.holdings.clear();
  world_.folders.clear();
  EXPECT_EQ(CardOf({SlotId(CardName(0), 0)}), CardName(0));
  EXPECT_EQ(world_.folders.size(), 1u);
}

TEST_F(ForgottenTest, RunningPodChangesItsAnnotations_TheyAreWrittenAnew) {
  const std::vector<void (*)(PodView&)> changes = {
      [](PodView& pod) { pod.allocated.clear(); },          [](PodView& pod) { pod.allocated = {{}}; },
      [](PodView& pod) { pod.allocated[0][0].memory = 1; }, [](PodView& pod) { pod.assigned_node = "node-2"; },
      [](PodView& pod) { pod.assigned_node.clear(); },
  };
  RunTwo();
  for (const auto change : changes) {
    change(world_.Pod("a"));
    Start(true);  // what was written lately is not written again at once
    allocator_->Tend();
    EXPECT_EQ(world_.Pod("a").allocated, (device::PodGrant{{ShareOf(0, 1000)}}));
    EXPECT_EQ(world_.Pod("a").assigned_node, kNode);
  }
}

// HAMi's scheduler writes no row for a container that asks for nothing.
TEST_F(OriginTest, RowsOfHamisScheduler_ComeToTheContainersThatAsk) {
  PodView pod = BoundPod("a", {{}, {ShareOf(0, 1000)}, {}, {ShareOf(1, 2000)}});
  pod.allocated = pod.to_allocate = {{ShareOf(0, 1000)}, {ShareOf(1, 2000)}};
  world_.Add(pod);
  Lock("a");
  ExpectServed();
  EXPECT_EQ(allocator_->records().at(0).container_name, "c1");
  ExpectServed({SlotId(CardName(1), 0)});
  const device::PodGrant placed = {{}, {ShareOf(0, 1000)}, {}, {ShareOf(1, 2000)}};
  EXPECT_EQ(world_.Pod("a").allocated, placed);
  EXPECT_EQ(world_.Pod("a").bind_phase, device::kPhaseSuccess);
}

}  // namespace
}  // namespace hami::plugin
