// SPDX-License-Identifier: Apache-2.0
//
// Mode mig: trouble of one instance is that of its place, and of no other.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plugin/card_metrics.h"
#include "plugin/node_state.h"
#include "plugin/testing/mig_world.h"

namespace hami::plugin {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class MigHealthTest : public ::testing::Test {
 protected:
  MigHealthTest() : state_("node-1", XidPolicy()) {
    gpu_.uuid = "GPU-0";
    gpu_.name = "NVIDIA H100 80GB HBM3";
    gpu_.memory = nvml::Memory{std::uint64_t{81559} << 20U, 0, 0, std::nullopt};
    gpu_.mig_mode = nvml::MigMode{true, true};
    gpu_.mig_layout = nvml::MigLayout{H100Profiles(), {}};
    Divide(9, 19, {6, 1}, "MIG-a");
    Divide(10, 19, {5, 1}, "MIG-b");
    state_.UseMode(OperatingMode::kMig);
    state_.SeeNode({}, {}, 1000);
    Look(1000);
  }
  void Divide(unsigned id, unsigned profile, nvml::MigPlace place, const std::string& uuid) {
    gpu_.mig_layout->instances.push_back({id, profile, place, {{0, uuid}}});
    gpu_.mig_devices.push_back({0, uuid, "MIG", id, 0, std::nullopt});
  }
  void RemoveAll() {
    gpu_.mig_layout->instances.clear();
    gpu_.mig_devices.clear();
  }
  void Look(UnixSeconds now, bool reset_pending = false) {
    DriverReading reading{{gpu_}, {}, std::nullopt};
    reading.health["GPU-0"].remapped = nvml::RemappedRows{0, 0, reset_pending, false};
    state_.SeeDriver(reading, now);
  }
  Card Only() const { return state_.MakeCards().cards.at(0); }
  std::vector<int> Starts(std::string_view profile) const {
    std::vector<int> starts;
    for (const device::MigProfile& one : Only().mig_profiles) {
      if (one.name != profile) continue;
      for (const device::MigPlacement& place : one.placements) starts.push_back(place.start);
    }
    return starts;
  }

  nvml::Device gpu_;
  NodeState state_;
};

TEST_F(MigHealthTest, Xid_TakesOutThePlaceOfItsInstanceAlone) {
  ASSERT_THAT(Starts("1g.10gb"), ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_TRUE(state_.SeeXid({"GPU-0", 74, 9, 0}, 1000));
  EXPECT_TRUE(Only().healthy);
  EXPECT_EQ(Only().slots, 7) << "its container has one of them";
  EXPECT_THAT(Starts("1g.10gb"), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(Starts("3g.40gb"), ElementsAre(0));
  EXPECT_THAT(state_.TakeEvents().back().message,
              HasSubstr("MIG device MIG-a (1g.10gb at slice 6 of GPU-0) is not given out: XID 74"));
  EXPECT_THAT(state_.MakeCards().left_out, ElementsAre(HasSubstr("slices 6 to 6 are not offered: MIG device MIG-a")));
  const std::string metrics = RenderCardMetrics("n", state_.MakeCards());
  EXPECT_THAT(metrics, HasSubstr("device_uuid=\"MIG-a\""));
  EXPECT_THAT(metrics, Not(HasSubstr("MIG-b")));
}

// Its container ends, and so does the instance. One that is made there anew is the same piece of the GPU.
TEST_F(MigHealthTest, InstanceIsRemoved_ItsPlaceComesBackAfterItsTime) {
  state_.SeeXid({"GPU-0", 74, 9, 0}, 1000);
  RemoveAll();
  UnixSeconds now = 1010;
  for (; now <= 1050; now += 10) Look(now);
  EXPECT_THAT(Starts("7g.80gb"), IsEmpty());
  for (; now < 2000 && Starts("7g.80gb").empty(); now += 10) Look(now);
  EXPECT_LE(now, 1110);
  EXPECT_EQ(state_.TakeEvents().back().message, "MIG device MIG-a (1g.10gb at slice 6 of GPU-0) is given out again");
  EXPECT_THAT(state_.MakeCards().sick, IsEmpty());
}

TEST_F(MigHealthTest, XidOfTheGpu_TakesOutTheGpu) {
  EXPECT_TRUE(state_.SeeXid({"GPU-0", 79, nvml::kAnyInstance, nvml::kAnyInstance}, 1000));
  EXPECT_FALSE(Only().healthy);
  EXPECT_THAT(state_.MakeCards().sick, IsEmpty());
}

TEST_F(MigHealthTest, InstanceOfAMomentAgo_IsFoundByTheNextLook) {
  EXPECT_TRUE(state_.SeeXid({"GPU-0", 74, 11, 0}, 1000)) << "looked for at once";
  EXPECT_TRUE(Only().healthy);
  Divide(11, 9, {0, 4}, "MIG-c");
  Look(1001);
  EXPECT_TRUE(Only().healthy);
  EXPECT_THAT(Starts("3g.40gb"), ElementsAre(4));
}

TEST_F(MigHealthTest, InstanceThatNoLookShows_CountsForItsGpu) {
  state_.SeeXid({"GPU-0", 74, 12, 0}, 1000);
  Look(1001);
  EXPECT_FALSE(Only().healthy);
}

TEST_F(MigHealthTest, InstanceThatIsTheWholeGpu_TakesOutTheGpu) {
  RemoveAll();
  Divide(13, 0, {0, 8}, "MIG-all");
  Look(1001);
  state_.SeeXid({"GPU-0", 48, 13, 0}, 1002);
  EXPECT_FALSE(Only().healthy);
  EXPECT_THAT(Only().trouble, HasSubstr("MIG device MIG-all is out of order: XID 48"));
  EXPECT_EQ(Only().mig_profiles.size(), H100Profiles().size()) << "its container keeps what it has";
}

TEST_F(MigHealthTest, ContainedError_RepairThatWaitsForAResetDecides) {
  state_.SeeXid({"GPU-0", 94, 9, 0}, 1000);
  EXPECT_THAT(Starts("1g.10gb"), ElementsAre(0, 1, 2, 3, 4, 5, 6)) << "under suspicion";
  Look(1001, true);
  EXPECT_TRUE(Only().healthy);
  EXPECT_THAT(Starts("1g.10gb"), ElementsAre(0, 1, 2, 3, 4, 5));
  for (UnixSeconds now = 1010; now < 2000; now += 10) Look(now, true);
  EXPECT_THAT(Starts("1g.10gb"), ElementsAre(0, 1, 2, 3, 4, 5)) << "until the reset";
}

}  // namespace
}  // namespace hami::plugin
