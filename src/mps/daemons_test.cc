// SPDX-License-Identifier: Apache-2.0

#include "mps/daemons.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <sstream>

#include "mps/client.h"
#include "mps/testing/fake_control.h"

namespace hami::mps {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

class DaemonsTest : public testing::Test {
 protected:
  DaemonsTest() : folder_(fs::temp_directory_path() / ("hami-daemons-test-" + std::to_string(::getpid()))) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    options_.program = MakeFakeControl(folder_);
    options_.folder = folder_ / "mps";
    options_.every = milliseconds(50);
    options_.answer_within = milliseconds(500);
    options_.rules.patience = 1'000;
    options_.on_notice = [this](const std::string&, const Notice& notice) { notices_ += notice.reason + " "; };
    options_.on_change = [this] { ++changes_; };
  }
  ~DaemonsTest() override {
    {
      Daemons last(options_);
      last.WantNone();
      Until([&] { return last.AllStopped(); });
    }
    fs::remove_all(folder_);
  }
  template <typename Condition>
  static bool Until(Condition condition) {
    for (int i = 0; i < 500; ++i) {
      if (condition()) return true;
      ::usleep(20'000);
    }
    return false;
  }
  int PidOf(const std::string& uuid) const {
    std::stringstream text;
    text << std::ifstream(options_.folder + "/" + uuid + "/process").rdbuf();
    const auto process = ParseProcessFile(text.str());
    return process ? process->pid : 0;
  }

  const fs::path folder_;
  DaemonsOptions options_;
  std::string notices_;  // written by the supervising thread
  std::atomic<int> changes_ = 0;
};

TEST_F(DaemonsTest, EachGpuHasItsOwnAndItIsStartedWhenWanted) {
  Daemons daemons(options_);
  EXPECT_FALSE(daemons.Await("GPU-1", milliseconds(100)));
  daemons.Want("GPU-1", {25, 0});
  daemons.Want("GPU-2", {});
  ASSERT_TRUE(daemons.Await("GPU-1", milliseconds(5'000)));
  ASSERT_TRUE(daemons.Await("GPU-2", milliseconds(5'000)));
  EXPECT_NE(PidOf("GPU-1"), PidOf("GPU-2"));
  EXPECT_GE(changes_.load(), 2);
}

TEST_F(DaemonsTest, ANewcomerDoesNotLowerWhatOthersWerePromised) {
  Daemons daemons(options_);
  daemons.Want("GPU-1", {50, 1000});
  ASSERT_TRUE(daemons.Await("GPU-1", milliseconds(5'000)));
  daemons.WantAtLeast("GPU-1", {25, 2000});
  EXPECT_TRUE(Until([&] { return daemons.Look().at("GPU-1").limits == Limits{50, 2000}; }));
}

TEST_F(DaemonsTest, AKilledDaemonServesAgainAndTheOthersNeverStop) {
  Daemons daemons(options_);
  daemons.Want("GPU-1", {});
  daemons.Want("GPU-2", {});
  ASSERT_TRUE(daemons.Await("GPU-1", milliseconds(5'000)));
  ASSERT_TRUE(daemons.Await("GPU-2", milliseconds(5'000)));
  const int other = PidOf("GPU-2");
  ::kill(PidOf("GPU-1"), SIGKILL);
  ASSERT_TRUE(Until([&] { return daemons.Look().at("GPU-1").restarts == 1; }));
  EXPECT_TRUE(daemons.Await("GPU-1", milliseconds(5'000)));
  EXPECT_EQ(PidOf("GPU-2"), other);
  EXPECT_EQ(daemons.Look().at("GPU-2").restarts, 0U);
}

TEST_F(DaemonsTest, WhatAnEarlierLifeLeftAndNothingWantsEnds) {
  {
    Daemons before(options_);
    before.Want("GPU-1", {});
    before.Want("GPU-2", {});
    ASSERT_TRUE(before.Await("GPU-1", milliseconds(5'000)));
    ASSERT_TRUE(before.Await("GPU-2", milliseconds(5'000)));
  }
  const int wanted = PidOf("GPU-1");
  const int other = PidOf("GPU-2");
  // What containers can write is no daemon.
  fs::create_directories(options_.folder + "/shm");
  fs::copy_file(options_.folder + "/GPU-1/process", options_.folder + "/shm/process");
  Daemons daemons(options_);
  daemons.Want("GPU-1", {});
  daemons.EndOthers();
  EXPECT_TRUE(Until([&] { return ::kill(other, 0) != 0; }));
  EXPECT_TRUE(daemons.Await("GPU-1", milliseconds(5'000)));
  EXPECT_EQ(::kill(wanted, 0), 0);
  EXPECT_FALSE(daemons.Look().contains("shm"));
}

TEST_F(DaemonsTest, TheyOutliveTheirSupervisorAndAreFoundAgain) {
  int first = 0;
  {
    Daemons daemons(options_);
    daemons.Want("GPU-1", {});
    ASSERT_TRUE(daemons.Await("GPU-1", milliseconds(5'000)));
    first = PidOf("GPU-1");
  }
  Daemons daemons(options_);
  daemons.Want("GPU-1", {});
  ASSERT_TRUE(daemons.Await("GPU-1", milliseconds(5'000)));
  EXPECT_EQ(PidOf("GPU-1"), first);
  EXPECT_EQ(daemons.Look().at("GPU-1").restarts, 0U);
}

TEST_F(DaemonsTest, WantingNoneEndsThoseOfAnEarlierProcessToo) {
  {
    Daemons daemons(options_);
    daemons.Want("GPU-1", {});
    ASSERT_TRUE(daemons.Await("GPU-1", milliseconds(5'000)));
  }
  const int first = PidOf("GPU-1");
  Daemons daemons(options_);
  daemons.WantNone();
  EXPECT_FALSE(daemons.AllStopped());
  ASSERT_TRUE(Until([&] { return daemons.AllStopped(); }));
  daemons.WantNone();
  EXPECT_TRUE(daemons.AllStopped()) << "said again it is as true";
  EXPECT_TRUE(Until([&] { return ::kill(first, 0) != 0; }));
}

TEST_F(DaemonsTest, WhoWaitsInVainIsToldWhyAndWhereToLook) {
  fs::create_directories(options_.folder + "/GPU-1/pipe");
  std::ofstream(options_.folder + "/GPU-1/pipe/refuse-to-start") << "";
  Daemons daemons(options_);
  daemons.Want("GPU-1", {});
  const auto waited = daemons.Await("GPU-1", milliseconds(700));
  ASSERT_FALSE(waited);
  EXPECT_THAT(waited.error().message, HasSubstr("the MPS control daemon of GPU-1 does not serve: "));
  EXPECT_THAT(waited.error().hint, HasSubstr("/GPU-1/log"));
}

TEST(MpsClientTest, OnlyWhatIsLimitedIsSaid) {
  EXPECT_THAT(ClientEnvironment("/p", {1024, 25}),
              ElementsAre(Pair("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "25"),
                          Pair("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1024M"), Pair("CUDA_MPS_PIPE_DIRECTORY", "/p")));
  EXPECT_THAT(ClientEnvironment("/p", {0, 0}), ElementsAre(Pair("CUDA_MPS_PIPE_DIRECTORY", "/p")));
  EXPECT_THAT(ClientEnvironment("/p", {0, 100}), ElementsAre(Pair("CUDA_MPS_PIPE_DIRECTORY", "/p")));
}

}  // namespace
}  // namespace hami::mps
