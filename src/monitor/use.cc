// SPDX-License-Identifier: Apache-2.0

#include "monitor/use.h"

namespace hami::monitor {
namespace {

device::MiB MiBOf(std::uint64_t bytes) { return std::min(static_cast<device::MiB>(bytes >> 20U), device::kMostUseMiB); }

device::ShareUse ShareOf(const ContainerPicture& container, const DeviceUse& use) {
  device::ShareUse share{container.ns,     container.pod, container.container, use.uuid, MiBOf(use.used),
                         MiBOf(use.limit), 100,           std::nullopt};
  if (use.sm_limit >= 1 && use.sm_limit < 100) share.core_limit = static_cast<int>(use.sm_limit);
  if (use.UtilizationKnown()) share.core_percent = static_cast<int>(std::min<std::uint64_t>(use.sm_percent, 100));
  return share;
}

}  // namespace

device::UseReport UseOf(const Picture& picture) {
  device::UseReport report{picture.node, {}};
  for (const ContainerPicture& container : picture.containers) {
    if (!container.problem.empty() || container.awaited) continue;
    for (const DeviceUse& use : container.region.devices) {
      if (use.uuid.empty() || use.uuid == kUnknownUuid) continue;
      if (report.shares.size() == device::kMostUseShares) return report;
      report.shares.push_back(ShareOf(container, use));
    }
  }
  return report;
}

}  // namespace hami::monitor
