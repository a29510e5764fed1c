// SPDX-License-Identifier: Apache-2.0

#include "plugin/node_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hami::plugin {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

nvml::Device Gpu(unsigned index, const std::string& uuid) {
  nvml::Device device;
  device.index = index;
  device.uuid = uuid;
  device.name = "NVIDIA H100";
  device.bus_id = "bus-" + uuid;
  device.memory = nvml::Memory{std::uint64_t{1} << 30, 0, 0, std::nullopt};
  return device;
}

DriverReading Both() { return {{Gpu(0, "GPU-a"), Gpu(1, "GPU-b")}, {}, std::nullopt}; }

DriverReading WithSecondLost() {
  DriverReading reading = Both();
  nvml::Device lost;  // says nothing but its place
  lost.index = 1;
  lost.condition = nvml::Condition::kLost;
  lost.trouble = "GPU is lost";
  reading.devices[1] = lost;
  return reading;
}

NodeState Ready(const std::string& disabled = "", const std::string& enabled = "") {
  NodeState state("node-1", XidPolicy(disabled, enabled));
  state.SeeNode({}, {}, 1000);
  state.SeeDriver(Both(), 1000);
  return state;
}

std::vector<bool> HealthOf(const NodeState& state) {
  std::vector<bool> health;
  for (const Card& card : state.MakeCards().cards) health.push_back(card.healthy);
  return health;
}

nvml::XidEvent Xid(const std::string& uuid, std::uint64_t code) {
  return {uuid, code, nvml::kAnyInstance, nvml::kAnyInstance};
}

TEST(NodeStateTest, GivenOnlyDriver_WhenAsked_ThenNothingIsReadyUntilNodeIsSeen) {
  NodeState state("node-1", XidPolicy());
  state.SeeDriver(Both(), 1000);
  EXPECT_FALSE(state.ready());
  EXPECT_FALSE(state.MakeCards().ready);
  state.SeeNode({}, {}, 1000);
  EXPECT_TRUE(state.MakeCards().ready);
}

TEST(NodeStateTest, GivenXid_WhenGpuAnswersWellAgain_ThenItComesBackByItself) {
  NodeState state = Ready();
  EXPECT_TRUE(state.SeeXid(Xid("GPU-b", 74), 1000));
  EXPECT_THAT(HealthOf(state), ElementsAre(true, false));
  UnixSeconds now = 1000;
  for (; now < 2000 && !HealthOf(state)[1]; now += 10) state.SeeDriver(Both(), now);
  EXPECT_LE(now, 1110);
  const auto events = state.TakeEvents();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].reason, "GpuUnhealthy");
  EXPECT_THAT(events[0].message, HasSubstr("GPU 1 (GPU-b) is not given out: XID 74"));
  EXPECT_EQ(events[1].reason, "GpuRecovered");
}

// L4: with one child remembered for each GPU, the errors of all others are lost.
TEST(NodeStateTest, GivenFourthFailureInDay_ThenEventAndJournalSayGpuIsOut) {
  NodeState state = Ready();
  UnixSeconds now = 1000;
  for (int time = 0; time < 4; ++time) {
    state.SeeXid(Xid("GPU-b", 62), now);
    for (const UnixSeconds until = now + 1500; now < until; now += 10) state.SeeDriver(Both(), now);
  }
  EXPECT_THAT(HealthOf(state), ElementsAre(true, false));
  EXPECT_EQ(state.TakeEvents().back().reason, "GpuCordoned");
  EXPECT_EQ(state.MakeRegistration(state.MakeCards(), false, now).health.at("GPU-b").state, HealthState::kOut);
}

TEST(NodeStateTest, GivenXidOfAnyInstance_WhenSeen_ThenItCountsForItsGpu) {
  for (const unsigned instance : {0U, 7U, nvml::kAnyInstance}) {
    NodeState state = Ready();
    nvml::XidEvent event = Xid("GPU-b", 48);
    event.gpu_instance = instance;
    event.compute_instance = 0;
    EXPECT_TRUE(state.SeeXid(event, 1000));
    EXPECT_THAT(HealthOf(state), ElementsAre(true, false)) << instance;
  }
}

DriverReading WithDamage(std::uint64_t uncorrected, bool repair_waits, bool unheard) {
  DriverReading reading = Both();
  nvml::HealthSigns& signs = reading.health["GPU-b"];
  signs.ecc.uncorrected_volatile = uncorrected;
  signs.remapped = nvml::RemappedRows{0, 0, repair_waits, false};
  if (unheard) reading.unheard = {"GPU-b"};
  return reading;
}

TEST(NodeStateTest, GivenUnheardXids_WhenGpuCountsNewErrors_ThenItIsTakenOut) {
  NodeState state = Ready();
  state.SeeDriver(WithDamage(7, false, true), 1010);  // counts of before
  state.SeeDriver(WithDamage(7, false, true), 1020);
  EXPECT_THAT(HealthOf(state), ElementsAre(true, true));
  state.SeeDriver(WithDamage(8, false, true), 1030);
  EXPECT_THAT(HealthOf(state), ElementsAre(true, false));
  EXPECT_THAT(state.MakeCards().cards[1].trouble, HasSubstr("XID 48"));
  ASSERT_EQ(state.TakeEvents().size(), 1U);
  // The same errors are not counted again: it comes back like after an XID.
  UnixSeconds now = 1040;
  for (; now < 2000 && !HealthOf(state)[1]; now += 10) state.SeeDriver(WithDamage(8, false, true), now);
  EXPECT_LE(now, 1140);
}

TEST(NodeStateTest, GivenUnheardXids_WhenRepairWaitsForReset_ThenGpuIsTakenOut) {
  NodeState state = Ready();
  state.SeeDriver(WithDamage(0, false, true), 1010);
  state.SeeDriver(WithDamage(0, true, true), 1020);
  EXPECT_THAT(HealthOf(state), ElementsAre(true, false));
  EXPECT_THAT(state.MakeCards().cards[1].trouble, HasSubstr("memory repair waits for a reset"));
}

TEST(NodeStateTest, GivenHeardXids_WhenGpuCountsNewErrors_ThenXidsDecide) {
  NodeState state = Ready();
  state.SeeDriver(WithDamage(0, false, false), 1010);
  state.SeeDriver(WithDamage(9, false, false), 1020);
  state.SeeDriver(WithDamage(9, false, true), 1030);  // a gap in which nothing happened
  EXPECT_THAT(HealthOf(state), ElementsAre(true, true));
}

TEST(NodeStateTest, GivenUnheardXids_WhenCountsAreResetOrMissing_ThenNoError) {
  NodeState state = Ready();
  state.SeeDriver(WithDamage(7, true, true), 1010);
  state.SeeDriver(WithDamage(0, false, true), 1020);  // reset
  state.SeeDriver(Both(), 1030);
  EXPECT_THAT(HealthOf(state), ElementsAre(true, true));
  // Growth is not lost to a look at which the GPU said nothing.
  state.SeeDriver(WithDamage(1, false, true), 1040);
  EXPECT_THAT(HealthOf(state), ElementsAre(true, false));
}

TEST(NodeStateTest, GivenUnheardXids_WhenGpuTellsCountsLater_ThenTheyStillCount) {
  NodeState state = Ready();
  state.SeeDriver(WithDamage(7, false, false), 1010);
  DriverReading silent = Both();
  silent.unheard = {"GPU-b"};
  state.SeeDriver(silent, 1020);
  EXPECT_THAT(HealthOf(state), ElementsAre(true, true));
  state.SeeDriver(WithDamage(8, false, false), 1030);
  EXPECT_THAT(HealthOf(state), ElementsAre(true, false));
  // The gap is over with that.
  UnixSeconds now = 1040;
  for (; now < 2000 && !HealthOf(state)[1]; now += 10) state.SeeDriver(WithDamage(8, false, false), now);
  state.SeeDriver(WithDamage(9, false, false), now);
  EXPECT_THAT(HealthOf(state), ElementsAre(true, true));
}

TEST(NodeStateTest, GivenDisabledXids_WhenUnheard_ThenErrorCountsAreIgnoredToo) {
  for (const char* disabled : {"48", "xids", "all"}) {
    NodeState state = Ready(disabled);
    state.SeeDriver(WithDamage(0, false, true), 1010);
    state.SeeDriver(WithDamage(1, false, true), 1020);
    EXPECT_THAT(HealthOf(state), ElementsAre(true, true)) << disabled;
  }
}

TEST(NodeStateTest, GivenApplicationOrStrangersXids_WhenSeen_ThenNothingHappens) {
  NodeState state = Ready();
  EXPECT_FALSE(state.SeeXid(Xid("GPU-a", 31), 1000));
  EXPECT_FALSE(state.SeeXid(Xid("", 79), 1000));
  EXPECT_FALSE(state.SeeXid(Xid("GPU-unknown", 79), 1000));
  EXPECT_THAT(HealthOf(state), ElementsAre(true, true));
}

TEST(NodeStateTest, GivenNamelessLostGpu_WhenRead_ThenItStaysListedUnhealthy) {
  NodeState state = Ready();
  state.SeeDriver(WithSecondLost(), 1010);
  EXPECT_THAT(HealthOf(state), ElementsAre(true, false));
  EXPECT_EQ(state.MakeCards().cards[1].uuid, "GPU-b");
  EXPECT_EQ(state.MakeCards().cards[1].trouble, "lost: GPU is lost");
}

TEST(NodeStateTest, GivenGpuInTroubleAtStart_WhenRead_ThenItIsLeftOutWithReason) {
  NodeState state("node-1", XidPolicy());
  state.SeeNode({}, {}, 1000);
  state.SeeDriver(WithSecondLost(), 1000);
  EXPECT_EQ(state.MakeCards().cards.size(), 1U);
  EXPECT_THAT(state.MakeCards().left_out, ElementsAre("GPU 1 is left out: it does not answer: GPU is lost"));
  state.SeeDriver(Both(), 1010);
  EXPECT_EQ(state.MakeCards().cards.size(), 2U);
  EXPECT_TRUE(state.MakeCards().left_out.empty());
}

TEST(NodeStateTest, GivenHealthChecksOff_WhenGpuIsLost_ThenItStaysHealthy) {
  NodeState state = Ready("all");
  state.SeeXid(Xid("GPU-b", 79), 1000);
  state.SeeDriver(WithSecondLost(), 1010);
  EXPECT_THAT(HealthOf(state), ElementsAre(true, true));
}

TEST(NodeStateTest, GivenAGpuThatAppears_WhenRead_ThenItIsOffered) {
  NodeState state("node-1", XidPolicy());
  state.SeeNode({}, {}, 1000);
  state.SeeDriver({{Gpu(0, "GPU-a")}, {}, std::nullopt}, 1000);
  EXPECT_EQ(state.MakeCards().cards.size(), 1U);
  state.SeeDriver(Both(), 1010);
  EXPECT_THAT(HealthOf(state), ElementsAre(true, true));
}

TEST(NodeStateTest, GivenGpuNoLongerListed_WhenAnHourPassed_ThenItIsForgotten) {
  NodeState state = Ready();
  const DriverReading one = {{Gpu(0, "GPU-a")}, {}, std::nullopt};
  state.SeeDriver(one, 1010);
  EXPECT_THAT(HealthOf(state), ElementsAre(true, false));
  state.SeeDriver(one, 1000 + 3599);
  EXPECT_EQ(state.MakeCards().cards.size(), 2U);
  state.SeeDriver(one, 1000 + 3600);
  EXPECT_EQ(state.MakeCards().cards.size(), 1U);
}

TEST(NodeStateTest, GivenTheDriverGone_WhenItReturns_ThenNoGpuHasAMark) {
  NodeState state = Ready();
  for (int i = 0; i < 10; ++i) {
    state.LoseDriver("the driver does not answer");
    EXPECT_THAT(HealthOf(state), ElementsAre(false, false));
    EXPECT_EQ(state.MakeCards().cards[0].trouble, "the driver does not answer");
    state.SeeDriver(Both(), 1010 + i);
    EXPECT_THAT(HealthOf(state), ElementsAre(true, true));
  }
  EXPECT_TRUE(state.MakeRegistration(state.MakeCards(), false, 1100).health.empty());
}

TEST(NodeStateTest, GivenRestart_WhenNodeRemembersTrouble_ThenGpuStaysUnhealthy) {
  NodeState before = Ready();
  before.SeeXid(Xid("GPU-b", 48), 1000);
  const Registration registration = before.MakeRegistration(before.MakeCards(), false, 1000);
  NodeState after("node-1", XidPolicy());
  after.SeeDriver(Both(), 1005);
  after.SeeNode({}, {{kHealthKey, EncodeJournal(registration.health)}}, 1006);
  EXPECT_THAT(HealthOf(after), ElementsAre(true, false));
  EXPECT_THAT(after.MakeCards().cards[1].trouble, HasSubstr("XID 48"));
}

TEST(NodeStateTest, GivenReplacedGpu_WhenAnHourPassed_ThenNodeForgetsIt) {
  NodeState state("node-1", XidPolicy());
  state.SeeDriver(Both(), 1000);
  state.SeeNode({},
                {{kHealthKey, R"({"GPU-old":{"state":"out","reason":"XID 62","since":1,"troubles":[1]}})"},
                 {"hami.io/device-cordon", "GPU-old"}},
                1000);
  EXPECT_TRUE(state.MakeRegistration(state.MakeCards(), false, 1000).health.contains("GPU-old"));
  state.SeeDriver(Both(), 1000 + 3600);
  EXPECT_TRUE(state.MakeRegistration(state.MakeCards(), false, 4600).health.empty());
}

TEST(NodeStateTest, GivenTroubleBeforeTheNodeWasSeen_WhenItIsSeen_ThenBothCount) {
  NodeState state("node-1", XidPolicy());
  state.SeeDriver(Both(), 1000);
  state.SeeXid(Xid("GPU-a", 79), 1001);
  state.SeeNode({}, {{kHealthKey, R"({"GPU-b":{"state":"unhealthy","reason":"XID 48","since":900,"troubles":[900]}})"}},
                1002);
  EXPECT_THAT(HealthOf(state), ElementsAre(false, false));
}

TEST(NodeStateTest, GivenGpuThatIsOut_WhenCordonIsLifted_ThenItIsOfferedAgain) {
  NodeState state = Ready();
  const std::string out = R"({"GPU-b":{"state":"out","reason":"XID 62","since":900,"troubles":[1,2,3,4]}})";
  NodeState restarted("node-1", XidPolicy());
  restarted.SeeDriver(Both(), 1000);
  restarted.SeeNode({}, {{kHealthKey, out}, {"hami.io/device-cordon", "GPU-b"}}, 1000);
  for (UnixSeconds now = 1000; now < 5000; now += 10) restarted.SeeDriver(Both(), now);
  EXPECT_THAT(HealthOf(restarted), ElementsAre(true, false));
  restarted.SeeNode({}, {{kHealthKey, out}}, 5000);
  restarted.SeeDriver(Both(), 5030);
  EXPECT_THAT(HealthOf(restarted), ElementsAre(true, true));
}

TEST(NodeStateTest, GivenSettingsByLabel_WhenTheLabelChanges_ThenTheCardsDo) {
  NodeState state = Ready();
  const auto config = ParseNodeConfig(
      {"", std::nullopt, "config.json", R"({"nodeconfig":[{"selector":"pool=a","devicesplitcount":3}]})"}, {});
  ASSERT_TRUE(config);
  state.Configure(*config);
  EXPECT_EQ(state.MakeCards().cards[0].slots, 10);
  state.SeeNode({{"pool", "a"}}, {}, 1010);
  EXPECT_EQ(state.MakeCards().cards[0].slots, 3);
}

// A mistake in an entry that the labels choose is this node's from then on, and nothing new is told until it is mended.
TEST(NodeStateTest, MistakeChosenByALabel_IsToldAndNothingChanges) {
  NodeState state = Ready();
  const std::string text = R"({"nodeconfig":[{"selector":"pool=mig","operatingmode":"fast"}]})";
  const auto config = ParseNodeConfig({"", std::nullopt, "config.json", text}, {});
  ASSERT_TRUE(config);
  EXPECT_EQ(state.Objection(*config), "");
  state.Configure(*config);
  EXPECT_TRUE(state.ready());
  state.SeeNode({{"pool", "mig"}}, {}, 1010);
  EXPECT_FALSE(state.ready());
  EXPECT_THAT(state.Objection(*config), HasSubstr("operatingmode: must be"));
  const auto events = state.TakeEvents();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].reason, "InvalidDeviceConfig");
  state.SeeNode({}, {}, 1020);
  EXPECT_TRUE(state.ready());
}

TEST(NodeStateTest, GivenFailingLink_WhenTopologyIsReadAgain_ThenScoresFollow) {
  NodeState state = Ready();
  const auto link = [](const std::string& to, bool up) { return nvml::NvLink{0, up, nvml::LinkPeer::kGpu, to}; };
  const auto reading = [&](bool up_at_b) {
    DriverReading out = Both();
    out.topology.emplace();
    out.topology->gpus = {{"GPU-a", "bus-GPU-a", {link("bus-GPU-b", true)}},
                          {"GPU-b", "bus-GPU-b", {link("bus-GPU-a", up_at_b)}}};
    out.topology->ancestors = {std::nullopt, nvml::Ancestor::kSystem, nvml::Ancestor::kSystem, std::nullopt};
    return out;
  };
  state.SeeDriver(reading(true), 1010);
  EXPECT_THAT(*state.MakeRegistration(state.MakeCards(), true, 1010).scores, HasSubstr("110"));
  EXPECT_FALSE(state.MakeRegistration(state.MakeCards(), false, 1010).scores);
  state.SeeDriver(reading(false), 1020);
  EXPECT_EQ(state.MakeRegistration(state.MakeCards(), true, 1020).scores->find("110"), std::string::npos);
  state.SeeDriver(reading(false), 1030);
  const auto events = state.TakeEvents();
  ASSERT_EQ(events.size(), 1U);  // told once
  EXPECT_EQ(events[0].reason, "AsymmetricGPUP2PLink");
  // A look without topology forgets nothing.
  state.SeeDriver(Both(), 1040);
  EXPECT_THAT(*state.MakeRegistration(state.MakeCards(), true, 1040).scores, HasSubstr("GPU-b"));
}

}  // namespace
}  // namespace hami::plugin
