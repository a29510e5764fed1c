// SPDX-License-Identifier: Apache-2.0

#include "mps/control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <sstream>
#include <thread>

#include "mps/testing/fake_control.h"

namespace hami::mps {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class ControlTest : public testing::Test {
 protected:
  ControlTest() : folder_(fs::temp_directory_path() / ("hami-mps-test-" + std::to_string(::getpid()))) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    place_ = {MakeFakeControl(folder_), "GPU-1", folder_ / "gpu"};
  }
  ~ControlTest() override {
    (void)Control(place_).Kill();
    fs::remove_all(folder_);
  }

  std::string Read(const std::string& name) const {
    std::stringstream text;
    text << std::ifstream(place_.Pipe() + "/" + name).rdbuf();
    return text.str();
  }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(place_.Pipe() + "/" + name) << text;
  }
  // Tends until CONDITION holds, for 10 s at most.
  template <typename Condition>
  bool TendUntil(const Wanted& wanted, Condition condition) {
    const Control control(place_, std::chrono::milliseconds(500));
    const Millis end = Now() + 10'000;
    while (Now() < end) {
      for (Notice& notice : Tend(control, wanted, memory_, Now(), rules_)) notices_.push_back(std::move(notice));
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return false;
  }
  int DaemonPid() const {
    const auto seen = ParseProcessFile([&] {
      std::stringstream text;
      text << std::ifstream(place_.ProcessFile()).rdbuf();
      return text.str();
    }());
    return seen ? seen->pid : 0;
  }

  const fs::path folder_;
  Place place_;
  Memory memory_;
  Rules rules_{.patience = 1'500, .first_wait = 100, .longest_wait = 400};
  std::vector<Notice> notices_;
};

TEST_F(ControlTest, ADaemonIsStartedForItsGpuAndToldItsLimits) {
  ASSERT_TRUE(TendUntil({true, {25, 1024}}, [&] { return Serves(memory_); })) << memory_.trouble;
  EXPECT_EQ(Read("devices"), "GPU-1\n");
  EXPECT_THAT(Read("commands"), HasSubstr("set_default_active_thread_percentage 25\n"));
  EXPECT_THAT(Read("commands"), HasSubstr("set_default_device_pinned_mem_limit 0 1024M\n"));
  EXPECT_EQ(fs::status(place_.Pipe()).permissions() & fs::perms::mask, fs::perms::all | fs::perms::sticky_bit);
}

TEST_F(ControlTest, ServersAndClientsAreSeenAndTold) {
  ASSERT_TRUE(TendUntil({true, {}}, [&] { return Serves(memory_); }));
  Write("answer-get_server_list", "100\n");
  Write("answer-get_client_list_100", "200\n201\n");
  Write("answer-get_server_status_100", "ACTIVE\n");
  ASSERT_TRUE(TendUntil({true, {50, 0}}, [&] { return memory_.servers.size() == 1 && memory_.limits.percent == 50; }));
  EXPECT_THAT(memory_.servers[0].clients, ElementsAre(200, 201));
  EXPECT_THAT(Read("commands"), HasSubstr("set_active_thread_percentage 100 50\n"));
  Write("answer-get_server_status_100", "FAULT\n");
  EXPECT_TRUE(TendUntil({true, {50, 0}}, [&] { return memory_.state == State::kFaulted; }));
}

TEST_F(ControlTest, AKilledDaemonIsStartedAnew) {
  ASSERT_TRUE(TendUntil({true, {}}, [&] { return Serves(memory_); }));
  const int first = DaemonPid();
  ASSERT_GT(first, 0);
  ::kill(first, SIGKILL);
  ASSERT_TRUE(TendUntil({true, {}}, [&] { return memory_.restarts == 1 && Serves(memory_); })) << memory_.trouble;
  EXPECT_NE(DaemonPid(), first);
  ASSERT_FALSE(notices_.empty());
  EXPECT_EQ(notices_.front().reason, "MpsDaemonDown");
}

TEST_F(ControlTest, ADaemonOfAnEarlierProcessIsFoundAgain) {
  ASSERT_TRUE(TendUntil({true, {}}, [&] { return Serves(memory_); }));
  const int first = DaemonPid();
  memory_ = {};
  ASSERT_TRUE(TendUntil({true, {}}, [&] { return Serves(memory_); }));
  EXPECT_EQ(DaemonPid(), first);
}

TEST_F(ControlTest, ADaemonThatHangsIsKilledAndStartedAnew) {
  ASSERT_TRUE(TendUntil({true, {}}, [&] { return Serves(memory_); }));
  const int first = DaemonPid();
  Write("silent", "");
  ASSERT_TRUE(TendUntil({true, {}}, [&] { return memory_.state == State::kDown; }));
  fs::remove(place_.Pipe() + "/silent");
  ASSERT_TRUE(TendUntil({true, {}}, [&] { return Serves(memory_); })) << memory_.trouble;
  EXPECT_NE(DaemonPid(), first);
}

TEST_F(ControlTest, ADaemonThatCannotStartSaysWhere) {
  fs::create_directories(place_.Pipe());
  Write("refuse-to-start", "");
  ASSERT_TRUE(TendUntil({true, {}}, [&] { return memory_.failures >= 3; }));
  EXPECT_FALSE(Serves(memory_));
  EXPECT_FALSE(memory_.trouble.empty());
  std::stringstream log;
  log << std::ifstream(place_.Log() + "/output.log").rdbuf();
  EXPECT_THAT(log.str(), HasSubstr("no such GPU"));
}

TEST_F(ControlTest, AnUnwantedDaemonQuits) {
  ASSERT_TRUE(TendUntil({true, {}}, [&] { return Serves(memory_); }));
  ASSERT_TRUE(TendUntil({false, {}}, [&] { return memory_.state == State::kStopped; }));
  EXPECT_FALSE(fs::exists(place_.Pipe() + "/daemon"));
}

TEST_F(ControlTest, AnAnswerThatIsNoListIsNoAnswer) {
  ASSERT_TRUE(TendUntil({true, {}}, [&] { return Serves(memory_); }));
  Write("answer-get_server_list", "\x1b[2Jowned\n");
  const Seen seen = Control(place_).Look();
  EXPECT_FALSE(seen.answers);
  EXPECT_THAT(seen.trouble, HasSubstr("get_server_list: not a list of process ids: ?[2Jowned"));
}

TEST_F(ControlTest, AnotherProcessWithTheSameIdIsLeftAlone) {
  fs::create_directories(place_.folder);
  std::ofstream(place_.ProcessFile()) << ProcessFileText({::getpid(), 1});
  EXPECT_TRUE(Control(place_).Kill());
  EXPECT_FALSE(Control(place_).Look().process);
}

TEST(FindProgramTest, SaysWhatToInstall) {
  const auto missing = FindProgram("no-such-mps-control");
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().hint, HasSubstr("NVIDIA's driver"));
  EXPECT_EQ(FindProgram("/bin/sh").value(), "/bin/sh");
  EXPECT_THAT(FindProgram("sh").value(), HasSubstr("/sh"));
}

}  // namespace
}  // namespace hami::mps
