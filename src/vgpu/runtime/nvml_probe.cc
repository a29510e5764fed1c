// SPDX-License-Identifier: Apache-2.0
#include "vgpu/runtime/nvml_probe.h"

#include <atomic>

#include "vgpu/loader/driver.h"
#include "vgpu/runtime/lock.h"
#include "vgpu/runtime/mapped_vector.h"
#include "vgpu/runtime/process.h"

namespace hami::vgpu {
namespace {

constinit Lock g_lock{};
constinit int g_uses = 0;                   // NvmlUses alive, the process's own included
constinit bool g_kept = false;              // the process's own is one of them
constinit std::atomic<bool> g_open{false};  // initialised by us
constinit std::atomic<int> g_program{0};    // the program's initialisations less its shutdowns
constinit std::atomic<unsigned> g_pid{0};

constexpr uint64_t kNotAvailable = ~uint64_t{0};  // NVML_VALUE_NOT_AVAILABLE
void LeaveLocked() {
  if (--g_uses != 0) return;
  g_open.store(false, std::memory_order_relaxed);
  real::nvmlShutdown();
}

}  // namespace

NvmlUse::NvmlUse() {
  const Locked locked(g_lock);
  if (g_uses == 0 && !g_open.load(std::memory_order_relaxed)) {
    if (real::nvmlInit_v2() == NVML_SUCCESS) g_open.store(true, std::memory_order_relaxed);
  }
  open_ = g_open.load(std::memory_order_relaxed);
  if (open_) ++g_uses;
}

NvmlUse::~NvmlUse() {
  const Locked locked(g_lock);
  if (open_) LeaveLocked();
}

void KeepNvmlWhile(int contexts) {
  const Locked locked(g_lock);
  if ((contexts != 0) == g_kept) return;
  if (contexts != 0 && g_uses != 0) {  // the caller has it open
    g_kept = true;
    ++g_uses;
  } else if (contexts == 0) {
    g_kept = false;
    LeaveLocked();
  }
}

nvmlReturn_t ProgramInitialised(nvmlReturn_t result) {
  if (result == NVML_SUCCESS) g_program.fetch_add(1, std::memory_order_relaxed);
  return result;
}

nvmlReturn_t ProgramShutsDown() {
  int sessions = g_program.load(std::memory_order_relaxed);
  while (sessions > 0) {
    if (!g_program.compare_exchange_weak(sessions, sessions - 1, std::memory_order_relaxed)) continue;
    return real::nvmlShutdown();
  }
  // One too many would end our own.
  return ForProgram(real::nvmlShutdown);
}

bool NvmlHiddenFromProgram() {
  return g_open.load(std::memory_order_relaxed) && g_program.load(std::memory_order_relaxed) == 0;
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

void SetNvmlPid(unsigned pid) {
  g_pid.store(pid, std::memory_order_relaxed);
  if (region::Attachment* const a = attachment(); a != nullptr) region::SetHostPid(a, static_cast<int32_t>(pid));
}

// In the child NVML is open as often as it was in the parent. Our own opening passes to the next NvmlUse.
void ResetNvmlProbe() {
  g_lock.Reset();
  g_uses = 0;
  g_kept = false;
  g_pid.store(0, std::memory_order_relaxed);
}

}  // namespace hami::vgpu
