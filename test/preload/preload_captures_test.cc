// SPDX-License-Identifier: Apache-2.0
// A capture is the program's: nothing that the library asks of the driver ends it. The driver here forbids a capture's
// threads every call that is not known to be allowed, because which ones a real one forbids differs by version.
#include <fstream>

#include "test/preload/harness.h"

namespace preload {
namespace {

class Captures : public Preload, public testing::WithParamInterface<std::tuple<const char*, const char*>> {
 protected:
  void SetUp() override {
    std::ofstream(folder() + "/strict.conf") << "option strict_capture=1\n";
    environment_["SIMGPU_CONFIG"] = folder() + "/strict.conf";
  }
};

TEST_P(Captures, GivenPoolMemory_WhenCaptured_ThenTheCaptureIsLeftAlone) {
  Pass({"capture_pool", std::get<0>(GetParam()), std::get<1>(GetParam())});
}

TEST_P(Captures, GivenOtherMemory_WhenFreedBesideACapture_ThenItIsLeftAlone) {
  Pass({"capture_beside_other_memory", std::get<0>(GetParam()), std::get<1>(GetParam())});
}

TEST_P(Captures, GivenMoreThanTheLimit_WhenCaptured_ThenItsLaunchIsRefused) {
  Pass({"capture_too_large", std::get<0>(GetParam())});
}

TEST_P(Captures, GivenALimitOnTime_WhenPoolMemoryIsCaptured_ThenItIsLeftAlone) {
  Pass({"capture_pool", std::get<0>(GetParam()), std::get<1>(GetParam())}, {{"CUDA_DEVICE_SM_LIMIT", "30"}});
}

INSTANTIATE_TEST_SUITE_P(Modes, Captures,
                         testing::Combine(testing::Values("global", "thread", "relaxed"),
                                          testing::Values("this", "another")),
                         [](const auto& given) {
                           return std::string(std::get<0>(given.param)) + "_" + std::get<1>(given.param);
                         });

}  // namespace
}  // namespace preload
