// SPDX-License-Identifier: Apache-2.0
//
// What tests and benchmarks of the scheduler share: a configured vendor, cards, pods. Not part of any program.

#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/pod.h"
#include "device/vendors/nvidia.h"
#include "sched/filter.h"
#include "sched/ledger.h"

namespace hami::sched::testing {

inline device::NvidiaConfig DefaultNvidia() {
  device::NvidiaConfig config;
  config.count_resource = "nvidia.com/gpu";
  config.memory_resource = "nvidia.com/gpumem";
  config.memory_percent_resource = "nvidia.com/gpumem-percentage";
  config.core_resource = "nvidia.com/gpucores";
  config.priority_resource = "nvidia.com/priority";
  return config;
}

inline device::Vendors NvidiaOnly(device::NvidiaConfig config = DefaultNvidia()) {
  device::Vendors vendors;
  vendors.push_back(std::make_unique<device::NvidiaVendor>(std::move(config)));
  return vendors;
}

inline device::Device Card(std::string uuid, device::MiB memory = 16384, int numa = 0) {
  device::Device device;
  device.uuid = std::move(uuid);
  device.count = 10;
  device.memory = memory;
  device.cores = 100;
  device.type = "NVIDIA-Tesla T4";
  device.numa = numa;
  device.mode = device::kModeHamiCore;
  device.healthy = true;
  return device;
}

// COUNT cards `NODE-0`, `NODE-1`, …
inline device::NodeCards Cards(const std::string& node, int count, device::MiB memory = 16384) {
  device::NodeCards cards;
  for (int i = 0; i < count; ++i) {
    cards.devices.push_back(Card(node + "-" + std::to_string(i), memory, i < (count + 1) / 2 ? 0 : 1));
    cards.devices.back().index = i;
  }
  return cards;
}

inline device::Container Wants(int gpus, device::MiB memory, int cores = 0) {
  device::Container container;
  container.name = "main";
  container.limits["nvidia.com/gpu"] = std::to_string(gpus);
  if (memory > 0) container.limits["nvidia.com/gpumem"] = std::to_string(memory);
  if (cores > 0) container.limits["nvidia.com/gpucores"] = std::to_string(cores);
  return container;
}

inline device::Pod PodOf(std::string uid, device::Container container) {
  device::Pod pod;
  pod.ns = "default";
  pod.name = "pod-" + uid;
  pod.uid = std::move(uid);
  pod.containers.push_back(std::move(container));
  return pod;
}

// POD as the API server shows it after DECISION was written.
inline device::Pod Written(device::Pod pod, const Decision& decision, bool bound) {
  for (const auto& [key, value] : decision.annotations) {
    if (value) {
      pod.annotations[key] = *value;
    } else {
      pod.annotations.erase(key);
    }
  }
  if (bound) pod.node_name = decision.node;
  return pod;
}

}  // namespace hami::sched::testing
