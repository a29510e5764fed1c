// SPDX-License-Identifier: Apache-2.0
#include "simgpu/machine/presets.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

namespace simgpu {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

TEST(PresetsTest, GivenEveryModel_WhenLookedAt_ThenItsFiguresAreSane) {
  for (int i = 0; i < PresetCount(); ++i) {
    const DeviceSpec& s = PresetAt(i);
    SCOPED_TRACE(s.preset);
    EXPECT_EQ(&s, FindPreset(s.preset));
    EXPECT_GT(s.total_bytes, 14ull << 30);
    // What CUDA gets is 97 to 99.9 % of what NVML shows.
    EXPECT_GT(s.reserved_bytes, s.physical_bytes() / 1000);
    EXPECT_LT(s.reserved_bytes, s.physical_bytes() * 3 / 100);
    EXPECT_EQ(0u, s.max_threads_per_sm % s.warp_size);
    EXPECT_GE(s.max_threads_per_sm, s.max_threads_per_block);
    EXPECT_GE(s.shared_per_block_optin, s.shared_per_block);
    EXPECT_LE(s.shared_per_block_optin, s.shared_per_sm);
    EXPECT_GT(s.memory_bytes_per_s, s.pcie_bytes_per_s);
    EXPECT_GT(s.power_limit_w, s.power_min_w);
    EXPECT_GT(s.power_min_w, s.power_idle_w);
    EXPECT_EQ(0x10deu, s.pci_device_id & 0xffff);
    EXPECT_LE(s.nvlink_count, static_cast<std::uint32_t>(kMaxNvLinks));
    EXPECT_EQ(s.nvlink_count == 0, s.nvlink_bytes_per_s == 0);
  }
}

TEST(PresetsTest, GivenMigProfiles_WhenPlaced_ThenTheyFitTheirBoard) {
  for (int i = 0; i < PresetCount(); ++i) {
    const DeviceSpec& s = PresetAt(i);
    std::set<std::uint32_t> ids, numbers;
    std::uint32_t whole_memory = 0, whole_compute = 0;
    for (std::uint32_t p = 0; p < s.mig_profile_count; ++p) {
      whole_memory = std::max(whole_memory, s.mig[p].memory_slices);
      whole_compute = std::max(whole_compute, s.mig[p].compute_slices);
    }
    for (std::uint32_t p = 0; p < s.mig_profile_count; ++p) {
      const MigProfile& profile = s.mig[p];
      SCOPED_TRACE(std::string(s.preset) + " " + profile.name);
      EXPECT_TRUE(ids.insert(profile.id).second);
      EXPECT_TRUE(numbers.insert(profile.nvml_profile).second);
      EXPECT_EQ('0' + static_cast<char>(profile.compute_slices), profile.name[0]);
      EXPECT_LE(profile.sm_count * profile.max_instances, s.sm_count);
      EXPECT_LE(profile.compute_slices * profile.max_instances, whole_compute);
      EXPECT_LE((profile.memory_mib << 20) * profile.max_instances, s.total_bytes + 64 * kMiB);
      ASSERT_GT(profile.placement_count, 0u);
      for (std::uint32_t k = 0; k < profile.placement_count; ++k) {
        EXPECT_LE(profile.placement_start[k] + profile.memory_slices, whole_memory);
      }
    }
  }
}

TEST(PresetsTest, GivenBoardsAlone_WhenIdentified_ThenNoLinkLeadsAnywhere) {
  DeviceSpec alone = *FindPreset("H100"), one_of_two = alone;
  Identify(1, 0, 1, &alone);
  Identify(1, 0, 2, &one_of_two);
  EXPECT_EQ(LinkPeer::kNone, alone.nvlink[0].peer);
  EXPECT_EQ(LinkPeer::kSwitch, one_of_two.nvlink[17].peer);
}

TEST(PresetsTest, GivenSixteenBoards_WhenIdentified_ThenNoAddressOrNameShared) {
  std::set<std::string> uuids, serials;
  std::set<std::uint32_t> buses;
  for (int i = 0; i < kMaxDevices; ++i) {
    DeviceSpec s = *FindPreset("T4");
    Identify(7, i, kMaxDevices, &s);
    EXPECT_TRUE(uuids.insert(std::string(reinterpret_cast<const char*>(s.uuid), 16)).second);
    EXPECT_TRUE(serials.insert(s.serial).second);
    EXPECT_TRUE(buses.insert(s.pci_bus).second);
    EXPECT_LE(s.pci_bus, 0xffu);
  }
}

}  // namespace
}  // namespace simgpu
