// SPDX-License-Identifier: Apache-2.0
#include "simgpu/machine/container.h"

#include <strings.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

namespace simgpu {
namespace {

bool HasNode(unsigned minor) {
  char path[40];
  std::snprintf(path, sizeof path, "/dev/nvidia%u", minor);
  return access(path, F_OK) == 0;
}

// A GPU goes by its index, its UUID, or that of an instance on it.
bool IsNamed(Machine& machine, int dev, std::string_view entry) {
  char uuid[64];
  FormatUuid("GPU-", machine.spec(dev).uuid, uuid);
  if (entry == uuid || entry == std::to_string(dev)) return true;
  MigInstance instances[kMaxGpuInstances], computes[kMaxComputeInstances];
  const std::size_t n = machine.GpuInstances(dev, instances, kMaxGpuInstances);
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t m = machine.ComputeInstances(dev, instances[i].gpu_instance, computes, kMaxComputeInstances);
    for (std::size_t k = 0; k < m; ++k) {
      FormatUuid("MIG-", computes[k].uuid, uuid);
      if (entry == uuid) return true;
    }
  }
  return false;
}

// The entries of LIST, one after the other, until ACCEPT says so.
template <typename Accept>
bool AnyEntry(std::string_view list, const Accept& accept) {
  for (;;) {
    const std::size_t comma = list.find(',');
    if (accept(list.substr(0, comma))) return true;
    if (comma == list.npos) return false;
    list.remove_prefix(comma + 1);
  }
}

}  // namespace

bool IsLetIn(Machine& machine, int dev, const MigInstance& compute, const char* visible) {
  const std::string_view text = visible == nullptr ? "void" : visible;
  char gpu[64], uuid[64];
  FormatUuid("GPU-", machine.spec(dev).uuid, gpu);
  FormatUuid("MIG-", compute.uuid, uuid);
  const bool by_node = text.empty() || text == "void" || text == "all";
  return by_node || AnyEntry(text, [&](std::string_view entry) {
           return entry == uuid || entry == gpu || entry == std::to_string(dev);
         });
}

bool IsPresent(Machine& machine, int dev, const MigInstance& compute) {
  const char* const container = std::getenv("SIMGPU_CONTAINER");
  if (container == nullptr || *container == '\0') return true;
  return IsLetIn(machine, dev, compute, std::getenv("NVIDIA_VISIBLE_DEVICES"));
}

int Present::IndexOf(int device) const {
  for (int i = 0; i < count; ++i) {
    if (dev[i] == device) return i;
  }
  return -1;
}

Present DevicesFor(Machine& machine, const char* visible, bool (*has_node)(unsigned minor)) {
  const std::string_view text = visible == nullptr ? "void" : visible;
  const bool by_node = text.empty() || text == "void";
  Present present;
  for (int dev = 0; dev < machine.device_count() && text != "none"; ++dev) {
    const bool there =
        by_node ? has_node(machine.spec(dev).minor)
                : text == "all" || AnyEntry(text, [&](std::string_view entry) { return IsNamed(machine, dev, entry); });
    if (there) present.dev[present.count++] = dev;
  }
  return present;
}

Present PresentDevices(Machine& machine) {
  const char* const container = std::getenv("SIMGPU_CONTAINER");
  if (container == nullptr || *container == '\0') return DevicesFor(machine, "all", &HasNode);
  return DevicesFor(machine, std::getenv("NVIDIA_VISIBLE_DEVICES"), &HasNode);
}

}  // namespace simgpu
