// SPDX-License-Identifier: Apache-2.0

#include "plugin/inventory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "plugin/registration.h"
#include "plugin/testing/mig_world.h"

namespace hami::plugin {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint64_t kMiB = 1 << 20;

nvml::Device Gpu(unsigned index, const std::string& uuid, const std::string& bus_id, std::uint64_t mib = 1000) {
  nvml::Device device;
  device.index = index;
  device.uuid = uuid;
  device.name = "NVIDIA H100";
  device.bus_id = bus_id;
  device.memory = nvml::Memory{mib * kMiB + 5, 0, 0, std::nullopt};
  return device;
}

// A GPU of a node in mode mig, and how the driver shows it.
nvml::Device Divided(bool current, bool pending) {
  nvml::Device device = Gpu(0, "GPU-a", "x", 81559);
  device.name = "NVIDIA H100 80GB HBM3";
  device.mig_mode = nvml::MigMode{current, pending};
  if (current) device.mig_layout = nvml::MigLayout{H100Profiles(), {}};
  return device;
}

NodeSettings MigSettings() {
  NodeSettings settings;
  settings.mode = settings.wanted_mode = OperatingMode::kMig;
  settings.memory_scaling = 2;
  settings.split_count = 10;
  return settings;
}

std::vector<std::string> Uuids(const std::vector<Card>& cards) {
  std::vector<std::string> uuids;
  for (const Card& card : cards) uuids.push_back(card.uuid);
  return uuids;
}

TEST(InventoryTest, GivenGpusInDriversOrder_WhenMadeIntoCards_ThenBusOrderCounts) {
  const std::vector<nvml::Device> devices = {Gpu(0, "GPU-c", "0000:b1:00.0"), Gpu(1, "GPU-b", "0000:3b:00.0"),
                                             Gpu(2, "GPU-a", "")};
  EXPECT_THAT(Uuids(MakeCards(devices, {}, {})), ElementsAre("GPU-a", "GPU-b", "GPU-c"));
}

TEST(InventoryTest, GivenScaling_WhenMadeIntoCards_ThenOfferIsScaledButCardIsNot) {
  NodeSettings settings;
  settings.memory_scaling = 1.5;
  settings.core_scaling = 1.1;
  settings.split_count = 7;
  const auto cards = MakeCards({Gpu(0, "GPU-a", "x")}, settings, {});
  ASSERT_EQ(cards.size(), 1U);
  EXPECT_EQ(cards[0].physical_memory, 1000);
  EXPECT_EQ(cards[0].memory, 1500);
  EXPECT_EQ(cards[0].cores, 110);  // 1.1 × 100 is a little less in binary
  EXPECT_EQ(cards[0].slots, 7);
}

TEST(InventoryTest, InModeMpsSlotsAreNoMoreThanClients) {
  NodeSettings settings;
  settings.split_count = 100;
  std::vector<nvml::Device> devices = {Gpu(0, "GPU-a", "x"), Gpu(1, "GPU-b", "y")};
  devices[0].compute_capability = nvml::ComputeCapability{9, 0};
  devices[1].compute_capability = nvml::ComputeCapability{10, 0};
  EXPECT_EQ(MakeCards(devices, settings, {})[0].slots, 100);
  settings.mode = OperatingMode::kMps;
  EXPECT_EQ(MakeCards(devices, settings, {})[0].slots, 48);
  EXPECT_EQ(MakeCards(devices, settings, {})[1].slots, 60);
  settings.split_count = 10;
  EXPECT_EQ(MakeCards(devices, settings, {})[0].slots, 10);
}

TEST(InventoryTest, GivenNames_WhenRegistered_ThenTheTypeSaysNvidiaOnce) {
  std::vector<nvml::Device> devices = {Gpu(0, "GPU-a", "x"), Gpu(1, "GPU-b", "y")};
  devices[1].name = "Tesla T4";
  const auto cards = MakeCards(devices, {}, {});
  EXPECT_EQ(cards[0].type, "NVIDIA H100");
  EXPECT_EQ(cards[1].type, "NVIDIA-Tesla T4");
}

TEST(InventoryTest, GivenUnknownMemory_ThenOwnersFigureCountsOrGpuIsLeftOut) {
  nvml::Device unified = Gpu(0, "GPU-a", "x");
  unified.memory.reset();
  std::vector<std::string> notes;
  EXPECT_TRUE(MakeCards({unified}, {}, {}, &notes).empty());
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_THAT(notes[0], HasSubstr("preConfiguredDeviceMemory"));
  NodeSettings settings;
  settings.preconfigured_memory = 4096;
  ASSERT_EQ(MakeCards({unified}, settings, {}).size(), 1U);
  EXPECT_EQ(MakeCards({unified}, settings, {})[0].memory, 4096);
  // What the driver says is better.
  EXPECT_EQ(MakeCards({Gpu(0, "GPU-a", "x")}, settings, {})[0].memory, 1000);
}

TEST(InventoryTest, GivenFilterdevices_WhenMadeIntoCards_ThenThoseAreLeftOut) {
  NodeSettings settings;
  settings.excluded.uuids = {"GPU-a"};
  settings.excluded.indices = {2};
  std::vector<std::string> notes;
  const auto cards =
      MakeCards({Gpu(0, "GPU-a", "x"), Gpu(1, "GPU-b", "y"), Gpu(2, "GPU-c", "z")}, settings, {}, &notes);
  EXPECT_THAT(Uuids(cards), ElementsAre("GPU-b"));
  EXPECT_EQ(notes.size(), 2U);
}

TEST(InventoryTest, GivenTrouble_WhenMadeIntoCards_ThenTheCardStaysAndSaysWhy) {
  const auto cards = MakeCards({Gpu(0, "GPU-a", "x"), Gpu(1, "GPU-b", "y")}, {}, {{"GPU-b", "XID 79"}});
  EXPECT_TRUE(cards[0].healthy);
  EXPECT_FALSE(cards[1].healthy);
  EXPECT_EQ(cards[1].trouble, "XID 79");
}

Cards WithCard(const std::string& uuid) {
  Cards cards;
  cards.ready = true;
  cards.cards = MakeCards({Gpu(0, uuid, "x")}, {}, {});
  return cards;
}

TEST(CardBoardTest, GivenTheSameCards_WhenPublishedAgain_ThenNobodyIsTold) {
  CardBoard board;
  int told = 0;
  const auto subscription = board.Subscribe([&] { ++told; });
  EXPECT_TRUE(board.Publish(WithCard("GPU-a")));
  EXPECT_FALSE(board.Publish(WithCard("GPU-a")));
  EXPECT_EQ(told, 1);
  EXPECT_EQ(board.Current()->generation, 1U);
  EXPECT_TRUE(board.Publish(WithCard("GPU-b")));
  EXPECT_EQ(told, 2);
  EXPECT_EQ(board.Current()->generation, 2U);
}

TEST(CardBoardTest, GivenALateListener_WhenItLooks_ThenItSeesTheLatestState) {
  CardBoard board;
  board.Publish(WithCard("GPU-a"));
  const auto subscription = board.Subscribe([] {});
  ASSERT_TRUE(board.Current()->ready);
  EXPECT_NE(board.Current()->Find("GPU-a"), nullptr);
  EXPECT_EQ(board.Current()->Find("GPU-b"), nullptr);
}

TEST(CardBoardTest, GivenAnEndedSubscription_WhenPublished_ThenItIsNotCalled) {
  CardBoard board;
  int told = 0;
  {
    auto first = board.Subscribe([&] { ++told; });
    auto moved = std::move(first);
    board.Publish(WithCard("GPU-a"));
  }
  board.Publish(WithCard("GPU-b"));
  EXPECT_EQ(told, 1);
}

TEST(InventoryTest, ModeMig_OffersProfilesAndAsManySlotsAsInstances) {
  Cards cards;
  cards.settings = MigSettings();
  cards.cards = MakeCards({Divided(true, true)}, cards.settings, {});
  ASSERT_EQ(cards.cards.size(), 1U);
  EXPECT_EQ(cards.cards[0].slots, 7);
  EXPECT_EQ(cards.cards[0].memory, 81559) << "an instance is what it is, whatever the scaling";
  const std::string text = EncodeCards(cards);
  EXPECT_THAT(text,
              HasSubstr(R"("mode":"mig","migProfiles":[{"name":"1g.10gb","memoryMB":9984,"core":13,"sliceCount":1)"));
  EXPECT_THAT(text, HasSubstr(R"("count":7)"));
}

TEST(InventoryTest, ModeMig_GpuThatCannotBeDividedIsLeftOutWithTheReason) {
  const auto why = [](nvml::Device device, const ForeignInstances& foreign = {}) {
    std::vector<std::string> notes;
    EXPECT_TRUE(MakeCards({std::move(device)}, MigSettings(), {}, &notes, foreign).empty());
    return notes.empty() ? std::string() : notes[0];
  };
  EXPECT_THAT(why(Gpu(0, "GPU-t4", "x")), HasSubstr("has no MIG"));
  EXPECT_THAT(why(Divided(false, true)), HasSubstr("waits for a reset"));
  EXPECT_THAT(why(Divided(false, false)), HasSubstr("is off"));
  EXPECT_THAT(why(Divided(true, true), {{"GPU-a", {{0, 8}}}}), HasSubstr("not ours"));
}

TEST(InventoryTest, ForeignInstance_IsNamedAndItsPlacesAreNotOffered) {
  std::vector<std::string> notes;
  const auto cards = MakeCards({Divided(true, true)}, MigSettings(), {}, &notes, {{"GPU-a", {{4, 2}}}});
  ASSERT_EQ(cards.size(), 1U);
  EXPECT_EQ(cards[0].mig_profiles[0].placements.size(), 5U);
  EXPECT_THAT(notes, ElementsAre(HasSubstr("slices 4 to 5")));
}

TEST(CardBoardTest, GivenNewReasonToLeaveGpuOut_WhenPublished_ThenItIsAChange) {
  CardBoard board;
  board.Publish(WithCard("GPU-a"));
  Cards cards = WithCard("GPU-a");
  cards.left_out = {"GPU 1 is left out"};
  EXPECT_TRUE(board.Publish(cards));
}

TEST(CardBoardTest, GivenSettingsThatChange_WhenPublished_ThenItIsAChange) {
  CardBoard board;
  board.Publish(WithCard("GPU-a"));
  Cards cards = WithCard("GPU-a");
  cards.settings.log_level = "4";
  EXPECT_TRUE(board.Publish(cards));
}

}  // namespace
}  // namespace hami::plugin
