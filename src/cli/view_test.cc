// SPDX-License-Identifier: Apache-2.0

#include "cli/view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "cli/ps.h"
#include "cli/smi.h"
#include "region/gpu_time.h"
#include "region/ledger.h"
#include "region/reader.h"
#include "region/region.h"

namespace hami::cli {
namespace {

using base::kGiB;
using testing::HasSubstr;
using testing::SizeIs;

TEST(Inventories, GivenProcessesOfEveryKind_WhenGathered_ThenEachCountsOnce) {
  using nvml::ProcessKind;
  const auto processes = Gather({{7, ProcessKind::kCompute, 2 * kGiB, {}, {}},
                                 {8, ProcessKind::kCompute, std::nullopt, {}, {}},
                                 {7, ProcessKind::kGraphics, 2 * kGiB, {}, {}},
                                 {9, ProcessKind::kGraphics, kGiB, {}, {}},
                                 {10, ProcessKind::kMps, kGiB, {}, {}}});
  std::uint64_t sum = 0;
  for (const GpuProcess& process : processes) sum += process.bytes;
  EXPECT_THAT(processes, SizeIs(4));
  EXPECT_EQ(sum, 4 * kGiB);
}

TEST(Inventories, GivenGpusThatCanNotBeShared_WhenAsked_ThenTheReason) {
  nvml::Device device;
  device.memory = nvml::Memory{80 * kGiB, 0, 80 * kGiB, {}};
  EXPECT_EQ(TroubleOf(device), "");
  device.mig_mode = nvml::MigMode{false, true};
  EXPECT_EQ(TroubleOf(device), "");
  device.mig_mode->current = true;
  EXPECT_THAT(TroubleOf(device), HasSubstr("MIG"));
  device.memory.reset();
  EXPECT_THAT(TroubleOf(device), HasSubstr("no memory of its own"));
  device.condition = nvml::Condition::kLost;
  device.trouble = "GPU is lost";
  EXPECT_EQ(TroubleOf(device), "does not answer: GPU is lost");
}

TEST(Inventories, DividedGpu_EachInstanceIsAGpuWithItsOwnProcesses) {
  nvml::Device device;
  device.index = 3;
  const nvml::Memory memory{10 * kGiB, 2 * kGiB, 8 * kGiB, {}};
  device.mig_devices = {{0, "MIG-a", "H100 MIG 1g.10gb", 7, 0, memory}, {1, "MIG-b", "H100 MIG 1g.10gb", 8, 0, {}}};
  const auto instances = InstancesOf(device, {{11, nvml::ProcessKind::kCompute, kGiB, 7, 0},
                                              {12, nvml::ProcessKind::kCompute, kGiB, 8, 0},
                                              {13, nvml::ProcessKind::kCompute, kGiB, {}, {}}});
  ASSERT_THAT(instances, SizeIs(2));
  EXPECT_EQ(instances[0].uuid, "MIG-a");
  EXPECT_EQ(instances[0].index, 3U);
  EXPECT_EQ(instances[0].total_bytes, 10 * kGiB);
  EXPECT_EQ(instances[0].used_bytes, 2 * kGiB);
  ASSERT_THAT(instances[0].processes, SizeIs(1));
  EXPECT_EQ(instances[0].processes[0].pid, 11);
  EXPECT_EQ(instances[0].trouble, "");
  EXPECT_THAT(instances[1].trouble, HasSubstr("memory"));
}

class Views : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/hami-view-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override {
    region::Detach(&attachment_);
    std::filesystem::remove_all(folder_);
  }

  std::string Path() const { return folder_ + "/region.cache"; }

  // A share of GPU-b with a limit of 3 GiB, in which this process has used 2 GiB and was refused once.
  StoredShare UsedShare() {
    region::Config config;
    config.device_count = 1;
    std::string("GPU-b").copy(config.devices[0].uuid, 8);
    config.devices[0].memory_limit = 3 * kGiB;
    config.devices[0].sm_limit = 30;
    config.flags = region::kFlagFixedDevices;
    EXPECT_EQ(region::Create(Path().c_str(), config), region::Status::kOk);
    EXPECT_EQ(region::Attach(&attachment_, Path().c_str(), config), region::Status::kOk);
    EXPECT_EQ(region::Reserve(&attachment_, 0, 2 * kGiB, region::Kind::kData), region::Status::kOk);
    EXPECT_EQ(region::Reserve(&attachment_, 0, 2 * kGiB, region::Kind::kData), region::Status::kOverLimit);
    region::NoteRefusal(&attachment_, 0);
    return {"train-1", Path(), Record()};
  }
  static ShareRecord Record() {
    ShareRecord record;
    record.name = "train-1";
    record.command = {"python3", "train.py"};
    record.grants = {{"GPU-b", 3 * kGiB, 3 * kGiB, 30}};
    record.created_at = 1000;
    return record;
  }
  static Inventory TwoGpus() {
    Inventory inventory;
    inventory.driver_version = "1.2";
    inventory.cuda_version = "12.9";
    for (unsigned i = 0; i < 2; ++i) {
      Gpu gpu;
      gpu.index = i;
      gpu.uuid = i == 0 ? "GPU-a" : "GPU-b";
      gpu.name = "Test";
      gpu.total_bytes = 80 * kGiB;
      gpu.used_bytes = i == 0 ? 0 : 7 * kGiB;
      inventory.gpus.push_back(gpu);
    }
    inventory.gpus[1].processes = {{::getpid(), 2 * kGiB}, {1, 5 * kGiB}};
    return inventory;
  }

  std::string folder_;
  region::Attachment attachment_;
};

TEST_F(Views, GivenShareInUse_WhenViewed_ThenRecordAndRegionJoined) {
  const Inventory inventory = TwoGpus();
  const auto views = ViewShares({UsedShare()}, &inventory);
  ASSERT_THAT(views, SizeIs(1));
  const ShareView& share = views[0];
  EXPECT_EQ(share.state, "running");
  ASSERT_THAT(share.devices, SizeIs(1));
  EXPECT_EQ(share.devices[0].gpu, 1u);
  EXPECT_EQ(share.devices[0].limit_bytes, 3 * kGiB);
  EXPECT_EQ(share.devices[0].used_bytes, 2 * kGiB);
  EXPECT_EQ(share.devices[0].peak_bytes, 2 * kGiB);
  EXPECT_EQ(share.devices[0].refusals, 1u);
  EXPECT_EQ(share.devices[0].cores, 30u);
  ASSERT_THAT(share.processes, SizeIs(1));
  EXPECT_EQ(share.processes[0].pid, ::getpid());
  EXPECT_THAT(share.processes[0].bytes, testing::ElementsAre(2 * kGiB));
}

TEST_F(Views, GivenProcessesInAndOutOfShares_ThenOnlyStrangersAreOutside) {
  const Inventory inventory = TwoGpus();
  const auto views = ViewShares({UsedShare()}, &inventory);
  const auto devices = DevicesOf(inventory, views);
  EXPECT_EQ(devices.at(0).outside_bytes, 0u);
  EXPECT_EQ(devices.at(1).outside_bytes, 5 * kGiB);
  const auto rooms = CountRoom(devices, HoldersOf(views).value());
  EXPECT_EQ(rooms.at(1).free_bytes, 72 * kGiB);
  EXPECT_EQ(rooms.at(1).free_cores, 70u);
}

TEST_F(Views, GivenRegionNamingStranger_WhenPlanned_ThenHeIsStillOutside) {
  const Inventory inventory = TwoGpus();
  const StoredShare share = UsedShare();
  // Without a token, as another library writes it, and with one that has all that the region can have.
  for (const std::uint64_t token : {std::uint64_t{0}, (std::uint64_t{99} << 22) | 1}) {
    region::Slot& forged = attachment_.region->slots[1];
    region::Store(attachment_.region->slot_count, 2);
    region::Store(forged.pid, 1);
    region::Store(forged.host_pid, 1);
    region::Store(forged.start_time, region::ProcessStartTime(1));
    region::Store(forged.token, token);
    EXPECT_EQ(DevicesOf(inventory, ViewShares({share}, &inventory)).at(1).outside_bytes, 5 * kGiB) << token;
  }
}

TEST_F(Views, GivenLimitBelowWhatIsHeld_WhenPlanned_ThenWhatIsHeldCounts) {
  StoredShare share = UsedShare();
  region::Store(attachment_.region->limit[0], kGiB);
  share.record->grants[0].limit_bytes = share.record->grants[0].reserved_bytes = kGiB;
  const auto reserved = [&] {
    return HoldersOf(ViewShares({share}, nullptr)).value().at(0).grants.at(0).reserved_bytes;
  };
  EXPECT_EQ(reserved(), 2 * kGiB);
  region::Refund(&attachment_, 0, 2 * kGiB, region::Kind::kData);
  EXPECT_EQ(reserved(), kGiB);
}

TEST_F(Views, GivenRegionGoneOrRubbish_ThenDamagedButItsPromiseCounts) {
  StoredShare share{"train-1", Path(), Record()};
  auto views = ViewShares({share}, nullptr);
  EXPECT_EQ(views.at(0).state, "damaged");
  ASSERT_TRUE(base::WriteNewFile(Path(), std::string(100, 'x'), 0600));
  views = ViewShares({share}, nullptr);
  EXPECT_EQ(views.at(0).state, "damaged");
  EXPECT_EQ(HoldersOf(views).value().at(0).grants.at(0).reserved_bytes, 3 * kGiB);
}

TEST_F(Views, GivenUnreadableRecord_WhenPlanned_ThenNothingIsSoldBlindly) {
  const StoredShare share{"x", Path(), base::Fail("spoilt")};
  EXPECT_FALSE(HoldersOf(ViewShares({share}, nullptr)));
}

TEST_F(Views, GivenUnreadableRecord_WhenShown_ThenNothingOfferedOrMadeUp) {
  const Inventory inventory = TwoGpus();
  const auto views = ViewShares({{"x", Path(), base::Fail("spoilt")}}, &inventory);
  for (const base::json::value& gpu : GpusToJson(inventory, views)) {
    EXPECT_EQ(gpu.at("free_bytes").to_number<std::uint64_t>(), 0u);
    EXPECT_EQ(gpu.at("free_cores_percent").to_number<unsigned>(), 0u);
    EXPECT_THAT(std::string(gpu.at("obstacle").as_string()), HasSubstr("share 'x' is damaged"));
  }
  std::string smi;
  for (const std::string& line : GpuLines(inventory, views, base::Terminal{})) smi += line + "\n";
  EXPECT_THAT(smi, HasSubstr("nothing is granted: share 'x' is damaged"));
  EXPECT_THAT(smi, testing::Not(HasSubstr("to be granted")));
  const base::json::array json = SharesToJson(views, 1065);
  const base::json::object& share = json.at(0).as_object();
  for (const char* unknown : {"created_at", "age_seconds", "priority", "oversubscribe"}) {
    EXPECT_FALSE(share.contains(unknown)) << unknown;
  }
}

TEST_F(Views, GivenRegionLargerThanPromised_WhenPlanned_ThenLargerCounts) {
  StoredShare share = UsedShare();
  region::Store(attachment_.region->limit[0], 10 * kGiB);
  EXPECT_EQ(HoldersOf(ViewShares({share}, nullptr)).value().at(0).grants.at(0).reserved_bytes, 10 * kGiB);
  region::Store(attachment_.region->limit[0], kGiB);
  EXPECT_EQ(HoldersOf(ViewShares({share}, nullptr)).value().at(0).grants.at(0).reserved_bytes, 3 * kGiB);
  region::Store(attachment_.region->limit[0], std::uint64_t{0});
  EXPECT_EQ(HoldersOf(ViewShares({share}, nullptr)).value().at(0).grants.at(0).reserved_bytes, ~std::uint64_t{0});
}

TEST_F(Views, GivenCoresOtherThanPromised_WhenPlanned_ThenLargerCounts) {
  StoredShare share = UsedShare();
  const auto reserved = [&] { return HoldersOf(ViewShares({share}, nullptr)).value().at(0).grants.at(0).cores; };
  EXPECT_EQ(reserved(), 30u);
  region::Store(attachment_.region->sm_limit[0], std::uint64_t{1});
  EXPECT_EQ(reserved(), 30u);
  region::Store(attachment_.region->sm_limit[0], std::uint64_t{60});
  EXPECT_EQ(reserved(), 60u);
  // 100 % is what a region without a limit says too: the record knows the difference.
  region::Store(attachment_.region->sm_limit[0], std::uint64_t{100});
  EXPECT_EQ(reserved(), 30u);
  EXPECT_EQ(ViewShares({share}, nullptr).at(0).devices.at(0).cores, 0u);
  share.record->grants[0].cores = 100;
  EXPECT_EQ(reserved(), 100u);
  EXPECT_EQ(ViewShares({share}, nullptr).at(0).devices.at(0).cores, 100u);
}

TEST_F(Views, GivenBurst_WhenShown_ThenTheRegionsBesideTheCores) {
  StoredShare share = UsedShare();
  std::uint32_t& burst = region::GpuTimeOf(attachment_.area)->devices[0].burst;
  const auto line = [&] { return ShareLines(ViewShares({share}, nullptr), 1065, base::Terminal{}).at(1); };
  EXPECT_THAT(line(), HasSubstr(" 30 % "));
  region::Store(burst, 80u);
  EXPECT_THAT(line(), HasSubstr(" 30-80 % "));
  EXPECT_EQ(
      SharesToJson(ViewShares({share}, nullptr), 0).at(0).at("devices").at(0).at("burst_percent").to_number<int>(), 80);
  share.record->grants[0].burst = 80;
  region::Store(burst, 1u);
  EXPECT_THAT(line(), HasSubstr(" 30 % "));
}

TEST_F(Views, GivenShare_WhenShown_ThenTablesAndJsonTellTheSame) {
  const Inventory inventory = TwoGpus();
  const auto views = ViewShares({UsedShare()}, &inventory);
  const auto lines = ShareLines(views, 1065, base::Terminal{});
  ASSERT_THAT(lines, SizeIs(3)) << "a heading, the share, its process";
  EXPECT_THAT(lines[1],
              testing::MatchesRegex("train-1 +1 +3 GiB +2 GiB +2 GiB +30 % +1 +1 +running +1m05s +python3 train.py"));
  EXPECT_THAT(lines[2], HasSubstr(std::to_string(::getpid())));
  const base::json::array json = SharesToJson(views, 1065);
  EXPECT_EQ(json.at(0).at("devices").at(0).at("peak_bytes").to_number<std::uint64_t>(), 2 * kGiB);
  EXPECT_EQ(json.at(0).at("age_seconds").to_number<int>(), 65);
  std::string smi;
  for (const std::string& line : GpuLines(inventory, views, base::Terminal{})) smi += line + "\n";
  EXPECT_THAT(smi, HasSubstr("train-1"));
  EXPECT_THAT(smi, HasSubstr("(outside)"));
  EXPECT_THAT(smi, HasSubstr("72 GiB"));
}

TEST_F(Views, GivenNoShares_WhenShown_ThenSaysHowToMakeOne) {
  EXPECT_THAT(ShareLines({}, 0, base::Terminal{}).at(0), HasSubstr("hami run"));
}

}  // namespace
}  // namespace hami::cli
