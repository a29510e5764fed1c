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

bool IsInList(Machine& machine, int dev, std::string_view list) {
  for (;;) {
    const std::size_t comma = list.find(',');
    if (IsNamed(machine, dev, list.substr(0, comma))) return true;
    if (comma == list.npos) return false;
    list.remove_prefix(comma + 1);
  }
}

}  // namespace

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
    const bool there = by_node ? has_node(machine.spec(dev).minor) : text == "all" || IsInList(machine, dev, text);
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
