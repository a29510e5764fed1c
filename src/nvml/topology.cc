// SPDX-License-Identifier: Apache-2.0

#include "base/strings.h"
#include "nvml/functions.h"

namespace hami::nvml {
namespace {

LinkPeer PeerOf(const Functions& f, nvmlDevice_t device, unsigned link) {
  const auto type = Get<nvmlIntNvLinkDeviceType_t>(f.nvmlDeviceGetNvLinkRemoteDeviceType, device, link);
  if (!type) return LinkPeer::kUnknown;
  switch (*type) {
    case NVML_NVLINK_DEVICE_TYPE_GPU:
      return LinkPeer::kGpu;
    case NVML_NVLINK_DEVICE_TYPE_SWITCH:
      return LinkPeer::kSwitch;
    case NVML_NVLINK_DEVICE_TYPE_IBMNPU:
      return LinkPeer::kOther;
    default:
      return LinkPeer::kUnknown;
  }
}

// Every number is asked: a link that fails or that a board does not have says nothing about the next one.
std::vector<NvLink> LinksOf(const Functions& f, nvmlDevice_t device) {
  std::vector<NvLink> links;
  for (unsigned number = 0; number < NVML_NVLINK_MAX_LINKS; ++number) {
    const auto state = Get<nvmlEnableState_t>(f.nvmlDeviceGetNvLinkState, device, number);
    if (!state) continue;
    NvLink link;
    link.number = number;
    link.up = *state == NVML_FEATURE_ENABLED;
    link.peer = PeerOf(f, device, number);
    if (const auto pci = Get<nvmlPciInfo_t>(f.nvmlDeviceGetNvLinkRemotePciInfo_v2, device, number)) {
      link.peer_bus_id = SysfsBusId(base::Printable(pci->busId));
    }
    links.push_back(std::move(link));
  }
  return links;
}

std::optional<Ancestor> AncestorOf(const Functions& f, nvmlDevice_t a, nvmlDevice_t b) {
  const auto level = Get<nvmlGpuTopologyLevel_t>(f.nvmlDeviceGetTopologyCommonAncestor, a, b);
  if (!level) return std::nullopt;
  switch (*level) {
    case NVML_TOPOLOGY_INTERNAL:
      return Ancestor::kSameBoard;
    case NVML_TOPOLOGY_SINGLE:
      return Ancestor::kOneSwitch;
    case NVML_TOPOLOGY_MULTIPLE:
      return Ancestor::kManySwitches;
    case NVML_TOPOLOGY_HOSTBRIDGE:
      return Ancestor::kHostBridge;
    case NVML_TOPOLOGY_NODE:
      return Ancestor::kNumaNode;
    case NVML_TOPOLOGY_SYSTEM:
      return Ancestor::kSystem;
    default:
      return std::nullopt;
  }
}

}  // namespace

std::vector<NvLink> Library::ReadNvLinks(const std::string& uuid) const {
  const Found found = Find(*functions_, uuid);
  return found.code == NVML_SUCCESS ? LinksOf(*functions_, found.device) : std::vector<NvLink>{};
}

Topology Library::ReadTopology(const std::vector<Device>& devices) const {
  const Functions& f = *functions_;
  Topology topology;
  std::vector<Found> found;
  for (const Device& device : devices) {
    found.push_back(Find(f, device.uuid));
    auto links = found.back().code == NVML_SUCCESS ? LinksOf(f, found.back().device) : std::vector<NvLink>{};
    topology.gpus.push_back({device.uuid, device.bus_id, std::move(links)});
  }
  for (std::size_t a = 0; a < found.size(); ++a) {
    for (std::size_t b = 0; b < found.size(); ++b) {
      const bool ask = a != b && found[a].code == NVML_SUCCESS && found[b].code == NVML_SUCCESS;
      topology.ancestors.push_back(ask ? AncestorOf(f, found[a].device, found[b].device) : std::nullopt);
    }
  }
  return topology;
}

}  // namespace hami::nvml
