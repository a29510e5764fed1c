// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <iterator>
#include <thread>
#include <vector>

#include "simgpu/machine/machine.h"
#include "simgpu/machine/real_clock.h"
#include "simgpu/nvml/testing/nvml.h"
#include "simgpu/simgpu.h"

namespace simgpu::nvml_test {
namespace {

constexpr unsigned long long kMiB = 1ull << 20;

constexpr const char* kNames[] = {
#define HAMI_NVML_HOOK(symbol) #symbol,
#define HAMI_NVML_PASS(symbol) #symbol,
#include "abi/nvml_api.inc"
};

// The test's own Machine attaches to the same file as the library's: it plays the CUDA side.
Machine& Sim() { return Machine::Get(); }

nvmlDevice_t Gpu(unsigned int index) {
  nvmlDevice_t device = nullptr;
  if (NVML(nvmlDeviceGetHandleByIndex_v2)(index, &device) != NVML_SUCCESS) _exit(99);
  return device;
}

TEST_F(NvmlTest, GivenEveryName_WhenLookedUp_ThenItIsThereAndAsksForInitFirst) {
  EXPECT_EQ(0, InChild([] {
              using Any = int (*)(void*, void*, void*, void*, void*, void*);
              for (const char* name : kNames) {
                const auto function = reinterpret_cast<Any>(Symbol(name));
                CHECK_OR(1, function != nullptr);
                const std::string text = name;
                // These need no session.
                if (text.find("nvmlInit") == 0 || text == "nvmlErrorString" || text.find("nvmlGetExcluded") == 0)
                  continue;
                if (function(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr) != NVML_ERROR_UNINITIALIZED) {
                  std::fprintf(stderr, "%s\n", name);
                  return 2;
                }
              }
              return 0;
            }));
}

TEST_F(NvmlTest, GivenSession_WhenEveryNameCalledWithNulls_ThenNothingCrashes) {
  EXPECT_EQ(0, InChild([] {
              using Any = int (*)(void*, void*, void*, void*, void*, void*);
              CHECK_OR(1, NVML(nvmlInit_v2)() == NVML_SUCCESS);
              for (const char* name : kNames) {
                const std::string text = name;
                if (text == "nvmlShutdown" || text == "nvmlErrorString") continue;
                reinterpret_cast<Any>(Symbol(name))(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
                if (text.find("nvmlDevice") != 0) continue;
                reinterpret_cast<Any>(Symbol(name))(Gpu(0), nullptr, nullptr, nullptr, nullptr, nullptr);
              }
              return 0;
            }));
}

// Only lower bounds: a busy host makes a call longer.
TEST_F(NvmlTest, GivenAnH200sTimes_ThenOpeningAttachingAndClosingTakeThose) {
  setenv("SIMGPU_PROFILE", "h200", 1);
  EXPECT_EQ(0, InChild([] {
              const auto took = [](auto call) {
                const std::int64_t begin = RealNow();
                call();
                return RealNow() - begin;
              };
              CHECK_OR(1, took([] { NVML(nvmlInit_v2)(); }) >= 1'750'000);
              CHECK_OR(2, took([] { Gpu(0); }) >= 6'100'000);
              CHECK_OR(3, took([] { Gpu(1); }) >= 6'100'000);
              CHECK_OR(4, took([] { NVML(nvmlShutdown)(); }) >= 2'500'000);
              return 0;
            }));
}

TEST_F(NvmlTest, GivenTwoInits_WhenShutDownTwice_ThenOnlyLastEndsSession) {
  EXPECT_EQ(0, InChild([] {
              unsigned int count = 0;
              CHECK_OR(1, NVML(nvmlShutdown)() == NVML_ERROR_UNINITIALIZED);
              CHECK_OR(2, NVML(nvmlInit_v2)() == NVML_SUCCESS && NVML(nvmlInitWithFlags)(0) == NVML_SUCCESS);
              CHECK_OR(3, NVML(nvmlShutdown)() == NVML_SUCCESS);
              CHECK_OR(4, NVML(nvmlDeviceGetCount_v2)(&count) == NVML_SUCCESS && count == 2);
              CHECK_OR(5, NVML(nvmlShutdown)() == NVML_SUCCESS);
              CHECK_OR(6, NVML(nvmlDeviceGetCount_v2)(&count) == NVML_ERROR_UNINITIALIZED);
              CHECK_OR(7, std::strcmp(NVML(nvmlErrorString)(NVML_ERROR_GPU_IS_LOST), "GPU is lost") == 0);
              CHECK_OR(8, std::strcmp(NVML(nvmlErrorString)(static_cast<nvmlReturn_t>(777)), "Unknown Error") == 0);
              return 0;
            }));
}

TEST_F(NvmlTest, GivenABrokenConfiguration_WhenInit_ThenTheDriverIsNotLoaded) {
  setenv("SIMGPU", "1xVoodoo2", 1);
  EXPECT_EQ(0, InChild([] {
              fclose(stderr);
              return NVML(nvmlInit_v2)() == NVML_ERROR_DRIVER_NOT_LOADED ? 0 : 1;
            }));
}

TEST_F(NvmlTest, GivenADevice_WhenFoundByEachKey_ThenItIsTheSame) {
  EXPECT_EQ(0, InChild([] {
              NVML(nvmlInit_v2)();
              char uuid[96], other[96], name[96], serial[32];
              nvmlPciInfo_t pci = {};
              nvmlDevice_t found = nullptr;
              unsigned int index = 9, minor = 9;
              CHECK_OR(1, NVML(nvmlDeviceGetUUID)(Gpu(1), uuid, sizeof uuid) == NVML_SUCCESS);
              CHECK_OR(2, std::strncmp(uuid, "GPU-", 4) == 0 && std::strlen(uuid) == 40);
              CHECK_OR(3, NVML(nvmlDeviceGetHandleByUUID)(uuid, &found) == NVML_SUCCESS && found == Gpu(1));
              CHECK_OR(4, NVML(nvmlDeviceGetPciInfo_v3)(Gpu(1), &pci) == NVML_SUCCESS);
              CHECK_OR(5, NVML(nvmlDeviceGetHandleByPciBusId_v2)(pci.busId, &found) == NVML_SUCCESS && found == Gpu(1));
              CHECK_OR(6, NVML(nvmlDeviceGetHandleByPciBusId_v2)(pci.busIdLegacy, &found) == NVML_SUCCESS);
              CHECK_OR(7, NVML(nvmlDeviceGetSerial)(Gpu(1), serial, sizeof serial) == NVML_SUCCESS);
              CHECK_OR(8, NVML(nvmlDeviceGetHandleBySerial)(serial, &found) == NVML_SUCCESS && found == Gpu(1));
              CHECK_OR(9, NVML(nvmlDeviceGetIndex)(Gpu(1), &index) == NVML_SUCCESS && index == 1);
              CHECK_OR(10, NVML(nvmlDeviceGetMinorNumber)(Gpu(1), &minor) == NVML_SUCCESS && minor == 1);
              CHECK_OR(11, NVML(nvmlDeviceGetUUID)(Gpu(0), other, sizeof other) == NVML_SUCCESS);
              CHECK_OR(12, std::strcmp(uuid, other) != 0);
              CHECK_OR(13, NVML(nvmlDeviceGetName)(Gpu(0), name, sizeof name) == NVML_SUCCESS);
              CHECK_OR(14, std::strcmp(name, "NVIDIA H100 80GB HBM3") == 0);
              CHECK_OR(15, NVML(nvmlDeviceGetName)(Gpu(0), name, 5) == NVML_ERROR_INSUFFICIENT_SIZE);
              CHECK_OR(16, NVML(nvmlDeviceGetHandleByUUID)("GPU-0", &found) == NVML_ERROR_NOT_FOUND);
              CHECK_OR(17, NVML(nvmlDeviceGetHandleByPciBusId_v2)("nonsense", &found) == NVML_ERROR_INVALID_ARGUMENT);
              CHECK_OR(18, NVML(nvmlDeviceGetHandleByIndex_v2)(2, &found) == NVML_ERROR_INVALID_ARGUMENT);
              CHECK_OR(19, NVML(nvmlDeviceGetName)(reinterpret_cast<nvmlDevice_t>(uuid), name, sizeof name) ==
                               NVML_ERROR_INVALID_ARGUMENT);
              return 0;
            }));
}

TEST_F(NvmlTest, GivenUsedMemory_ThenBothVersionsDifferByTheReservedPart) {
  EXPECT_EQ(0, InChild([] {
              NVML(nvmlInit_v2)();
              CHECK_OR(1, Sim().Charge(0, 768 * kMiB, Use::kData));
              nvmlMemory_t v1 = {};
              nvmlMemory_v2_t v2 = {};
              CHECK_OR(2, NVML(nvmlDeviceGetMemoryInfo)(Gpu(0), &v1) == NVML_SUCCESS);
              CHECK_OR(3, NVML(nvmlDeviceGetMemoryInfo_v2)(Gpu(0), &v2) == NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
              v2.version = nvmlMemory_v2;
              CHECK_OR(4, NVML(nvmlDeviceGetMemoryInfo_v2)(Gpu(0), &v2) == NVML_SUCCESS);
              CHECK_OR(5, v1.total == 81559 * kMiB && v2.total == v1.total);
              CHECK_OR(6, v2.used == 768 * kMiB && v1.used == v2.used + v2.reserved && v2.reserved > 0);
              CHECK_OR(7, v1.free == v2.free && v1.free + v1.used == v1.total);
              CHECK_OR(8, v2.free + v2.used + v2.reserved == v2.total);
              return 0;
            }));
}

// A process that holds memory until it is killed.
struct Holder {
  pid_t pid = -1;
  explicit Holder(unsigned long long bytes) {
    int ready[2];
    if (pipe(ready) != 0) _exit(98);
    pid = fork();
    if (pid == 0) {
      alarm(50);
      Sim().AddContext(0);
      const bool ok = Sim().Charge(0, bytes, Use::kData);
      if (!ok || write(ready[1], "x", 1) != 1) _exit(1);
      while (true) pause();
    }
    char c = 0;
    if (read(ready[0], &c, 1) != 1) _exit(97);
    close(ready[0]);
    close(ready[1]);
  }
  ~Holder() {
    if (pid <= 0) return;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
};

TEST_F(NvmlTest, GivenProcesses_WhenListed_ThenLayoutsAndTwoCallsAsInHeader) {
  Config("option pid_offset=100000");
  EXPECT_EQ(0, InChild([] {
              NVML(nvmlInit_v2)();
              unsigned int count = 0;
              CHECK_OR(1, NVML(nvmlDeviceGetComputeRunningProcesses_v3)(Gpu(0), &count, nullptr) == NVML_SUCCESS &&
                              count == 0);
              const auto host = [](const Holder& holder) { return static_cast<unsigned int>(holder.pid) + 100000; };
              Holder one(5 * kMiB);
              {
                Holder two(7 * kMiB);
                CHECK_OR(2, NVML(nvmlDeviceGetComputeRunningProcesses_v3)(Gpu(0), &count, nullptr) ==
                                    NVML_ERROR_INSUFFICIENT_SIZE &&
                                count == 2);
                nvmlProcessInfo_t infos[4] = {};
                count = 1;
                CHECK_OR(3, NVML(nvmlDeviceGetComputeRunningProcesses_v3)(Gpu(0), &count, infos) ==
                                NVML_ERROR_INSUFFICIENT_SIZE);
                count = 4;
                CHECK_OR(4, NVML(nvmlDeviceGetComputeRunningProcesses_v3)(Gpu(0), &count, infos) == NVML_SUCCESS);
                CHECK_OR(5, count == 2 && infos[0].pid == host(one) && infos[0].usedGpuMemory == 5 * kMiB);
                CHECK_OR(6, infos[1].pid == host(two) && infos[1].usedGpuMemory == 7 * kMiB);
                CHECK_OR(7, infos[1].gpuInstanceId == 0xffffffff && infos[1].computeInstanceId == 0xffffffff);
                static_assert(sizeof(nvmlProcessInfo_v1_t) == 16 && sizeof(nvmlProcessInfo_t) == 24);
                nvmlProcessInfo_v1_t old[3];
                std::memset(old, 0x5a, sizeof old);
                count = 2;
                CHECK_OR(8, NVML(nvmlDeviceGetComputeRunningProcesses)(Gpu(0), &count, old) == NVML_SUCCESS);
                CHECK_OR(9, old[1].pid == host(two) && old[1].usedGpuMemory == 7 * kMiB && old[2].pid == 0x5a5a5a5a);
              }
              nvmlProcessInfo_t info = {};
              count = 1;  // the killed one is gone at once
              CHECK_OR(10, NVML(nvmlDeviceGetComputeRunningProcesses_v2)(Gpu(0), &count, &info) == NVML_SUCCESS &&
                               count == 1 && info.pid == host(one));
              CHECK_OR(11, NVML(nvmlDeviceGetGraphicsRunningProcesses_v3)(Gpu(0), &count, &info) == NVML_SUCCESS &&
                               count == 0);
              nvmlProcessDetail_v1_t detail = {};
              nvmlProcessDetailList_t list = {nvmlProcessDetailList_v1, NVML_PROCESS_MODE_COMPUTE, 1, &detail};
              CHECK_OR(12, NVML(nvmlDeviceGetRunningProcessDetailList)(Gpu(0), &list) == NVML_SUCCESS &&
                               detail.pid == host(one) && detail.usedGpuMemory == 5 * kMiB);
              return 0;
            }));
}

TEST_F(NvmlTest, GivenWork_WhenUtilisationIsAsked_ThenAllCallsAgree) {
  Config("option clock=virtual nvml_lag_ms=100 nvml_period_ms=100");
  EXPECT_EQ(
      0, InChild([] {
        NVML(nvmlInit_v2)();
        Sim().AddContext(0);
        Sim().SleepUntil(1'000'000'000);
        Sim().LockArbiter(0);
        const int ctx = Sim().arbiter(0).Attach(Sim().slot(), 0);
        Sim().arbiter(0).Advance(0, 1'000'000'000);
        Sim().arbiter(0).Raise(ctx, 60'000'000);
        Sim().UnlockArbiter(0);
        Sim().SleepUntil(1'200'000'000);
        nvmlUtilization_t rates = {};
        CHECK_OR(1, NVML(nvmlDeviceGetUtilizationRates)(Gpu(0), &rates) == NVML_SUCCESS && rates.gpu == 60);
        unsigned int count = 0;
        CHECK_OR(2, NVML(nvmlDeviceGetProcessUtilization)(Gpu(0), nullptr, &count, 0) == NVML_ERROR_INSUFFICIENT_SIZE &&
                        count > 0);
        std::vector<nvmlProcessUtilizationSample_t> samples(count);
        CHECK_OR(3, NVML(nvmlDeviceGetProcessUtilization)(Gpu(0), samples.data(), &count, 0) == NVML_SUCCESS);
        CHECK_OR(4, count == 1 && samples[0].smUtil == 60 && samples[0].pid == static_cast<unsigned>(getpid()));
        const unsigned long long stamp = samples[0].timeStamp;
        CHECK_OR(5, stamp > 1'600'000'000'000'000);
        count = 1;
        CHECK_OR(6,
                 NVML(nvmlDeviceGetProcessUtilization)(Gpu(0), samples.data(), &count, stamp) == NVML_ERROR_NOT_FOUND);
        nvmlProcessUtilizationInfo_v1_t info[4] = {};
        nvmlProcessesUtilizationInfo_t all = {nvmlProcessesUtilizationInfo_v1, 4, stamp - 1, info};
        CHECK_OR(7, NVML(nvmlDeviceGetProcessesUtilizationInfo)(Gpu(0), &all) == NVML_SUCCESS);
        CHECK_OR(8, all.processSamplesCount == 1 && info[0].smUtil == 60 && info[0].timeStamp == stamp);
        nvmlSample_t history[120] = {};
        nvmlValueType_t type = NVML_VALUE_TYPE_DOUBLE;
        count = 120;
        CHECK_OR(9, NVML(nvmlDeviceGetSamples)(Gpu(0), NVML_GPU_UTILIZATION_SAMPLES, stamp - 1, &type, &count,
                                               history) == NVML_SUCCESS);
        CHECK_OR(10, count == 1 && history[0].sampleValue.uiVal == 60 && type == NVML_VALUE_TYPE_UNSIGNED_INT);
        unsigned int watt = 0, celsius = 0;
        CHECK_OR(11, NVML(nvmlDeviceGetPowerUsage)(Gpu(0), &watt) == NVML_SUCCESS && watt == 448'000);
        CHECK_OR(12, NVML(nvmlDeviceGetTemperature)(Gpu(0), NVML_TEMPERATURE_GPU, &celsius) == NVML_SUCCESS);
        CHECK_OR(13, celsius == 52);
        const auto busy = reinterpret_cast<decltype(&simgpu_busy_ns)>(Symbol("simgpu_busy_ns"));
        CHECK_OR(14, busy(0, 0) == 60'000'000 && busy(0, getpid()) == 60'000'000 && busy(1, 0) == 0);
        return 0;
      }));
}

TEST_F(NvmlTest, GivenSetValues_WhenTheSensorsAreRead_ThenTheyShowThem) {
  setenv("SIMGPU", "1xRTX4090", 1);
  Config(
      "set device=0 temperature_c=41\nset device=0 power_w=123\nset device=0 fan_percent=37\nset device=0 "
      "decoder_util=9");
  EXPECT_EQ(0, InChild([] {
              NVML(nvmlInit_v2)();
              unsigned int value = 0, period = 0;
              CHECK_OR(1, NVML(nvmlDeviceGetTemperature)(Gpu(0), NVML_TEMPERATURE_GPU, &value) == 0 && value == 41);
              nvmlTemperature_t t = {nvmlTemperature_v1, NVML_TEMPERATURE_GPU, 0};
              CHECK_OR(2, NVML(nvmlDeviceGetTemperatureV)(Gpu(0), &t) == 0 && t.temperature == 41);
              CHECK_OR(3, NVML(nvmlDeviceGetPowerUsage)(Gpu(0), &value) == 0 && value == 123'000);
              CHECK_OR(4, NVML(nvmlDeviceGetFanSpeed)(Gpu(0), &value) == 0 && value == 37);
              CHECK_OR(5, NVML(nvmlDeviceGetFanSpeed_v2)(Gpu(0), 2, &value) == NVML_ERROR_INVALID_ARGUMENT);
              CHECK_OR(6, NVML(nvmlDeviceGetDecoderUtilization)(Gpu(0), &value, &period) == 0 && value == 9);
              CHECK_OR(7, NVML(nvmlDeviceGetSerial)(Gpu(0), nullptr, 0) == NVML_ERROR_NOT_SUPPORTED);
              nvmlEnableState_t a, b;
              CHECK_OR(8, NVML(nvmlDeviceGetEccMode)(Gpu(0), &a, &b) == NVML_ERROR_NOT_SUPPORTED);
              CHECK_OR(9, NVML(nvmlDeviceGetNvLinkState)(Gpu(0), 0, &a) == NVML_ERROR_NOT_SUPPORTED);
              return 0;
            }));
}

TEST_F(NvmlTest, GivenEightBoardsOnSwitches_ThenEveryLinkLeadsToASwitch) {
  setenv("SIMGPU", "8xH100", 1);
  Config("link device=0 link=3 state=down");
  EXPECT_EQ(0, InChild([] {
              NVML(nvmlInit_v2)();
              unsigned int up = 0;
              for (unsigned int link = 0; link < 18; ++link) {
                nvmlEnableState_t state = NVML_FEATURE_DISABLED;
                CHECK_OR(1, NVML(nvmlDeviceGetNvLinkState)(Gpu(0), link, &state) == NVML_SUCCESS);
                nvmlPciInfo_t pci = {};
                nvmlIntNvLinkDeviceType_t type = NVML_NVLINK_DEVICE_TYPE_UNKNOWN;
                CHECK_OR(2, NVML(nvmlDeviceGetNvLinkRemoteDeviceType)(Gpu(0), link, &type) == NVML_SUCCESS);
                const nvmlReturn_t remote = NVML(nvmlDeviceGetNvLinkRemotePciInfo_v2)(Gpu(0), link, &pci);
                if (state == NVML_FEATURE_ENABLED) {
                  ++up;
                  CHECK_OR(3, type == NVML_NVLINK_DEVICE_TYPE_SWITCH && remote == NVML_SUCCESS && pci.busId[0] != 0);
                } else {
                  CHECK_OR(4, link == 3 && remote == NVML_ERROR_NOT_SUPPORTED);
                }
              }
              CHECK_OR(5, up == 17);
              nvmlEnableState_t state;
              CHECK_OR(6, NVML(nvmlDeviceGetNvLinkState)(Gpu(0), 18, &state) == NVML_ERROR_INVALID_ARGUMENT);
              nvmlGpuTopologyLevel_t near = NVML_TOPOLOGY_SYSTEM, far = NVML_TOPOLOGY_INTERNAL;
              CHECK_OR(7, NVML(nvmlDeviceGetTopologyCommonAncestor)(Gpu(0), Gpu(3), &near) == 0);
              CHECK_OR(8, NVML(nvmlDeviceGetTopologyCommonAncestor)(Gpu(0), Gpu(4), &far) == 0);
              CHECK_OR(9, near == NVML_TOPOLOGY_NODE && far == NVML_TOPOLOGY_SYSTEM);
              nvmlGpuP2PStatus_t status = NVML_P2P_STATUS_UNKNOWN;
              CHECK_OR(10, NVML(nvmlDeviceGetP2PStatus)(Gpu(0), Gpu(7), NVML_P2P_CAPS_INDEX_NVLINK, &status) == 0 &&
                               status == NVML_P2P_STATUS_OK);
              nvmlFieldValue_t fields[3] = {};
              fields[0].fieldId = NVML_FI_DEV_NVLINK_LINK_COUNT;
              fields[1].fieldId = NVML_FI_DEV_NVSWITCH_CONNECTED_LINK_COUNT;
              fields[2].fieldId = 9999;
              CHECK_OR(11, NVML(nvmlDeviceGetFieldValues)(Gpu(0), 3, fields) == NVML_SUCCESS);
              CHECK_OR(12, fields[0].value.uiVal == 18 && fields[1].value.uiVal == 17);
              CHECK_OR(13, fields[2].nvmlReturn == NVML_ERROR_NOT_SUPPORTED);
              nvmlGpuFabricInfoV_t fabric;
              std::memset(&fabric, 0x5a, sizeof fabric);
              fabric.version = nvmlGpuFabricInfo_v2;
              CHECK_OR(14, NVML(nvmlDeviceGetGpuFabricInfoV)(Gpu(0), &fabric) == NVML_SUCCESS);
              CHECK_OR(15, fabric.state == NVML_GPU_FABRIC_STATE_COMPLETED);
              return 0;
            }));
}

TEST_F(NvmlTest, GivenEventSet_WhenXidsCome_ThenOnlyRegisteredDevicesHeard) {
  EXPECT_EQ(0, InChild([] {
              NVML(nvmlInit_v2)();
              std::string error;
              CHECK_OR(1, Sim().Inject("xid device=1 code=31", &error));  // before the set: not heard
              nvmlEventSet_t set = nullptr;
              CHECK_OR(2, NVML(nvmlEventSetCreate)(&set) == NVML_SUCCESS);
              unsigned long long types = 0;
              CHECK_OR(3, NVML(nvmlDeviceGetSupportedEventTypes)(Gpu(1), &types) == NVML_SUCCESS);
              CHECK_OR(4, (types & nvmlEventTypeXidCriticalError) != 0);
              CHECK_OR(5, NVML(nvmlDeviceRegisterEvents)(Gpu(1), types, set) == NVML_SUCCESS);
              CHECK_OR(6, NVML(nvmlDeviceRegisterEvents)(Gpu(1), nvmlEventTypeClock, set) == NVML_ERROR_NOT_SUPPORTED);
              nvmlEventData_t data = {};
              CHECK_OR(7, NVML(nvmlEventSetWait_v2)(set, &data, 10) == NVML_ERROR_TIMEOUT);
              CHECK_OR(8, Sim().Inject("xid device=0 code=13\nxid device=1 code=48 gi=3 ci=1", &error));
              CHECK_OR(9, NVML(nvmlEventSetWait_v2)(set, &data, 5000) == NVML_SUCCESS);
              CHECK_OR(10, data.device == Gpu(1) && data.eventType == nvmlEventTypeXidCriticalError &&
                               data.eventData == 48 && data.gpuInstanceId == 3 && data.computeInstanceId == 1);
              // A waiter is woken by another process.
              const pid_t pid = fork();
              if (pid == 0) {
                usleep(20'000);
                _exit(Machine::Get().Inject("lost device=1", &error) ? 0 : 1);
              }
              CHECK_OR(11, NVML(nvmlEventSetWait_v2)(set, &data, 20'000) == NVML_SUCCESS && data.eventData == 79);
              waitpid(pid, nullptr, 0);
              char uuid[96];
              CHECK_OR(12, NVML(nvmlDeviceGetUUID)(data.device, uuid, sizeof uuid) == NVML_ERROR_GPU_IS_LOST);
              CHECK_OR(13, NVML(nvmlEventSetFree)(set) == NVML_SUCCESS);
              CHECK_OR(14, NVML(nvmlEventSetWait_v2)(set, &data, 0) == NVML_ERROR_INVALID_ARGUMENT);
              return 0;
            }));
}

TEST_F(NvmlTest, GivenFutureEvent_WhenAnotherComes_ThenThatOneIsNotHeldBack) {
  EXPECT_EQ(0, InChild([] {
              NVML(nvmlInit_v2)();
              nvmlEventSet_t set = nullptr;
              CHECK_OR(1, NVML(nvmlEventSetCreate)(&set) == NVML_SUCCESS);
              CHECK_OR(2, NVML(nvmlDeviceRegisterEvents)(Gpu(0), nvmlEventTypeXidCriticalError, set) == NVML_SUCCESS);
              std::string error;
              CHECK_OR(3, Sim().Inject("xid device=0 code=31 after_ms=300\nxid device=0 code=48", &error));
              nvmlEventData_t data = {};
              CHECK_OR(4, NVML(nvmlEventSetWait_v2)(set, &data, 5000) == NVML_SUCCESS && data.eventData == 48);
              // Who comes between hears of what comes after.
              nvmlEventSet_t late = nullptr;
              CHECK_OR(5, NVML(nvmlEventSetCreate)(&late) == NVML_SUCCESS);
              CHECK_OR(6, NVML(nvmlDeviceRegisterEvents)(Gpu(0), nvmlEventTypeXidCriticalError, late) == NVML_SUCCESS);
              CHECK_OR(7, NVML(nvmlEventSetWait_v2)(set, &data, 5000) == NVML_SUCCESS && data.eventData == 31);
              CHECK_OR(8, NVML(nvmlEventSetWait_v2)(late, &data, 5000) == NVML_SUCCESS && data.eventData == 31);
              CHECK_OR(9, NVML(nvmlEventSetWait_v2)(set, &data, 0) == NVML_ERROR_TIMEOUT);
              return 0;
            }));
}

TEST_F(NvmlTest, GivenTwoThreadsWaitingForSet_WhenEventComes_ThenOneHearsIt) {
  EXPECT_EQ(0, InChild([] {
              NVML(nvmlInit_v2)();
              for (int round = 0; round < 5; ++round) {
                nvmlEventSet_t set = nullptr;
                CHECK_OR(1, NVML(nvmlEventSetCreate)(&set) == NVML_SUCCESS);
                CHECK_OR(2, NVML(nvmlDeviceRegisterEvents)(Gpu(0), nvmlEventTypeXidCriticalError, set) == NVML_SUCCESS);
                nvmlReturn_t results[4] = {};
                std::vector<std::thread> waiters;
                for (nvmlReturn_t& result : results) {
                  waiters.emplace_back([&result, set] {
                    nvmlEventData_t data = {};
                    result = NVML(nvmlEventSetWait_v2)(set, &data, 300);
                  });
                }
                usleep(50'000);
                std::string error;
                CHECK_OR(3, Sim().Inject("xid device=0 code=48", &error));
                for (std::thread& waiter : waiters) waiter.join();
                CHECK_OR(4, std::count(std::begin(results), std::end(results), NVML_SUCCESS) == 1);
                CHECK_OR(5, std::count(std::begin(results), std::end(results), NVML_ERROR_TIMEOUT) == 3);
                CHECK_OR(6, NVML(nvmlEventSetFree)(set) == NVML_SUCCESS);
              }
              return 0;
            }));
}

TEST_F(NvmlTest, GivenClockBelowIdleOne_WhenClocksListed_ThenThereIsOne) {
  Config("device * sm_clock_mhz=100");
  EXPECT_EQ(0, InChild([] {
              NVML(nvmlInit_v2)();
              unsigned int count = 1, memory = 0, clock = 0;
              CHECK_OR(1, NVML(nvmlDeviceGetSupportedMemoryClocks)(Gpu(0), &count, &memory) == NVML_SUCCESS);
              CHECK_OR(2, NVML(nvmlDeviceGetSupportedGraphicsClocks)(Gpu(0), memory, &count, &clock) == NVML_SUCCESS);
              CHECK_OR(3, count == 1 && clock == 100);
              return 0;
            }));
}

TEST_F(NvmlTest, GivenFaultsByName_WhenCalled_ThenTheAnswerIsTheFaults) {
  Config("fault call=nvmlDeviceGetMemoryInfo* error=unknown device=1\nfault call=nvmlInit_v2 error=4 nth=2");
  EXPECT_EQ(0, InChild([] {
              CHECK_OR(1, NVML(nvmlInit_v2)() == NVML_SUCCESS);
              CHECK_OR(2, NVML(nvmlInit_v2)() == NVML_ERROR_NO_PERMISSION);
              nvmlMemory_t memory = {};
              CHECK_OR(3, NVML(nvmlDeviceGetMemoryInfo)(Gpu(0), &memory) == NVML_SUCCESS);
              CHECK_OR(4, NVML(nvmlDeviceGetMemoryInfo)(Gpu(1), &memory) == NVML_ERROR_UNKNOWN);
              const auto inject = reinterpret_cast<decltype(&simgpu_inject)>(Symbol("simgpu_inject"));
              char why[256];
              CHECK_OR(5, inject("clear", why, sizeof why) == 1);
              CHECK_OR(6, NVML(nvmlDeviceGetMemoryInfo)(Gpu(1), &memory) == NVML_SUCCESS);
              CHECK_OR(7, inject("clera", why, sizeof why) == 0 && std::strstr(why, "clera") != nullptr);
              return 0;
            }));
}

}  // namespace
}  // namespace simgpu::nvml_test
