// SPDX-License-Identifier: Apache-2.0
//
// Temperature, fans, power and clocks. They follow the utilisation that NVML shows, unless a test has set them.
#include <algorithm>

#include "simgpu/nvml/common.h"

using namespace simgpu;
using namespace simgpu::nvml;
using V = Machine::Value;

namespace {

unsigned int SmClock(int dev) {
  const DeviceSpec& spec = Sim().spec(dev);
  return static_cast<unsigned int>(
      ValueOr(dev, V::kSmClock, ShownUtil(dev) > 0 ? spec.sm_clock_mhz : spec.sm_clock_idle_mhz));
}

nvmlReturn_t ClockOf(int dev, nvmlClockType_t type, bool highest, unsigned int* clock) {
  SIMGPU_NVML_NEED(clock != nullptr && type >= NVML_CLOCK_GRAPHICS && type < NVML_CLOCK_COUNT);
  const DeviceSpec& spec = Sim().spec(dev);
  if (type == NVML_CLOCK_MEM) {
    *clock = highest ? spec.mem_clock_mhz : static_cast<unsigned int>(ValueOr(dev, V::kMemClock, spec.mem_clock_mhz));
  } else {
    *clock = highest ? spec.sm_clock_mhz : SmClock(dev);
    if (type == NVML_CLOCK_VIDEO) *clock = *clock * 9 / 10;
  }
  return NVML_SUCCESS;
}

unsigned long long Reasons(int dev) {
  const unsigned long long idle = ShownUtil(dev) == 0 ? nvmlClocksEventReasonGpuIdle : nvmlClocksEventReasonNone;
  return ValueOr(dev, V::kClockReasons, idle);
}

constexpr unsigned long long kKnownReasons =
    nvmlClocksEventReasonGpuIdle | nvmlClocksEventReasonApplicationsClocksSetting | nvmlClocksEventReasonSwPowerCap |
    nvmlClocksThrottleReasonHwSlowdown | nvmlClocksEventReasonSyncBoost | nvmlClocksEventReasonSwThermalSlowdown |
    nvmlClocksThrottleReasonHwThermalSlowdown | nvmlClocksThrottleReasonHwPowerBrakeSlowdown;

nvmlReturn_t FanSpeed(int dev, unsigned int fan, unsigned int* speed) {
  SIMGPU_NVML_NEED(speed != nullptr);
  const std::uint32_t fans = Sim().spec(dev).fan_count;
  if (fans == 0) return NVML_ERROR_NOT_SUPPORTED;
  SIMGPU_NVML_NEED(fan < fans);
  *speed = static_cast<unsigned int>(ValueOr(dev, V::kFanPercent, 30 + ShownUtil(dev) / 2));
  return NVML_SUCCESS;
}

unsigned int LimitMilliwatt(int dev) {
  return static_cast<unsigned int>(ValueOr(dev, V::kPowerLimitMilliwatt, Sim().spec(dev).power_limit_w * 1000ull));
}

nvmlPstates_t PState(int dev) {
  // Data-centre boards stay at P0.
  const bool rests = ShownUtil(dev) == 0 && Sim().spec(dev).brand == NVML_BRAND_GEFORCE;
  return rests ? NVML_PSTATE_8 : NVML_PSTATE_0;
}

}  // namespace

SIMGPU_NVML nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned int* celsius) {
  SIMGPU_NVML_GPU(nvmlDeviceGetTemperature, device);
  SIMGPU_NVML_NEED(celsius != nullptr && sensor == NVML_TEMPERATURE_GPU);
  *celsius = Temperature(dev);
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t* temperature) {
  SIMGPU_NVML_GPU(nvmlDeviceGetTemperatureV, device);
  SIMGPU_NVML_NEED(temperature != nullptr);
  if (temperature->version != nvmlTemperature_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  SIMGPU_NVML_NEED(temperature->sensorType == NVML_TEMPERATURE_GPU);
  temperature->temperature = static_cast<int>(Temperature(dev));
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, nvmlTemperatureThresholds_t type,
                                              unsigned int* celsius) {
  SIMGPU_NVML_GPU(nvmlDeviceGetTemperatureThreshold, device);
  SIMGPU_NVML_NEED(celsius != nullptr && type >= NVML_TEMPERATURE_THRESHOLD_SHUTDOWN &&
                   type < NVML_TEMPERATURE_THRESHOLD_COUNT);
  const DeviceSpec& spec = Sim().spec(dev);
  switch (type) {
    case NVML_TEMPERATURE_THRESHOLD_SHUTDOWN:
      *celsius = spec.temperature_shutdown_c;
      return NVML_SUCCESS;
    case NVML_TEMPERATURE_THRESHOLD_SLOWDOWN:
      *celsius = spec.temperature_slowdown_c;
      return NVML_SUCCESS;
    case NVML_TEMPERATURE_THRESHOLD_GPU_MAX:
      *celsius = spec.temperature_slowdown_c - 5;
      return NVML_SUCCESS;
    case NVML_TEMPERATURE_THRESHOLD_MEM_MAX:
      *celsius = 95;
      return NVML_SUCCESS;
    default:
      return NVML_ERROR_NOT_SUPPORTED;
  }
}

SIMGPU_NVML nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned int* speed) {
  SIMGPU_NVML_GPU(nvmlDeviceGetFanSpeed, device);
  return FanSpeed(dev, 0, speed);
}
SIMGPU_NVML nvmlDeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned int fan, unsigned int* speed) {
  SIMGPU_NVML_GPU(nvmlDeviceGetFanSpeed_v2, device);
  return FanSpeed(dev, fan, speed);
}
SIMGPU_NVML nvmlDeviceGetNumFans(nvmlDevice_t device, unsigned int* fans) {
  SIMGPU_NVML_GPU(nvmlDeviceGetNumFans, device);
  SIMGPU_NVML_NEED(fans != nullptr);
  *fans = Sim().spec(dev).fan_count;
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int* milliwatt) {
  SIMGPU_NVML_GPU(nvmlDeviceGetPowerUsage, device);
  SIMGPU_NVML_NEED(milliwatt != nullptr);
  *milliwatt = PowerMilliwatt(dev);
  return NVML_SUCCESS;
}
SIMGPU_NVML nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long* millijoule) {
  SIMGPU_NVML_GPU(nvmlDeviceGetTotalEnergyConsumption, device);
  SIMGPU_NVML_NEED(millijoule != nullptr);
  *millijoule = EnergyMillijoule(dev);
  return NVML_SUCCESS;
}
SIMGPU_NVML nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int* milliwatt) {
  SIMGPU_NVML_GPU(nvmlDeviceGetEnforcedPowerLimit, device);
  SIMGPU_NVML_NEED(milliwatt != nullptr);
  *milliwatt = LimitMilliwatt(dev);
  return NVML_SUCCESS;
}
SIMGPU_NVML nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned int* milliwatt) {
  SIMGPU_NVML_GPU(nvmlDeviceGetPowerManagementLimit, device);
  SIMGPU_NVML_NEED(milliwatt != nullptr);
  *milliwatt = LimitMilliwatt(dev);
  return NVML_SUCCESS;
}
SIMGPU_NVML nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t device, unsigned int* milliwatt) {
  SIMGPU_NVML_GPU(nvmlDeviceGetPowerManagementDefaultLimit, device);
  SIMGPU_NVML_NEED(milliwatt != nullptr);
  *milliwatt = Sim().spec(dev).power_limit_w * 1000;
  return NVML_SUCCESS;
}
SIMGPU_NVML nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned int* low, unsigned int* high) {
  SIMGPU_NVML_GPU(nvmlDeviceGetPowerManagementLimitConstraints, device);
  SIMGPU_NVML_NEED(low != nullptr && high != nullptr);
  *low = Sim().spec(dev).power_min_w * 1000;
  *high = Sim().spec(dev).power_limit_w * 1000;
  return NVML_SUCCESS;
}
SIMGPU_NVML nvmlDeviceSetPowerManagementLimit(nvmlDevice_t device, unsigned int milliwatt) {
  SIMGPU_NVML_GPU(nvmlDeviceSetPowerManagementLimit, device);
  const DeviceSpec& spec = Sim().spec(dev);
  SIMGPU_NVML_NEED(milliwatt >= spec.power_min_w * 1000 && milliwatt <= spec.power_limit_w * 1000);
  Sim().SetValue(dev, V::kPowerLimitMilliwatt, milliwatt);
  return NVML_SUCCESS;
}
SIMGPU_NVML nvmlDeviceGetPowerManagementMode(nvmlDevice_t device, nvmlEnableState_t* mode) {
  SIMGPU_NVML_GPU(nvmlDeviceGetPowerManagementMode, device);
  SIMGPU_NVML_NEED(mode != nullptr);
  *mode = NVML_FEATURE_ENABLED;
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int* clock) {
  SIMGPU_NVML_GPU(nvmlDeviceGetClockInfo, device);
  return ClockOf(dev, type, false, clock);
}
SIMGPU_NVML nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int* clock) {
  SIMGPU_NVML_GPU(nvmlDeviceGetMaxClockInfo, device);
  return ClockOf(dev, type, true, clock);
}
SIMGPU_NVML nvmlDeviceGetApplicationsClock(nvmlDevice_t device, nvmlClockType_t type, unsigned int* clock) {
  SIMGPU_NVML_GPU(nvmlDeviceGetApplicationsClock, device);
  return ClockOf(dev, type, true, clock);
}
SIMGPU_NVML nvmlDeviceGetDefaultApplicationsClock(nvmlDevice_t device, nvmlClockType_t type, unsigned int* clock) {
  SIMGPU_NVML_GPU(nvmlDeviceGetDefaultApplicationsClock, device);
  return ClockOf(dev, type, true, clock);
}
SIMGPU_NVML nvmlDeviceGetMaxCustomerBoostClock(nvmlDevice_t device, nvmlClockType_t type, unsigned int* clock) {
  SIMGPU_NVML_GPU(nvmlDeviceGetMaxCustomerBoostClock, device);
  return ClockOf(dev, type, true, clock);
}
SIMGPU_NVML nvmlDeviceGetClock(nvmlDevice_t device, nvmlClockType_t type, nvmlClockId_t id, unsigned int* clock) {
  SIMGPU_NVML_GPU(nvmlDeviceGetClock, device);
  SIMGPU_NVML_NEED(id >= NVML_CLOCK_ID_CURRENT && id < NVML_CLOCK_ID_COUNT);
  return ClockOf(dev, type, id != NVML_CLOCK_ID_CURRENT, clock);
}
SIMGPU_NVML nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device, unsigned int* count, unsigned int* clocks) {
  SIMGPU_NVML_GPU(nvmlDeviceGetSupportedMemoryClocks, device);
  SIMGPU_NVML_NEED(count != nullptr && (*count == 0 || clocks != nullptr));
  const unsigned int room = *count;
  *count = 1;
  if (room < 1) return NVML_ERROR_INSUFFICIENT_SIZE;
  clocks[0] = Sim().spec(dev).mem_clock_mhz;
  return NVML_SUCCESS;
}
SIMGPU_NVML nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t device, unsigned int memory_clock, unsigned int* count,
                                                 unsigned int* clocks) {
  SIMGPU_NVML_GPU(nvmlDeviceGetSupportedGraphicsClocks, device);
  SIMGPU_NVML_NEED(count != nullptr && (*count == 0 || clocks != nullptr));
  const DeviceSpec& spec = Sim().spec(dev);
  if (memory_clock != spec.mem_clock_mhz) return NVML_ERROR_NOT_FOUND;
  constexpr unsigned int kStep = 15;
  const unsigned int room = *count;
  const unsigned int lowest = std::min(spec.sm_clock_idle_mhz, spec.sm_clock_mhz);  // a configuration may say otherwise
  *count = (spec.sm_clock_mhz - lowest) / kStep + 1;
  if (room < *count) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (unsigned int i = 0; i < *count; ++i) clocks[i] = spec.sm_clock_mhz - i * kStep;
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetPerformanceState(nvmlDevice_t device, nvmlPstates_t* state) {
  SIMGPU_NVML_GPU(nvmlDeviceGetPerformanceState, device);
  SIMGPU_NVML_NEED(state != nullptr);
  *state = PState(dev);
  return NVML_SUCCESS;
}
SIMGPU_NVML nvmlDeviceGetPowerState(nvmlDevice_t device, nvmlPstates_t* state) {
  SIMGPU_NVML_GPU(nvmlDeviceGetPowerState, device);
  SIMGPU_NVML_NEED(state != nullptr);
  *state = PState(dev);
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long* reasons) {
  SIMGPU_NVML_GPU(nvmlDeviceGetCurrentClocksEventReasons, device);
  SIMGPU_NVML_NEED(reasons != nullptr);
  *reasons = Reasons(dev);
  return NVML_SUCCESS;
}
SIMGPU_NVML nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long* reasons) {
  SIMGPU_NVML_GPU(nvmlDeviceGetCurrentClocksThrottleReasons, device);
  SIMGPU_NVML_NEED(reasons != nullptr);
  *reasons = Reasons(dev);
  return NVML_SUCCESS;
}
SIMGPU_NVML nvmlDeviceGetSupportedClocksEventReasons(nvmlDevice_t device, unsigned long long* reasons) {
  SIMGPU_NVML_GPU(nvmlDeviceGetSupportedClocksEventReasons, device);
  SIMGPU_NVML_NEED(reasons != nullptr);
  *reasons = kKnownReasons;
  return NVML_SUCCESS;
}
SIMGPU_NVML nvmlDeviceGetSupportedClocksThrottleReasons(nvmlDevice_t device, unsigned long long* reasons) {
  SIMGPU_NVML_GPU(nvmlDeviceGetSupportedClocksThrottleReasons, device);
  SIMGPU_NVML_NEED(reasons != nullptr);
  *reasons = kKnownReasons;
  return NVML_SUCCESS;
}
