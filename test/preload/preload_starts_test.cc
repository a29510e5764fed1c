// SPDX-License-Identifier: Apache-2.0
//
// Processes that start at the same moment, where NVML shows their own pids and where it shows foreign ones: each is
// charged its own context, and what fits is granted. STARTS_ROUNDS is how often.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "region/ledger.h"
#include "test/preload/harness.h"

namespace preload {
namespace {

constexpr uint64_t kContext = uint64_t{300} << 20;

int Rounds(int otherwise) {
  const char* const text = std::getenv("STARTS_ROUNDS");
  return text == nullptr ? otherwise : std::atoi(text);
}

uint64_t Used(const std::string& path) {
  hami::region::Attachment region;
  if (hami::region::Open(&region, path.c_str()) != hami::region::Status::kOk) return 0;
  const uint64_t used = hami::region::Used(region, 0);
  hami::region::Detach(&region);
  return used;
}

// The parameter is what NVML adds to pids.
class Starts : public Preload, public testing::WithParamInterface<const char*> {
 protected:
  Starts() {
    environment_["SIMGPU_PID_OFFSET"] = GetParam();
    environment_["CUDA_DEVICE_MEMORY_LIMIT"] = "4g";
  }

  void Begin(const std::string& scenario, const std::vector<std::string>& rest, const Environment& extra = {}) {
    std::vector<std::string> arguments{scenario, "p" + std::to_string(processes_.size())};
    arguments.insert(arguments.end(), rest.begin(), rest.end());
    processes_.push_back(Start(arguments, extra));
  }
  void Say(const std::string& name) { std::ofstream(folder() + "/" + name).put('\n'); }
  size_t Count(const std::string& extension) {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder())) {
      count += entry.path().extension() == extension ? 1U : 0U;
    }
    return count;
  }
  // Until all processes have said one of two words.
  bool Await(const std::string& word, const std::string& other = ".none") {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (Count(word) + Count(other) < processes_.size()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return true;
  }
  // Lets them end, and the next round begin with nothing.
  void End() {
    Say("end");
    for (const pid_t pid : processes_) EXPECT_EQ(Wait(pid), 0);
    processes_.clear();
    for (const auto& entry : std::filesystem::directory_iterator(folder())) std::filesystem::remove(entry.path());
  }
  size_t processes() const { return processes_.size(); }

  void EightAskAtOnce() {
    for (int round = 0; round < Rounds(10); ++round) {
      for (int i = 0; i < 8; ++i) Begin("start_and_ask", {std::to_string(uint64_t{1500} << 20)});
      ASSERT_TRUE(Await(".up"));
      Say("go");
      ASSERT_TRUE(Await(".made"));
      Say("ask");
      ASSERT_TRUE(Await(".done", ".refused"));
      EXPECT_EQ(Count(".got"), 1u) << "round " << round;
      EXPECT_EQ(Used(region()), 8 * kContext + (uint64_t{1500} << 20));
      End();
    }
  }

 private:
  std::vector<pid_t> processes_;
};

TEST_P(Starts, GivenEightAtOnce_ThenEachIsChargedItsOwnContext) {
  for (int round = 0; round < Rounds(5); ++round) {
    for (int i = 0; i < 8; ++i) Begin("start_beside", {});
    ASSERT_TRUE(Await(".up"));
    Say("go");
    ASSERT_TRUE(Await(".made"));
    EXPECT_EQ(Used(region()), 8 * kContext) << "round " << round;
    End();
  }
}

// A first context has all of it in reserve: a process finds itself among foreign pids with what the context leaves
// over.
TEST_P(Starts, GivenLittleRoom_WhenAModuleIsUnloaded_ThenUncharged) {
  Begin("start_and_unload", {}, {{"CUDA_DEVICE_MEMORY_LIMIT", "400m"}});
  ASSERT_TRUE(Await(".made"));
  EXPECT_EQ(Used(region()), kContext);
  End();
}

TEST_P(Starts, GivenFourContainersAtOnce_ThenEachHasOneContext) {
  for (int round = 0; round < Rounds(5); ++round) {
    for (int i = 0; i < 4; ++i) {
      Begin("start_beside", {},
            {{"CUDA_DEVICE_MEMORY_SHARED_CACHE", folder() + "/container" + std::to_string(i) + ".cache"}});
    }
    ASSERT_TRUE(Await(".up"));
    Say("go");
    ASSERT_TRUE(Await(".made"));
    for (int i = 0; i < 4; ++i) EXPECT_EQ(Used(folder() + "/container" + std::to_string(i) + ".cache"), kContext);
    End();
  }
}

// 2,400 MiB of contexts and 1,500 fit into 4,096, and nothing more.
TEST_P(Starts, GivenEightThatAskAtOnce_ThenExactlyOneIsGranted) { EightAskAtOnce(); }

// The same on a driver whose memory comes in blocks of 2 MiB.
TEST_P(Starts, GivenEightThatAskForBlocks_ThenExactlyOneIsGranted) {
  std::ofstream(folder() + ".conf") << "option context_mib=300 host_percent=0\n";
  environment_["SIMGPU_PROFILE"] = "h200";
  environment_["SIMGPU_CONFIG"] = folder() + ".conf";
  EightAskAtOnce();
  std::filesystem::remove(folder() + ".conf");
}

// In containers that have no more than what a first context has in reserve, beside one that holds nearly as much and
// one that takes and gives back more. Where devices are named, NVML is opened beside cuInit.
TEST_P(Starts, GivenLargeNeighbours_ThenAContextsOwnSizeCounts) {
  const Outcome listed = Run({"print_uuids"}, {{"LD_PRELOAD", "-"}});
  ASSERT_TRUE(listed.ok()) << listed.err;
  Environment small{{"CUDA_DEVICE_MEMORY_LIMIT_0", "512m"},
                    {"NVIDIA_VISIBLE_DEVICES", listed.out.substr(0, listed.out.find('\n'))}};
  Say("go");
  Say("ask");
  Begin("start_and_ask", {std::to_string(uint64_t{208} << 20)});
  Begin("start_and_churn", {std::to_string(uint64_t{1500} << 20)});
  ASSERT_TRUE(Await(".made"));
  for (int round = 0; round < Rounds(20); ++round) {
    const std::string cache = folder() + "/small" + std::to_string(round) + ".cache";
    small["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = cache;
    Begin("start_and_unload", {}, small);
    ASSERT_TRUE(Await(".made"));
    EXPECT_EQ(Used(cache), kContext) << "round " << round;
  }
  End();
}

// What seven that start hold in reserve for a moment refuses nobody: with their contexts it fits to the last byte.
TEST_P(Starts, GivenAllThatIsLeft_WhenAskedForWhileOthersStart_ThenGranted) {
  for (int round = 0; round < Rounds(5); ++round) {
    Begin("start_and_ask", {std::to_string((uint64_t{4} << 30) - 8 * kContext)});
    ASSERT_TRUE(Await(".up"));
    Say("go");
    ASSERT_TRUE(Await(".made"));
    std::filesystem::remove(folder() + "/go");
    for (int i = 1; i < 8; ++i) Begin("start_beside", {});
    ASSERT_TRUE(Await(".up"));
    Say("go");
    Say("ask");
    ASSERT_TRUE(Await(".made"));
    while (Count(".done") + Count(".refused") == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(Count(".got"), 1u) << "round " << round;
    EXPECT_EQ(Used(region()), uint64_t{4} << 30);
    End();
  }
}

INSTANTIATE_TEST_SUITE_P(Pids, Starts, testing::Values("0", "100000"),
                         [](const testing::TestParamInfo<const char*>& offset) {
                           return offset.param[0] == '0' ? "own" : "foreign";
                         });

}  // namespace
}  // namespace preload
