// SPDX-License-Identifier: Apache-2.0

#include "nvml/functions.h"

namespace hami::nvml {
namespace {

EccCounts EccOf(const Functions& f, nvmlDevice_t device) {
  const auto count = [&](nvmlMemoryErrorType_t type, nvmlEccCounterType_t span) -> std::optional<std::uint64_t> {
    return Get<unsigned long long>(f.nvmlDeviceGetTotalEccErrors, device, type, span);
  };
  return {count(NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_VOLATILE_ECC),
          count(NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC),
          count(NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_AGGREGATE_ECC),
          count(NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_AGGREGATE_ECC)};
}

std::optional<RemappedRows> RemappedOf(const Functions& f, nvmlDevice_t device) {
  RemappedRows rows;
  unsigned pending = 0;
  unsigned failed = 0;
  if (f.nvmlDeviceGetRemappedRows == nullptr ||
      f.nvmlDeviceGetRemappedRows(device, &rows.correctable, &rows.uncorrectable, &pending, &failed) != NVML_SUCCESS) {
    return std::nullopt;
  }
  rows.pending = pending != 0;
  rows.failed = failed != 0;
  return rows;
}

std::optional<unsigned> RetiredOf(const Functions& f, nvmlDevice_t device) {
  if (f.nvmlDeviceGetRetiredPages == nullptr) return std::nullopt;
  unsigned pages = 0;
  for (const auto cause :
       {NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS, NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR}) {
    unsigned count = 0;
    const nvmlReturn_t code = f.nvmlDeviceGetRetiredPages(device, cause, &count, nullptr);
    // With no room given, a count that is not zero comes with "too small".
    if (code != NVML_SUCCESS && code != NVML_ERROR_INSUFFICIENT_SIZE) return std::nullopt;
    pages += count;
  }
  return pages;
}

HealthSigns HealthOf(const Functions& f, const Found& found) {
  HealthSigns signs;
  nvmlReturn_t code = found.code;
  if (code == NVML_SUCCESS) {
    nvmlMemory_t memory{};
    code = f.nvmlDeviceGetMemoryInfo(found.device, &memory);
    if (code == NVML_ERROR_NOT_SUPPORTED) code = NVML_SUCCESS;
  }
  signs.condition = ConditionOf(code);
  if (code != NVML_SUCCESS) {
    signs.trouble = f.Explain(code);
    return signs;
  }
  signs.remapped = RemappedOf(f, found.device);
  if (const auto pending = Get<nvmlEnableState_t>(f.nvmlDeviceGetRetiredPagesPendingStatus, found.device)) {
    signs.retirement_pending = *pending == NVML_FEATURE_ENABLED;
  }
  signs.retired_pages = RetiredOf(f, found.device);
  signs.ecc = EccOf(f, found.device);
  return signs;
}

std::optional<unsigned> MemoryTemperature(const Functions& f, nvmlDevice_t device) {
  if (f.nvmlDeviceGetFieldValues == nullptr) return std::nullopt;
  nvmlFieldValue_t value{};
  value.fieldId = NVML_FI_DEV_MEMORY_TEMP;
  if (f.nvmlDeviceGetFieldValues(device, 1, &value) != NVML_SUCCESS || value.nvmlReturn != NVML_SUCCESS ||
      value.valueType != NVML_VALUE_TYPE_UNSIGNED_INT) {
    return std::nullopt;
  }
  return value.value.uiVal;
}

// The share of time that a media engine worked; the period it was measured over is not of interest.
template <typename Function>
std::optional<unsigned> EnginePercent(Function function, nvmlDevice_t device) {
  unsigned percent = 0;
  unsigned period = 0;
  if (function == nullptr || function(device, &percent, &period) != NVML_SUCCESS) return std::nullopt;
  return percent;
}

std::optional<std::uint64_t> ThrottleOf(const Functions& f, nvmlDevice_t device) {
  const auto reasons = Get<unsigned long long>(f.nvmlDeviceGetCurrentClocksEventReasons, device);
  return reasons ? reasons : Get<unsigned long long>(f.nvmlDeviceGetCurrentClocksThrottleReasons, device);
}

PcieLink PcieOf(const Functions& f, nvmlDevice_t device) {
  return {Get<unsigned>(f.nvmlDeviceGetCurrPcieLinkGeneration, device),
          Get<unsigned>(f.nvmlDeviceGetCurrPcieLinkWidth, device),
          Get<unsigned>(f.nvmlDeviceGetMaxPcieLinkGeneration, device),
          Get<unsigned>(f.nvmlDeviceGetMaxPcieLinkWidth, device),
          Get<unsigned>(f.nvmlDeviceGetPcieReplayCounter, device)};
}

}  // namespace

HealthSigns Library::ReadHealth(const std::string& uuid) const {
  return HealthOf(*functions_, Find(*functions_, uuid));
}

std::optional<Memory> Library::ReadMemory(const std::string& uuid) const {
  const Found found = Find(*functions_, uuid);
  return found.code == NVML_SUCCESS ? MemoryOf(*functions_, found.device) : std::nullopt;
}

Telemetry Library::Sample(const std::string& uuid) const {
  const Functions& f = *functions_;
  const Found found = Find(f, uuid);
  Telemetry out;
  out.health = HealthOf(f, found);
  out.condition = out.health.condition;
  // A GPU that is not there answers the rest one slow refusal after the other.
  if (out.condition != Condition::kAnswers) return out;
  const nvmlDevice_t device = found.device;
  out.memory = MemoryOf(f, device);
  if (const auto rates = Get<nvmlUtilization_t>(f.nvmlDeviceGetUtilizationRates, device)) {
    out.gpu_percent = rates->gpu;
    out.memory_percent = rates->memory;
  }
  out.encoder_percent = EnginePercent(f.nvmlDeviceGetEncoderUtilization, device);
  out.decoder_percent = EnginePercent(f.nvmlDeviceGetDecoderUtilization, device);
  out.temperature_celsius = Get<unsigned>(f.nvmlDeviceGetTemperature, device, NVML_TEMPERATURE_GPU);
  out.memory_temperature_celsius = MemoryTemperature(f, device);
  out.power_milliwatts = Get<unsigned>(f.nvmlDeviceGetPowerUsage, device);
  out.power_limit_milliwatts = Get<unsigned>(f.nvmlDeviceGetEnforcedPowerLimit, device);
  out.energy_millijoules = Get<unsigned long long>(f.nvmlDeviceGetTotalEnergyConsumption, device);
  out.fan_percent = Get<unsigned>(f.nvmlDeviceGetFanSpeed, device);
  out.sm_clock_mhz = Get<unsigned>(f.nvmlDeviceGetClockInfo, device, NVML_CLOCK_SM);
  out.memory_clock_mhz = Get<unsigned>(f.nvmlDeviceGetClockInfo, device, NVML_CLOCK_MEM);
  out.max_sm_clock_mhz = Get<unsigned>(f.nvmlDeviceGetMaxClockInfo, device, NVML_CLOCK_SM);
  if (const auto state = Get<nvmlPstates_t>(f.nvmlDeviceGetPerformanceState, device);
      state && *state >= NVML_PSTATE_0 && *state <= NVML_PSTATE_15) {
    out.performance_state = static_cast<unsigned>(*state);
  }
  out.throttle_reasons = ThrottleOf(f, device);
  out.pcie = PcieOf(f, device);
  return out;
}

PcieThroughput Library::MeasurePcie(const std::string& uuid) const {
  const Functions& f = *functions_;
  const Found found = Find(f, uuid);
  if (found.code != NVML_SUCCESS) return {};
  return {Get<unsigned>(f.nvmlDeviceGetPcieThroughput, found.device, NVML_PCIE_UTIL_TX_BYTES),
          Get<unsigned>(f.nvmlDeviceGetPcieThroughput, found.device, NVML_PCIE_UTIL_RX_BYTES)};
}

}  // namespace hami::nvml
