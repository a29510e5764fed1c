// SPDX-License-Identifier: Apache-2.0
#include "simgpu/nvml/common.h"

#include <cstring>
#include <ctime>

#include "simgpu/machine/container.h"

namespace simgpu::nvml {
namespace {

// One byte a handle; only addresses matter. gi and ci are shifted by one: 0 stands for the whole.
constexpr int kGi = kMaxGpuInstances + 1, kCi = kMaxComputeInstances + 1;
struct Table {
  char places[kMaxDevices][kGi][kCi];
};
// Different tables for different kinds, so that a handle of one kind is no handle of another.
Table device_table, gpu_instance_table, compute_instance_table;

void* HandleOf(Table& table, int dev, int gi, int ci) { return &table.places[dev][gi + 1][ci + 1]; }

bool PlaceOf(const Table& table, const void* handle, Place* at) {
  const auto base = reinterpret_cast<std::uintptr_t>(&table), address = reinterpret_cast<std::uintptr_t>(handle);
  if (address < base || address >= base + sizeof table) return false;
  const auto offset = static_cast<int>(address - base);
  *at = {offset / (kGi * kCi), offset / kCi % kGi - 1, offset % kCi - 1};
  return at->dev < Sim().device_count();
}

std::int64_t WallOffset() {
  // Once a process, so that a sample has the same stamp whenever it is asked for.
  static const std::int64_t offset = [] {
    timespec ts = {};
    clock_gettime(CLOCK_REALTIME, &ts);
    return static_cast<std::int64_t>(ts.tv_sec) * 1'000'000'000 + ts.tv_nsec - Sim().Now();
  }();
  return offset;
}

}  // namespace

nvmlReturn_t Enter(const char* function, int dev) {
  if (!Initialised()) return NVML_ERROR_UNINITIALIZED;
  return static_cast<nvmlReturn_t>(Sim().FaultFor(function, dev));
}

nvmlReturn_t OtherDevice(nvmlDevice_t handle, Place* at) {
  if (!PlaceOf(device_table, handle, at)) return NVML_ERROR_INVALID_ARGUMENT;
  MigInstance instance = {};
  if (at->mig() && !FindComputeInstance(at->dev, at->gi, at->ci, &instance)) return NVML_ERROR_INVALID_ARGUMENT;
  return Sim().Lost(at->dev) ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

nvmlReturn_t EnterDevice(const char* function, nvmlDevice_t handle, Place* at) {
  if (!Initialised()) return NVML_ERROR_UNINITIALIZED;
  if (const nvmlReturn_t bad = OtherDevice(handle, at); bad != NVML_SUCCESS) return bad;
  return static_cast<nvmlReturn_t>(Sim().FaultFor(function, at->dev));
}

nvmlReturn_t EnterGpu(const char* function, nvmlDevice_t handle, int* dev) {
  Place at = {};
  const nvmlReturn_t entered = EnterDevice(function, handle, &at);
  if (entered != NVML_SUCCESS) return entered;
  if (at.mig()) return NVML_ERROR_NOT_SUPPORTED;
  *dev = at.dev;
  return NVML_SUCCESS;
}

nvmlReturn_t EnterGpuInstance(const char* function, nvmlGpuInstance_t handle, Place* at) {
  if (!Initialised()) return NVML_ERROR_UNINITIALIZED;
  MigInstance instance = {};
  if (!PlaceOf(gpu_instance_table, handle, at) || !FindGpuInstance(at->dev, at->gi, &instance)) {
    return NVML_ERROR_INVALID_ARGUMENT;
  }
  return static_cast<nvmlReturn_t>(Sim().FaultFor(function, at->dev));
}

nvmlReturn_t EnterComputeInstance(const char* function, nvmlComputeInstance_t handle, Place* at) {
  if (!Initialised()) return NVML_ERROR_UNINITIALIZED;
  MigInstance instance = {};
  if (!PlaceOf(compute_instance_table, handle, at) || !FindComputeInstance(at->dev, at->gi, at->ci, &instance)) {
    return NVML_ERROR_INVALID_ARGUMENT;
  }
  return static_cast<nvmlReturn_t>(Sim().FaultFor(function, at->dev));
}

nvmlDevice_t GpuHandle(int dev) { return static_cast<nvmlDevice_t>(HandleOf(device_table, dev, -1, -1)); }
nvmlDevice_t MigHandle(int dev, int gi, int ci) {
  return static_cast<nvmlDevice_t>(HandleOf(device_table, dev, gi, ci));
}

nvmlDevice_t MigHandleAt(int dev, unsigned int index) {
  MigInstance instances[kMaxGpuInstances], computes[kMaxComputeInstances];
  const std::size_t n = Sim().GpuInstances(dev, instances, kMaxGpuInstances);
  unsigned int number = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const int gi = instances[i].gpu_instance;
    const std::size_t m = Sim().ComputeInstances(dev, gi, computes, kMaxComputeInstances);
    for (std::size_t k = 0; k < m; ++k) {
      if (!IsPresent(Sim(), dev, computes[k])) continue;
      if (number++ == index) return MigHandle(dev, gi, computes[k].compute_instance);
    }
  }
  return nullptr;
}

nvmlGpuInstance_t GpuInstanceHandle(int dev, int gi) {
  return static_cast<nvmlGpuInstance_t>(HandleOf(gpu_instance_table, dev, gi, -1));
}
nvmlComputeInstance_t ComputeInstanceHandle(int dev, int gi, int ci) {
  return static_cast<nvmlComputeInstance_t>(HandleOf(compute_instance_table, dev, gi, ci));
}

bool FindGpuInstance(int dev, int gi, MigInstance* out) {
  MigInstance list[kMaxGpuInstances];
  const std::size_t n = Sim().GpuInstances(dev, list, kMaxGpuInstances);
  for (std::size_t i = 0; i < n; ++i) {
    if (list[i].gpu_instance != gi) continue;
    *out = list[i];
    return true;
  }
  return false;
}

bool FindComputeInstance(int dev, int gi, int ci, MigInstance* out) {
  MigInstance list[kMaxComputeInstances];
  const std::size_t n = Sim().ComputeInstances(dev, gi, list, kMaxComputeInstances);
  for (std::size_t i = 0; i < n; ++i) {
    if (list[i].compute_instance != ci) continue;
    *out = list[i];
    return true;
  }
  return false;
}

nvmlReturn_t CopyText(const char* text, char* to, unsigned int length) {
  if (to == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const std::size_t n = std::strlen(text) + 1;
  if (n > length) return NVML_ERROR_INSUFFICIENT_SIZE;
  std::memcpy(to, text, n);
  return NVML_SUCCESS;
}

unsigned long long WallMicros(Nanos when) { return static_cast<unsigned long long>(when + WallOffset()) / 1000; }

Nanos FromWallMicros(unsigned long long micros) {
  constexpr unsigned long long kLatest = 9'000'000'000'000'000;  // beyond it, nanoseconds would overflow
  // The last nanosecond of that microsecond, so that a sample is not newer than its own stamp.
  return static_cast<Nanos>((micros < kLatest ? micros : kLatest) * 1000 + 999) - WallOffset();
}

unsigned int ShownUtil(int dev) { return Sim().DeviceUtil(dev).sm; }

unsigned int Temperature(int dev) {
  const DeviceSpec& spec = Sim().spec(dev);
  const std::uint64_t rise = spec.temperature_busy_c > spec.temperature_idle_c
                                 ? (spec.temperature_busy_c - spec.temperature_idle_c) * ShownUtil(dev) / 100
                                 : 0;
  return static_cast<unsigned int>(ValueOr(dev, Machine::Value::kTemperature, spec.temperature_idle_c + rise));
}

unsigned int PowerMilliwatt(int dev) {
  const DeviceSpec& spec = Sim().spec(dev);
  const std::uint64_t limit = ValueOr(dev, Machine::Value::kPowerLimitMilliwatt, spec.power_limit_w * 1000ull);
  const std::uint64_t idle = spec.power_idle_w * 1000ull;
  const std::uint64_t load = limit > idle ? (limit - idle) * ShownUtil(dev) / 100 : 0;
  return static_cast<unsigned int>(ValueOr(dev, Machine::Value::kPowerMilliwatt, idle + load));
}

unsigned long long EnergyMillijoule(int dev) {
  const DeviceSpec& spec = Sim().spec(dev);
  const unsigned long long up_us = static_cast<unsigned long long>(Sim().Now()) / 1000;
  const unsigned long long busy_us = Sim().BusyNanos(dev) / 1000;
  const unsigned long long extra_w =
      spec.power_limit_w > spec.power_idle_w ? spec.power_limit_w - spec.power_idle_w : 0;
  return up_us * spec.power_idle_w / 1000 + busy_us * extra_w / 1000;
}

nvmlReturn_t FromMig(MigError error) {
  switch (error) {
    case MigError::kOk:
      return NVML_SUCCESS;
    case MigError::kInvalid:
      return NVML_ERROR_INVALID_ARGUMENT;
    case MigError::kNotFound:
      return NVML_ERROR_NOT_FOUND;
    case MigError::kInUse:
      return NVML_ERROR_IN_USE;
    case MigError::kNoRoom:
      return NVML_ERROR_INSUFFICIENT_RESOURCES;
    case MigError::kUnsupported:
    case MigError::kModeOff:
      break;
  }
  return NVML_ERROR_NOT_SUPPORTED;
}

}  // namespace simgpu::nvml
