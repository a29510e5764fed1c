// SPDX-License-Identifier: Apache-2.0
// Programs of a share that do not find its variables in their environment, or others.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "region/ledger.h"
#include "region/region.h"
#include "test/preload/harness.h"

namespace preload {
namespace {

namespace fs = std::filesystem;

// A folder as the device plugin mounts it: the library, the region, and beside them what the share may have. The
// environment says nothing of all that.
class Mounted : public Preload {
 protected:
  void SetUp() override {
    mount_ = folder() + "/vgpu";
    fs::create_directory(mount_);
    fs::copy_file(PRELOAD_LIBRARY, mount_ + "/libvgpu.so");
    environment_["LD_PRELOAD"] = mount_ + "/libvgpu.so";
    environment_["CUDA_DEVICE_MEMORY_LIMIT"] = "-";
    environment_["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = "-";
  }
  std::string Cache() const { return mount_ + "/r.cache"; }
  void Say(const std::string& text) { std::ofstream(mount_ + "/share.env") << text; }
  void SayLimit() { Say("CUDA_DEVICE_MEMORY_SHARED_CACHE=" + Cache() + "\nCUDA_DEVICE_MEMORY_LIMIT_0=1024m\n"); }

  std::string mount_;
};

TEST_F(Mounted, EmptyEnvironment_ThenLimitAndRegionAreKnown) {
  SayLimit();
  Pass({"plain_limit"});
  EXPECT_TRUE(fs::exists(Cache()));
}

TEST_F(Mounted, EnvironmentThatWantsMore_ThenItIsNotObeyed) {
  SayLimit();
  Pass({"plain_limit"}, {{"CUDA_DEVICE_MEMORY_LIMIT", "0"}, {"CUDA_DEVICE_MEMORY_LIMIT_0", "8g"}});
  fs::remove(Cache());
  const std::string own = folder() + "/own.cache";
  const Outcome outcome = Run({"plain_limit"}, {{"CUDA_DEVICE_MEMORY_SHARED_CACHE", own}, {"HAMI_FAIL_OPEN", "true"}});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("CUDA_DEVICE_MEMORY_SHARED_CACHE=" + own + ": not this share's"), std::string::npos)
      << outcome.err;
  EXPECT_FALSE(fs::exists(own));
}

TEST_F(Mounted, EnvironmentThatWantsLess_ThenItGetsLess) {
  Say("CUDA_DEVICE_MEMORY_SHARED_CACHE=" + Cache() + "\nCUDA_DEVICE_MEMORY_LIMIT_0=2g\n");
  Pass({"plain_limit"}, {{"CUDA_DEVICE_MEMORY_LIMIT", "1g"}});
}

TEST_F(Mounted, LessOfAShareThatIsThere_ThenThisProgramAloneHasLess) {
  constexpr std::uint64_t kShare = std::uint64_t{2} << 30;
  Say("CUDA_DEVICE_MEMORY_SHARED_CACHE=" + Cache() + "\nCUDA_DEVICE_MEMORY_LIMIT_0=2g\n");
  for (int round = 0; round < 2; ++round) {  // as the first in the region, and as one of many
    Pass({"plain_limit"}, {{"CUDA_DEVICE_MEMORY_LIMIT", "1g"}});
    hami::region::Attachment look;
    ASSERT_EQ(hami::region::Open(&look, Cache().c_str()), hami::region::Status::kOk);
    EXPECT_EQ(hami::region::Limit(look, 0), kShare);
    hami::region::Detach(&look);
  }
}

TEST_F(Mounted, LessGpuTimeOfAShareThatIsThere_ThenThisProgramHasLess) {
  Say("CUDA_DEVICE_MEMORY_SHARED_CACHE=" + Cache() + "\nCUDA_DEVICE_SM_LIMIT=70\n");
  for (int round = 0; round < 2; ++round) {  // as the first in the region, and as one of many
    Pass({"paced", "streams", "25", "4"}, {{"CUDA_DEVICE_SM_LIMIT", "25"}});
    hami::region::Attachment look;
    ASSERT_EQ(hami::region::Open(&look, Cache().c_str()), hami::region::Status::kOk);
    EXPECT_EQ(hami::region::SmLimit(look, 0), 70u);
    hami::region::Detach(&look);
  }
}

TEST_F(Mounted, RegionThatCannotBeHad_ThenTheSharesLimitHolds) {
  Say("CUDA_DEVICE_MEMORY_SHARED_CACHE=/no/such/folder/r.cache\nCUDA_DEVICE_MEMORY_LIMIT_0=1g\n");
  EXPECT_EQ(Run({"plain_limit"}, {{"CUDA_DEVICE_MEMORY_LIMIT", "8g"}}).status, 0);
}

TEST_F(Mounted, ShareFileThatCannotBeRead_ThenNothingIsGranted) {
  fs::create_directory(mount_ + "/share.env");
  const Outcome outcome = Run({"refused_for_ever"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.err.find(mount_ + "/share.env: Is a directory"), std::string::npos) << outcome.err;
}

// HAMi's plugin: no such file, but the region is in the folder.
TEST_F(Mounted, OnlyARegionBesideTheLibrary_ThenItsLimitHolds) {
  hami::region::Config config;
  config.devices[0].memory_limit = uint64_t{1} << 30;
  ASSERT_EQ(hami::region::Create(Cache().c_str(), config), hami::region::Status::kOk);
  Pass({"plain_limit"});
}

// A process of `hami run` that has kept the library and lost the variables.
TEST_F(Mounted, LifeLineOfAShare_ThenItsLimitHolds) {
  const std::string share = folder() + "/share";
  fs::create_directory(share);
  std::ofstream(share + "/alive") << "";
  std::ofstream(share + "/share.env") << "CUDA_DEVICE_MEMORY_SHARED_CACHE=" << share
                                      << "/region.cache\nCUDA_DEVICE_MEMORY_LIMIT_0=1g\n";
  const int life_line = open((share + "/alive").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(dup2(life_line, 100), 100);
  close(life_line);
  Pass({"plain_limit"});
  Pass({"plain_limit"}, {{"CUDA_DEVICE_MEMORY_LIMIT_0", "8g"}});
  close(100);
  EXPECT_TRUE(fs::exists(share + "/region.cache"));
}

TEST_F(Preload, ProgramThatChangesItsEnvironment_ThenTheLimitHolds) {
  Pass({"changed_own_environment"});
  EXPECT_TRUE(fs::exists(region()));
  Pass({"changed_own_environment", "CUDA_DEVICE_MEMORY_LIMIT=0", "CUDA_DEVICE_MEMORY_LIMIT_0=8g"});
}

}  // namespace
}  // namespace preload
