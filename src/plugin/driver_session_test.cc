// SPDX-License-Identifier: Apache-2.0

#include "plugin/driver_session.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "simgpu/machine/in_child.h"

#define CHECK_OR(code, condition) \
  if (!(condition)) return (code)

namespace hami::plugin {
namespace {

namespace fs = std::filesystem;

class DriverSessionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("hami-session-test-" + std::to_string(::getpid()));
    fs::create_directories(folder_ / "gpus/0000:3b:00.0");
    ::setenv("SIMGPU_STATE", (folder_ / "state").c_str(), 1);
    ::setenv("SIMGPU", "2xH100", 1);
    ::unsetenv("SIMGPU_CONFIG");
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path folder_;
};

TEST_F(DriverSessionTest, GivenTheSameMachine_WhenReadAgain_ThenTheSessionGoesOn) {
  EXPECT_EQ(0, simgpu::InChild([&] {
              DriverSession session({SIMGPU_NVML_PATH, "/nowhere"}, folder_ / "gpus");
              const auto reading = session.Read(false);
              CHECK_OR(1, reading && reading->devices.size() == 2 && reading->health.size() == 2);
              CHECK_OR(2, !reading->topology);
              const std::weak_ptr<nvml::XidWatch> before = session.xids();
              CHECK_OR(3, session.Read(true)->topology.has_value());
              CHECK_OR(4, !before.expired() && session.xids() == before.lock());
              return 0;
            }));
}

TEST_F(DriverSessionTest, GivenAGpuThatIsPluggedIn_WhenReadAgain_ThenTheSessionBeginsAnew) {
  EXPECT_EQ(0, simgpu::InChild([&] {
              DriverSession session({SIMGPU_NVML_PATH, "/nowhere"}, folder_ / "gpus");
              CHECK_OR(1, session.Read(false));
              const std::weak_ptr<nvml::XidWatch> before = session.xids();
              fs::create_directories(folder_ / "gpus/0000:86:00.0");
              CHECK_OR(2, session.Read(false));
              CHECK_OR(3, before.expired() && session.xids() != nullptr);
              return 0;
            }));
}

TEST_F(DriverSessionTest, GivenAWatchThatFailed_WhenReadAgain_ThenThereIsAnother) {
  EXPECT_EQ(0, simgpu::InChild([&] {
              DriverSession session({SIMGPU_NVML_PATH, "/nowhere"}, folder_ / "none");
              CHECK_OR(1, session.xids() == nullptr && session.Read(false));
              const auto failed = session.xids();
              session.DropXids(failed);
              CHECK_OR(2, session.xids() == nullptr);
              CHECK_OR(3, session.Read(false) && session.xids() != nullptr && session.xids() != failed);
              session.DropXids(failed);  // a late complaint about the old one
              CHECK_OR(4, session.xids() != nullptr);
              return 0;
            }));
}

}  // namespace
}  // namespace hami::plugin
