// SPDX-License-Identifier: Apache-2.0
#include "vgpu/policy/nvml_probe.h"

#include <unistd.h>

#include <atomic>

#include "vgpu/loader/driver.h"
#include "vgpu/policy/lock.h"
#include "vgpu/policy/nvml_view.h"
#include "vgpu/policy/pages.h"
#include "vgpu/policy/process.h"

namespace hami::vgpu {
namespace {

constinit Lock g_lock{};
constinit int g_uses = 0;                   // NvmlUses alive, the process's own included
constinit bool g_kept = false;              // the process's own is one of them
constinit std::atomic<bool> g_open{false};  // initialised by us
constinit std::atomic<int> g_program{0};    // the program's initialisations less its shutdowns
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

// In the child NVML is open as often as it was in the parent. Our own opening passes to the next NvmlUse.
void ResetNvmlProbe() {
  g_lock.Reset();
  g_uses = 0;
  g_kept = false;
  g_pid.store(0, std::memory_order_relaxed);
}

}  // namespace hami::vgpu
