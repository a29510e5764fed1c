// SPDX-License-Identifier: Apache-2.0
// cuDevice*: enumeration, identity, peers. Attributes are in device_attributes.cc.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "simgpu/driver/core.h"

namespace simgpu {
namespace {

CUresult Need(CUdevice dev, const Device** out) {
  *out = FindDevice(dev);
  return *out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

bool Linked(const DeviceSpec& from, int to) {
  const std::uint32_t count = std::min<std::uint32_t>(from.nvlink_count, kMaxNvLinks);
  return std::any_of(from.nvlink, from.nvlink + count, [&](const NvLink& link) {
    return link.peer == LinkPeer::kSwitch ||
           (link.peer == LinkPeer::kGpu && link.peer_index == static_cast<std::uint32_t>(to));
  });
}

enum class Path { kNone, kPcie, kNvLink };

// NVLink where both ends have it; over PCIe the driver allows peers between boards made for servers, which have no
// display. MIG instances have no peers.
Path PathBetween(const Device& a, const Device& b) {
  if (a.machine == b.machine || a.mig() || b.mig()) return Path::kNone;
  if (Linked(*a.spec, b.machine) && Linked(*b.spec, a.machine)) return Path::kNvLink;
  return a.spec->display == 0 && b.spec->display == 0 ? Path::kPcie : Path::kNone;
}

CUresult TotalMem(std::size_t* bytes, CUdevice dev) {
  const Device* device = nullptr;
  SIMGPU_TRY(Need(dev, &device));
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *bytes = Machine::Get().TotalBytes(device->machine);
  return CUDA_SUCCESS;
}

CUresult Uuid(CUuuid* uuid, CUdevice dev, bool instance) {
  const Device* device = nullptr;
  SIMGPU_TRY(Need(dev, &device));
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *uuid = instance ? device->uuid : device->gpu_uuid;
  return CUDA_SUCCESS;
}

}  // namespace

bool HasMulticast(const Device& device) {
  const std::uint32_t count = std::min<std::uint32_t>(device.spec->nvlink_count, kMaxNvLinks);
  const NvLink* const links = device.spec->nvlink;
  return !device.mig() && device.spec->nvlink_version >= 4 &&
         std::any_of(links, links + count, [](const NvLink& link) { return link.peer == LinkPeer::kSwitch; });
}

bool CanAccessPeer(const Device& from, const Device& to) { return PathBetween(from, to) != Path::kNone; }

}  // namespace simgpu

using namespace simgpu;

CUresult cuDeviceGetCount(int* count) {
  SIMGPU_ENTER(cuDeviceGetCount);
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = DeviceCount();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  SIMGPU_ENTER(cuDeviceGet);
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (FindDevice(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int len, CUdevice dev) {
  SIMGPU_ENTER(cuDeviceGetName);
  const Device* device = nullptr;
  SIMGPU_TRY(Need(dev, &device));
  if (name == nullptr || len <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(name, static_cast<std::size_t>(len), "%s", device->spec->name);
  return CUDA_SUCCESS;
}

// The first version names the GPU, the second one the MIG instance where there is one.
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice dev) {
  SIMGPU_ENTER(cuDeviceGetUuid);
  return Uuid(uuid, dev, false);
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) {
  SIMGPU_ENTER(cuDeviceGetUuid_v2);
  return Uuid(uuid, dev, true);
}

// LUIDs exist on Windows only.
CUresult cuDeviceGetLuid(char* luid, unsigned int* mask, CUdevice dev) {
  SIMGPU_ENTER(cuDeviceGetLuid);
  const Device* device = nullptr;
  SIMGPU_TRY(Need(dev, &device));
  return luid == nullptr || mask == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  SIMGPU_ENTER(cuDeviceTotalMem_v2);
  return TotalMem(bytes, dev);
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice dev) {
  SIMGPU_ENTER(cuDeviceComputeCapability);
  const Device* device = nullptr;
  SIMGPU_TRY(Need(dev, &device));
  if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *major = static_cast<int>(device->spec->cc_major);
  *minor = static_cast<int>(device->spec->cc_minor);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetProperties(CUdevprop* prop, CUdevice dev) {
  SIMGPU_ENTER(cuDeviceGetProperties);
  const Device* device = nullptr;
  SIMGPU_TRY(Need(dev, &device));
  if (prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const DeviceSpec& spec = *device->spec;
  *prop = CUdevprop{};
  prop->maxThreadsPerBlock = static_cast<int>(spec.max_threads_per_block);
  const int block[3] = {1024, 1024, 64};
  const int grid[3] = {2147483647, 65535, 65535};
  std::copy(block, block + 3, prop->maxThreadsDim);
  std::copy(grid, grid + 3, prop->maxGridSize);
  prop->sharedMemPerBlock = static_cast<int>(spec.shared_per_block);
  prop->totalConstantMemory = 65536;
  prop->SIMDWidth = static_cast<int>(spec.warp_size);
  prop->memPitch = 2147483647;
  prop->regsPerBlock = static_cast<int>(spec.regs_per_block);
  prop->clockRate = static_cast<int>(spec.sm_clock_mhz * 1000);
  prop->textureAlign = 512;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char* id, int len, CUdevice dev) {
  SIMGPU_ENTER(cuDeviceGetPCIBusId);
  const Device* device = nullptr;
  SIMGPU_TRY(Need(dev, &device));
  if (id == nullptr || len < 13) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(id, static_cast<std::size_t>(len), "%04X:%02X:%02X.0", device->spec->pci_domain, device->spec->pci_bus,
                device->spec->pci_device);
  return CUDA_SUCCESS;
}

// "[domain]:[bus]:[device].[function]", or without the domain or the function; hexadecimal.
CUresult cuDeviceGetByPCIBusId(CUdevice* dev, const char* id) {
  SIMGPU_ENTER(cuDeviceGetByPCIBusId);
  if (dev == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  unsigned domain = 0;
  unsigned bus = 0;
  unsigned slot = 0;
  if (std::sscanf(id, "%x:%x:%x", &domain, &bus, &slot) != 3) {
    domain = 0;
    if (std::sscanf(id, "%x:%x", &bus, &slot) != 2) return CUDA_ERROR_INVALID_VALUE;
  }
  for (int i = 0; i < DeviceCount(); ++i) {
    const DeviceSpec& spec = *FindDevice(i)->spec;
    if (spec.pci_domain == domain && spec.pci_bus == bus && spec.pci_device == slot) {
      *dev = i;
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetExecAffinitySupport(int* supported, CUexecAffinityType type, CUdevice dev) {
  SIMGPU_ENTER(cuDeviceGetExecAffinitySupport);
  const Device* device = nullptr;
  SIMGPU_TRY(Need(dev, &device));
  if (supported == nullptr || type >= CU_EXEC_AFFINITY_TYPE_MAX) return CUDA_ERROR_INVALID_VALUE;
  *supported = 0;  // only under MPS
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t* width, CUarray_format format, unsigned channels, CUdevice dev) {
  SIMGPU_ENTER(cuDeviceGetTexture1DLinearMaxWidth);
  const Device* device = nullptr;
  SIMGPU_TRY(Need(dev, &device));
  if (width == nullptr || (channels != 1 && channels != 2 && channels != 4)) return CUDA_ERROR_INVALID_VALUE;
  unsigned bytes = 4;
  if (format == CU_AD_FORMAT_UNSIGNED_INT8 || format == CU_AD_FORMAT_SIGNED_INT8) bytes = 1;
  if (format == CU_AD_FORMAT_UNSIGNED_INT16 || format == CU_AD_FORMAT_SIGNED_INT16 || format == CU_AD_FORMAT_HALF) {
    bytes = 2;
  }
  *width = (std::size_t{1} << 31) / (bytes * channels);
  return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice dev, CUdevice peer) {
  SIMGPU_ENTER(cuDeviceCanAccessPeer);
  const Device* a = nullptr;
  const Device* b = nullptr;
  SIMGPU_TRY(Need(dev, &a));
  SIMGPU_TRY(Need(peer, &b));
  if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *can = CanAccessPeer(*a, *b) ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice dev, CUdevice peer) {
  SIMGPU_ENTER(cuDeviceGetP2PAttribute);
  const Device* a = nullptr;
  const Device* b = nullptr;
  SIMGPU_TRY(Need(dev, &a));
  SIMGPU_TRY(Need(peer, &b));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (a == b) return CUDA_ERROR_INVALID_DEVICE;
  const Path path = PathBetween(*a, *b);
  switch (attribute) {
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
      *value = path == Path::kNvLink ? 0 : 1;
      return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
      *value = path != Path::kNone;
      return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
      *value = path == Path::kNvLink;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}
