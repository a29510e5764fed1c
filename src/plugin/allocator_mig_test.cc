// SPDX-License-Identifier: Apache-2.0
//
// Allocations on a node in mode mig: instances follow the records, and the pods' annotations follow both.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/annotations.h"
#include "plugin/mig_profiles.h"
#include "plugin/testing/allocation_world.h"

namespace hami::plugin {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

Cards MigCards(int count = 1) {
  Cards cards = MakeTestCards(count, 7);
  cards.settings.mode = cards.settings.wanted_mode = OperatingMode::kMig;
  for (Card& card : cards.cards) {
    card.mig_profiles = OfferOf({H100Profiles(), {}}, "NVIDIA H100 80GB HBM3", 81559, {}, {}).profiles;
  }
  return cards;
}

device::Share Instance(const char* profile, int card = 0) {
  const Cards cards = MigCards();
  for (const device::MigProfile& one : cards.cards[0].mig_profiles) {
    if (one.name == profile) return ShareOf(card, one.memory, one.cores);
  }
  return {};
}

device::MigReservation Place(const char* profile, int start, int size, int container = 0, int device = 0) {
  device::MigReservation place;
  place.container = container;
  place.device = device;
  place.gpu_uuid = CardName(0);
  place.profile = profile;
  place.placement = {start, size};
  return place;
}

class AllocatorMigTest : public ::testing::Test {
 protected:
  AllocatorMigTest() {
    mig_.gpus[CardName(0)];
    world_.mig = &mig_;
    NewLife();
  }
  void NewLife() { allocator_ = world_.NewAllocator(concurrent_, MigCards()); }

  // A pod of one container with one instance.
  PodView& Add(const std::string& name, const char* profile, int start, int size, std::int64_t bind_time = 100) {
    PodView pod = BoundPod(name, {{Instance(profile)}}, bind_time);
    pod.asks[0].limits["nvidia.com/gpumem"] = "5000";
    pod.asks[0].limits.erase("nvidia.com/gpucores");
    pod.reservations = {Place(profile, start, size)};
    return world_.Add(std::move(pod));
  }
  static std::string Slot(int number) { return SlotId(CardName(0), number); }
  void End(const std::string& name) { world_.Pod(name).status_phase = "Succeeded"; }
  void ExpectBooksAgree() { EXPECT_EQ(mig_.Journal().size(), mig_.Count(CardName(0))); }

  World world_;
  MigWorld mig_;
  bool concurrent_ = false;
  std::unique_ptr<Allocator> allocator_;
};

TEST_F(AllocatorMigTest, Grant_IsItsInstanceInAnswerAndAnnotation) {
  Add("a", "1g.10gb", 6, 1);
  const auto response = allocator_->Allocate({Slot(0)});
  ASSERT_TRUE(response) << response.error().message;
  const std::string uuid = mig_.gpus[CardName(0)].at(0).compute.at(0).uuid;
  EXPECT_EQ(response->environment.at("NVIDIA_VISIBLE_DEVICES"), uuid);
  EXPECT_EQ(response->environment.at("CUDA_DEVICE_MEMORY_LIMIT_0"), "9984m");
  EXPECT_EQ(response->environment.at("HAMI_DEVICE_LIMITS"), uuid + "=9984m:0");
  const PodView& pod = world_.Pod("a");
  EXPECT_EQ(pod.bind_phase, device::kPhaseSuccess);
  ASSERT_THAT(pod.reservations, SizeIs(1));
  EXPECT_EQ(pod.reservations[0].mig_uuid, uuid);
  EXPECT_EQ(pod.reservations[0].gpu_instance, static_cast<int>(mig_.gpus[CardName(0)][0].id));
}

TEST_F(AllocatorMigTest, SevenSmallPods_ThenOneWhole) {
  for (int i = 0; i < 7; ++i) {
    Add("p" + std::to_string(i), "1g.10gb", i, 1, 100 + i);
    ASSERT_TRUE(allocator_->Allocate({Slot(i)})) << i;
  }
  EXPECT_EQ(mig_.Count(CardName(0)), 7U);
  for (int i = 0; i < 7; ++i) End("p" + std::to_string(i));
  Add("whole", "7g.80gb", 0, 8, 200);
  ASSERT_TRUE(allocator_->Allocate({Slot(0)}));
  EXPECT_EQ(mig_.Count(CardName(0)), 1U);
  ExpectBooksAgree();
}

TEST_F(AllocatorMigTest, SeveralContainers_EachHasItsOwn) {
  PodView pod = BoundPod("a", {{Instance("1g.10gb"), Instance("1g.10gb")}, {Instance("2g.20gb")}});
  for (auto& ask : pod.asks) ask.limits["nvidia.com/gpumem"] = "5000", ask.limits.erase("nvidia.com/gpucores");
  pod.reservations = {Place("1g.10gb", 6, 1), Place("1g.10gb", 5, 1, 0, 1), Place("2g.20gb", 0, 2, 1)};
  world_.Add(pod);
  const auto first = allocator_->Allocate({Slot(0), Slot(1)});
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_THAT(base::Split(first->environment.at("NVIDIA_VISIBLE_DEVICES"), ','), SizeIs(2));
  EXPECT_EQ(mig_.Count(CardName(0)), 2U);
  world_.Hold("a", "c0", {Slot(0), Slot(1)});
  ASSERT_TRUE(allocator_->Allocate({Slot(2)}));
  EXPECT_EQ(mig_.Count(CardName(0)), 3U);
  for (const auto& one : world_.Pod("a").reservations) EXPECT_TRUE(one.Realised());
}

TEST_F(AllocatorMigTest, PodIsOver_ItsInstanceGoes) {
  Add("a", "1g.10gb", 6, 1);
  ASSERT_TRUE(allocator_->Allocate({Slot(0)}));
  EXPECT_FALSE(allocator_->Tend());
  EXPECT_EQ(mig_.Count(CardName(0)), 1U) << "while it lives";
  mig_.used.insert({CardName(0), mig_.gpus[CardName(0)][0].id});
  End("a");
  EXPECT_TRUE(allocator_->Tend()) << "a process is left";
  EXPECT_EQ(mig_.Count(CardName(0)), 1U);
  mig_.used.clear();
  EXPECT_FALSE(allocator_->Tend());
  EXPECT_EQ(mig_.Count(CardName(0)), 0U);
  EXPECT_THAT(allocator_->records(), IsEmpty());
}

// A deleted pod's record is kept for a minute; its place is not.
TEST_F(AllocatorMigTest, DeletedPod_ItsPlaceCanBeGivenAtOnce) {
  Add("a", "1g.10gb", 6, 1);
  ASSERT_TRUE(allocator_->Allocate({Slot(0)}));
  world_.api.erase("uid-a");
  world_.Deliver();
  Add("b", "1g.10gb", 6, 1);
  ASSERT_TRUE(allocator_->Allocate({Slot(1)}));
  EXPECT_EQ(mig_.Count(CardName(0)), 1U);
  ExpectBooksAgree();
}

// Which of two like pods was served is a guess until the kubelet tells. The guess must not outlive the pods.
TEST_F(AllocatorMigTest, LikePodsAreGone_TheirPlacesAreTheNextPods) {
  concurrent_ = true;
  NewLife();
  Add("a", "1g.10gb", 6, 1, 100);
  Add("b", "1g.10gb", 5, 1, 101);
  ASSERT_TRUE(allocator_->Allocate({Slot(0)}));
  ASSERT_TRUE(allocator_->Allocate({Slot(1)}));
  EXPECT_EQ(mig_.Count(CardName(0)), 2U);
  for (const char* uid : {"uid-a", "uid-b"}) world_.api.erase(uid);
  world_.Deliver();
  std::vector<std::string> users{"unasked"};
  allocator_->Exclusively([&](const auto& pods, const Records&) { users = pods(); });
  EXPECT_THAT(users, IsEmpty()) << "a mode that changes waits for nobody";
  Add("c", "1g.10gb", 6, 1, 102);
  const auto response = allocator_->Allocate({Slot(2)});
  ASSERT_TRUE(response) << response.error().message;
  (void)allocator_->Tend();
  EXPECT_EQ(mig_.Count(CardName(0)), 1U) << "that of c alone";
  End("c");
  (void)allocator_->Tend();
  EXPECT_EQ(mig_.Count(CardName(0)), 0U);
  ExpectBooksAgree();
}

// It ended before anybody asked the kubelet whose the slots are, and the kubelet goes on naming it.
TEST_F(AllocatorMigTest, LikePodEndsAtOnce_ItsInstanceGoesThoughItIsStillNamed) {
  concurrent_ = true;
  NewLife();
  Add("a", "1g.10gb", 6, 1);
  ASSERT_TRUE(allocator_->Allocate({Slot(0)}));
  ASSERT_TRUE(allocator_->records().at(0).assumed);
  world_.Hold("a", "c0", {Slot(0)});
  End("a");
  std::vector<std::string> users{"unasked"};
  allocator_->Exclusively([&](const auto& pods, const Records&) { users = pods(); });
  EXPECT_THAT(users, IsEmpty());
  (void)allocator_->Tend();
  EXPECT_EQ(mig_.Count(CardName(0)), 0U);
  world_.now += kRecordGrace;
  EXPECT_FALSE(allocator_->Tend()) << "nothing is left to be asked";
  EXPECT_THAT(allocator_->records(), IsEmpty());
}

TEST_F(AllocatorMigTest, PodWithoutAPlace_FailsWithTheReason) {
  PodView pod = BoundPod("a", {{Instance("1g.10gb")}});
  pod.asks[0].limits["nvidia.com/gpumem"] = "5000";
  pod.asks[0].limits.erase("nvidia.com/gpucores");
  world_.Add(pod);
  const auto response = allocator_->Allocate({Slot(0)});
  ASSERT_FALSE(response);
  EXPECT_THAT(response.error().message, HasSubstr("names no MIG place"));
  EXPECT_THAT(response.error().hint, HasSubstr("nvidia.com/vgpu-mode: mig"));
  EXPECT_EQ(world_.Pod("a").bind_phase, device::kPhaseFailed);
  EXPECT_EQ(mig_.Count(CardName(0)), 0U);
}

TEST_F(AllocatorMigTest, OldTemplateSlot_FailsWithTheReason) {
  PodView pod = BoundPod("a", {{{CardName(0) + "[1-0]", "NVIDIA", 9984, 14}}});
  world_.Add(pod);
  const auto response = allocator_->Allocate({Slot(0)});
  ASSERT_FALSE(response);
  EXPECT_THAT(response.error().message, HasSubstr("HAMi before 2.10"));
  EXPECT_EQ(world_.Pod("a").bind_phase, device::kPhaseFailed);
}

TEST_F(AllocatorMigTest, ForeignInstanceInTheWay_FailsAndStays) {
  mig_.AddForeign(CardName(0), 19, {6, 1});
  Add("a", "1g.10gb", 6, 1);
  const auto response = allocator_->Allocate({Slot(0)});
  ASSERT_FALSE(response);
  EXPECT_THAT(response.error().message, HasSubstr("did not make"));
  EXPECT_EQ(mig_.Count(CardName(0)), 1U);
  EXPECT_THAT(world_.warnings, Contains("a:AllocateFailed"));
}

TEST_F(AllocatorMigTest, LaterStepFails_InstanceIsUndone) {
  Add("a", "1g.10gb", 6, 1);
  world_.full_disk = true;
  EXPECT_FALSE(allocator_->Allocate({Slot(0)}));
  EXPECT_EQ(mig_.Count(CardName(0)), 0U);
  ExpectBooksAgree();
}

TEST_F(AllocatorMigTest, LargerProfileThanAsked_IsTrustedAsOne) {
  Add("a", "3g.40gb", 4, 4);  // of 5000 MiB: the smaller ones had no place
  EXPECT_TRUE(allocator_->Allocate({Slot(0)}));
  world_.Hold("a", "c0", {Slot(0)});
  world_.Pod("a").status_phase = "Running";
  PodView& odd = Add("b", "1g.10gb", 0, 1);
  odd.allocated[0][0].memory = odd.to_allocate[0][0].memory = 12345;
  const auto response = allocator_->Allocate({Slot(1)});
  ASSERT_FALSE(response);
  EXPECT_THAT(response.error().message, HasSubstr("no MIG instance that holds what it asks for"));
}

// Two like pods: the kubelet meant the other one. What was made follows its slots.
TEST_F(AllocatorMigTest, ExchangedPods_TakeTheirInstancesWithThem) {
  concurrent_ = true;
  NewLife();
  Add("a", "1g.10gb", 6, 1, 100);
  Add("b", "1g.10gb", 5, 1, 101);
  const auto first = allocator_->Allocate({Slot(0)});
  ASSERT_TRUE(first);
  world_.Hold("b", "c0", {Slot(0)});  // it was b's turn
  allocator_->Tend();
  EXPECT_EQ(world_.Pod("b").reservations.at(0).mig_uuid, first->environment.at("NVIDIA_VISIBLE_DEVICES"));
  EXPECT_EQ(world_.Pod("b").reservations.at(0).placement.start, 6);
  EXPECT_EQ(world_.Pod("a").reservations.at(0).placement.start, 5);
  EXPECT_EQ(mig_.Count(CardName(0)), 1U) << "kept: its container has it";
  const auto second = allocator_->Allocate({Slot(1)});
  ASSERT_TRUE(second);
  EXPECT_NE(second->environment.at("NVIDIA_VISIBLE_DEVICES"), first->environment.at("NVIDIA_VISIBLE_DEVICES"));
  EXPECT_EQ(mig_.Count(CardName(0)), 2U);
}

TEST_F(AllocatorMigTest, AskedAgainAfterARestart_InstanceIsThere) {
  Add("a", "1g.10gb", 6, 1);
  const auto first = allocator_->Allocate({Slot(0)});
  world_.Pod("a").status_phase = "Running";
  mig_.gpus[CardName(0)].clear();  // the machine was restarted
  NewLife();
  const auto again = allocator_->Allocate({Slot(0)});
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->environment.at("NVIDIA_VISIBLE_DEVICES"), first->environment.at("NVIDIA_VISIBLE_DEVICES"));
  EXPECT_EQ(mig_.Count(CardName(0)), 1U);
}

// Dead at every call of allocator and keeper, before and after it took effect. In the next life the pod that lived
// keeps its instance, what nobody has is gone, and the place can be given.
TEST_F(AllocatorMigTest, KilledAnywhere_EveryInstanceHasAPodAndEveryPodItsOwn) {
  for (const bool after : {false, true}) {
    for (const bool driver : {false, true}) {
      for (int at = 0;; ++at) {
        SCOPED_TRACE(base::Concat({driver ? "driver " : "world ", std::to_string(at), after ? " after" : " before"}));
        mig_ = {};
        mig_.gpus[CardName(0)];
        World world;
        world.mig = &mig_;
        world_ = std::move(world);
        NewLife();
        Add("kept", "1g.10gb", 0, 1, 50);
        ASSERT_TRUE(allocator_->Allocate({Slot(0)}));
        world_.Hold("kept", "c0", {Slot(0)});
        world_.Pod("kept").status_phase = "Running";
        Add("new", "3g.40gb", 4, 4, 100);
        (driver ? mig_.kill_at : world_.kill_at) = at;
        (driver ? mig_.kill_after : world_.kill_after) = after;
        bool died = false;
        try {
          ASSERT_TRUE(allocator_->Allocate({Slot(1)}));
        } catch (const Killed&) {
          died = true;
        } catch (const MigKilled&) {
          died = true;
        }
        world_.kill_at = mig_.kill_at = -1;
        NewLife();
        // The kubelet had no answer, so the pod is over.
        if (died) world_.Pod("new").status_phase = "Failed";
        allocator_->Tend();
        EXPECT_EQ(mig_.Count(CardName(0)), died ? 1U : 2U);
        ExpectBooksAgree();
        EXPECT_TRUE(world_.Pod("kept").reservations.at(0).Realised());
        if (died) {
          Add("next", "3g.40gb", 4, 4, 200);
          EXPECT_TRUE(allocator_->Allocate({Slot(2)}));
          ExpectBooksAgree();
        }
        if (!died) break;
      }
    }
  }
}

TEST_F(AllocatorMigTest, Exclusively_NamesWhoeverIsOnItsWayOrHere) {
  Add("a", "1g.10gb", 6, 1);
  Add("b", "1g.10gb", 5, 1, 101);
  ASSERT_TRUE(allocator_->Allocate({Slot(0)}));
  world_.Pod("a").status_phase = "Running";
  Add("c", "1g.10gb", 4, 1, 102).status_phase = "Succeeded";
  std::vector<std::string> pods;
  allocator_->Exclusively([&](const auto& users, const Records&) { pods = users(); });
  EXPECT_EQ(pods, (std::vector<std::string>{"pod default/a", "pod default/b"}));
}

}  // namespace
}  // namespace hami::plugin
