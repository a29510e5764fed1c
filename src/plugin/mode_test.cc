// SPDX-License-Identifier: Apache-2.0

#include "plugin/mode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace hami::plugin
