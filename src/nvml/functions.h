// SPDX-License-Identifier: Apache-2.0
//
// The functions of the loaded library, by their exported names; null where it lacks one. Owns the session: the last
// user shuts it down. For the sources of this folder only.

#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "abi/nvml_abi.h"
#include "base/result.h"
#include "nvml/nvml.h"

namespace hami::nvml {

#define HAMI_NVML_USED(X)                          \
  X(nvmlInit_v2)                                   \
  X(nvmlShutdown)                                  \
  X(nvmlErrorString)                               \
  X(nvmlSystemGetDriverVersion)                    \
  X(nvmlSystemGetCudaDriverVersion_v2)             \
  X(nvmlDeviceGetCount_v2)                         \
  X(nvmlDeviceGetHandleByIndex_v2)                 \
  X(nvmlDeviceGetHandleByUUID)                     \
  X(nvmlDeviceGetUUID)                             \
  X(nvmlDeviceGetName)                             \
  X(nvmlDeviceGetMinorNumber)                      \
  X(nvmlDeviceGetPciInfo_v3)                       \
  X(nvmlDeviceGetNumaNodeId)                       \
  X(nvmlDeviceGetMemoryInfo)                       \
  X(nvmlDeviceGetMemoryInfo_v2)                    \
  X(nvmlDeviceGetCudaComputeCapability)            \
  X(nvmlDeviceGetComputeMode)                      \
  X(nvmlDeviceSetComputeMode)                      \
  X(nvmlDeviceGetMigMode)                          \
  X(nvmlDeviceGetMaxMigDeviceCount)                \
  X(nvmlDeviceGetMigDeviceHandleByIndex)           \
  X(nvmlDeviceSetMigMode)                          \
  X(nvmlDeviceGetGpuInstanceProfileInfo)           \
  X(nvmlDeviceGetGpuInstanceProfileInfoV)          \
  X(nvmlDeviceGetGpuInstancePossiblePlacements_v2) \
  X(nvmlDeviceGetGpuInstances)                     \
  X(nvmlDeviceGetGpuInstanceById)                  \
  X(nvmlDeviceCreateGpuInstanceWithPlacement)      \
  X(nvmlGpuInstanceDestroy)                        \
  X(nvmlGpuInstanceGetInfo)                        \
  X(nvmlGpuInstanceGetComputeInstanceProfileInfo)  \
  X(nvmlGpuInstanceCreateComputeInstance)          \
  X(nvmlGpuInstanceGetComputeInstanceById)         \
  X(nvmlComputeInstanceDestroy)                    \
  X(nvmlComputeInstanceGetInfo_v2)                 \
  X(nvmlDeviceGetGpuInstanceId)                    \
  X(nvmlDeviceGetComputeInstanceId)                \
  X(nvmlDeviceGetUtilizationRates)                 \
  X(nvmlDeviceGetEncoderUtilization)               \
  X(nvmlDeviceGetDecoderUtilization)               \
  X(nvmlDeviceGetTemperature)                      \
  X(nvmlDeviceGetFieldValues)                      \
  X(nvmlDeviceGetPowerUsage)                       \
  X(nvmlDeviceGetEnforcedPowerLimit)               \
  X(nvmlDeviceGetTotalEnergyConsumption)           \
  X(nvmlDeviceGetFanSpeed)                         \
  X(nvmlDeviceGetClockInfo)                        \
  X(nvmlDeviceGetMaxClockInfo)                     \
  X(nvmlDeviceGetPerformanceState)                 \
  X(nvmlDeviceGetCurrentClocksEventReasons)        \
  X(nvmlDeviceGetCurrentClocksThrottleReasons)     \
  X(nvmlDeviceGetCurrPcieLinkGeneration)           \
  X(nvmlDeviceGetCurrPcieLinkWidth)                \
  X(nvmlDeviceGetMaxPcieLinkGeneration)            \
  X(nvmlDeviceGetMaxPcieLinkWidth)                 \
  X(nvmlDeviceGetPcieReplayCounter)                \
  X(nvmlDeviceGetPcieThroughput)                   \
  X(nvmlDeviceGetTotalEccErrors)                   \
  X(nvmlDeviceGetRemappedRows)                     \
  X(nvmlDeviceGetRetiredPages)                     \
  X(nvmlDeviceGetRetiredPagesPendingStatus)        \
  X(nvmlDeviceGetTopologyCommonAncestor)           \
  X(nvmlDeviceGetNvLinkState)                      \
  X(nvmlDeviceGetNvLinkRemotePciInfo_v2)           \
  X(nvmlDeviceGetNvLinkRemoteDeviceType)           \
  X(nvmlDeviceGetComputeRunningProcesses_v3)       \
  X(nvmlDeviceGetGraphicsRunningProcesses_v3)      \
  X(nvmlDeviceGetMPSComputeRunningProcesses_v3)    \
  X(nvmlDeviceGetProcessUtilization)               \
  X(nvmlEventSetCreate)                            \
  X(nvmlEventSetFree)                              \
  X(nvmlEventSetWait_v2)                           \
  X(nvmlDeviceGetSupportedEventTypes)              \
  X(nvmlDeviceRegisterEvents)

struct Functions {
  Functions() = default;
  Functions(const Functions&) = delete;
  Functions& operator=(const Functions&) = delete;
  ~Functions();

  void* handle = nullptr;
  bool initialised = false;
#define HAMI_NVML_MEMBER(name) decltype(&::name) name = nullptr;  // NOLINT(bugprone-macro-parentheses): a declaration
  HAMI_NVML_USED(HAMI_NVML_MEMBER)
#undef HAMI_NVML_MEMBER

  std::string Explain(nvmlReturn_t code) const;
};

Condition ConditionOf(nvmlReturn_t code);

// The GPU of that UUID, or why it can not be had.
struct Found {
  nvmlDevice_t device{};
  nvmlReturn_t code = NVML_SUCCESS;
};
Found Find(const Functions& f, const std::string& uuid);

// The result of a function whose last parameter is where it goes; nothing when it is missing or fails.
template <typename T, typename Function, typename... Arguments>
std::optional<T> Get(Function function, Arguments... arguments) {
  T value{};
  if (function == nullptr || function(arguments..., &value) != NVML_SUCCESS) return std::nullopt;
  return value;
}

std::optional<Memory> MemoryOf(const Functions& f, nvmlDevice_t device);

// Calls LIST(&count, data) with room that grows until everything fits; nothing when it fails.
template <typename Item, typename List>
std::optional<std::vector<Item>> ReadList(const List& list, nvmlReturn_t empty = NVML_SUCCESS) {
  std::vector<Item> items(64);
  // What is listed may grow between two calls; a few rounds are enough for any but a storm.
  for (int round = 0; round < 8; ++round) {
    auto count = static_cast<unsigned>(items.size());
    const nvmlReturn_t code = list(&count, items.data());
    if (code == NVML_ERROR_INSUFFICIENT_SIZE && count < 1U << 20U) {
      items.resize(std::size_t{count} + 64);
      continue;
    }
    if (code == empty && code != NVML_SUCCESS) return std::vector<Item>{};
    if (code != NVML_SUCCESS) return std::nullopt;
    items.resize(std::min<std::size_t>(count, items.size()));
    return items;
  }
  return std::nullopt;
}

}  // namespace hami::nvml
