// SPDX-License-Identifier: Apache-2.0
//
// Switches of a GPU: persistence, compute mode, display, driver model, virtualisation, accounting.
#include "simgpu/nvml/common.h"

using namespace simgpu;
using namespace simgpu::nvml;
using V = Machine::Value;

namespace {
nvmlReturn_t GiveState(nvmlEnableState_t* to, bool on) {
  SIMGPU_NVML_NEED(to != nullptr);
  *to = on ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
  return NVML_SUCCESS;
}
}  // namespace

SIMGPU_NVML nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t* mode) {
  SIMGPU_NVML_GPU(nvmlDeviceGetPersistenceMode, device);
  return GiveState(mode, ValueOr(dev, V::kPersistence, 1) != 0);
}
SIMGPU_NVML nvmlDeviceSetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t mode) {
  SIMGPU_NVML_GPU(nvmlDeviceSetPersistenceMode, device);
  SIMGPU_NVML_NEED(mode == NVML_FEATURE_ENABLED || mode == NVML_FEATURE_DISABLED);
  Sim().SetValue(dev, V::kPersistence, mode == NVML_FEATURE_ENABLED ? 1 : 0);
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t* mode) {
  SIMGPU_NVML_GPU(nvmlDeviceGetComputeMode, device);
  SIMGPU_NVML_NEED(mode != nullptr);
  *mode = static_cast<nvmlComputeMode_t>(ValueOr(dev, V::kComputeMode, NVML_COMPUTEMODE_DEFAULT));
  return NVML_SUCCESS;
}
SIMGPU_NVML nvmlDeviceSetComputeMode(nvmlDevice_t device, nvmlComputeMode_t mode) {
  SIMGPU_NVML_GPU(nvmlDeviceSetComputeMode, device);
  SIMGPU_NVML_NEED(mode >= NVML_COMPUTEMODE_DEFAULT && mode < NVML_COMPUTEMODE_COUNT);
  if (mode == NVML_COMPUTEMODE_EXCLUSIVE_THREAD) return NVML_ERROR_NOT_SUPPORTED;
  Sim().SetValue(dev, V::kComputeMode, static_cast<std::uint64_t>(mode));
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetDisplayMode(nvmlDevice_t device, nvmlEnableState_t* mode) {
  SIMGPU_NVML_GPU(nvmlDeviceGetDisplayMode, device);
  return GiveState(mode, false);
}
SIMGPU_NVML nvmlDeviceGetDisplayActive(nvmlDevice_t device, nvmlEnableState_t* active) {
  SIMGPU_NVML_GPU(nvmlDeviceGetDisplayActive, device);
  return GiveState(active, false);
}

SIMGPU_NVML nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, nvmlGpuVirtualizationMode_t* mode) {
  SIMGPU_NVML_GPU(nvmlDeviceGetVirtualizationMode, device);
  SIMGPU_NVML_NEED(mode != nullptr);
  *mode = NVML_GPU_VIRTUALIZATION_MODE_NONE;
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetAccountingMode(nvmlDevice_t device, nvmlEnableState_t* mode) {
  SIMGPU_NVML_GPU(nvmlDeviceGetAccountingMode, device);
  return GiveState(mode, ValueOr(dev, V::kAccounting, 0) != 0);
}
SIMGPU_NVML nvmlDeviceSetAccountingMode(nvmlDevice_t device, nvmlEnableState_t mode) {
  SIMGPU_NVML_GPU(nvmlDeviceSetAccountingMode, device);
  SIMGPU_NVML_NEED(mode == NVML_FEATURE_ENABLED || mode == NVML_FEATURE_DISABLED);
  Sim().SetValue(dev, V::kAccounting, mode == NVML_FEATURE_ENABLED ? 1 : 0);
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetAutoBoostedClocksEnabled(nvmlDevice_t device, nvmlEnableState_t*, nvmlEnableState_t*) {
  SIMGPU_NVML_GPU(nvmlDeviceGetAutoBoostedClocksEnabled, device);
  return NVML_ERROR_NOT_SUPPORTED;  // nothing since Pascal has it
}

SIMGPU_NVML nvmlDeviceGetEncoderStats(nvmlDevice_t device, unsigned int* sessions, unsigned int* fps,
                                      unsigned int* latency) {
  SIMGPU_NVML_GPU(nvmlDeviceGetEncoderStats, device);
  SIMGPU_NVML_NEED(sessions != nullptr && fps != nullptr && latency != nullptr);
  *sessions = *fps = *latency = 0;
  return NVML_SUCCESS;
}
