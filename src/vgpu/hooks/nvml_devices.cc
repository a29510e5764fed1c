// SPDX-License-Identifier: Apache-2.0
//
// Whether NVML may be asked, and which devices it shows: all that the driver shows, unless the region fixes them. Then
// the others do not exist, and the region's order is the numbering.

#include "vgpu/loader/driver.h"
#include "vgpu/policy/device_map.h"
#include "vgpu/policy/nvml_probe.h"
#include "vgpu/policy/process.h"

using namespace hami::vgpu;  // NOLINT: this file only exports

namespace {

bool Fixed() { return Active() && DevicesAreFixed(); }

nvmlReturn_t Count(nvmlReturn_t result, unsigned* count) {
  if (result == NVML_SUCCESS && count != nullptr && Fixed()) *count = FixedDeviceCount();
  return result;
}

template <typename Real>
nvmlReturn_t ByIndex(unsigned index, nvmlDevice_t* out, Real by_index) {
  if (!Fixed()) return ForProgram(by_index, index, out);
  // The first device stands for "may NVML be asked at all".
  nvmlDevice_t any = nullptr;
  const nvmlReturn_t result = ForProgram(by_index, 0u, out == nullptr ? nullptr : &any);
  return result == NVML_SUCCESS ? FixedDeviceHandle(index, out) : result;
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
