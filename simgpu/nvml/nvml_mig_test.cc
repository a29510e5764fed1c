// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "simgpu/machine/machine.h"
#include "simgpu/nvml/testing/nvml.h"

namespace simgpu::nvml_test {
namespace {

constexpr unsigned int k1g = 19, k1gMedia = 20, k3g = 9, k7g = 0;

nvmlDevice_t Start() {
  nvmlDevice_t device = nullptr;
  nvmlReturn_t activation = NVML_ERROR_UNKNOWN;
  if (NVML(nvmlInit_v2)() != NVML_SUCCESS) _exit(96);
  if (NVML(nvmlDeviceGetHandleByIndex_v2)(0, &device) != NVML_SUCCESS) _exit(95);
  if (NVML(nvmlDeviceSetMigMode)(device, NVML_DEVICE_MIG_ENABLE, &activation) != NVML_SUCCESS) _exit(94);
  if (activation != NVML_SUCCESS) _exit(93);
  return device;
}

TEST_F(NvmlTest, GivenModel_WhenProfilesListed_ThenNamesPlacementsAsInGuide) {
  EXPECT_EQ(
      0, InChild([] {
        const nvmlDevice_t device = Start();
        nvmlGpuInstanceProfileInfo_v2_t v2 = {};
        v2.version = nvmlGpuInstanceProfileInfo_v2;
        CHECK_OR(1, NVML(nvmlDeviceGetGpuInstanceProfileInfoV)(device, NVML_GPU_INSTANCE_PROFILE_3_SLICE, &v2) == 0);
        CHECK_OR(2, v2.id == k3g && v2.sliceCount == 3 && std::strcmp(v2.name, "MIG 3g.40gb") == 0);
        nvmlGpuInstanceProfileInfo_v3_t v3 = {};
        v3.version = nvmlGpuInstanceProfileInfo_v3;
        CHECK_OR(3, NVML(nvmlDeviceGetGpuInstanceProfileInfoV)(
                        device, NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV1,
                        reinterpret_cast<nvmlGpuInstanceProfileInfo_v2_t*>(&v3)) == NVML_SUCCESS);
        CHECK_OR(4, v3.id == k1gMedia && std::strcmp(v3.name, "MIG 1g.10gb+me") == 0 && v3.instanceCount == 1);
        v2.version = 7;
        CHECK_OR(5, NVML(nvmlDeviceGetGpuInstanceProfileInfoV)(device, 0, &v2) == NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
        nvmlGpuInstanceProfileInfo_t v1 = {};
        CHECK_OR(6, NVML(nvmlDeviceGetGpuInstanceProfileInfo)(device, NVML_GPU_INSTANCE_PROFILE_8_SLICE, &v1) ==
                        NVML_ERROR_NOT_SUPPORTED);
        unsigned int count = 0;
        CHECK_OR(7,
                 NVML(nvmlDeviceGetGpuInstancePossiblePlacements_v2)(device, k1g, nullptr, &count) == 0 && count == 7);
        nvmlGpuInstancePlacement_t placements[8] = {};
        CHECK_OR(8, NVML(nvmlDeviceGetGpuInstancePossiblePlacements_v2)(device, k3g, placements, &count) == 0);
        CHECK_OR(9, count == 2 && placements[1].start == 4 && placements[1].size == 4);
        return 0;
      }));
}

TEST_F(NvmlTest, GivenMig_WhenInstancesComeAndGo_ThenHandlesAndErrorsFollow) {
  EXPECT_EQ(0, InChild([] {
              const nvmlDevice_t device = Start();
              unsigned int count = 9;
              CHECK_OR(1, NVML(nvmlDeviceGetMaxMigDeviceCount)(device, &count) == 0 && count == 7);
              const nvmlGpuInstancePlacement_t at4 = {4, 4}, bad = {2, 4}, wrong_size = {0, 3};
              nvmlGpuInstance_t gi = nullptr, other = nullptr;
              const auto create = NVML(nvmlDeviceCreateGpuInstanceWithPlacement);
              CHECK_OR(2, create(device, k3g, &bad, &gi) == NVML_ERROR_INVALID_ARGUMENT);
              CHECK_OR(3, create(device, k3g, &wrong_size, &gi) == NVML_ERROR_INVALID_ARGUMENT);
              CHECK_OR(4, create(device, k3g, &at4, &gi) == NVML_SUCCESS);
              CHECK_OR(5, create(device, k3g, &at4, &other) == NVML_ERROR_INSUFFICIENT_RESOURCES);
              CHECK_OR(6, NVML(nvmlDeviceGetGpuInstanceRemainingCapacity)(device, k1g, &count) == 0 && count == 4);
              CHECK_OR(7, NVML(nvmlDeviceGetGpuInstanceRemainingCapacity)(device, k3g, &count) == 0 && count == 1);
              CHECK_OR(8, NVML(nvmlDeviceGetGpuInstanceRemainingCapacity)(device, k7g, &count) == 0 && count == 0);
              nvmlGpuInstanceInfo_t info = {};
              CHECK_OR(9, NVML(nvmlGpuInstanceGetInfo)(gi, &info) == 0 && info.profileId == k3g &&
                              info.placement.start == 4 && info.device == device);
              nvmlComputeInstanceProfileInfo_v2_t ci_info = {};
              ci_info.version = nvmlComputeInstanceProfileInfo_v2;
              CHECK_OR(10, NVML(nvmlGpuInstanceGetComputeInstanceProfileInfoV)(
                               gi, NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE, 0, &ci_info) == 0);
              CHECK_OR(11, ci_info.instanceCount == 3 && std::strcmp(ci_info.name, "MIG 1c.3g.40gb") == 0);
              nvmlComputeInstance_t ci = nullptr;
              CHECK_OR(12,
                       NVML(nvmlGpuInstanceCreateComputeInstance)(gi, NVML_COMPUTE_INSTANCE_PROFILE_3_SLICE, &ci) == 0);
              CHECK_OR(13, NVML(nvmlGpuInstanceGetComputeInstanceRemainingCapacity)(gi, 0, &count) == 0 && count == 0);
              CHECK_OR(14, NVML(nvmlGpuInstanceDestroy)(gi) == NVML_ERROR_IN_USE);

              nvmlDevice_t mig = nullptr, parent = nullptr, by_uuid = nullptr;
              CHECK_OR(15, NVML(nvmlDeviceGetMigDeviceHandleByIndex)(device, 0, &mig) == NVML_SUCCESS);
              CHECK_OR(16, NVML(nvmlDeviceGetMigDeviceHandleByIndex)(device, 1, &parent) == NVML_ERROR_NOT_FOUND);
              CHECK_OR(17, NVML(nvmlDeviceGetDeviceHandleFromMigDeviceHandle)(mig, &parent) == 0 && parent == device);
              char text[128];
              CHECK_OR(18, NVML(nvmlDeviceGetName)(mig, text, sizeof text) == 0 &&
                               std::strcmp(text, "NVIDIA H100 80GB HBM3 MIG 3g.40gb") == 0);
              CHECK_OR(19, NVML(nvmlDeviceGetUUID)(mig, text, sizeof text) == 0 && std::strncmp(text, "MIG-", 4) == 0);
              CHECK_OR(20, NVML(nvmlDeviceGetHandleByUUID)(text, &by_uuid) == NVML_SUCCESS && by_uuid == mig);
              nvmlDeviceAttributes_t attributes = {};
              CHECK_OR(21, NVML(nvmlDeviceGetAttributes_v2)(mig, &attributes) == 0);
              CHECK_OR(22, attributes.multiprocessorCount == 60 && attributes.gpuInstanceSliceCount == 3);
              nvmlMemory_t memory = {};
              CHECK_OR(23, NVML(nvmlDeviceGetMemoryInfo)(mig, &memory) == 0);
              CHECK_OR(24, memory.total >> 20 == attributes.memorySizeMB && memory.used == 0);
              nvmlPciInfo_t pci = {};
              CHECK_OR(25, NVML(nvmlDeviceGetPciInfo_v3)(mig, &pci) == NVML_ERROR_NOT_SUPPORTED);
              nvmlUtilization_t rates = {};
              CHECK_OR(26, NVML(nvmlDeviceGetUtilizationRates)(device, &rates) == NVML_ERROR_NOT_SUPPORTED);

              CHECK_OR(27, NVML(nvmlComputeInstanceDestroy)(ci) == NVML_SUCCESS);
              CHECK_OR(28, NVML(nvmlComputeInstanceDestroy)(ci) == NVML_ERROR_INVALID_ARGUMENT);
              CHECK_OR(29, NVML(nvmlDeviceGetName)(mig, text, sizeof text) == NVML_ERROR_INVALID_ARGUMENT);
              nvmlReturn_t activation = NVML_SUCCESS;
              CHECK_OR(30, NVML(nvmlDeviceSetMigMode)(device, 0, &activation) == 0 && activation == NVML_ERROR_IN_USE);
              CHECK_OR(31, NVML(nvmlGpuInstanceDestroy)(gi) == NVML_SUCCESS);
              CHECK_OR(32, NVML(nvmlDeviceSetMigMode)(device, 0, &activation) == 0 && activation == NVML_SUCCESS);
              return 0;
            }));
}

TEST_F(NvmlTest, GivenProcessInInstance_ThenListedThereAndOnParentWithItsIds) {
  EXPECT_EQ(0, InChild([] {
              const nvmlDevice_t device = Start();
              nvmlGpuInstance_t gi = nullptr;
              nvmlComputeInstance_t ci = nullptr;
              CHECK_OR(1, NVML(nvmlDeviceCreateGpuInstance)(device, k1g, &gi) == NVML_SUCCESS);
              CHECK_OR(2, NVML(nvmlGpuInstanceCreateComputeInstance)(gi, 0, &ci) == NVML_SUCCESS);
              nvmlGpuInstance_t second = nullptr;
              nvmlComputeInstance_t second_ci = nullptr;
              CHECK_OR(3, NVML(nvmlDeviceCreateGpuInstance)(device, k1g, &second) == NVML_SUCCESS);
              CHECK_OR(4, NVML(nvmlGpuInstanceCreateComputeInstance)(second, 0, &second_ci) == NVML_SUCCESS);
              CHECK_OR(5, Machine::Get().UseInstance(0, 1, 0));
              Machine::Get().AddContext(0);
              CHECK_OR(6, Machine::Get().Charge(0, 4096, Use::kData));
              nvmlDevice_t mig[2] = {};
              CHECK_OR(7, NVML(nvmlDeviceGetMigDeviceHandleByIndex)(device, 0, &mig[0]) == NVML_SUCCESS);
              CHECK_OR(8, NVML(nvmlDeviceGetMigDeviceHandleByIndex)(device, 1, &mig[1]) == NVML_SUCCESS);
              nvmlProcessInfo_t info = {};
              unsigned int count = 1;
              CHECK_OR(9, NVML(nvmlDeviceGetComputeRunningProcesses_v3)(device, &count, &info) == 0 && count == 1);
              CHECK_OR(10, info.gpuInstanceId == 1 && info.computeInstanceId == 0 && info.usedGpuMemory == 4096);
              count = 1;
              CHECK_OR(11, NVML(nvmlDeviceGetComputeRunningProcesses_v3)(mig[0], &count, &info) == 0 && count == 0);
              count = 1;
              CHECK_OR(12, NVML(nvmlDeviceGetComputeRunningProcesses_v3)(mig[1], &count, &info) == 0 && count == 1);
              CHECK_OR(13, NVML(nvmlComputeInstanceDestroy)(second_ci) == NVML_ERROR_IN_USE);
              return 0;
            }));
}

TEST_F(NvmlTest, GivenABoardWithoutMig_WhenAsked_ThenNotSupported) {
  setenv("SIMGPU", "1xT4", 1);
  EXPECT_EQ(0, InChild([] {
              NVML(nvmlInit_v2)();
              nvmlDevice_t device = nullptr;
              NVML(nvmlDeviceGetHandleByIndex_v2)(0, &device);
              unsigned int a = 0, b = 0;
              nvmlReturn_t activation = NVML_SUCCESS;
              CHECK_OR(1, NVML(nvmlDeviceGetMigMode)(device, &a, &b) == NVML_ERROR_NOT_SUPPORTED);
              CHECK_OR(2, NVML(nvmlDeviceSetMigMode)(device, 1, &activation) == NVML_ERROR_NOT_SUPPORTED);
              CHECK_OR(3, NVML(nvmlDeviceGetMaxMigDeviceCount)(device, &a) == NVML_SUCCESS && a == 0);
              CHECK_OR(4, NVML(nvmlDeviceIsMigDeviceHandle)(device, &a) == NVML_SUCCESS && a == 0);
              return 0;
            }));
}

}  // namespace
}  // namespace simgpu::nvml_test
