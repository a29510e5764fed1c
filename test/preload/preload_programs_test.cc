// SPDX-License-Identifier: Apache-2.0
// Programs and drivers of other kinds than most: what they replace, are built against, or hide behind.
#include <filesystem>

#include "test/preload/harness.h"

namespace preload {
namespace {

// WSL2's libcuda.so.1.
TEST_F(Preload, DriverThatOnlyLoadsAnother_ThenTheLimitHolds) {
  const std::string path = std::string(PRELOAD_LOADER_FOLDER) + ":" + PRELOAD_DRIVER_FOLDER;
  const Outcome outcome = RunProgram(PRELOAD_LATE, {}, {{"LD_LIBRARY_PATH", path}});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
}

class Replacing : public Preload, public testing::WithParamInterface<const char*> {};

// The sanitizers want to be first among all libraries, which nothing preloaded lets them be; they can be asked not to.
TEST_P(Replacing, FunctionsOfTheCLibrary_ThenTheLimitHolds) {
  const Outcome outcome =
      RunProgram(std::string(PRELOAD_PROGRAMS "/preload_") + GetParam(), {},
                 {{"ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=0:protect_shadow_gap=0"}});
  EXPECT_EQ(outcome.status, 0) << outcome.err << outcome.out;
}

INSTANTIATE_TEST_SUITE_P(Programs, Replacing, testing::Values("interposer", "address", "thread", "undefined"),
                         [](const testing::TestParamInfo<const char*>& program) { return std::string(program.param); });

class Weak : public Preload, public testing::WithParamInterface<const char*> {};

// Such a program finds nothing, or all that the driver has.
TEST_P(Weak, ReferencesWithoutADriver_ThenAllAreNull) {
  const Outcome outcome = RunProgram(std::string(PRELOAD_PROGRAMS "/preload_") + GetParam(), {"none"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
}

TEST_P(Weak, ReferencesWithADriver_ThenTheLimitHolds) {
  const std::string driver = PRELOAD_DRIVER_FOLDER "/libcuda.so.1";
  const Outcome outcome = RunProgram(std::string(PRELOAD_PROGRAMS "/preload_") + GetParam(), {"all"},
                                     {{"LD_PRELOAD", PRELOAD_LIBRARY ":" + driver}});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
}

INSTANTIATE_TEST_SUITE_P(Programs, Weak, testing::Values("weak", "weak_lazy"),
                         [](const testing::TestParamInfo<const char*>& program) { return std::string(program.param); });

TEST_F(Preload, ProgramOfMusl_ThenItStartsAndTheLimitHolds) {
  const std::string folder = PRELOAD_MUSL_FOLDER;
  if (folder.empty()) GTEST_SKIP() << "there is no musl-gcc; Debian's package musl-tools has it";
  const Outcome outcome = RunProgram(folder + "/guest", {}, {{"LD_LIBRARY_PATH", folder}});
  EXPECT_EQ(outcome.status, 0) << outcome.err << outcome.out;
}

}  // namespace
}  // namespace preload
