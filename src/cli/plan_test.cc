// SPDX-License-Identifier: Apache-2.0

#include "cli/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace hami::cli {
namespace {

using base::Bytes;
using base::kGiB;
using base::kMiB;
using base::Percent;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<Device> TwoGpus() { return {{0, "GPU-aaaa", 80 * kGiB, 0}, {1, "GPU-abbb", 80 * kGiB, 0}}; }

Holder Holds(const char* share, const char* uuid, std::uint64_t bytes, unsigned cores = 0) {
  return {share, {{uuid, bytes, bytes, cores}}};
}

Request Asks(std::uint64_t bytes) {
  Request request;
  request.memory = base::Portion(Bytes{bytes});
  return request;
}

std::vector<std::string> Uuids(const Plan& plan) {
  std::vector<std::string> uuids;
  for (const Grant& grant : plan.grants) uuids.push_back(grant.uuid);
  return uuids;
}

TEST(Planning, GivenEmptyMachine_WhenMemoryAsked_ThenExactlyThatOnFirstGpu) {
  const Plan plan = MakePlan(TwoGpus(), {}, Asks(3 * kGiB));
  ASSERT_THAT(Uuids(plan), ElementsAre("GPU-aaaa"));
  EXPECT_EQ(plan.grants[0].limit_bytes, 3 * kGiB);
  EXPECT_EQ(plan.grants[0].reserved_bytes, 3 * kGiB);
  EXPECT_THAT(plan.refusal, IsEmpty());
}

TEST(Planning, GivenGpuThatDoesNotAnswer_WhenAsked_ThenNeverGranted) {
  std::vector<Device> gpus = TwoGpus();
  gpus[0].trouble = "does not answer: GPU is lost";
  for (const bool oversubscribe : {false, true}) {
    Request request = Asks(3 * kGiB);
    request.oversubscribe = oversubscribe;
    const Plan plan = MakePlan(gpus, {}, request);
    EXPECT_THAT(Uuids(plan), ElementsAre("GPU-abbb"));
    EXPECT_THAT(plan.rooms[0].obstacle, HasSubstr("GPU is lost"));
    EXPECT_EQ(plan.rooms[0].free_cores, 0u);
    request.gpus = std::vector<std::string>{"GPU-aaaa"};
    EXPECT_THAT(MakePlan(gpus, {}, request).grants, IsEmpty());
  }
}

TEST(Planning, GivenOneGpuInUse_WhenSpreadOrBinpack_ThenEmptierOrFuller) {
  const std::vector<Holder> holders{Holds("a", "GPU-aaaa", 10 * kGiB)};
  Request request = Asks(3 * kGiB);
  EXPECT_THAT(Uuids(MakePlan(TwoGpus(), holders, request)), ElementsAre("GPU-abbb"));
  request.policy = Policy::kBinpack;
  EXPECT_THAT(Uuids(MakePlan(TwoGpus(), holders, request)), ElementsAre("GPU-aaaa"));
  request.memory = base::Portion(Bytes{75 * kGiB});
  EXPECT_THAT(Uuids(MakePlan(TwoGpus(), holders, request)), ElementsAre("GPU-abbb")) << "the fullest that fits";
}

TEST(Planning, GivenPercent_WhenAsked_ThenWholeMiBOfTheCard) {
  Request request;
  request.memory = base::Portion(Percent{30});
  const std::vector<Device> odd{{0, "GPU-aaaa", 1001 * kMiB + 17, 0}};
  EXPECT_EQ(MakePlan(odd, {}, request).grants.at(0).limit_bytes, 300 * kMiB);
}

TEST(Planning, GivenNoMemoryAsked_WhenPlanned_ThenAllThatIsFree) {
  EXPECT_EQ(MakePlan({{0, "GPU-aaaa", 80 * kGiB, 5 * kGiB}}, {Holds("a", "GPU-aaaa", 10 * kGiB)}, {})
                .grants.at(0)
                .limit_bytes,
            65 * kGiB);
}

TEST(Planning, GivenFullMachine_WhenAsked_ThenRefusedWithReasonForEachGpu) {
  const std::vector<Holder> holders{Holds("a", "GPU-aaaa", 78 * kGiB), Holds("b", "GPU-abbb", 80 * kGiB)};
  const Plan plan = MakePlan(TwoGpus(), holders, Asks(3 * kGiB));
  EXPECT_THAT(plan.grants, IsEmpty());
  EXPECT_THAT(plan.refusal, HasSubstr("no GPU has room"));
  EXPECT_THAT(plan.rooms.at(0).obstacle, HasSubstr("3 GiB asked for, 2 GiB free"));
  EXPECT_THAT(plan.rooms.at(1).obstacle, HasSubstr("0 B free"));
  Request all_of_it;
  all_of_it.gpus = std::vector<std::string>{"GPU-abbb"};
  EXPECT_THAT(MakePlan(TwoGpus(), holders, all_of_it).rooms.at(1).obstacle, HasSubstr("no memory is free"));
}

TEST(Planning, GivenOneByteTooMuch_WhenAsked_ThenTheRefusalShowsIt) {
  const Plan plan = MakePlan({{0, "GPU-aaaa", 80 * kGiB, 0}}, {Holds("a", "GPU-aaaa", 70 * kGiB)}, Asks(10 * kGiB + 1));
  EXPECT_THAT(plan.rooms.at(0).obstacle, HasSubstr("10737418241 bytes asked for, 10737418240 free"));
}

TEST(Planning, GivenMemoryUsedOutside_WhenAsked_ThenItIsNotPromised) {
  const std::vector<Device> devices{{0, "GPU-aaaa", 80 * kGiB, 78 * kGiB}};
  EXPECT_THAT(MakePlan(devices, {}, Asks(3 * kGiB)).grants, IsEmpty());
  EXPECT_THAT(Uuids(MakePlan(devices, {}, Asks(2 * kGiB))), ElementsAre("GPU-aaaa"));
}

TEST(Planning, GivenCores_WhenPastHundred_ThenRefusedAndUnlimitedTakesNone) {
  const std::vector<Device> one{{0, "GPU-aaaa", 80 * kGiB, 0}};
  Request request = Asks(kGiB);
  request.cores = 40;
  EXPECT_THAT(MakePlan(one, {Holds("a", "GPU-aaaa", kGiB, 60)}, request).grants, testing::SizeIs(1));
  const Plan refused = MakePlan(one, {Holds("a", "GPU-aaaa", kGiB, 61)}, request);
  EXPECT_THAT(refused.grants, IsEmpty());
  EXPECT_THAT(refused.rooms.at(0).obstacle, HasSubstr("40 % of the cores asked for, 39 % free"));
  EXPECT_THAT(MakePlan(one, {Holds("a", "GPU-aaaa", kGiB, 0)}, request).grants, testing::SizeIs(1));
}

TEST(Planning, GivenOversubscribedCard_ThenFullLimitAndOnlyFreePartReserved) {
  Request request = Asks(100 * kGiB);
  request.oversubscribe = true;
  const Plan plan = MakePlan({{0, "GPU-aaaa", 80 * kGiB, 0}}, {Holds("a", "GPU-aaaa", 30 * kGiB)}, request);
  ASSERT_THAT(plan.grants, testing::SizeIs(1));
  EXPECT_EQ(plan.grants[0].limit_bytes, 100 * kGiB);
  EXPECT_EQ(plan.grants[0].reserved_bytes, 50 * kGiB);
}

TEST(Planning, GivenNames_WhenPrefixUniqueAmbiguousTwiceOrUnknown_ThenSaid) {
  const auto named = [](std::vector<std::string> names) {
    Request request = Asks(kGiB);
    request.gpus = std::move(names);
    return MakePlan(TwoGpus(), {}, request);
  };
  EXPECT_THAT(Uuids(named({"GPU-ab", "GPU-aaaa"})), ElementsAre("GPU-abbb", "GPU-aaaa")) << "in the order asked";
  EXPECT_THAT(named({"GPU-a"}).refusal, HasSubstr("more than one"));
  EXPECT_THAT(named({"GPU-ab", "GPU-abbb"}).refusal, HasSubstr("twice"));
  EXPECT_THAT(named({"GPU-x"}).refusal, HasSubstr("no GPU 'GPU-x'"));
  EXPECT_THAT(named({}).refusal, HasSubstr("no GPU is named"));
}

TEST(Planning, GivenUnnamedLostGpu_WhenUnknownNameAsked_ThenItMayBeThatOne) {
  std::vector<Device> gpus = TwoGpus();
  gpus[1] = {1, "", 0, 0, "does not answer: GPU is lost"};
  Request request = Asks(kGiB);
  request.gpus = std::vector<std::string>{"GPU-ab"};
  const Plan unknown = MakePlan(gpus, {}, request);
  EXPECT_THAT(unknown.refusal, HasSubstr("'GPU-ab'"));
  EXPECT_THAT(unknown.refusal, HasSubstr("GPU 1 does not answer"));
  EXPECT_THAT(unknown.rooms.at(1).obstacle, HasSubstr("GPU is lost"));
  gpus[0] = {0, "", 0, 0, "does not answer: GPU is lost"};
  EXPECT_THAT(MakePlan(gpus, {}, request).refusal, HasSubstr("GPU 0 and GPU 1 do not answer"));
}

TEST(Planning, GivenNamedGpuThatIsFull_WhenRefused_ThenEveryGpuSaysWhyNot) {
  Request request = Asks(kGiB);
  request.gpus = std::vector<std::string>{"GPU-aaaa"};
  const Plan plan = MakePlan(TwoGpus(), {Holds("a", "GPU-aaaa", 80 * kGiB)}, request);
  EXPECT_THAT(plan.rooms.at(0).obstacle, HasSubstr("0 B free"));
  EXPECT_THAT(plan.rooms.at(1).obstacle, HasSubstr("not asked for"));
}

TEST(Planning, GivenCounts_WhenMoreThanThereAreOrFit_ThenAllOrNothing) {
  Request request = Asks(50 * kGiB);
  request.gpus = AnyGpus{2};
  EXPECT_THAT(MakePlan(TwoGpus(), {}, request).grants, testing::SizeIs(2));
  const Plan partial = MakePlan(TwoGpus(), {Holds("a", "GPU-aaaa", 40 * kGiB)}, request);
  EXPECT_THAT(partial.grants, IsEmpty());
  EXPECT_THAT(partial.refusal, HasSubstr("only 1 with room"));
  request.gpus = AnyGpus{3};
  EXPECT_THAT(MakePlan(TwoGpus(), {}, request).refusal, HasSubstr("this machine has 2"));
  request.gpus = AnyGpus{0};
  EXPECT_THAT(MakePlan(TwoGpus(), {}, request).grants, IsEmpty());
}

TEST(Planning, GivenLyingHolders_WhenCounted_ThenNothingWraps) {
  const Holder liar{"liar", {{"GPU-aaaa", ~0ULL, ~0ULL, 4'000'000'000u}, {"GPU-aaaa", ~0ULL, ~0ULL, 4'000'000'000u}}};
  const auto rooms = CountRoom(TwoGpus(), {liar});
  EXPECT_EQ(rooms.at(0).free_bytes, 0u);
  EXPECT_EQ(rooms.at(0).free_cores, 0u);
  EXPECT_EQ(rooms.at(1).free_bytes, 80 * kGiB);
}

Request RandomRequest(std::mt19937& random, const std::vector<Device>& devices) {
  Request request;
  switch (random() % 3) {
    case 0:
      request.memory = base::Portion(Bytes{random() % (50 * kGiB) + 1});
      break;
    case 1:
      request.memory = base::Portion(Percent{static_cast<unsigned>(random() % 100 + 1)});
      break;
    default:
      break;  // all that is free
  }
  if (random() % 4 == 0) {
    request.gpus = std::vector<std::string>{devices[random() % devices.size()].uuid};
  } else {
    request.gpus = AnyGpus{static_cast<unsigned>(random() % devices.size() + 1)};
  }
  request.cores = random() % 2 == 0 ? 0 : static_cast<unsigned>(random() % 100 + 1);
  request.policy = random() % 2 == 0 ? Policy::kSpread : Policy::kBinpack;
  request.oversubscribe = random() % 8 == 0;
  return request;
}

// The model: what was granted and not given back never adds up to more than the card; and a refusal is never given to
// a plain request for one GPU while some GPU has the memory and the cores for it.
TEST(Planning, GivenRandomSequences_ThenNeverOversoldAndNeverRefusedInVain) {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    std::mt19937 random(seed);
    std::vector<Device> devices;
    for (unsigned i = 0; i < 1 + seed % 5; ++i) {
      devices.push_back({i, "GPU-" + std::to_string(i), (16 + random() % 64) * kGiB + random() % kMiB,
                         random() % 3 == 0 ? random() % (4 * kGiB) : 0});
    }
    std::vector<Holder> holders;
    std::size_t granted = 0;
    for (int step = 0; step < 300; ++step) {
      if (!holders.empty() && random() % 3 == 0) {
        holders.erase(holders.begin() + static_cast<std::ptrdiff_t>(random() % holders.size()));
        continue;
      }
      const Request request = RandomRequest(random, devices);
      const Plan plan = MakePlan(devices, holders, request);
      ASSERT_EQ(plan.grants.empty(), !plan.refusal.empty());
      if (plan.grants.empty()) {
        const auto* any = std::get_if<AnyGpus>(&request.gpus);
        if (any == nullptr || any->count != 1) continue;
        for (const Room& room : plan.rooms) ASSERT_FALSE(room.obstacle.empty()) << "seed " << seed << " step " << step;
        continue;
      }
      holders.push_back({"share-" + std::to_string(step), plan.grants});
      ++granted;
      for (const Device& device : devices) {
        std::uint64_t bytes = device.outside_bytes;
        unsigned cores = 0;
        for (const Holder& holder : holders) {
          for (const Grant& grant : holder.grants) {
            if (grant.uuid != device.uuid) continue;
            bytes += grant.reserved_bytes;
            cores += grant.cores;
          }
        }
        ASSERT_LE(bytes, device.total_bytes) << "seed " << seed << " step " << step;
        ASSERT_LE(cores, 100u) << "seed " << seed << " step " << step;
      }
    }
    EXPECT_GT(granted, 20u) << "the sequence must have tested something";
  }
}

}  // namespace
}  // namespace hami::cli
