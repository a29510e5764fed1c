// SPDX-License-Identifier: Apache-2.0

#include "plugin/mode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "plugin/mode_keeper.h"

namespace hami::plugin {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr auto kCore = OperatingMode::kHamiCore;
constexpr auto kMig = OperatingMode::kMig;
constexpr auto kMps = OperatingMode::kMps;

TEST(Mode, NobodyHolds_EveryStepThroughHamiCoreIsTaken) {
  for (const OperatingMode other : {kMig, kMps}) {
    EXPECT_EQ(NextMode(kCore, other, {}), (ModeVerdict{other, ""}));
    EXPECT_EQ(NextMode(other, kCore, {}), (ModeVerdict{kCore, ""}));
  }
}

TEST(Mode, MigAndMps_NeverFollowEachOther) {
  for (const auto& [from, to] : {std::pair(kMig, kMps), std::pair(kMps, kMig)}) {
    const ModeVerdict verdict = NextMode(from, to, {});
    EXPECT_EQ(verdict.mode, from);
    EXPECT_THAT(verdict.refusal, HasSubstr("hami-core first"));
    EXPECT_FALSE(MayFollow(from, to));
  }
}

TEST(Mode, Held_StaysAndSaysByWhom) {
  const ModeVerdict verdict = NextMode(kCore, kMig, {"pod a/b", "process 7 on GPU-x", "pod c/d", "pod e/f"});
  EXPECT_EQ(verdict.mode, kCore);
  EXPECT_THAT(verdict.refusal, HasSubstr("from hami-core to mig"));
  EXPECT_THAT(verdict.refusal, HasSubstr("pod a/b, process 7 on GPU-x, pod c/d and 1 more"));
  EXPECT_THAT(NextMode(kMig, kCore, {"pod a/b"}).refusal, Not(HasSubstr("more")));
}

TEST(Mode, AsWanted_HoldersDoNotMatter) {
  for (const OperatingMode mode : {kCore, kMig, kMps}) {
    EXPECT_EQ(NextMode(mode, mode, {"pod a/b"}), (ModeVerdict{mode, ""}));
  }
}

TEST(Mode, NameAndFile_ReadBack) {
  for (const OperatingMode mode : {kCore, kMig, kMps}) {
    EXPECT_EQ(ParseMode(ModeName(mode)), mode);
    EXPECT_EQ(DecodeModeFile(EncodeModeFile(mode)), mode);
  }
  for (const char* text : {"", "mig", "MIG\n", "mig\n\n", "mig \n", "fast\n"}) {
    EXPECT_EQ(DecodeModeFile(text), std::nullopt) << text;
  }
}

// A node whose plugin dies and comes back. `traces` are what the modes left on the GPUs.
class ModeKeeperTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("hami-mode-test-" + std::to_string(::getpid()));
    std::filesystem::remove_all(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  ModeKeeper NewLife() {
    ModeSteps steps;
    steps.enter = [this](OperatingMode mode) -> base::Status {
      traces_.insert(mode);
      if (refuse_) return base::Fail("a GPU waits for its reset");
      return {};
    };
    steps.leave = [this](OperatingMode mode) -> base::Status {
      if (refuse_) return base::Fail("in use");
      traces_.erase(mode);
      return {};
    };
    ModeKeeper keeper(folder_ / "mode", std::move(steps));
    EXPECT_TRUE(keeper.Start());
    return keeper;
  }
  static std::vector<std::string> Nobody() { return {}; }

  std::filesystem::path folder_;
  std::set<OperatingMode> traces_;
  bool refuse_ = false;
};

TEST_F(ModeKeeperTest, Restart_ModeAndItsTracesAgree) {
  auto keeper = NewLife();
  EXPECT_EQ(keeper.in_force(), kCore);
  EXPECT_TRUE(keeper.Look(kMig, Nobody).changed);
  EXPECT_EQ(NewLife().in_force(), kMig);
  EXPECT_TRUE(traces_.contains(kMig));
  auto next = NewLife();
  EXPECT_TRUE(next.Look(kCore, Nobody).changed);
  EXPECT_THAT(traces_, IsEmpty());
  EXPECT_EQ(NewLife().in_force(), kCore);
}

TEST_F(ModeKeeperTest, TracesLostInARestart_AreMadeAgain) {
  auto keeper = NewLife();
  keeper.Look(kMig, Nobody);
  traces_.clear();  // the machine was restarted
  auto next = NewLife();
  EXPECT_FALSE(next.Look(kMig, Nobody).changed);
  EXPECT_TRUE(traces_.contains(kMig));
}

TEST_F(ModeKeeperTest, HeldOrRefused_StaysAndSaysWhy) {
  auto keeper = NewLife();
  keeper.Look(kMig, Nobody);
  EXPECT_THAT(keeper.Look(kCore, [] { return std::vector<std::string>{"pod a/b"}; }).refusal, HasSubstr("pod a/b"));
  EXPECT_THAT(keeper.Look(kMps, Nobody).refusal, HasSubstr("hami-core first"));
  refuse_ = true;
  const auto outcome = keeper.Look(kCore, Nobody);
  EXPECT_FALSE(outcome.changed);
  EXPECT_THAT(outcome.refusal, HasSubstr("in use"));
  EXPECT_EQ(NewLife().in_force(), kMig);
  EXPECT_THAT(keeper.Look(kMig, Nobody).trouble, HasSubstr("waits for its reset"));
}

// Daemons that take a moment to end, a GPU that waits for a reset: entered again, they would never be done.
TEST_F(ModeKeeperTest, LeftInSeveralLooks_IsNotEnteredMeanwhile) {
  auto keeper = NewLife();
  keeper.Look(kMps, Nobody);
  refuse_ = true;
  traces_.clear();
  EXPECT_THAT(keeper.Look(kCore, Nobody).refusal, HasSubstr("in use"));
  EXPECT_THAT(traces_, IsEmpty());
  refuse_ = false;
  EXPECT_TRUE(keeper.Look(kCore, Nobody).changed);
  keeper.Look(kMps, Nobody);
  keeper.Look(kCore, [] { return std::vector<std::string>{"pod a/b"}; });
  EXPECT_TRUE(traces_.contains(kMps)) << "what is held holds";
}

TEST_F(ModeKeeperTest, FileThatSaysNothing_IsAnErrorAndStays) {
  std::filesystem::create_directories(folder_);
  std::ofstream(folder_ / "mode") << "fast\n";
  ModeKeeper keeper(folder_ / "mode", {});
  const auto started = keeper.Start();
  ASSERT_FALSE(started);
  EXPECT_THAT(started.error().message, HasSubstr("fast"));
  EXPECT_THAT(started.error().hint, HasSubstr("hami-core, mig or mps"));
}

}  // namespace
}  // namespace hami::plugin
