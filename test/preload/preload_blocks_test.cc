// SPDX-License-Identifier: Apache-2.0
// The ledger in the driver's blocks, on drivers that take blocks of 2 MiB and of 512 bytes. BLOCKS_OPERATIONS is how
// many there are of a seed.
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "test/preload/harness.h"

namespace preload {
namespace {

std::string Operations() {
  const char* const text = std::getenv("BLOCKS_OPERATIONS");
  return text == nullptr ? "20000" : text;
}

class Blocks : public Preload, public testing::WithParamInterface<const char*> {
 protected:
  Blocks() {
    environment_["SIMGPU_PROFILE"] = GetParam();
    environment_["CUDA_DEVICE_MEMORY_LIMIT"] = "4g";
    std::ofstream(folder() + "/fast.conf") << "option host_percent=0 nvml_percent=0\n";
    environment_["SIMGPU_CONFIG"] = folder() + "/fast.conf";
  }
};

TEST_P(Blocks, GivenAnySizes_ThenTheCountIsNeverBelowTheDrivers) {
  for (const char* seed : {"1", "2"}) Pass({"any_sizes", Operations(), seed, "1"});
}

TEST_P(Blocks, GivenThreadsInOneBlock_ThenTheCountIsNeverBelow) {
  for (const char* seed : {"3", "4"}) Pass({"any_sizes", Operations(), seed, "4"});
}

TEST_P(Blocks, GivenPlainMemory_ThenTheCountIsTheDrivers) { Pass({"blocks_agree"}); }

TEST_P(Blocks, GivenAProcessKilledAtAnyMoment_ThenItsBlocksCountNoMore) {
  for (unsigned ms = 20; ms < 200; ms += 37) {
    const pid_t pid = Start({"any_sizes", "100000000", std::to_string(ms), "4"});
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    kill(pid, SIGKILL);
    EXPECT_EQ(Wait(pid), SIGKILL);
    Pass({"blocks_agree"});
  }
}

TEST_P(Blocks, GivenSizesAsPyTorchs_Then99PercentOfTheLimitIsUsable) { Pass({"usable_to_99_percent"}); }

INSTANTIATE_TEST_SUITE_P(Profiles, Blocks, testing::Values("h200", "ideal"),
                         [](const testing::TestParamInfo<const char*>& profile) { return profile.param; });

class WholeBlocks : public Blocks {};

TEST_P(WholeBlocks, GivenNoRoomForABlock_WhenASmallOneFitsIntoOne_ThenGranted) {
  Pass({"small_one_into_a_block_that_is_there"});
}

TEST_P(WholeBlocks, GivenStreamsGraphsKernels_WhenSynchronised_ThenGrowthCounts) {
  Pass({"context_grows_beside_allocations"});
}

INSTANTIATE_TEST_SUITE_P(Profiles, WholeBlocks, testing::Values("h200"),
                         [](const testing::TestParamInfo<const char*>& profile) { return profile.param; });

}  // namespace
}  // namespace preload
