// SPDX-License-Identifier: Apache-2.0
//
// Each test is a child process with a simulated machine of its own.

#include "nvml/nvml.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "abi/nvml_abi.h"
#include "simgpu/machine/in_child.h"
#include "simgpu/simgpu.h"

#define CHECK_OR(code, condition) \
  if (!(condition)) return (code)

namespace hami::nvml {
namespace {

namespace fs = std::filesystem;

class NvmlTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("hami-nvml-test-" + std::to_string(::getpid()));
    fs::create_directories(folder_);
    ::setenv("SIMGPU_STATE", (folder_ / "state").c_str(), 1);
    ::setenv("SIMGPU_PROFILE", "ideal", 1);
    ::setenv("SIMGPU", "2xH100", 1);
    ::unsetenv("SIMGPU_CONFIG");
    options_.library = SIMGPU_NVML_PATH;
    options_.sysfs = folder_ / "sys";
  }
  void TearDown() override { fs::remove_all(folder_); }

  void Config(const std::string& text) {
    std::ofstream(folder_ / "config") << text;
    ::setenv("SIMGPU_CONFIG", (folder_ / "config").c_str(), 1);
  }
  void NumaOfSlot(const std::string& bus_id, const std::string& text) {
    const fs::path slot = folder_ / "sys/bus/pci/devices" / bus_id;
    fs::create_directories(slot);
    std::ofstream(slot / "numa_node") << text;
  }
  // The library is loaded already; this finds the same copy.
  static bool Inject(const char* text) {
    void* const library = ::dlopen(SIMGPU_NVML_PATH, RTLD_NOW | RTLD_LOCAL);
    const auto inject = reinterpret_cast<decltype(&::simgpu_inject)>(::dlsym(library, "simgpu_inject"));
    return inject != nullptr && inject(text, nullptr, 0) == 1;
  }

  fs::path folder_;
  LoadOptions options_;
};

TEST_F(NvmlTest, GivenNoLibrary_WhenLoaded_ThenTheErrorNamesIt) {
  const auto library = Library::Load({"/nowhere/libnvidia-ml.so.1", "/sys"});
  ASSERT_FALSE(library);
  EXPECT_NE(library.error().message.find("/nowhere/libnvidia-ml.so.1"), std::string::npos);
}

TEST_F(NvmlTest, GivenALibraryThatIsNotNvml_WhenLoaded_ThenItIsRefused) {
  const auto library = Library::Load({"libc.so.6", "/sys"});
  ASSERT_FALSE(library);
  EXPECT_NE(library.error().message.find("not NVML"), std::string::npos);
}

TEST_F(NvmlTest, GivenTwoGpus_WhenRead_ThenTheyAreAsNvmlTells) {
  Config("device 0 pci=0000:3b:00.0 numa=1 minor=5\n");
  NumaOfSlot("0000:3b:00.0", "0\n");
  EXPECT_EQ(0, simgpu::InChild([&] {
              const auto library = Library::Load(options_);
              CHECK_OR(1, library);
              const System system = library->ReadSystem();
              CHECK_OR(2, !system.driver_version.empty() && system.cuda_version == "13.0");
              const auto devices = library->ReadDevices();
              CHECK_OR(3, devices && devices->size() == 2);
              const Device& first = devices->front();
              CHECK_OR(4, first.condition == Condition::kAnswers && first.index == 0);
              CHECK_OR(5, first.uuid.starts_with("GPU-") && first.name == "NVIDIA H100 80GB HBM3");
              CHECK_OR(6, first.bus_id == "0000:3b:00.0" && first.minor == 5U);
              CHECK_OR(7, first.numa_node == 0);  // the slot's, not the GPU memory's
              CHECK_OR(8, first.memory && first.memory->total > first.memory->reserved.value_or(0));
              CHECK_OR(9, first.memory->total == first.memory->used + first.memory->free);
              CHECK_OR(10, first.compute_capability && first.compute_capability->major == 9);
              CHECK_OR(11, first.compute_mode == ComputeMode::kDefault);
              CHECK_OR(12, first.mig_mode && !first.mig_mode->current && first.mig_devices.empty());
              CHECK_OR(13, (*devices)[1].uuid != first.uuid);
              return 0;
            }));
}

TEST_F(NvmlTest, GivenASlotWithoutNumaNode_WhenRead_ThenThereIsNone) {
  Config("device 0 pci=0000:3b:00.0 numa=1\n");
  NumaOfSlot("0000:3b:00.0", "-1\n");
  EXPECT_EQ(0, simgpu::InChild([&] {
              const auto library = Library::Load(options_);
              CHECK_OR(1, library);
              CHECK_OR(2, !library->ReadDevices()->front().numa_node.has_value());
              return 0;
            }));
}

TEST_F(NvmlTest, GivenALostGpu_WhenRead_ThenTheOtherStillAnswers) {
  EXPECT_EQ(0, simgpu::InChild([&] {
              const auto library = Library::Load(options_);
              CHECK_OR(1, library);
              const auto before = library->ReadDevices();
              CHECK_OR(2, Inject("lost device=0"));
              const auto devices = library->ReadDevices();
              CHECK_OR(3, devices && devices->size() == 2);
              CHECK_OR(4, (*devices)[0].condition == Condition::kLost && !(*devices)[0].trouble.empty());
              CHECK_OR(5, (*devices)[1].condition == Condition::kAnswers);
              const std::string& uuid = (*before)[0].uuid;
              CHECK_OR(6, library->ReadHealth(uuid).condition == Condition::kLost);
              const Telemetry telemetry = library->Sample(uuid);
              CHECK_OR(7, telemetry.condition == Condition::kLost && !telemetry.memory && !telemetry.gpu_percent);
              CHECK_OR(8, !library->ReadProcesses(uuid));
              CHECK_OR(9, Inject("recover device=0"));
              CHECK_OR(10, library->ReadHealth(uuid).condition == Condition::kAnswers);
              return 0;
            }));
}

TEST_F(NvmlTest, GivenUnsupportedCalls_WhenSampled_ThenOnlyThoseAreAbsent) {
  Config(
      "fault call=nvmlDeviceGetMemoryInfo* error=not_supported\n"
      "fault call=nvmlDeviceGetUtilizationRates error=unknown\n"
      "set device=0 temperature_c=61\nset device=0 power_w=300\nset device=0 sm_clock_mhz=1200\n"
      "set device=0 remapped_pending=1\nset device=0 ecc_uncorrected=3\n");
  EXPECT_EQ(0, simgpu::InChild([&] {
              const auto library = Library::Load(options_);
              CHECK_OR(1, library);
              const auto devices = library->ReadDevices();
              CHECK_OR(2, devices && devices->front().condition == Condition::kAnswers && !devices->front().memory);
              const Telemetry telemetry = library->Sample(devices->front().uuid);
              CHECK_OR(3, telemetry.condition == Condition::kAnswers && !telemetry.memory && !telemetry.gpu_percent);
              CHECK_OR(4, telemetry.temperature_celsius == 61U && telemetry.power_milliwatts == 300000U);
              CHECK_OR(5, telemetry.sm_clock_mhz == 1200U && telemetry.pcie.generation == 5U);
              CHECK_OR(6, telemetry.health.remapped && telemetry.health.remapped->pending);
              CHECK_OR(7, telemetry.health.ecc.uncorrected_volatile == 3U);
              CHECK_OR(8, !telemetry.health.retirement_pending);  // rows are remapped on this board
              CHECK_OR(9, telemetry.performance_state.has_value() && telemetry.max_sm_clock_mhz.has_value());
              CHECK_OR(10, library->MeasurePcie(devices->front().uuid).transmit_kib_per_second.has_value());
              return 0;
            }));
}

TEST_F(NvmlTest, GivenAXid_WhenWaitedFor_ThenItComesOnceWithItsGpu) {
  EXPECT_EQ(0, simgpu::InChild([&] {
              const auto library = Library::Load(options_);
              CHECK_OR(1, library);
              const auto devices = library->ReadDevices();
              auto watch = library->WatchXids();
              CHECK_OR(2, watch);
              for (const Device& device : *devices) CHECK_OR(3, (*watch)->Register(device.uuid).value_or(false));
              CHECK_OR(4, !(*watch)->Register("GPU-nobody"));
              CHECK_OR(5, Inject("xid device=1 code=48"));
              const auto event = (*watch)->Wait(5000);
              CHECK_OR(6, event && *event && (*event)->code == 48 && (*event)->uuid == (*devices)[1].uuid);
              CHECK_OR(7, (*event)->gpu_instance == kAnyInstance);
              const auto none = (*watch)->Wait(0);
              CHECK_OR(8, none && !*none);
              // A GPU that fell off the bus can not say its name; it is known all the same.
              CHECK_OR(9, Inject("lost device=0"));
              const auto lost = (*watch)->Wait(5000);
              CHECK_OR(10, lost && *lost && (*lost)->code == 79 && (*lost)->uuid == (*devices)[0].uuid);
              return 0;
            }));
}

TEST_F(NvmlTest, GivenSwitchedLinks_WhenTopologyRead_ThenDownAndMissingTold) {
  Config("link device=1 link=3 state=down\nfault call=nvmlDeviceGetNvLinkState error=unknown device=0 nth=1\n");
  EXPECT_EQ(0, simgpu::InChild([&] {
              const auto library = Library::Load(options_);
              CHECK_OR(1, library);
              const auto devices = library->ReadDevices();
              const Topology topology = library->ReadTopology(*devices);
              CHECK_OR(2, topology.gpus.size() == 2 && topology.ancestors.size() == 4);
              CHECK_OR(3, topology.gpus[0].links.size() == 17);  // one failed; the others count
              CHECK_OR(4, topology.gpus[1].links.size() == 18 && !topology.gpus[1].links[3].up);
              CHECK_OR(5, topology.gpus[1].links[0].up && topology.gpus[1].links[0].peer == LinkPeer::kSwitch);
              CHECK_OR(6, !topology.gpus[1].links[0].peer_bus_id.empty());
              CHECK_OR(7, !topology.ancestors[0] && topology.ancestors[1] == topology.ancestors[2]);
              CHECK_OR(8, topology.ancestors[1] == Ancestor::kSystem || topology.ancestors[1] == Ancestor::kNumaNode);
              return 0;
            }));
}

TEST_F(NvmlTest, GivenMigInstances_WhenRead_ThenTheyComeWithTheirIds) {
  EXPECT_EQ(0, simgpu::InChild([&] {
              const auto library = Library::Load(options_);
              CHECK_OR(1, library);
              void* const raw = ::dlopen(SIMGPU_NVML_PATH, RTLD_NOW | RTLD_LOCAL);
              const auto symbol = [&](const char* name) { return ::dlsym(raw, name); };
              nvmlDevice_t device{};
              nvmlReturn_t activation = NVML_ERROR_UNKNOWN;
              nvmlGpuInstance_t gpu_instance{};
              nvmlComputeInstance_t compute_instance{};
              using Handle = decltype(&::nvmlDeviceGetHandleByIndex_v2);
              using Mode = decltype(&::nvmlDeviceSetMigMode);
              using CreateGpu = decltype(&::nvmlDeviceCreateGpuInstance);
              using CreateCompute = decltype(&::nvmlGpuInstanceCreateComputeInstance);
              CHECK_OR(2, reinterpret_cast<Handle>(symbol("nvmlDeviceGetHandleByIndex_v2"))(0, &device) == 0);
              CHECK_OR(3, reinterpret_cast<Mode>(symbol("nvmlDeviceSetMigMode"))(device, 1, &activation) == 0);
              CHECK_OR(
                  4, reinterpret_cast<CreateGpu>(symbol("nvmlDeviceCreateGpuInstance"))(device, 9, &gpu_instance) == 0);
              CHECK_OR(5, reinterpret_cast<CreateCompute>(symbol("nvmlGpuInstanceCreateComputeInstance"))(
                              gpu_instance, 2, &compute_instance) == 0);
              const auto devices = library->ReadDevices();
              CHECK_OR(6, devices && devices->front().mig_mode->current);
              CHECK_OR(7, devices->front().mig_devices.size() == 1);
              const MigDevice& mig = devices->front().mig_devices.front();
              CHECK_OR(8, mig.uuid.starts_with("MIG-") && mig.memory && mig.name.find("3g") != std::string::npos);
              CHECK_OR(9, !library->Sample(devices->front().uuid).gpu_percent);  // not told while MIG is on
              return 0;
            }));
}

TEST_F(NvmlTest, GpuDividedByUs_IsReadAndUndoneByNamesAndPlaces) {
  EXPECT_EQ(0, simgpu::InChild([&] {
              const auto library = Library::Load(options_);
              CHECK_OR(1, library);
              const std::string uuid = library->ReadDevices()->front().uuid;
              CHECK_OR(2, !library->ReadMigLayout(uuid));  // MIG is off
              const auto mode = library->SetMigMode(uuid, true);
              CHECK_OR(3, mode && mode->current && mode->pending);
              auto layout = library->ReadMigLayout(uuid);
              CHECK_OR(4, layout && layout->instances.empty());
              const auto named = [&](const char* name) {
                return std::find_if(layout->profiles.begin(), layout->profiles.end(),
                                    [&](const MigProfile& profile) { return profile.name == name; });
              };
              CHECK_OR(5, named("1g.10gb+me") != layout->profiles.end() && named("1g.10gb+me")->most_instances == 1);
              const MigProfile three = *named("3g.40gb");
              CHECK_OR(6, three.slices == 3 && three.places.size() == 2 && three.places[1] == (MigPlace{4, 4}));
              const auto gpu = library->CreateGpuInstance(uuid, three.id, {4, 4});
              CHECK_OR(7, gpu && !library->CreateGpuInstance(uuid, three.id, {4, 4}));  // it is taken
              const auto compute = library->CreateComputeInstance(uuid, *gpu);
              CHECK_OR(8, compute && compute->uuid.starts_with("MIG-"));
              layout = library->ReadMigLayout(uuid);
              CHECK_OR(9, layout && layout->instances.size() == 1 && layout->instances[0].place == (MigPlace{4, 4}));
              CHECK_OR(10, layout->instances[0].compute == std::vector<ComputeInstance>{*compute});
              CHECK_OR(11, !library->DestroyGpuInstance(uuid, *gpu));   // it has a compute instance
              CHECK_OR(12, library->SetMigMode(uuid, false)->current);  // in use
              CHECK_OR(13, library->DestroyComputeInstance(uuid, *gpu, compute->id));
              CHECK_OR(14, library->DestroyGpuInstance(uuid, *gpu));
              CHECK_OR(15, !library->SetMigMode(uuid, false)->current);
              return 0;
            }));
}

TEST_F(NvmlTest, GivenNobodyRunning_WhenProcessesRead_ThenEmptyNotAbsent) {
  EXPECT_EQ(0, simgpu::InChild([&] {
              const auto library = Library::Load(options_);
              CHECK_OR(1, library);
              const std::string uuid = library->ReadDevices()->front().uuid;
              const auto processes = library->ReadProcesses(uuid);
              CHECK_OR(2, processes && processes->empty());
              const auto samples = library->ReadProcessUtilization(uuid, 0);
              CHECK_OR(3, samples && samples->empty());
              CHECK_OR(4, !library->ReadProcesses("GPU-nobody"));
              return 0;
            }));
}

TEST_F(NvmlTest, GivenDriverThatDoesNotStart_WhenLoaded_ThenErrorIsTheDrivers) {
  Config("fault call=nvmlInit_v2 error=unknown\n");
  EXPECT_EQ(0, simgpu::InChild([&] {
              const auto library = Library::Load(options_);
              CHECK_OR(1, !library && library.error().message.find("999") != std::string::npos);
              return 0;
            }));
}

TEST(SysfsBusIdTest, GivenNvmlsForms_WhenTranslated_ThenTheyAreTheKernels) {
  EXPECT_EQ(SysfsBusId("00000000:3B:00.0"), "0000:3b:00.0");
  EXPECT_EQ(SysfsBusId("0000:3B:00.0"), "0000:3b:00.0");
  EXPECT_EQ(SysfsBusId("00010000:3B:00.0"), "00010000:3b:00.0");
  EXPECT_EQ(SysfsBusId(""), "");
}

}  // namespace
}  // namespace hami::nvml
