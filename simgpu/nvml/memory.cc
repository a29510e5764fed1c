// SPDX-License-Identifier: Apache-2.0
//
// Memory: sizes, ECC, rows and pages.
#include "simgpu/nvml/common.h"

using namespace simgpu;
using namespace simgpu::nvml;

namespace {

struct Amount {
  unsigned long long total, reserved, used, free;
};

Amount AmountOf(const Place& at) {
  MigInstance instance = {};
  if (at.mig() && FindComputeInstance(at.dev, at.gi, at.ci, &instance)) {
    const std::uint64_t used = Sim().InstanceUsedBytes(at.dev, at.gi);
    return {instance.memory_bytes, 0, used, instance.memory_bytes > used ? instance.memory_bytes - used : 0};
  }
  const DeviceSpec& spec = Sim().spec(at.dev);
  const std::uint64_t used = Sim().UsedBytes(at.dev);
  return {spec.physical_bytes(), spec.reserved_bytes, used, spec.total_bytes > used ? spec.total_bytes - used : 0};
}

bool HasEcc(int dev) { return Sim().spec(dev).ecc != 0; }

}  // namespace

SIMGPU_NVML nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  SIMGPU_NVML_DEVICE(nvmlDeviceGetMemoryInfo, device);
  SIMGPU_NVML_NEED(memory != nullptr);
  const Amount amount = AmountOf(at);
  memory->total = amount.total;
  memory->free = amount.free;
  memory->used = amount.total - amount.free;  // version 1 counts the reserved part as used
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory) {
  SIMGPU_NVML_DEVICE(nvmlDeviceGetMemoryInfo_v2, device);
  SIMGPU_NVML_NEED(memory != nullptr);
  if (memory->version != nvmlMemory_v2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  const Amount amount = AmountOf(at);
  memory->total = amount.total;
  memory->reserved = amount.reserved;
  memory->free = amount.free;
  memory->used = amount.used;
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t* bar1) {
  SIMGPU_NVML_DEVICE(nvmlDeviceGetBAR1MemoryInfo, device);
  SIMGPU_NVML_NEED(bar1 != nullptr);
  constexpr unsigned long long kDriver = 1ull << 20;
  const unsigned long long total = Sim().spec(at.dev).bar1_bytes;
  *bar1 = {total, total - kDriver, kDriver};
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetMemoryBusWidth(nvmlDevice_t device, unsigned int* width) {
  SIMGPU_NVML_GPU(nvmlDeviceGetMemoryBusWidth, device);
  SIMGPU_NVML_NEED(width != nullptr);
  *width = Sim().spec(dev).memory_bus_bits;
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t* current, nvmlEnableState_t* pending) {
  SIMGPU_NVML_GPU(nvmlDeviceGetEccMode, device);
  SIMGPU_NVML_NEED(current != nullptr && pending != nullptr);
  if (!HasEcc(dev)) return NVML_ERROR_NOT_SUPPORTED;
  *current = NVML_FEATURE_ENABLED;
  *pending = ValueOr(dev, Machine::Value::kEccMode, 1) != 0 ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetDefaultEccMode(nvmlDevice_t device, nvmlEnableState_t* mode) {
  SIMGPU_NVML_GPU(nvmlDeviceGetDefaultEccMode, device);
  SIMGPU_NVML_NEED(mode != nullptr);
  if (!HasEcc(dev)) return NVML_ERROR_NOT_SUPPORTED;
  *mode = NVML_FEATURE_ENABLED;
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceSetEccMode(nvmlDevice_t device, nvmlEnableState_t mode) {
  SIMGPU_NVML_GPU(nvmlDeviceSetEccMode, device);
  SIMGPU_NVML_NEED(mode == NVML_FEATURE_ENABLED || mode == NVML_FEATURE_DISABLED);
  if (!HasEcc(dev)) return NVML_ERROR_NOT_SUPPORTED;
  Sim().SetValue(dev, Machine::Value::kEccMode, mode == NVML_FEATURE_ENABLED ? 1 : 0);  // pending until a reboot
  return NVML_SUCCESS;
}

namespace {
nvmlReturn_t EccCount(int dev, nvmlMemoryErrorType_t type, unsigned long long* count) {
  SIMGPU_NVML_NEED(count != nullptr &&
                   (type == NVML_MEMORY_ERROR_TYPE_CORRECTED || type == NVML_MEMORY_ERROR_TYPE_UNCORRECTED));
  if (!HasEcc(dev)) return NVML_ERROR_NOT_SUPPORTED;
  *count = ValueOr(
      dev, type == NVML_MEMORY_ERROR_TYPE_CORRECTED ? Machine::Value::kEccCorrected : Machine::Value::kEccUncorrected,
      0);
  return NVML_SUCCESS;
}
}  // namespace

SIMGPU_NVML nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type, nvmlEccCounterType_t,
                                        unsigned long long* count) {
  SIMGPU_NVML_GPU(nvmlDeviceGetTotalEccErrors, device);
  return EccCount(dev, type, count);
}

SIMGPU_NVML nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, nvmlMemoryErrorType_t type, nvmlEccCounterType_t,
                                            nvmlMemoryLocation_t location, unsigned long long* count) {
  SIMGPU_NVML_GPU(nvmlDeviceGetMemoryErrorCounter, device);
  const nvmlReturn_t result = EccCount(dev, type, count);
  // All errors are the memory chips'; the other places have counters that stay at nought.
  if (result == NVML_SUCCESS && location != NVML_MEMORY_LOCATION_DEVICE_MEMORY) *count = 0;
  return result;
}

SIMGPU_NVML nvmlDeviceClearEccErrorCounts(nvmlDevice_t device, nvmlEccCounterType_t) {
  SIMGPU_NVML_GPU(nvmlDeviceClearEccErrorCounts, device);
  if (!HasEcc(dev)) return NVML_ERROR_NOT_SUPPORTED;
  Sim().SetValue(dev, Machine::Value::kEccCorrected, 0);
  Sim().SetValue(dev, Machine::Value::kEccUncorrected, 0);
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int* correctable, unsigned int* uncorrectable,
                                      unsigned int* pending, unsigned int* failed) {
  SIMGPU_NVML_GPU(nvmlDeviceGetRemappedRows, device);
  SIMGPU_NVML_NEED(correctable != nullptr && uncorrectable != nullptr && pending != nullptr && failed != nullptr);
  if (!HasEcc(dev) || Sim().spec(dev).cc_major < 8) return NVML_ERROR_NOT_SUPPORTED;
  *correctable = static_cast<unsigned int>(ValueOr(dev, Machine::Value::kRemappedCorrectable, 0));
  *uncorrectable = static_cast<unsigned int>(ValueOr(dev, Machine::Value::kRemappedUncorrectable, 0));
  *pending = static_cast<unsigned int>(ValueOr(dev, Machine::Value::kRemappedPending, 0));
  *failed = static_cast<unsigned int>(ValueOr(dev, Machine::Value::kRemappedFailure, 0));
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetRetiredPages(nvmlDevice_t device, nvmlPageRetirementCause_t, unsigned int* count,
                                      unsigned long long*) {
  SIMGPU_NVML_GPU(nvmlDeviceGetRetiredPages, device);
  SIMGPU_NVML_NEED(count != nullptr);
  if (!HasEcc(dev) || Sim().spec(dev).cc_major >= 8) return NVML_ERROR_NOT_SUPPORTED;  // rows are remapped there
  *count = 0;
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, nvmlEnableState_t* pending) {
  SIMGPU_NVML_GPU(nvmlDeviceGetRetiredPagesPendingStatus, device);
  SIMGPU_NVML_NEED(pending != nullptr);
  if (!HasEcc(dev) || Sim().spec(dev).cc_major >= 8) return NVML_ERROR_NOT_SUPPORTED;
  *pending = NVML_FEATURE_DISABLED;
  return NVML_SUCCESS;
}
