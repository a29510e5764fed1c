// SPDX-License-Identifier: Apache-2.0

#include "plugin/driver_session.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "simgpu/machine/in_child.h"
#include "simgpu/simgpu.h"

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
    ::setenv("SIMGPU_PROFILE", "ideal", 1);
    ::setenv("SIMGPU", "2xH100", 1);
    ::unsetenv("SIMGPU_CONFIG");
  }
  void TearDown() override { fs::remove_all(folder_); }
  static bool Inject(const char* text) {
    void* const library = ::dlopen(SIMGPU_NVML_PATH, RTLD_NOW | RTLD_LOCAL);
    const auto inject = reinterpret_cast<decltype(&::simgpu_inject)>(::dlsym(library, "simgpu_inject"));
    return inject != nullptr && inject(text, nullptr, 0) == 1;
  }
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

TEST_F(DriverSessionTest, GivenGpuPluggedIn_WhenReadAgain_ThenSessionBeginsAnew) {
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
              CHECK_OR(1, session.xids() == nullptr && session.NextXid(0) && session.Read(false));
              const std::weak_ptr<nvml::XidWatch> failed = session.xids();
              CHECK_OR(2, Inject("fault call=nvmlEventSetWait* error=unknown count=2"));
              CHECK_OR(3, !session.NextXid(0));
              CHECK_OR(4, session.xids() == nullptr && session.NextXid(0));
              CHECK_OR(5, session.Read(false) && session.xids() != nullptr && session.xids() != failed.lock());
              CHECK_OR(6, !session.NextXid(0) && session.Read(false));
              // It is kept for as long as nothing is heard.
              CHECK_OR(7, !failed.expired());
              CHECK_OR(8, session.NextXid(0) && failed.expired());
              return 0;
            }));
}

// What the driver keeps for the one that failed, what it keeps for the next, and what it keeps for neither.
TEST_F(DriverSessionTest, GivenAWatchThatFailed_WhenXidsCameMeanwhile_ThenTheyAreHeard) {
  EXPECT_EQ(0, simgpu::InChild([&] {
              DriverSession session({SIMGPU_NVML_PATH, "/nowhere"}, folder_ / "none");
              CHECK_OR(1, session.Read(false));
              CHECK_OR(2, Inject("fault call=nvmlEventSetWait* error=unknown count=1\nxid device=0 code=61"));
              CHECK_OR(3, !session.NextXid(0));
              CHECK_OR(4, Inject("xid device=0 code=62"));
              CHECK_OR(5, session.Read(false));
              CHECK_OR(6, Inject("xid device=1 code=74"));
              std::set<std::uint64_t> heard;
              for (int i = 0; i < 20; ++i) {
                const auto event = session.NextXid(0);
                CHECK_OR(7, event);
                if (*event) heard.insert((*event)->code);
              }
              CHECK_OR(8, (heard == std::set<std::uint64_t>{61, 62, 74}));
              return 0;
            }));
}

TEST_F(DriverSessionTest, GivenFailedWatch_WhenSessionBeginsAnew_ThenNothingHoldsIt) {
  EXPECT_EQ(0, simgpu::InChild([&] {
              DriverSession session({SIMGPU_NVML_PATH, "/nowhere"}, folder_ / "gpus");
              CHECK_OR(1, session.Read(false));
              const std::weak_ptr<nvml::XidWatch> failed = session.xids();
              CHECK_OR(2, Inject("fault call=nvmlEventSetWait* error=unknown count=1") && !session.NextXid(0));
              fs::create_directories(folder_ / "gpus/0000:86:00.0");
              CHECK_OR(3, session.Read(false) && failed.expired());
              return 0;
            }));
}

TEST_F(DriverSessionTest, GivenXidsPerhapsMissed_WhenRead_ThenReadingSaysOfWhichGpus) {
  EXPECT_EQ(0, simgpu::InChild([&] {
              CHECK_OR(1, Inject("fault call=nvmlDeviceRegisterEvents device=1 error=not_supported"));
              DriverSession session({SIMGPU_NVML_PATH, "/nowhere"}, folder_ / "gpus");
              const auto first = session.Read(false);
              CHECK_OR(2, first && first->unheard == std::set<std::string>{first->devices[1].uuid});
              CHECK_OR(3, Inject("clear"));
              CHECK_OR(4, session.Read(false)->unheard == first->unheard);
              CHECK_OR(5, Inject("fault call=nvmlEventSetWait* error=unknown count=1") && !session.NextXid(0));
              CHECK_OR(6, session.Read(false)->unheard.size() == 2);
              CHECK_OR(7, session.Read(false)->unheard.empty());  // the new watch asked GPU 1 again
              fs::create_directories(folder_ / "gpus/0000:86:00.0");
              CHECK_OR(8, session.Read(false)->unheard.size() == 2);
              return 0;
            }));
}

// A GPU whose events cannot be had once is asked again, and is read like one that reports none until then.
TEST_F(DriverSessionTest, EventsThatFailOnce_AreHadLater) {
  EXPECT_EQ(0, simgpu::InChild([&] {
              CHECK_OR(1, Inject("fault call=nvmlDeviceRegisterEvents device=1 error=unknown count=2"));
              DriverSession session({SIMGPU_NVML_PATH, "/nowhere"}, folder_ / "none");
              const auto first = session.Read(false);
              const std::string deaf = first ? first->devices[1].uuid : "";
              CHECK_OR(2, first && first->unheard.contains(deaf));
              CHECK_OR(3, session.Read(false)->unheard == std::set<std::string>{deaf});
              CHECK_OR(4, session.Read(false)->unheard.empty());
              CHECK_OR(5, Inject("xid device=1 code=79"));
              const auto event = session.NextXid(0);
              CHECK_OR(6, event && *event && (*event)->uuid == deaf && (*event)->code == 79);
              return 0;
            }));
}

}  // namespace
}  // namespace hami::plugin
