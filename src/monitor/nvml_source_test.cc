// SPDX-License-Identifier: Apache-2.0
//
// Each test is a child process with a simulated machine of its own.

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/log.h"
#include "monitor/gpus.h"
#include "simgpu/machine/in_child.h"
#include "simgpu/simgpu.h"

#define CHECK_OR(code, condition) \
  if (!(condition)) return (code)

namespace hami::monitor {
namespace {

namespace fs = std::filesystem;

// More than it takes until what seldom changes is looked at again.
constexpr int kManyLooks = 40;

class NvmlSourceTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("hami-monitor-gpus-test-" + std::to_string(::getpid()));
    fs::create_directories(folder_ / "gpus/0000:3b:00.0");
    ::setenv("SIMGPU_STATE", (folder_ / "state").c_str(), 1);
    ::setenv("SIMGPU_PROFILE", "ideal", 1);
    ::unsetenv("SIMGPU");
    Machine("");
  }
  void TearDown() override { fs::remove_all(folder_); }

  void Machine(const std::string& statements) const {
    std::ofstream(folder_ / "config") << "gpus 2xH100\n" << statements;
    ::setenv("SIMGPU_CONFIG", (folder_ / "config").c_str(), 1);
  }
  std::unique_ptr<GpuSource> Make() const {
    auto source = MakeNvmlSource({SIMGPU_NVML_PATH, "/nowhere"}, folder_ / "gpus", heard_);
    return source ? *std::move(source) : nullptr;
  }
  // The library is loaded already; this finds the same copy.
  static bool Inject(const char* text) {
    void* const library = ::dlopen(SIMGPU_NVML_PATH, RTLD_NOW | RTLD_LOCAL);
    const auto inject = reinterpret_cast<decltype(&::simgpu_inject)>(::dlsym(library, "simgpu_inject"));
    return inject != nullptr && inject(text, nullptr, 0) == 1;
  }
  // How often XID code 48 was counted for GPU 1, after enough looks.
  static std::uint64_t CountedAfterAWhile(GpuSource& source) {
    std::uint64_t counted = 0;
    for (int i = 0; i < kManyLooks; ++i) {
      const auto gpus = source.Look();
      if (gpus && gpus->size() == 2 && gpus->at(1).xids.contains(48)) counted = gpus->at(1).xids.at(48);
    }
    return counted;
  }

  fs::path folder_;
  mutable XidCounts heard_;
};

// V8: HAMi drops every figure of a GPU when one query fails.
TEST_F(NvmlSourceTest, GivenFailedQuery_WhenLookedAt_ThenOtherFiguresOfBothGpusStay) {
  EXPECT_EQ(0, simgpu::InChild([&] {
              Machine("fault call=nvmlDeviceGetUtilizationRates error=unknown device=0\n");
              const auto source = Make();
              CHECK_OR(1, source);
              const auto gpus = source->Look();
              CHECK_OR(2, gpus && gpus->size() == 2);
              CHECK_OR(3, !gpus->at(0).telemetry.gpu_percent);
              CHECK_OR(4, gpus->at(0).telemetry.memory && gpus->at(0).telemetry.temperature_celsius);
              CHECK_OR(5, gpus->at(1).telemetry.gpu_percent);
              return 0;
            }));
}

// V8: HAMi begins and ends a session in each scrape.
TEST_F(NvmlSourceTest, GivenManyLooks_WhenAllGoesWell_ThenTheyAreOneSession) {
  EXPECT_EQ(0, simgpu::InChild([&] {
              const auto source = Make();
              CHECK_OR(1, source && source->Look());
              CHECK_OR(2, Inject("fault call=nvmlInit* error=unknown"));
              for (int i = 0; i < kManyLooks; ++i) CHECK_OR(3, source->Look());
              return 0;
            }));
}

// L2, for the monitor: NVML lists what was there when its session began.
TEST_F(NvmlSourceTest, GivenGpuPluggedIn_WhenLookedAt_ThenSessionBeginsAnew) {
  EXPECT_EQ(0, simgpu::InChild([&] {
              const auto source = Make();
              CHECK_OR(1, source && source->Look());
              CHECK_OR(2, Inject("fault call=nvmlInit* error=unknown nth=1"));
              fs::create_directories(folder_ / "gpus/0000:86:00.0");
              CHECK_OR(3, !source->Look());
              CHECK_OR(4, source->Look());
              return 0;
            }));
}

TEST_F(NvmlSourceTest, GivenFailedErrorWait_WhenErrorComesLater_ThenItIsCounted) {
  EXPECT_EQ(0, simgpu::InChild([&] {
              const auto source = Make();
              CHECK_OR(1, source && source->Look());
              CHECK_OR(2, Inject("fault call=nvmlEventSetWait* error=unknown count=1"));
              CHECK_OR(3, source->Look());
              CHECK_OR(4, CountedAfterAWhile(*source) == 0);
              CHECK_OR(5, Inject("xid device=1 code=48"));
              CHECK_OR(6, CountedAfterAWhile(*source) == 1);
              return 0;
            }));
}

TEST_F(NvmlSourceTest, GivenFailedErrorWait_WhenErrorCameMeanwhile_ThenCountedOnce) {
  EXPECT_EQ(0, simgpu::InChild([&] {
              const auto source = Make();
              CHECK_OR(1, source && source->Look());
              CHECK_OR(2, Inject("fault call=nvmlEventSetWait* error=unknown count=1\nxid device=1 code=48"));
              CHECK_OR(3, source->Look());
              CHECK_OR(4, Inject("xid device=1 code=48"));
              CHECK_OR(5, CountedAfterAWhile(*source) == 2);
              return 0;
            }));
}

TEST_F(NvmlSourceTest, GivenFailingErrorWait_WhenItWorks_ThenNextErrorCountsAtOnce) {
  EXPECT_EQ(0, simgpu::InChild([&] {
              const auto source = Make();
              CHECK_OR(1, source && source->Look());
              CHECK_OR(2, Inject("fault call=nvmlEventSetCreate error=unknown count=2"));
              CHECK_OR(3, Inject("fault call=nvmlEventSetWait* error=unknown count=2"));
              for (int i = 0; i < 4; ++i) CHECK_OR(4, source->Look());
              CHECK_OR(5, source->Look() && Inject("xid device=1 code=48"));
              const auto gpus = source->Look();
              CHECK_OR(6, gpus && gpus->at(1).xids.contains(48));
              return 0;
            }));
}

TEST_F(NvmlSourceTest, MigDevices_TheirMemoryAndErrorsAreTheirOwn) {
  EXPECT_EQ(0, simgpu::InChild([&] {
              auto driver = nvml::Library::Load({SIMGPU_NVML_PATH, "/nowhere"});
              CHECK_OR(1, driver);
              const std::string gpu = driver->ReadDevices()->at(1).uuid;
              CHECK_OR(2, driver->SetMigMode(gpu, true));
              const nvml::MigLayout layout = *driver->ReadMigLayout(gpu);
              const auto small = std::find_if(layout.profiles.begin(), layout.profiles.end(),
                                              [](const auto& profile) { return profile.name == "1g.10gb"; });
              CHECK_OR(3, small != layout.profiles.end());
              const auto instance = driver->CreateGpuInstance(gpu, small->id, {6, 1});
              CHECK_OR(4, instance);
              const auto compute = driver->CreateComputeInstance(gpu, *instance);
              CHECK_OR(5, compute);
              const auto source = Make();
              const GpuPicture seen = source->Look()->at(1);
              CHECK_OR(6, seen.device.mig_devices.size() == 1 && seen.device.mig_devices[0].uuid == compute->uuid);
              const auto& memory = seen.device.mig_devices[0].memory;
              CHECK_OR(7, memory && memory->total > 0 && memory->total < seen.telemetry.memory->total / 4);
              const std::string text =
                  "xid device=1 code=94 gi=" + std::to_string(*instance) + " ci=0\nxid device=1 code=63";
              CHECK_OR(8, Inject(text.c_str()));
              const GpuPicture heard = source->Look()->at(1);
              CHECK_OR(9, heard.mig_xids.at(compute->uuid) == XidsByCode({{94, 1}}));
              CHECK_OR(10, heard.xids == XidsByCode({{63, 1}, {94, 1}}));
              CHECK_OR(11, driver->DestroyComputeInstance(gpu, *instance, compute->id));
              (void)source->Look();
              CHECK_OR(12, source->Look()->at(1).device.mig_devices.empty());
              return 0;
            }));
}

TEST_F(NvmlSourceTest, GivenFailedLook_WhenSessionBeginsAnew_ThenEarlierErrorsCount) {
  EXPECT_EQ(0, simgpu::InChild([&] {
              constexpr auto kPause = std::chrono::milliseconds(1);
              GpuSampler sampler(
                  [&](XidCounts& heard) {
                    return MakeNvmlSource({SIMGPU_NVML_PATH, "/nowhere"}, folder_ / "gpus", heard);
                  },
                  {kPause, kPause, kPause});
              const auto await = [&](const auto& seen) {
                const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
                while (!seen(*sampler.Last()) && std::chrono::steady_clock::now() < end) std::this_thread::yield();
                return seen(*sampler.Last());
              };
              const auto counted = [&](std::uint64_t times) {
                return await([&](const GpusPicture& gpus) {
                  return gpus.gpus.size() == 2 && gpus.gpus[1].xids.contains(48) && gpus.gpus[1].xids.at(48) == times;
                });
              };
              CHECK_OR(1, await([](const GpusPicture& gpus) { return gpus.answering; }));
              CHECK_OR(2, Inject("xid device=1 code=48") && counted(1));
              CHECK_OR(3, Inject("fault call=nvmlDeviceGetCount_v2 error=unknown count=200"));
              CHECK_OR(4, await([](const GpusPicture& gpus) { return !gpus.answering; }));
              CHECK_OR(5, await([](const GpusPicture& gpus) { return gpus.answering; }));
              CHECK_OR(6, Inject("xid device=1 code=48") && counted(2));
              return 0;
            }));
}

// What a driver says to a wait for errors of nobody is not written anywhere.
TEST_F(NvmlSourceTest, GivenNoGpuIsKnownYet_WhenLookedAt_ThenNoErrorIsWaitedFor) {
  EXPECT_EQ(0, simgpu::InChild([&] {
              Machine("fault call=nvmlEventSetWait* error=unknown\n");
              const auto source = Make();
              base::StartLog("test");
              testing::internal::CaptureStderr();
              CHECK_OR(1, source && source->Look());
              CHECK_OR(2, testing::internal::GetCapturedStderr().empty());
              testing::internal::CaptureStderr();
              CHECK_OR(3, source->Look());
              CHECK_OR(4, testing::internal::GetCapturedStderr().find("are not reported") != std::string::npos);
              return 0;
            }));
}

TEST_F(NvmlSourceTest, GivenError_WhenLookedAt_ThenWhatSeldomChangesIsLookedAtToo) {
  EXPECT_EQ(0, simgpu::InChild([&] {
              Machine("");
              const auto source = Make();
              const auto up = [](const GpuPicture& gpu) {
                return std::count_if(gpu.links.begin(), gpu.links.end(), [](const auto& link) { return link.up; });
              };
              CHECK_OR(1, source && source->Look());
              const auto before = source->Look();
              CHECK_OR(2, before && up(before->at(0)) > 0);
              CHECK_OR(3, Inject("link device=0 link=0 state=down\nxid device=0 code=74"));
              const auto after = source->Look();
              CHECK_OR(4, after && after->at(0).xids.contains(74) && up(after->at(0)) == up(before->at(0)) - 1);
              return 0;
            }));
}

TEST_F(NvmlSourceTest, GivenGpuLostAtFirst_WhenItIsBack_ThenItsErrorsAreCounted) {
  EXPECT_EQ(0, simgpu::InChild([&] {
              Machine("lost device=1\n");
              const auto source = Make();
              CHECK_OR(1, source && source->Look());
              CHECK_OR(2, Inject("recover device=1"));
              CHECK_OR(3, CountedAfterAWhile(*source) == 0);
              CHECK_OR(4, Inject("xid device=1 code=48"));
              CHECK_OR(5, CountedAfterAWhile(*source) == 1);
              return 0;
            }));
}

}  // namespace
}  // namespace hami::monitor
