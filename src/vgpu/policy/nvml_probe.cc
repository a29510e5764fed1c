// SPDX-License-Identifier: Apache-2.0
#include "vgpu/policy/nvml_probe.h"

#include <unistd.h>

#include <atomic>

#include "vgpu/loader/driver.h"
#include "vgpu/policy/process.h"

namespace hami::vgpu {
namespace {

constinit std::atomic<bool> g_ready{false};
constexpr unsigned kMostProcesses = 1024;

}  // namespace

bool NvmlReady() {
  if (g_ready.load(std::memory_order_relaxed)) return true;
  if (real::nvmlInit_v2() != NVML_SUCCESS) return false;
  g_ready.store(true, std::memory_order_relaxed);
  return true;
}

unsigned NvmlPid() {
  const region::Attachment* const a = attachment();
  if (a != nullptr && a->slot >= 0 && a->region != nullptr) {
    const int32_t host_pid = region::Load(a->region->slots[a->slot].host_pid);
    if (host_pid > 0) return static_cast<unsigned>(host_pid);
  }
  return static_cast<unsigned>(getpid());
}

Measurement Measure(nvmlDevice_t handle) {
  Measurement out;
  nvmlMemory_t memory{};
  if (real::nvmlDeviceGetMemoryInfo(handle, &memory) == NVML_SUCCESS) {
    out.free_known = true;
    out.free = memory.free;
  }
  nvmlProcessInfo_t list[kMostProcesses];
  unsigned count = kMostProcesses;
  if (real::nvmlDeviceGetComputeRunningProcesses_v3(handle, &count, list) != NVML_SUCCESS) return out;
  const unsigned self = NvmlPid();
  for (unsigned i = 0; i < count && i < kMostProcesses; ++i) {
    if (list[i].pid != self) continue;
    out.own_known = list[i].usedGpuMemory != ~0ull;  // NVML_VALUE_NOT_AVAILABLE
    out.own += list[i].usedGpuMemory;
  }
  return out;
}

}  // namespace hami::vgpu
