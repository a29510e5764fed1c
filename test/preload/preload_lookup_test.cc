// SPDX-License-Identifier: Apache-2.0
#include "test/preload/harness.h"

namespace preload {
namespace {

class LookupScenario : public Preload, public testing::WithParamInterface<const char*> {};

// simgpu has something to say about export tables; that is not our noise.
TEST_P(LookupScenario, GivenEveryWay_ThenTheSameReplacement) { Pass({GetParam()}, {{"SIMGPU_QUIET", "1"}}); }

INSTANTIATE_TEST_SUITE_P(Ways, LookupScenario,
                         testing::Values("same_hook_everywhere", "passed_on", "proc_address_versions",
                                         "proc_address_status", "other_names", "export_table", "nvml_lookup",
                                         "versioned", "errno_kept"),
                         [](const testing::TestParamInfo<const char*>& scenario) {
                           return std::string(scenario.param);
                         });

TEST_F(Preload, GivenControlDisabled_ThenEveryWayLeadsToTheDriver) {
  Pass({"disabled_everywhere"}, {{"CUDA_DISABLE_CONTROL", "true"}});
}

TEST_F(Preload, GivenDriverLoadedLate_ThenAbsentBeforeAndReplacedAfter) {
  const Outcome outcome = RunProgram(PRELOAD_LATE, {});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
}

TEST_F(Preload, GivenWrapperLoadedLater_WhenItAsksForNext_ThenBothAreReached) { Pass({"shim", PRELOAD_SHIM}); }

TEST_F(Preload, GivenWrapperPreloadedBefore_WhenItAsksForNext_ThenLimitHolds) {
  Pass({"plain_limit"}, {{"LD_PRELOAD", std::string(PRELOAD_SHIM) + ":" + PRELOAD_LIBRARY}});
}

TEST_F(Preload, GivenWrapperPreloadedBehind_ThenTheLimitHolds) {
  Pass({"plain_limit"}, {{"LD_PRELOAD", std::string(PRELOAD_LIBRARY) + ":" + PRELOAD_SHIM}});
}

}  // namespace
}  // namespace preload
