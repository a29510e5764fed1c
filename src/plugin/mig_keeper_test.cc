// SPDX-License-Identifier: Apache-2.0
//
// Instances, whatever happens to the process between two calls.

#include "plugin/mig_keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plugin/testing/mig_world.h"

namespace hami::plugin {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr const char* kGpu = "GPU-a";
const net::Deadline kAtOnce{};

device::MigReservation Want(const char* profile, int start, int size, int device = 0) {
  device::MigReservation want;
  want.device = device;
  want.gpu_uuid = kGpu;
  want.profile = profile;
  want.placement = {start, size};
  return want;
}

PodKey Pod(const std::string& name) { return {"default", name, "uid-" + name}; }

class MigKeeperTest : public ::testing::Test {
 protected:
  MigKeeperTest() { world_.gpus[kGpu]; }

  // Another life of the plugin.
  std::unique_ptr<MigKeeper> NewKeeper() {
    auto keeper = std::make_unique<MigKeeper>(world_, world_);
    EXPECT_TRUE(keeper->Start());
    return keeper;
  }
  // The pods that are alive, by name.
  MigKeeper::Holders Holders() {
    return [this](const MigEntry& entry) -> std::optional<PodKey> {
      return alive_.contains(entry.owner.name) ? std::optional(entry.owner) : std::nullopt;
    };
  }
  auto Realise(MigKeeper& keeper, const std::string& pod, std::vector<device::MigReservation> wanted) {
    return keeper.Realise(Pod(pod), std::move(wanted), Holders(), kAtOnce);
  }
  // Everything that is ours is in the journal, and nothing that is not ours was touched.
  void ExpectBooksAgree(std::size_t foreign = 0) { EXPECT_EQ(world_.Journal().size() + foreign, world_.Count(kGpu)); }

  MigWorld world_;
  std::set<std::string> alive_;
};

TEST_F(MigKeeperTest, Reservation_IsMadeExactlyThere) {
  const auto keeper = NewKeeper();
  const auto made = Realise(*keeper, "a", {Want("3g.40gb", 4, 4), Want("1g.10gb", 0, 1, 1)});
  ASSERT_TRUE(made) << made.error().message;
  ASSERT_THAT(*made, SizeIs(2));
  EXPECT_TRUE((*made)[0].Realised() && (*made)[1].Realised());
  EXPECT_EQ(world_.gpus[kGpu][0].place, (nvml::MigPlace{4, 4}));
  EXPECT_EQ(world_.gpus[kGpu][0].profile_id, 9U);
  EXPECT_EQ((*made)[0].mig_uuid, world_.gpus[kGpu][0].compute[0].uuid);
  EXPECT_THAT(world_.Journal(), SizeIs(2));
}

TEST_F(MigKeeperTest, AskedAgain_AnswersTheSameAndMakesNothing) {
  const auto keeper = NewKeeper();
  const auto first = Realise(*keeper, "a", {Want("1g.10gb", 6, 1)});
  const auto again = Realise(*keeper, "a", {Want("1g.10gb", 6, 1)});
  ASSERT_TRUE(first && again);
  EXPECT_EQ(*first, *again);
  EXPECT_EQ(world_.Count(kGpu), 1U);
}

TEST_F(MigKeeperTest, VariantsOfOneSize_AreNotConfused) {
  const auto keeper = NewKeeper();
  ASSERT_TRUE(Realise(*keeper, "a", {Want("1g.10gb+me", 6, 1)}));
  EXPECT_EQ(world_.gpus[kGpu][0].profile_id, 20U);
  ASSERT_TRUE(Realise(*keeper, "b", {Want("1g.20gb", 4, 2)}));
  EXPECT_EQ(world_.gpus[kGpu][1].profile_id, 15U) << "not the 2g.20gb of the same place";
}

TEST_F(MigKeeperTest, UnknownProfileOrPlace_IsRefused) {
  const auto keeper = NewKeeper();
  EXPECT_THAT(Realise(*keeper, "a", {Want("1g.99gb", 0, 1)}).error().message, HasSubstr("no MIG profile 1g.99gb"));
  EXPECT_THAT(Realise(*keeper, "a", {Want("3g.40gb", 2, 4)}).error().message, HasSubstr("cannot be at slice 2"));
  EXPECT_EQ(world_.Count(kGpu), 0U);
  EXPECT_THAT(world_.Journal(), IsEmpty());
}

TEST_F(MigKeeperTest, SecondOfTwoFails_FirstIsUndone) {
  const auto keeper = NewKeeper();
  world_.AddForeign(kGpu, 19, {0, 1});
  const auto made = Realise(*keeper, "a", {Want("1g.10gb", 6, 1), Want("1g.10gb", 0, 1, 1)});
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message, HasSubstr("did not make"));
  EXPECT_EQ(world_.Count(kGpu), 1U);
  ExpectBooksAgree(1);
}

TEST_F(MigKeeperTest, EitherHalfFails_NothingIsLeft) {
  const auto keeper = NewKeeper();
  for (bool* refused : {&world_.refuse_gpu, &world_.refuse_compute, &world_.refuse_save}) {
    *refused = true;
    EXPECT_FALSE(Realise(*keeper, "a", {Want("1g.10gb", 6, 1)}));
    *refused = false;
    EXPECT_EQ(world_.Count(kGpu), 0U);
    EXPECT_THAT(world_.Journal(), IsEmpty());
  }
  EXPECT_TRUE(Realise(*keeper, "a", {Want("1g.10gb", 6, 1)}));
}

TEST_F(MigKeeperTest, PlaceOfALivingPod_IsRefusedByName) {
  const auto keeper = NewKeeper();
  ASSERT_TRUE(Realise(*keeper, "a", {Want("1g.10gb", 5, 1)}));
  alive_.insert("a");
  const auto made = Realise(*keeper, "b", {Want("3g.40gb", 4, 4)});
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message, HasSubstr("in use by pod default/a"));
  EXPECT_EQ(world_.Count(kGpu), 1U);
}

TEST_F(MigKeeperTest, SevenSmallOnesEnded_BecomeOneWhole) {
  const auto keeper = NewKeeper();
  for (int i = 0; i < 7; ++i) ASSERT_TRUE(Realise(*keeper, "p" + std::to_string(i), {Want("1g.10gb", i, 1)}));
  EXPECT_EQ(world_.Count(kGpu), 7U);
  ASSERT_TRUE(Realise(*keeper, "whole", {Want("7g.80gb", 0, 8)}));
  EXPECT_EQ(world_.Count(kGpu), 1U);
  ExpectBooksAgree();
}

TEST_F(MigKeeperTest, SameProfileAndPlace_IsTakenOverAsItIs) {
  const auto keeper = NewKeeper();
  const auto first = Realise(*keeper, "a", {Want("1g.10gb", 6, 1)});
  const int before = world_.calls;
  const auto second = Realise(*keeper, "b", {Want("1g.10gb", 6, 1)});
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->front().mig_uuid, second->front().mig_uuid);
  EXPECT_EQ(world_.calls, before + 1) << "the journal alone";
  EXPECT_EQ(world_.Journal().front().owner.name, "b");
}

TEST_F(MigKeeperTest, ProcessOfAnEndedPod_IsWaitedForAndNotPulledAway) {
  const auto keeper = NewKeeper();
  ASSERT_TRUE(Realise(*keeper, "a", {Want("1g.10gb", 6, 1)}));
  const unsigned id = world_.gpus[kGpu][0].id;
  world_.used.insert({kGpu, id});
  EXPECT_TRUE(keeper->Tend(Holders())) << "something is left";
  EXPECT_EQ(world_.Count(kGpu), 1U);
  EXPECT_THAT(Realise(*keeper, "b", {Want("1g.10gb", 6, 1)}).error().message, HasSubstr("still uses it"));
  world_.used.clear();
  EXPECT_FALSE(keeper->Tend(Holders()));
  EXPECT_EQ(world_.Count(kGpu), 0U);
  ExpectBooksAgree();
}

TEST_F(MigKeeperTest, ForeignInstances_AreNeverTouched) {
  world_.AddForeign(kGpu, 14, {0, 2});
  const auto keeper = NewKeeper();
  ASSERT_TRUE(Realise(*keeper, "a", {Want("1g.10gb", 6, 1)}));
  EXPECT_FALSE(keeper->Tend(Holders()));
  ASSERT_EQ(world_.Count(kGpu), 1U);
  EXPECT_EQ(world_.gpus[kGpu][0].profile_id, 14U);
  EXPECT_THAT(ForeignPlaces(*world_.Layout(kGpu), kGpu, keeper->entries()), SizeIs(1));
}

TEST_F(MigKeeperTest, ForeignComputeInstanceInOurs_KeepsTheGpuInstance) {
  const auto keeper = NewKeeper();
  ASSERT_TRUE(Realise(*keeper, "a", {Want("3g.40gb", 4, 4)}));
  world_.gpus[kGpu][0].compute.push_back({1, "MIG-somebody"});
  EXPECT_TRUE(keeper->Tend(Holders()));
  ASSERT_EQ(world_.Count(kGpu), 1U);
  ASSERT_THAT(world_.gpus[kGpu][0].compute, SizeIs(1));
  EXPECT_EQ(world_.gpus[kGpu][0].compute[0].uuid, "MIG-somebody");
}

TEST_F(MigKeeperTest, HeldAndGone_IsMadeAgainByItsName) {
  auto keeper = NewKeeper();
  const auto made = Realise(*keeper, "a", {Want("1g.10gb", 6, 1)});
  alive_.insert("a");
  world_.gpus[kGpu].clear();  // the machine was restarted
  keeper = NewKeeper();
  EXPECT_FALSE(keeper->Tend(Holders()));
  ASSERT_EQ(world_.Count(kGpu), 1U);
  EXPECT_EQ(world_.gpus[kGpu][0].compute[0].uuid, made->front().mig_uuid);
  ExpectBooksAgree();
}

TEST_F(MigKeeperTest, FreeAndGone_IsForgotten) {
  const auto keeper = NewKeeper();
  ASSERT_TRUE(Realise(*keeper, "a", {Want("1g.10gb", 6, 1)}));
  world_.gpus[kGpu].clear();  // somebody removed it
  EXPECT_FALSE(keeper->Tend(Holders()));
  EXPECT_THAT(world_.Journal(), IsEmpty());
}

TEST_F(MigKeeperTest, SilentDriver_LosesNothing) {
  const auto keeper = NewKeeper();
  ASSERT_TRUE(Realise(*keeper, "a", {Want("1g.10gb", 6, 1)}));
  world_.silent = true;
  keeper->Tend(Holders());
  EXPECT_FALSE(Realise(*keeper, "b", {Want("1g.10gb", 5, 1)}));
  EXPECT_THAT(world_.Journal(), SizeIs(1));
}

TEST_F(MigKeeperTest, AnotherPluginsJournal_IsReadBeforeAnythingElse) {
  const auto old = NewKeeper();
  const auto young = NewKeeper();
  ASSERT_TRUE(Realise(*young, "a", {Want("1g.10gb", 6, 1)}));
  alive_.insert("a");
  world_.others_saved = true;
  EXPECT_FALSE(old->Tend(Holders()));
  EXPECT_THAT(old->entries(), SizeIs(1));
}

// Killed at every call, before and after it took effect: the next life removes what the dead one left, keeps what a pod
// has, and the pod's place can be given.
TEST_F(MigKeeperTest, KilledAnywhereInRealise_NextLifeFindsItsOwn) {
  for (const bool after : {false, true}) {
    for (int at = 0;; ++at) {
      SCOPED_TRACE(std::to_string(at) + (after ? " after" : " before"));
      world_ = {};
      world_.gpus[kGpu];
      world_.AddForeign(kGpu, 19, {0, 1});
      alive_ = {"kept"};
      auto keeper = NewKeeper();
      ASSERT_TRUE(Realise(*keeper, "kept", {Want("1g.10gb", 1, 1)}));
      ASSERT_TRUE(Realise(*keeper, "over", {Want("1g.10gb", 6, 1)}));
      world_.kill_at = at;
      world_.kill_after = after;
      bool died = false;
      try {
        ASSERT_TRUE(Realise(*keeper, "new", {Want("3g.40gb", 4, 4), Want("1g.10gb", 2, 1, 1)}));
      } catch (const MigKilled&) {
        died = true;
      }
      world_.kill_at = -1;
      keeper = NewKeeper();
      EXPECT_FALSE(keeper->Tend(Holders()));
      EXPECT_EQ(world_.Count(kGpu), 2U) << "the foreign one and the one that is held";
      ExpectBooksAgree(1);
      EXPECT_TRUE(Realise(*keeper, "again", {Want("3g.40gb", 4, 4), Want("1g.10gb", 2, 1, 1)}));
      ExpectBooksAgree(1);
      if (!died) break;
    }
  }
}

TEST_F(MigKeeperTest, KilledAnywhereInTend_NextLifeEndsIt) {
  for (const bool after : {false, true}) {
    for (int at = 0;; ++at) {
      SCOPED_TRACE(std::to_string(at) + (after ? " after" : " before"));
      world_ = {};
      world_.gpus[kGpu];
      alive_.clear();
      auto keeper = NewKeeper();
      ASSERT_TRUE(Realise(*keeper, "a", {Want("1g.10gb", 6, 1), Want("2g.20gb", 0, 2, 1)}));
      world_.kill_at = at;
      world_.kill_after = after;
      bool died = false;
      try {
        keeper->Tend(Holders());
      } catch (const MigKilled&) {
        died = true;
      }
      world_.kill_at = -1;
      keeper = NewKeeper();
      EXPECT_FALSE(keeper->Tend(Holders()));
      EXPECT_EQ(world_.Count(kGpu), 0U);
      EXPECT_THAT(world_.Journal(), IsEmpty());
      if (!died) break;
    }
  }
}

TEST(MigJournalText, Entries_ReadBack) {
  MigEntry intent;
  intent.owner = Pod("a");
  intent.container = 2;
  intent.device = 1;
  intent.gpu_uuid = kGpu;
  intent.profile = "1g.10gb+me";
  intent.placement = {3, 1};
  MigEntry made = intent;
  made.placement = {4, 1};
  made.gpu_instance = 9;
  made.compute_instance = 0;
  made.mig_uuid = "MIG-x";
  const auto back = DecodeMigJournal(EncodeMigJournal({intent, made}));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(*back, (MigEntries{intent, made}));
}

TEST(MigJournalText, HalfAnEntry_IsAnErrorAndNoEmptyJournal) {
  MigEntry entry;
  entry.gpu_uuid = kGpu;
  entry.profile = "1g.10gb";
  entry.placement = {3, 1};
  const std::string whole = EncodeMigJournal({entry});
  ASSERT_TRUE(DecodeMigJournal(whole));
  for (std::size_t size = 0; size < whole.rfind('}'); ++size) EXPECT_FALSE(DecodeMigJournal(whole.substr(0, size)));
  for (const char* text :
       {R"({"version":2,"instances":[]})", R"({"version":1})", R"({"version":1,"instances":[{}]})"}) {
    EXPECT_FALSE(DecodeMigJournal(text)) << text;
  }
  EXPECT_FALSE(DecodeMigJournal(EncodeMigJournal({entry, entry}))) << "two at one place";
}

}  // namespace
}  // namespace hami::plugin
