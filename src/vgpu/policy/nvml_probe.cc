// SPDX-License-Identifier: Apache-2.0
#include "vgpu/policy/nvml_probe.h"

#include <unistd.h>

#include <atomic>

#include "vgpu/loader/driver.h"
#include "vgpu/policy/nvml_view.h"
#include "vgpu/policy/pages.h"
#include "vgpu/policy/process.h"

namespace hami::vgpu {
namespace {

constinit std::atomic<bool> g_ready{false};
constinit std::atomic<unsigned> g_pid{0};

constexpr uint64_t kNotAvailable = ~uint64_t{0};  // NVML_VALUE_NOT_AVAILABLE
// How far a new process's memory may differ from what the device lost.
constexpr uint64_t kSlack = uint64_t{64} << 20;

bool Contains(const ProcessList& list, unsigned pid) {
  for (unsigned i = 0; i < list.count; ++i) {
    if (list.items[i].pid == pid) return true;
  }
  return false;
}

}  // namespace

bool NvmlReady() {
  if (g_ready.load(std::memory_order_relaxed)) return true;
  if (real::nvmlInit_v2() != NVML_SUCCESS) return false;
  g_ready.store(true, std::memory_order_relaxed);
  return true;
}

unsigned NvmlPid() { return g_pid.load(std::memory_order_relaxed); }

void FindOwn(const ProcessList& list, Measurement* measurement) {
  const unsigned self = NvmlPid();
  measurement->own = 0;
  for (unsigned i = 0; i < list.count && self != 0; ++i) {
    if (list.items[i].pid != self || list.items[i].usedGpuMemory == kNotAvailable) continue;
    measurement->own_known = true;
    measurement->own += list.items[i].usedGpuMemory;
  }
}

Measurement Measure(nvmlDevice_t handle, ProcessList* list) {
  Measurement out;
  nvmlMemory_t memory{};
  if (real::nvmlDeviceGetMemoryInfo(handle, &memory) == NVML_SUCCESS) {
    out.free_known = true;
    out.free = memory.free;
  }
  list->count = ProcessList::kRoom;
  if (real::nvmlDeviceGetComputeRunningProcesses_v3(handle, &list->count, list->items) != NVML_SUCCESS) {
    list->count = 0;
  }
  if (list->count > ProcessList::kRoom) list->count = ProcessList::kRoom;
  FindOwn(*list, &out);
  return out;
}

Measurement Measure(nvmlDevice_t handle) {
  auto* const list = static_cast<ProcessList*>(MapPages(sizeof(ProcessList)));
  if (list == nullptr) return {};
  const Measurement out = Measure(handle, list);
  UnmapPages(list, sizeof(ProcessList));
  return out;
}

void IdentifySelf(const ProcessList& before, const ProcessList& after, uint64_t lost_bytes) {
  if (NvmlPid() != 0) return;
  unsigned arrived = 0;
  const nvmlProcessInfo_t* candidate = nullptr;
  for (unsigned i = 0; i < after.count; ++i) {
    if (Contains(before, after.items[i].pid)) continue;
    ++arrived;
    candidate = &after.items[i];
    if (candidate->pid != static_cast<unsigned>(getpid())) continue;
    arrived = 1;
    break;
  }
  if (arrived != 1) return;
  const uint64_t bytes = candidate->usedGpuMemory;
  const uint64_t difference = bytes > lost_bytes ? bytes - lost_bytes : lost_bytes - bytes;
  const bool own_pid = candidate->pid == static_cast<unsigned>(getpid());
  if (!own_pid && (difference > kSlack || IsOurs(candidate->pid))) return;
  g_pid.store(candidate->pid, std::memory_order_relaxed);
  if (region::Attachment* const a = attachment(); a != nullptr) {
    region::SetHostPid(a, static_cast<int32_t>(candidate->pid));
  }
}

void ResetNvmlProbe() { g_pid.store(0, std::memory_order_relaxed); }

}  // namespace hami::vgpu
