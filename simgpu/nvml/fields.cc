// SPDX-License-Identifier: Apache-2.0
//
// Field values: many small figures in one call, each with an answer of its own.
#include <initializer_list>

#include "simgpu/nvml/common.h"

using namespace simgpu;
using namespace simgpu::nvml;
using V = Machine::Value;

namespace {

struct Answer {
  nvmlReturn_t result;
  nvmlValueType_t type;
  unsigned long long value;
};

Answer Unsigned(unsigned long long value) { return {NVML_SUCCESS, NVML_VALUE_TYPE_UNSIGNED_INT, value}; }
Answer Long(unsigned long long value) { return {NVML_SUCCESS, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, value}; }
Answer None() { return {NVML_ERROR_NOT_SUPPORTED, NVML_VALUE_TYPE_UNSIGNED_INT, 0}; }

Answer LinkAnswer(int dev, unsigned int field, unsigned int scope) {
  const DeviceSpec& spec = Sim().spec(dev);
  unsigned int switched = 0;
  for (unsigned int link = 0; link < spec.nvlink_count; ++link) {
    if (spec.nvlink[link].peer == LinkPeer::kSwitch && Sim().LinkUp(dev, static_cast<int>(link))) ++switched;
  }
  const unsigned long long speed = spec.nvlink_bytes_per_s / 1'000'000;
  switch (field) {
    case NVML_FI_DEV_NVLINK_LINK_COUNT:
      return Unsigned(spec.nvlink_count);
    case NVML_FI_DEV_NVSWITCH_CONNECTED_LINK_COUNT:
      return Unsigned(switched);
    case NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON:
      return spec.nvlink_count > 0 ? Unsigned(speed) : None();
    case NVML_FI_DEV_NVLINK_GET_SPEED:
      return HasNvLink(dev, scope) ? Unsigned(Sim().LinkUp(dev, static_cast<int>(scope)) ? speed : 0) : None();
    case NVML_FI_DEV_NVLINK_GET_STATE:
      return HasNvLink(dev, scope) ? Unsigned(Sim().LinkUp(dev, static_cast<int>(scope)) ? 1 : 0) : None();
    default:
      return None();
  }
}

Answer PowerAnswer(int dev, unsigned int field) {
  const DeviceSpec& spec = Sim().spec(dev);
  switch (field) {
    case NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION:
    case NVML_FI_DEV_ENERGY:
      return Long(EnergyMillijoule(dev));
    case NVML_FI_DEV_POWER_AVERAGE:
    case NVML_FI_DEV_POWER_INSTANT:
      return Unsigned(PowerMilliwatt(dev));
    case NVML_FI_DEV_POWER_MIN_LIMIT:
      return Unsigned(spec.power_min_w * 1000ull);
    case NVML_FI_DEV_POWER_MAX_LIMIT:
    case NVML_FI_DEV_POWER_DEFAULT_LIMIT:
      return Unsigned(spec.power_limit_w * 1000ull);
    case NVML_FI_DEV_POWER_CURRENT_LIMIT:
    case NVML_FI_DEV_POWER_REQUESTED_LIMIT:
      return Unsigned(ValueOr(dev, V::kPowerLimitMilliwatt, spec.power_limit_w * 1000ull));
    default:
      return None();
  }
}

Answer MemoryAnswer(int dev, unsigned int field) {
  const DeviceSpec& spec = Sim().spec(dev);
  const bool rows = spec.ecc != 0 && spec.cc_major >= 8;
  switch (field) {
    case NVML_FI_DEV_ECC_CURRENT:
      return spec.ecc != 0 ? Unsigned(1) : None();
    case NVML_FI_DEV_ECC_PENDING:
      return spec.ecc != 0 ? Unsigned(ValueOr(dev, V::kEccMode, 1)) : None();
    case NVML_FI_DEV_MEMORY_TEMP:
      return spec.cc_major >= 8 && spec.brand != NVML_BRAND_GEFORCE ? Unsigned(Temperature(dev) + 6) : None();
    case NVML_FI_DEV_REMAPPED_COR:
      return rows ? Unsigned(ValueOr(dev, V::kRemappedCorrectable, 0)) : None();
    case NVML_FI_DEV_REMAPPED_UNC:
      return rows ? Unsigned(ValueOr(dev, V::kRemappedUncorrectable, 0)) : None();
    case NVML_FI_DEV_REMAPPED_PENDING:
      return rows ? Unsigned(ValueOr(dev, V::kRemappedPending, 0)) : None();
    case NVML_FI_DEV_REMAPPED_FAILURE:
      return rows ? Unsigned(ValueOr(dev, V::kRemappedFailure, 0)) : None();
    case NVML_FI_DEV_PCIE_REPLAY_COUNTER:
      return Unsigned(ValueOr(dev, V::kPcieReplays, 0));
    case NVML_FI_DEV_IS_MIG_MODE_INDEPENDENT_MIG_QUERY_CAPABLE:
      return Unsigned(spec.mig_profile_count > 0 ? 1 : 0);
    default:
      return None();
  }
}

Answer AnswerOf(int dev, unsigned int field, unsigned int scope) {
  const Answer answers[] = {LinkAnswer(dev, field, scope), PowerAnswer(dev, field), MemoryAnswer(dev, field)};
  for (const Answer& answer : answers) {
    if (answer.result == NVML_SUCCESS) return answer;
  }
  return None();
}

}  // namespace

SIMGPU_NVML nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t* values) {
  SIMGPU_NVML_GPU(nvmlDeviceGetFieldValues, device);
  SIMGPU_NVML_NEED(values != nullptr && count > 0);
  const auto now = static_cast<long long>(WallMicros(Sim().Now()));
  for (int i = 0; i < count; ++i) {
    const Answer answer = AnswerOf(dev, values[i].fieldId, values[i].scopeId);
    values[i].timestamp = now;
    values[i].latencyUsec = 0;
    values[i].valueType = answer.type;
    values[i].nvmlReturn = answer.result;
    values[i].value.ullVal = answer.value;  // little-endian: the small unsigned value lies at the same place
  }
  return NVML_SUCCESS;
}
