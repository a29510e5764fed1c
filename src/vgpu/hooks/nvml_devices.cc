// SPDX-License-Identifier: Apache-2.0
//
// Whether NVML may be asked, and which devices it shows: all that the driver shows, unless the region fixes them. Then
// the others do not exist, and the region's order is the numbering.

#include "vgpu/loader/driver.h"
#include "vgpu/runtime/device_map.h"
#include "vgpu/runtime/nvml_probe.h"
#include "vgpu/runtime/process.h"

using namespace hami::vgpu;  // NOLINT: this file only exports

namespace {

constexpr unsigned kMostDevices = 256;  // of a machine

bool Fixed() { return Active() && DevicesAreFixed(); }

nvmlReturn_t Count(nvmlReturn_t result, unsigned* count) {
  if (result == NVML_SUCCESS && count != nullptr && Fixed()) *count = FixedDeviceCount();
  return result;
}

template <typename Real>
nvmlReturn_t ByIndex(unsigned index, nvmlDevice_t* out, Real by_index) {
  if (!Fixed()) return ForProgram(by_index, index, out);
  // The count stands for "may NVML be asked at all"; a device that is hidden may be lost.
  unsigned any = 0;
  const nvmlReturn_t result = ForProgram(real::nvmlDeviceGetCount_v2, &any);
  return result == NVML_SUCCESS ? FixedDeviceHandle(index, out) : result;
}

// A list of devices without those that are hidden. `list(count, devices)` is the driver's function: with a count of 0
// it answers how many there are.
template <typename List>
nvmlReturn_t OnlyShown(unsigned* count, nvmlDevice_t* out, List list) {
  if (count == nullptr || !Fixed()) return list(count, out);
  nvmlDevice_t all[kMostDevices];
  unsigned found = kMostDevices;
  if (const nvmlReturn_t result = list(&found, all); result != NVML_SUCCESS) return result;
  unsigned shown = 0;
  for (unsigned i = 0; i < found && i < kMostDevices; ++i) {
    if (DeviceOfHandle(all[i]) < 0) continue;
    if (shown < *count && out != nullptr) out[shown] = all[i];
    ++shown;
  }
  const unsigned room = *count;
  *count = shown;
  return room != 0 && shown > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

nvmlReturn_t Shown(nvmlReturn_t result, nvmlDevice_t* out) {
  if (result != NVML_SUCCESS || out == nullptr || !Fixed()) return result;
  if (DeviceOfHandle(*out) >= 0) return result;
  *out = nullptr;
  return NVML_ERROR_NOT_FOUND;
}

}  // namespace

// The program's own sessions; ours do not count.
HAMI_EXPORT nvmlReturn_t nvmlInit() { return ProgramInitialised(real::nvmlInit()); }
HAMI_EXPORT nvmlReturn_t nvmlInit_v2() { return ProgramInitialised(real::nvmlInit_v2()); }
HAMI_EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
  return ProgramInitialised(real::nvmlInitWithFlags(flags));
}
HAMI_EXPORT nvmlReturn_t nvmlShutdown() { return ProgramShutsDown(); }

HAMI_EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned* count) {
  return Count(ForProgram(real::nvmlDeviceGetCount, count), count);
}
HAMI_EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned* count) {
  return Count(ForProgram(real::nvmlDeviceGetCount_v2, count), count);
}

HAMI_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t* out) {
  return ByIndex(index, out, real::nvmlDeviceGetHandleByIndex);
}
HAMI_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* out) {
  return ByIndex(index, out, real::nvmlDeviceGetHandleByIndex_v2);
}

HAMI_EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* out) {
  return Shown(ForProgram(real::nvmlDeviceGetHandleByUUID, uuid, out), out);
}
HAMI_EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t* uuid, nvmlDevice_t* out) {
  return Shown(ForProgram(real::nvmlDeviceGetHandleByUUIDV, uuid, out), out);
}
HAMI_EXPORT nvmlReturn_t nvmlDeviceGetHandleBySerial(const char* serial, nvmlDevice_t* out) {
  return Shown(ForProgram(real::nvmlDeviceGetHandleBySerial, serial, out), out);
}
HAMI_EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char* bus_id, nvmlDevice_t* out) {
  return Shown(ForProgram(real::nvmlDeviceGetHandleByPciBusId, bus_id, out), out);
}
HAMI_EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, nvmlDevice_t* out) {
  return Shown(ForProgram(real::nvmlDeviceGetHandleByPciBusId_v2, bus_id, out), out);
}

HAMI_EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t handle, unsigned* index) {
  const nvmlReturn_t result = ForProgram(real::nvmlDeviceGetIndex, handle, index);
  if (result != NVML_SUCCESS || index == nullptr || !Fixed()) return result;
  const int device = DeviceOfHandle(handle);
  if (device >= 0) *index = static_cast<unsigned>(device);
  return result;
}

// What hands out other devices than the one that is asked about.
HAMI_EXPORT nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t handle, nvmlGpuTopologyLevel_t level,
                                                          unsigned* count, nvmlDevice_t* out) {
  return OnlyShown(count, out, [&](unsigned* room, nvmlDevice_t* devices) {
    return ForProgram(real::nvmlDeviceGetTopologyNearestGpus, handle, level, room, devices);
  });
}
HAMI_EXPORT nvmlReturn_t nvmlSystemGetTopologyGpuSet(unsigned cpu, unsigned* count, nvmlDevice_t* out) {
  return OnlyShown(count, out, [&](unsigned* room, nvmlDevice_t* devices) {
    return ForProgram(real::nvmlSystemGetTopologyGpuSet, cpu, room, devices);
  });
}
HAMI_EXPORT nvmlReturn_t nvmlUnitGetDevices(nvmlUnit_t unit, unsigned* count, nvmlDevice_t* out) {
  return OnlyShown(count, out, [&](unsigned* room, nvmlDevice_t* devices) {
    return ForProgram(real::nvmlUnitGetDevices, unit, room, devices);
  });
}
