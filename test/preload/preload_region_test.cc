// SPDX-License-Identifier: Apache-2.0
//
// Region files that are not as they should be, and places where none can be made: the limit of the environment holds,
// and a line says so. Nothing else of the program is harmed.
#include <signal.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "region/ledger.h"
#include "region/region.h"
#include "test/preload/harness.h"

namespace preload {
namespace {

std::string Slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

hami::region::Config ConfigOf(const char* uuid, uint64_t limit) {
  hami::region::Config config;
  config.device_count = 1;
  std::strncpy(config.devices[0].uuid, uuid, hami::region::kUuidBytes - 1);
  config.devices[0].memory_limit = limit;
  return config;
}

// How a file can be that must never mean "no limit".
struct BadFile {
  const char* name;
  void (*make)(const std::string& path);
  int lines;  // that the program is told
};

class BadRegion : public Preload, public testing::WithParamInterface<BadFile> {};

TEST_P(BadRegion, GivenAFileThatIsNotAsItShouldBe_ThenTheLimitHolds) {
  GetParam().make(region());
  const Outcome outcome = Run({"total_is_limit"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), GetParam().lines) << outcome.err;
  EXPECT_TRUE(outcome.err.empty() || outcome.err.find(region()) != std::string::npos) << outcome.err;
}

void Patch(const std::string& path, std::streamoff offset, const std::string& bytes) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(offset);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

INSTANTIATE_TEST_SUITE_P(
    Files, BadRegion,
    testing::Values(
        BadFile{"other_gpu",
                [](const std::string& path) {
                  hami::region::Create(path.c_str(), ConfigOf("GPU-00000000-0000-0000-0000-00000000beef", 0));
                },
                2},
        BadFile{"other_gpu_with_a_limit",
                [](const std::string& path) {
                  hami::region::Create(path.c_str(),
                                       ConfigOf("GPU-00000000-0000-0000-0000-00000000beef", uint64_t{70} << 30));
                },
                1},
        BadFile{"without_limit",
                [](const std::string& path) { hami::region::Create(path.c_str(), hami::region::Config{}); }, 1},
        BadFile{"empty", [](const std::string& path) { std::ofstream file(path); }, 0},
        BadFile{"zeros",
                [](const std::string& path) {
                  std::ofstream(path).put('\0');
                  std::filesystem::resize_file(path, hami::region::kFileBytes);
                },
                0},
        BadFile{"cut_short",
                [](const std::string& path) {
                  hami::region::Create(path.c_str(), ConfigOf("", uint64_t{1} << 30));
                  std::filesystem::resize_file(path, 100'000);
                },
                1},
        BadFile{"garbage", [](const std::string& path) { std::ofstream(path) << std::string(3'000'000, 'x'); }, 1},
        BadFile{"names_of_garbage",
                [](const std::string& path) {
                  hami::region::Create(path.c_str(), ConfigOf("GPU-x", 0));
                  Patch(path, 56, std::string("\xff\xff\xff\xff\xff\xff\xff\xff", 8));
                  Patch(path, 64, std::string(1536, '\xee'));
                },
                2},
        BadFile{"a_folder", [](const std::string& path) { std::filesystem::create_directory(path); }, 1},
        BadFile{"a_link", [](const std::string& path) { std::filesystem::create_symlink("/etc/passwd", path); }, 1}),
    [](const testing::TestParamInfo<BadFile>& file) { return std::string(file.param.name); });

// Whoever comes next finds a file that is right.
TEST_F(Preload, GivenAFileOfOtherGpus_WhenReplaced_ThenTheNextIsToldNothing) {
  hami::region::Create(region().c_str(), ConfigOf("GPU-00000000-0000-0000-0000-00000000beef", uint64_t{70} << 30));
  EXPECT_EQ(Run({"total_is_limit"}).status, 0);
  Pass({"total_is_limit"});
  Pass({"plain_limit"});
}

// A shell that lets files grow to 512 bytes only, and then the guest.
TEST_F(Preload, GivenASmallLimitOnFiles_ThenOneLineAndTheProgramRuns) {
  ASSERT_EQ(Run({"total_is_limit"}).status, 0);  // the simulated machine's file
  std::filesystem::remove(region());
  const Outcome outcome =
      RunProgram("/bin/sh", {"-c", std::string("ulimit -f 1; exec '") + PRELOAD_GUEST + "' total_is_limit"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_NE(outcome.err.find("File too large"), std::string::npos) << outcome.err;
}

TEST_F(Preload, GivenADiskThatIsFull_ThenOneLineAndTheProgramRuns) {
  const std::string disk = folder() + "/disk";
  std::filesystem::create_directory(disk);
  if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=64k") != 0) GTEST_SKIP() << "no mounts here";
  const Outcome outcome = Run({"total_is_limit"}, {{"CUDA_DEVICE_MEMORY_SHARED_CACHE", disk + "/region.cache"}});
  mount("tmpfs", disk.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, "");
  const Outcome read_only = Run({"total_is_limit"}, {{"CUDA_DEVICE_MEMORY_SHARED_CACHE", disk + "/other.cache"}});
  umount(disk.c_str());
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("No space left on device"), std::string::npos) << outcome.err;
  EXPECT_EQ(read_only.status, 0) << read_only.err;
  EXPECT_NE(read_only.err.find("Read-only file system"), std::string::npos) << read_only.err;
}

// A daemon closes what it was started with, and opens its own: descriptor 2 is a file of data then.
TEST_F(Preload, GivenDaemonThatClosedDescriptors_ThenNoLineGoesIntoItsFiles) {
  const Outcome outcome =
      Run({"daemon_closes_all", folder() + "/data"},
          {{"CUDA_DEVICE_MEMORY_SHARED_CACHE", folder() + "/no/such/folder/region"}, {"CUDA_TASK_PRIORITY", "lots"}});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(Slurp(folder() + "/data"), "data");
}

// The share goes on in one account when the file is deleted under it.
TEST_F(Preload, GivenFileDeletedInUse_ThenNextIsRefusedWhatOthersHold) {
  const pid_t holder = Start({"hold", "419430400", folder() + "/held"});
  for (int i = 0; i < 30'000 && !std::filesystem::exists(folder() + "/held"); ++i) usleep(1000);
  std::filesystem::remove(region());
  Pass({"refused", "419430400"});
  kill(holder, SIGKILL);
  Wait(holder);
  Pass({"take", "419430400"});
}

}  // namespace
}  // namespace preload
