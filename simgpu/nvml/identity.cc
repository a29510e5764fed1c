// SPDX-License-Identifier: Apache-2.0
//
// Which GPUs there are and what tells them apart.
#include <strings.h>

#include <cstdio>
#include <cstring>

#include "simgpu/machine/container.h"
#include "simgpu/nvml/common.h"

using namespace simgpu;
using namespace simgpu::nvml;

namespace simgpu::nvml {

void FillPci(int dev, nvmlPciInfo_t* pci) {
  const DeviceSpec& spec = Sim().spec(dev);
  *pci = {};
  pci->domain = spec.pci_domain;
  pci->bus = spec.pci_bus;
  pci->device = spec.pci_device;
  pci->pciDeviceId = spec.pci_device_id;
  pci->pciSubSystemId = spec.pci_subsystem_id;
  std::snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", spec.pci_domain & 0xffff,
                spec.pci_bus & 0xff, spec.pci_device & 0x1f);
  std::snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", spec.pci_domain, spec.pci_bus & 0xff,
                spec.pci_device & 0x1f);
}

}  // namespace simgpu::nvml

namespace {

nvmlReturn_t CountDevices(unsigned int* count) {
  SIMGPU_NVML_NEED(count != nullptr);
  *count = static_cast<unsigned int>(PresentDevices(Sim()).count);
  return NVML_SUCCESS;
}

nvmlReturn_t ByIndex(const char* function, unsigned int index, nvmlDevice_t* device) {
  const Present present = PresentDevices(Sim());
  const bool known = index < static_cast<unsigned int>(present.count);
  const int dev = known ? present.dev[index] : -1;
  if (const nvmlReturn_t entered = Enter(function, dev); entered != NVML_SUCCESS) return entered;
  SIMGPU_NVML_NEED(device != nullptr && known);
  Attach(dev);
  *device = GpuHandle(dev);
  return NVML_SUCCESS;
}

nvmlReturn_t ByPci(const char* text, nvmlDevice_t* device) {
  SIMGPU_NVML_NEED(text != nullptr && device != nullptr);
  unsigned int parts[3] = {};
  int used = 0;
  // "domain:bus:device.function" or "bus:device.function"
  if (std::sscanf(text, "%8x:%2x:%2x.0%n", &parts[0], &parts[1], &parts[2], &used) != 3 || text[used] != 0) {
    parts[0] = 0;
    used = 0;
    if (std::sscanf(text, "%2x:%2x.0%n", &parts[1], &parts[2], &used) != 2 || used == 0 || text[used] != 0) {
      return NVML_ERROR_INVALID_ARGUMENT;
    }
  }
  const Present present = PresentDevices(Sim());
  for (int place = 0; place < present.count; ++place) {
    const int dev = present.dev[place];
    const DeviceSpec& spec = Sim().spec(dev);
    if (spec.pci_domain != parts[0] || spec.pci_bus != parts[1] || spec.pci_device != parts[2]) continue;
    if (Sim().Lost(dev)) return NVML_ERROR_GPU_IS_LOST;
    Attach(dev);
    *device = GpuHandle(dev);
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t ByUuid(const char* text, nvmlDevice_t* device) {
  SIMGPU_NVML_NEED(text != nullptr && device != nullptr);
  char uuid[48];
  const Present present = PresentDevices(Sim());
  for (int place = 0; place < present.count; ++place) {
    const int dev = present.dev[place];
    FormatUuid("GPU-", Sim().spec(dev).uuid, uuid);
    if (strcasecmp(text, uuid) == 0) {
      if (Sim().Lost(dev)) return NVML_ERROR_GPU_IS_LOST;
      Attach(dev);
      *device = GpuHandle(dev);
      return NVML_SUCCESS;
    }
    MigInstance instances[kMaxGpuInstances], computes[kMaxComputeInstances];
    const std::size_t n = Sim().GpuInstances(dev, instances, kMaxGpuInstances);
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t m = Sim().ComputeInstances(dev, instances[i].gpu_instance, computes, kMaxComputeInstances);
      for (std::size_t k = 0; k < m; ++k) {
        FormatUuid("MIG-", computes[k].uuid, uuid);
        if (strcasecmp(text, uuid) != 0) continue;
        Attach(dev);
        *device = MigHandle(dev, computes[k].gpu_instance, computes[k].compute_instance);
        return NVML_SUCCESS;
      }
    }
  }
  return NVML_ERROR_NOT_FOUND;
}

}  // namespace

SIMGPU_NVML nvmlDeviceGetCount_v2(unsigned int* count) {
  SIMGPU_NVML_ENTER(nvmlDeviceGetCount_v2);
  return CountDevices(count);
}
SIMGPU_NVML nvmlDeviceGetCount(unsigned int* count) {
  SIMGPU_NVML_ENTER(nvmlDeviceGetCount);
  return CountDevices(count);
}
SIMGPU_NVML nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t* device) {
  return ByIndex("nvmlDeviceGetHandleByIndex_v2", index, device);
}
SIMGPU_NVML nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t* device) {
  return ByIndex("nvmlDeviceGetHandleByIndex", index, device);
}
SIMGPU_NVML nvmlDeviceGetHandleByPciBusId_v2(const char* id, nvmlDevice_t* device) {
  SIMGPU_NVML_ENTER(nvmlDeviceGetHandleByPciBusId_v2);
  return ByPci(id, device);
}
SIMGPU_NVML nvmlDeviceGetHandleByPciBusId(const char* id, nvmlDevice_t* device) {
  SIMGPU_NVML_ENTER(nvmlDeviceGetHandleByPciBusId);
  return ByPci(id, device);
}
SIMGPU_NVML nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* device) {
  SIMGPU_NVML_ENTER(nvmlDeviceGetHandleByUUID);
  return ByUuid(uuid, device);
}
SIMGPU_NVML nvmlDeviceGetHandleBySerial(const char* serial, nvmlDevice_t* device) {
  SIMGPU_NVML_ENTER(nvmlDeviceGetHandleBySerial);
  SIMGPU_NVML_NEED(serial != nullptr && device != nullptr);
  const Present present = PresentDevices(Sim());
  for (int place = 0; place < present.count; ++place) {
    const int dev = present.dev[place];
    if (std::strcmp(serial, Sim().spec(dev).serial) != 0) continue;
    *device = GpuHandle(dev);
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

SIMGPU_NVML nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid, unsigned int length) {
  SIMGPU_NVML_DEVICE(nvmlDeviceGetUUID, device);
  char text[48];
  MigInstance instance = {};
  if (at.mig() && FindComputeInstance(at.dev, at.gi, at.ci, &instance)) {
    FormatUuid("MIG-", instance.uuid, text);
  } else {
    FormatUuid("GPU-", Sim().spec(at.dev).uuid, text);
  }
  return CopyText(text, uuid, length);
}

SIMGPU_NVML nvmlDeviceGetName(nvmlDevice_t device, char* name, unsigned int length) {
  SIMGPU_NVML_DEVICE(nvmlDeviceGetName, device);
  const DeviceSpec& spec = Sim().spec(at.dev);
  MigInstance instance = {};
  if (!at.mig() || !FindComputeInstance(at.dev, at.gi, at.ci, &instance)) return CopyText(spec.name, name, length);
  const MigProfile& profile = spec.mig[instance.profile];
  char text[160];
  if (instance.compute_slices == profile.compute_slices) {
    std::snprintf(text, sizeof text, "%s MIG %s", spec.name, profile.name);
  } else {
    std::snprintf(text, sizeof text, "%s MIG %uc.%s", spec.name, instance.compute_slices, profile.name);
  }
  return CopyText(text, name, length);
}

SIMGPU_NVML nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int* index) {
  SIMGPU_NVML_DEVICE(nvmlDeviceGetIndex, device);
  SIMGPU_NVML_NEED(index != nullptr);
  *index = static_cast<unsigned int>(PresentDevices(Sim()).IndexOf(at.dev));
  if (!at.mig()) return NVML_SUCCESS;
  // Of a MIG device: its number among those of the parent, which GetMigDeviceHandleByIndex takes.
  for (unsigned int i = 0; i < kMaxGpuInstances * kMaxComputeInstances; ++i) {
    if (MigHandleAt(at.dev, i) != device) continue;
    *index = i;
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

SIMGPU_NVML nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int* minor) {
  SIMGPU_NVML_GPU(nvmlDeviceGetMinorNumber, device);
  SIMGPU_NVML_NEED(minor != nullptr);
  *minor = Sim().spec(dev).minor;
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetBrand(nvmlDevice_t device, nvmlBrandType_t* brand) {
  SIMGPU_NVML_GPU(nvmlDeviceGetBrand, device);
  SIMGPU_NVML_NEED(brand != nullptr);
  *brand = static_cast<nvmlBrandType_t>(Sim().spec(dev).brand);
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetSerial(nvmlDevice_t device, char* serial, unsigned int length) {
  SIMGPU_NVML_GPU(nvmlDeviceGetSerial, device);
  if (Sim().spec(dev).brand == NVML_BRAND_GEFORCE) return NVML_ERROR_NOT_SUPPORTED;  // has no serial in its infoROM
  return CopyText(Sim().spec(dev).serial, serial, length);
}

SIMGPU_NVML nvmlDeviceGetBoardId(nvmlDevice_t device, unsigned int* board) {
  SIMGPU_NVML_GPU(nvmlDeviceGetBoardId, device);
  SIMGPU_NVML_NEED(board != nullptr);
  *board = Sim().spec(dev).pci_bus << 8;
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetMultiGpuBoard(nvmlDevice_t device, unsigned int* multi) {
  SIMGPU_NVML_GPU(nvmlDeviceGetMultiGpuBoard, device);
  SIMGPU_NVML_NEED(multi != nullptr);
  *multi = 0;
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char* version, unsigned int length) {
  SIMGPU_NVML_GPU(nvmlDeviceGetVbiosVersion, device);
  char text[32];
  std::snprintf(text, sizeof text, "%02X.00.89.00.01", 0x80 + Sim().spec(dev).cc_major * 2);
  return CopyText(text, version, length);
}

SIMGPU_NVML nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t* architecture) {
  SIMGPU_NVML_DEVICE(nvmlDeviceGetArchitecture, device);
  SIMGPU_NVML_NEED(architecture != nullptr);
  const DeviceSpec& spec = Sim().spec(at.dev);
  *architecture = NVML_DEVICE_ARCH_UNKNOWN;
  if (spec.cc_major == 7) *architecture = spec.cc_minor >= 5 ? NVML_DEVICE_ARCH_TURING : NVML_DEVICE_ARCH_VOLTA;
  if (spec.cc_major == 8) *architecture = spec.cc_minor >= 9 ? NVML_DEVICE_ARCH_ADA : NVML_DEVICE_ARCH_AMPERE;
  if (spec.cc_major == 9) *architecture = NVML_DEVICE_ARCH_HOPPER;
  if (spec.cc_major >= 10) *architecture = NVML_DEVICE_ARCH_BLACKWELL;
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int* major, int* minor) {
  SIMGPU_NVML_DEVICE(nvmlDeviceGetCudaComputeCapability, device);
  SIMGPU_NVML_NEED(major != nullptr && minor != nullptr);
  *major = static_cast<int>(Sim().spec(at.dev).cc_major);
  *minor = static_cast<int>(Sim().spec(at.dev).cc_minor);
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned int* cores) {
  SIMGPU_NVML_GPU(nvmlDeviceGetNumGpuCores, device);
  SIMGPU_NVML_NEED(cores != nullptr);
  *cores = Sim().spec(dev).sm_count * Sim().spec(dev).cores_per_sm;
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  SIMGPU_NVML_GPU(nvmlDeviceGetPciInfo_v3, device);
  SIMGPU_NVML_NEED(pci != nullptr);
  FillPci(dev, pci);
  return NVML_SUCCESS;
}
SIMGPU_NVML nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  SIMGPU_NVML_GPU(nvmlDeviceGetPciInfo_v2, device);
  SIMGPU_NVML_NEED(pci != nullptr);
  // Older clients know nothing behind pciSubSystemId and three words that were reserved there.
  nvmlPciInfo_t full;
  FillPci(dev, &full);
  std::memcpy(static_cast<void*>(pci), &full, offsetof(nvmlPciInfo_t, busId));
  return NVML_SUCCESS;
}
SIMGPU_NVML nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  SIMGPU_NVML_GPU(nvmlDeviceGetPciInfo, device);
  SIMGPU_NVML_NEED(pci != nullptr);
  nvmlPciInfo_t full;
  FillPci(dev, &full);
  std::memcpy(static_cast<void*>(pci), &full, offsetof(nvmlPciInfo_t, pciSubSystemId));
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t* pci) {
  SIMGPU_NVML_GPU(nvmlDeviceGetPciInfoExt, device);
  SIMGPU_NVML_NEED(pci != nullptr);
  if (pci->version != nvmlPciInfoExt_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  nvmlPciInfo_t full;
  FillPci(dev, &full);
  pci->domain = full.domain;
  pci->bus = full.bus;
  pci->device = full.device;
  pci->pciDeviceId = full.pciDeviceId;
  pci->pciSubSystemId = full.pciSubSystemId;
  pci->baseClass = 3;
  pci->subClass = Sim().spec(dev).display != 0 ? 0 : 2;
  std::memcpy(pci->busId, full.busId, sizeof pci->busId);
  return NVML_SUCCESS;
}
