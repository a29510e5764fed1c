// SPDX-License-Identifier: Apache-2.0

#include "plugin/mig_static.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/strings.h"
#include "plugin/device_list.h"
#include "plugin/node_state.h"
#include "plugin/registration.h"

namespace hami::plugin {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kMiB = 1 << 20;

nvml::Device Gpu(unsigned index) {
  nvml::Device device;
  device.index = index;
  device.minor = index;
  device.uuid = base::Concat({"GPU-", std::to_string(index)});
  device.name = "NVIDIA H100 80GB HBM3";
  device.bus_id = base::Concat({"0000:0", std::to_string(index), ":00.0"});
  device.numa_node = 1;
  device.memory = nvml::Memory{81559 * kMiB, 0, 0, std::nullopt};
  device.mig_mode = nvml::MigMode{false, false};
  return device;
}

// In MIG mode, with a MIG device for each of PROFILES.
nvml::Device Divided(unsigned index, const std::vector<std::string>& profiles) {
  nvml::Device device = Gpu(index);
  device.mig_mode = nvml::MigMode{true, true};
  for (unsigned i = 0; i < profiles.size(); ++i) {
    const std::string uuid = base::Concat({"MIG-", std::to_string(index), "-", std::to_string(i)});
    device.mig_devices.push_back({i, uuid, base::Concat({device.name, " MIG ", profiles[i]}), 7 + i, 0,
                                  nvml::Memory{9984 * kMiB, 0, 0, std::nullopt}});
  }
  return device;
}

NodeSettings With(MigStrategy strategy) {
  NodeSettings settings;
  settings.mig_strategy = strategy;
  settings.memory_scaling = 2;
  return settings;
}

std::vector<std::string> Uuids(const std::vector<Card>& cards) {
  std::vector<std::string> uuids;
  for (const Card& card : cards) uuids.push_back(card.uuid);
  return uuids;
}

TEST(MigStaticTest, ProfileIsWhatTheDriverCallsTheDevice) {
  EXPECT_EQ(ProfileOfDevice("NVIDIA H100 80GB HBM3 MIG 1g.10gb"), "1g.10gb");
  EXPECT_EQ(ProfileOfDevice("NVIDIA A100-SXM4-40GB MIG 1g.5gb+me"), "1g.5gb+me");
  for (const char* name : {"NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb", "NVIDIA H100 80GB HBM3", "", "MIG ", "MIG g.1gb",
                           "MIG 1g.10gb/../x", "MIG 1g.10GB"}) {
    EXPECT_EQ(ProfileOfDevice(name), std::nullopt) << name;
  }
  EXPECT_EQ(MigResource("1g.5gb+me"), "nvidia.com/mig-1g.5gb.me");
}

TEST(MigStaticTest, None_GpuIsOfferedWholeEvenIfItIsDivided) {
  const std::vector<nvml::Device> devices = {Divided(0, {"1g.10gb"})};
  EXPECT_THAT(Uuids(MakeCards(devices, With(MigStrategy::kNone), {})), ElementsAre("GPU-0"));
  EXPECT_THAT(MakeParts(devices, With(MigStrategy::kNone), {}), IsEmpty());
}

TEST(MigStaticTest, Mixed_ProfilesAreResourcesAndOtherGpusAreShared) {
  const std::vector<nvml::Device> devices = {Gpu(1), Divided(0, {"1g.10gb", "3g.40gb", "1g.10gb+me"})};
  Cards cards;
  cards.settings = With(MigStrategy::kMixed);
  cards.cards = MakeCards(devices, cards.settings, {});
  cards.parts = MakeParts(devices, cards.settings, {});
  EXPECT_THAT(Uuids(cards.cards), ElementsAre("GPU-1"));
  EXPECT_THAT(ResourcesOf(cards.parts),
              ElementsAre("nvidia.com/mig-1g.10gb", "nvidia.com/mig-1g.10gb.me", "nvidia.com/mig-3g.40gb"));
  EXPECT_THAT(ListParts(cards, "nvidia.com/mig-1g.10gb"), ElementsAre(SlotState{"MIG-0-0", true, 1}));
  EXPECT_THAT(ListParts(cards, "nvidia.com/mig-1g"), IsEmpty());
  EXPECT_EQ(ListSlots(cards).size(), 10U);
  EXPECT_THAT(EncodeCards(cards), ::testing::Not(HasSubstr("MIG")));
}

TEST(MigStaticTest, Single_MigDevicesAreWhatIsSharedOut) {
  const std::vector<nvml::Device> devices = {Divided(1, {"1g.10gb"}), Divided(0, {"1g.10gb", "1g.10gb"})};
  Cards cards;
  cards.settings = With(MigStrategy::kSingle);
  cards.cards = MakeCards(devices, cards.settings, {});
  EXPECT_THAT(ListSlots(cards),
              ElementsAre(SlotState{"MIG-0-0", true, 1}, SlotState{"MIG-0-1", true, 1}, SlotState{"MIG-1-0", true, 1}));
  EXPECT_EQ(IndexOf(cards.cards[1]), "0:1");
  EXPECT_THAT(EncodeCards(cards),
              HasSubstr(R"({"id":"MIG-0-0","count":1,"devmem":9984,"devcore":100,"type":"NVIDIA H100 80GB HBM3 MIG )"
                        R"(1g.10gb","numa":1,"mode":"hami-core","health":true})"))
      << "an instance is what it is, whatever the scaling";
  EXPECT_THAT(MakeParts(devices, cards.settings, {}), IsEmpty());
  EXPECT_THAT(Uuids(MakeCards({Gpu(0)}, cards.settings, {})), ElementsAre("GPU-0")) << "no GPU is divided";
}

TEST(MigStaticTest, Single_NothingIsOfferedWhereGpusAreNotDividedAlike) {
  EXPECT_EQ(SingleTrouble({Divided(0, {"1g.10gb"}), Gpu(1)}, {}),
            "GPU 0 (GPU-0) is in MIG mode and GPU 1 (GPU-1) is not");
  EXPECT_EQ(SingleTrouble({Divided(0, {"1g.10gb"}), Gpu(1)}, {{}, {1}}), "") << "filterdevices keeps it for others";
  EXPECT_THAT(SingleTrouble({Divided(0, {"1g.10gb"}), Divided(1, {"1g.20gb"})}, {}),
              HasSubstr("not of one profile: 1g.10gb, and 1g.20gb on GPU 1"));
  EXPECT_THAT(SingleTrouble({Divided(0, {"1g.10gb"}), Divided(1, {})}, {}),
              HasSubstr("GPU 1 (GPU-1) is in MIG mode and"));
  std::vector<std::string> notes;
  EXPECT_THAT(MakeCards({Divided(0, {"1g.10gb"}), Gpu(1)}, With(MigStrategy::kSingle), {}, &notes), IsEmpty());
  EXPECT_EQ(notes.size(), 2U);
}

TEST(MigStaticTest, Filterdevices_KeepsAMigDeviceForOthers) {
  NodeSettings settings = With(MigStrategy::kSingle);
  settings.excluded.uuids = {"MIG-0-1"};
  const std::vector<nvml::Device> devices = {Divided(0, {"1g.10gb", "3g.40gb"})};
  EXPECT_THAT(Uuids(MakeCards(devices, settings, {})), ElementsAre("MIG-0-0")) << "and the others are of one profile";
  settings.mig_strategy = MigStrategy::kMixed;
  EXPECT_THAT(Uuids(MakeParts(devices, settings, {})), ElementsAre("MIG-0-0"));
}

TEST(MigStaticTest, PartOfAnInstance_IsLeftOutWithTheReason) {
  std::vector<std::string> notes;
  const std::vector<nvml::Device> devices = {Divided(0, {"1c.3g.40gb", "3g.40gb"})};
  MakeCards(devices, With(MigStrategy::kMixed), {}, &notes);
  EXPECT_THAT(Uuids(MakeParts(devices, With(MigStrategy::kMixed), {})), ElementsAre("MIG-0-1"));
  EXPECT_THAT(notes, ElementsAre(HasSubstr("MIG device MIG-0-0 (NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb) of GPU 0")));
}

TEST(MigStaticTest, ModeMps_DoesNotServeADividedGpu) {
  NodeSettings settings = With(MigStrategy::kMixed);
  settings.mode = OperatingMode::kMps;
  std::vector<std::string> notes;
  const std::vector<nvml::Device> devices = {Divided(0, {"1g.10gb"}), Gpu(1)};
  EXPECT_THAT(Uuids(MakeCards(devices, settings, {}, &notes)), ElementsAre("GPU-1"));
  EXPECT_THAT(MakeParts(devices, settings, {}), IsEmpty());
  EXPECT_THAT(notes, ElementsAre(HasSubstr("MPS does not serve")));
}

class MigStaticHealthTest : public ::testing::Test {
 protected:
  MigStaticHealthTest() : state_("node-1", XidPolicy()) {
    Options options;
    options.mig_strategy = MigStrategy::kMixed;
    state_.Configure(*ParseNodeConfig({}, options));
    state_.SeeNode({}, {}, 1000);
    Look(1000);
  }
  void Look(UnixSeconds now) { state_.SeeDriver({{Divided(0, {"1g.10gb", "1g.10gb"})}, {}, std::nullopt}, now); }
  std::vector<bool> Health() const {
    std::vector<bool> health;
    for (const Card& card : state_.MakeCards().parts) health.push_back(card.healthy);
    return health;
  }
  NodeState state_;
};

TEST_F(MigStaticHealthTest, Xid_TakesOutItsInstanceAloneUntilItIsWell) {
  state_.SeeXid({"GPU-0", 74, 8, 0}, 1000);
  EXPECT_THAT(Health(), ElementsAre(true, false));
  EXPECT_THAT(state_.TakeEvents().back().message, HasSubstr("MIG device MIG-0-1 is not given out: XID 74"));
  UnixSeconds now = 1000;
  for (; now < 2000 && !Health()[1]; now += 10) Look(now);
  EXPECT_LE(now, 1110);
  for (; now < 6000; now += 100) Look(now);
  state_.SeeXid({"GPU-0", 74, 8, 0}, now);
  EXPECT_THAT(Health(), ElementsAre(true, false)) << "it is remembered as long as the GPU is";
}

TEST_F(MigStaticHealthTest, XidOfTheGpu_TakesOutAllOfThem) {
  state_.SeeXid({"GPU-0", 79, nvml::kAnyInstance, nvml::kAnyInstance}, 1000);
  EXPECT_THAT(Health(), ElementsAre(false, false));
}

TEST_F(MigStaticHealthTest, UnlikeGpus_AreToldAsAnEventOnce) {
  Options options;
  options.mig_strategy = MigStrategy::kSingle;
  state_.Configure(*ParseNodeConfig({}, options));
  EXPECT_THAT(state_.TakeEvents(), IsEmpty());
  for (int i = 0; i < 2; ++i) {
    state_.SeeDriver({{Divided(0, {"1g.10gb"}), Gpu(1)}, {}, std::nullopt}, 1010);
    const auto events = state_.TakeEvents();
    ASSERT_EQ(events.size(), i == 0 ? 1U : 0U);
    EXPECT_TRUE(events.empty() || events[0].reason == "MigStrategyRefused");
  }
  EXPECT_THAT(state_.MakeCards().cards, IsEmpty());
}

}  // namespace
}  // namespace hami::plugin
