// SPDX-License-Identifier: Apache-2.0
//
// How the GPUs hang together: PCIe, NVLink, fabric, NUMA.
#include <cstdio>
#include <cstring>

#include "simgpu/machine/container.h"
#include "simgpu/nvml/common.h"

using namespace simgpu;
using namespace simgpu::nvml;
using V = Machine::Value;

namespace simgpu::nvml {
bool HasNvLink(int dev, unsigned int link) { return link < Sim().spec(dev).nvlink_count; }
}  // namespace simgpu::nvml

namespace {

const NvLink& LinkOf(int dev, unsigned int link) { return Sim().spec(dev).nvlink[link]; }

// The number beyond any board's links is a wrong argument; one that this board lacks is not supported.
nvmlReturn_t CheckLink(int dev, unsigned int link) {
  if (link >= kMaxNvLinks) return NVML_ERROR_INVALID_ARGUMENT;
  return HasNvLink(dev, link) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

// The address of the switches: a bus of their own behind all GPUs.
void FillSwitchPci(std::uint32_t number, nvmlPciInfo_t* pci) {
  *pci = {};
  pci->bus = 0x05 + number;
  pci->pciDeviceId = 0x22a3u << 16 | 0x10de;
  std::snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", 0u, pci->bus & 0xff, 0u);
  std::snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", 0u, pci->bus & 0xff, 0u);
}

nvmlReturn_t RemotePci(int dev, unsigned int link, nvmlPciInfo_t* pci) {
  SIMGPU_NVML_NEED(pci != nullptr);
  if (const nvmlReturn_t bad = CheckLink(dev, link); bad != NVML_SUCCESS) return bad;
  const NvLink& wire = LinkOf(dev, link);
  if (wire.peer == LinkPeer::kNone || !Sim().LinkUp(dev, static_cast<int>(link))) return NVML_ERROR_NOT_SUPPORTED;
  if (wire.peer == LinkPeer::kSwitch) {
    FillSwitchPci(wire.peer_index, pci);
  } else {
    FillPci(static_cast<int>(wire.peer_index), pci);
  }
  return NVML_SUCCESS;
}

bool NvLinked(int a, int b) {
  bool switched[2] = {false, false};
  const int devs[2] = {a, b};
  for (int i = 0; i < 2; ++i) {
    for (unsigned int link = 0; link < Sim().spec(devs[i]).nvlink_count; ++link) {
      if (!Sim().LinkUp(devs[i], static_cast<int>(link))) continue;
      const NvLink& wire = LinkOf(devs[i], link);
      if (wire.peer == LinkPeer::kSwitch) switched[i] = true;
      if (wire.peer == LinkPeer::kGpu && static_cast<int>(wire.peer_index) == devs[1 - i]) return true;
    }
  }
  return switched[0] && switched[1];
}

nvmlGpuTopologyLevel_t Level(int a, int b) {
  if (a == b) return NVML_TOPOLOGY_INTERNAL;
  return Sim().spec(a).numa_node == Sim().spec(b).numa_node ? NVML_TOPOLOGY_NODE : NVML_TOPOLOGY_SYSTEM;
}

}  // namespace

SIMGPU_NVML nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t two, nvmlGpuTopologyLevel_t* level) {
  SIMGPU_NVML_GPU(nvmlDeviceGetTopologyCommonAncestor, one);
  Place other = {};
  if (const nvmlReturn_t bad = OtherDevice(two, &other); bad != NVML_SUCCESS) return bad;
  SIMGPU_NVML_NEED(level != nullptr);
  *level = Level(dev, other.dev);
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, nvmlGpuTopologyLevel_t level, unsigned int* count,
                                             nvmlDevice_t* devices) {
  SIMGPU_NVML_GPU(nvmlDeviceGetTopologyNearestGpus, device);
  SIMGPU_NVML_NEED(count != nullptr && (*count == 0 || devices != nullptr));
  const unsigned int room = *count;
  unsigned int found = 0;
  const Present present = PresentDevices(Sim());
  for (int place = 0; place < present.count; ++place) {
    const int other = present.dev[place];
    if (other == dev || Level(dev, other) > level) continue;
    if (found < room) devices[found] = GpuHandle(other);
    ++found;
  }
  *count = found;
  return found > room && room > 0 ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceOnSameBoard(nvmlDevice_t one, nvmlDevice_t two, int* same) {
  SIMGPU_NVML_GPU(nvmlDeviceOnSameBoard, one);
  Place other = {};
  if (const nvmlReturn_t bad = OtherDevice(two, &other); bad != NVML_SUCCESS) return bad;
  SIMGPU_NVML_NEED(same != nullptr);
  *same = dev == other.dev ? 1 : 0;
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetP2PStatus(nvmlDevice_t one, nvmlDevice_t two, nvmlGpuP2PCapsIndex_t index,
                                   nvmlGpuP2PStatus_t* status) {
  SIMGPU_NVML_GPU(nvmlDeviceGetP2PStatus, one);
  Place other = {};
  if (const nvmlReturn_t bad = OtherDevice(two, &other); bad != NVML_SUCCESS) return bad;
  SIMGPU_NVML_NEED(status != nullptr && index >= NVML_P2P_CAPS_INDEX_READ && index < NVML_P2P_CAPS_INDEX_UNKNOWN);
  const bool linked = NvLinked(dev, other.dev);
  const bool geforce = Sim().spec(dev).brand == NVML_BRAND_GEFORCE;
  bool can = linked || !geforce;
  if (index == NVML_P2P_CAPS_INDEX_NVLINK || index == NVML_P2P_CAPS_INDEX_ATOMICS) can = linked;
  *status = can ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_NOT_SUPPORTED;
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, nvmlEnableState_t* active) {
  SIMGPU_NVML_GPU(nvmlDeviceGetNvLinkState, device);
  SIMGPU_NVML_NEED(active != nullptr);
  if (const nvmlReturn_t bad = CheckLink(dev, link); bad != NVML_SUCCESS) return bad;
  *active = Sim().LinkUp(dev, static_cast<int>(link)) ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
  return NVML_SUCCESS;
}
SIMGPU_NVML nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link, unsigned int* version) {
  SIMGPU_NVML_GPU(nvmlDeviceGetNvLinkVersion, device);
  SIMGPU_NVML_NEED(version != nullptr);
  if (const nvmlReturn_t bad = CheckLink(dev, link); bad != NVML_SUCCESS) return bad;
  *version = Sim().spec(dev).nvlink_version;
  return NVML_SUCCESS;
}
SIMGPU_NVML nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned int link, nvmlNvLinkCapability_t capability,
                                          unsigned int* result) {
  SIMGPU_NVML_GPU(nvmlDeviceGetNvLinkCapability, device);
  SIMGPU_NVML_NEED(result != nullptr && capability >= NVML_NVLINK_CAP_P2P_SUPPORTED &&
                   capability < NVML_NVLINK_CAP_COUNT);
  if (const nvmlReturn_t bad = CheckLink(dev, link); bad != NVML_SUCCESS) return bad;
  *result = capability == NVML_NVLINK_CAP_SLI_BRIDGE ? 0 : 1;
  return NVML_SUCCESS;
}
SIMGPU_NVML nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t* pci) {
  SIMGPU_NVML_GPU(nvmlDeviceGetNvLinkRemotePciInfo_v2, device);
  return RemotePci(dev, link, pci);
}
SIMGPU_NVML nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t* pci) {
  SIMGPU_NVML_GPU(nvmlDeviceGetNvLinkRemotePciInfo, device);
  SIMGPU_NVML_NEED(pci != nullptr);
  nvmlPciInfo_t full;
  const nvmlReturn_t result = RemotePci(dev, link, &full);
  // The first form of the structure ends before the long bus id.
  if (result == NVML_SUCCESS) std::memcpy(static_cast<void*>(pci), &full, offsetof(nvmlPciInfo_t, busId));
  return result;
}
SIMGPU_NVML nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link,
                                                nvmlIntNvLinkDeviceType_t* type) {
  SIMGPU_NVML_GPU(nvmlDeviceGetNvLinkRemoteDeviceType, device);
  SIMGPU_NVML_NEED(type != nullptr);
  if (const nvmlReturn_t bad = CheckLink(dev, link); bad != NVML_SUCCESS) return bad;
  const NvLink& wire = LinkOf(dev, link);
  *type = NVML_NVLINK_DEVICE_TYPE_UNKNOWN;
  if (!Sim().LinkUp(dev, static_cast<int>(link))) return NVML_SUCCESS;
  *type = wire.peer == LinkPeer::kSwitch ? NVML_NVLINK_DEVICE_TYPE_SWITCH : NVML_NVLINK_DEVICE_TYPE_GPU;
  return NVML_SUCCESS;
}
SIMGPU_NVML nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned int link, nvmlNvLinkErrorCounter_t,
                                            unsigned long long* value) {
  SIMGPU_NVML_GPU(nvmlDeviceGetNvLinkErrorCounter, device);
  SIMGPU_NVML_NEED(value != nullptr);
  if (const nvmlReturn_t bad = CheckLink(dev, link); bad != NVML_SUCCESS) return bad;
  *value = 0;
  return NVML_SUCCESS;
}

// --- Fabric -------------------------------------------------------------------------------------------------------

namespace {
// Boards behind NVLink switches are one clique; nobody else has a fabric.
bool HasFabric(int dev) { return Sim().spec(dev).nvlink_version >= 4 && LinkOf(dev, 0).peer == LinkPeer::kSwitch; }
}  // namespace

SIMGPU_NVML nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t* info) {
  SIMGPU_NVML_GPU(nvmlDeviceGetGpuFabricInfo, device);
  SIMGPU_NVML_NEED(info != nullptr);
  *info = {};
  info->state = HasFabric(dev) ? NVML_GPU_FABRIC_STATE_COMPLETED : NVML_GPU_FABRIC_STATE_NOT_SUPPORTED;
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t* info) {
  SIMGPU_NVML_GPU(nvmlDeviceGetGpuFabricInfoV, device);
  SIMGPU_NVML_NEED(info != nullptr);
  const unsigned int version = info->version;
  if (version != nvmlGpuFabricInfo_v2 && version != nvmlGpuFabricInfo_v3) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  // Version 2 is a prefix of version 3: write no more than the caller has.
  nvmlGpuFabricInfo_v3_t full = {};
  full.version = version;
  full.state = HasFabric(dev) ? NVML_GPU_FABRIC_STATE_COMPLETED : NVML_GPU_FABRIC_STATE_NOT_SUPPORTED;
  const std::size_t size = version == nvmlGpuFabricInfo_v2 ? sizeof(nvmlGpuFabricInfo_v2_t) : sizeof full;
  std::memcpy(static_cast<void*>(info), &full, size);
  return NVML_SUCCESS;
}

// --- PCIe and NUMA ------------------------------------------------------------------------------------------------

namespace {
nvmlReturn_t Give(unsigned int* to, std::uint64_t value) {
  SIMGPU_NVML_NEED(to != nullptr);
  *to = static_cast<unsigned int>(value);
  return NVML_SUCCESS;
}
}  // namespace

SIMGPU_NVML nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int* generation) {
  SIMGPU_NVML_GPU(nvmlDeviceGetMaxPcieLinkGeneration, device);
  return Give(generation, Sim().spec(dev).pcie_gen);
}
SIMGPU_NVML nvmlDeviceGetGpuMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int* generation) {
  SIMGPU_NVML_GPU(nvmlDeviceGetGpuMaxPcieLinkGeneration, device);
  return Give(generation, Sim().spec(dev).pcie_gen);
}
SIMGPU_NVML nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned int* width) {
  SIMGPU_NVML_GPU(nvmlDeviceGetMaxPcieLinkWidth, device);
  return Give(width, Sim().spec(dev).pcie_width);
}
SIMGPU_NVML nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned int* generation) {
  SIMGPU_NVML_GPU(nvmlDeviceGetCurrPcieLinkGeneration, device);
  return Give(generation, ValueOr(dev, V::kPcieGen, Sim().spec(dev).pcie_gen));
}
SIMGPU_NVML nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned int* width) {
  SIMGPU_NVML_GPU(nvmlDeviceGetCurrPcieLinkWidth, device);
  return Give(width, ValueOr(dev, V::kPcieWidth, Sim().spec(dev).pcie_width));
}
SIMGPU_NVML nvmlDeviceGetPcieReplayCounter(nvmlDevice_t device, unsigned int* value) {
  SIMGPU_NVML_GPU(nvmlDeviceGetPcieReplayCounter, device);
  return Give(value, ValueOr(dev, V::kPcieReplays, 0));
}
SIMGPU_NVML nvmlDeviceGetPcieThroughput(nvmlDevice_t device, nvmlPcieUtilCounter_t counter, unsigned int* kib_per_s) {
  SIMGPU_NVML_GPU(nvmlDeviceGetPcieThroughput, device);
  SIMGPU_NVML_NEED(counter >= NVML_PCIE_UTIL_TX_BYTES && counter < NVML_PCIE_UTIL_COUNT);
  if (Sim().MigEnabled(dev)) return NVML_ERROR_NOT_SUPPORTED;
  // The copies' share of the time, at the bus's speed; directions are not told apart.
  return Give(kib_per_s, Sim().spec(dev).pcie_bytes_per_s / 1024 * Sim().DeviceUtil(dev).memory / 100 / 2);
}

SIMGPU_NVML nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned int* node) {
  SIMGPU_NVML_GPU(nvmlDeviceGetNumaNodeId, device);
  SIMGPU_NVML_NEED(node != nullptr);
  if (Sim().spec(dev).numa_node < 0) return NVML_ERROR_NOT_SUPPORTED;
  *node = static_cast<unsigned int>(Sim().spec(dev).numa_node);
  return NVML_SUCCESS;
}
