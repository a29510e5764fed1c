// SPDX-License-Identifier: Apache-2.0
#include "vgpu/runtime/nvml_probe.h"

#include <time.h>

#include <algorithm>

#include "region/process.h"
#include "vgpu/loader/driver.h"
#include "vgpu/runtime/device_map.h"
#include "vgpu/runtime/mapped_vector.h"
#include "vgpu/runtime/process.h"
#include "vgpu/runtime/runtime.h"
#include "vgpu/runtime/threads.h"

namespace hami::vgpu {
namespace {

NvmlSessions& Nvml() { return g_runtime.nvml; }

// Others come and go meanwhile, but not for long.
constexpr int kAttempts = 4;
constexpr uint64_t kNotAvailable = ~uint64_t{0};  // NVML_VALUE_NOT_AVAILABLE

// What is not ready soon after it is needed is not waited for: the loader's lock may be held that it needs.
constexpr int64_t kPatienceAhead = 20'000'000;  // ns

uint32_t Ahead() { return __atomic_load_n(&Nvml().ahead, __ATOMIC_ACQUIRE); }
bool MoveAhead(uint32_t from, uint32_t to) {
  return __atomic_compare_exchange_n(&Nvml().ahead, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

void* OpenAhead(void*) {
  const bool opened = real::nvmlInit_v2() == NVML_SUCCESS;
  nvmlDevice_t device = nullptr;
  for (unsigned i = 0; opened && i < FixedDeviceCount(); ++i) {
    real::nvmlDeviceGetHandleByUUID(FixedDeviceName(i), &device);
  }
  if (!MoveAhead(NvmlSessions::kOpening, opened ? NvmlSessions::kReady : NvmlSessions::kGivenUp) && opened) {
    real::nvmlShutdown();  // nobody waits for it any more
  }
  region::FutexWake(&Nvml().ahead, INT32_MAX);
  return nullptr;
}

// False: there is none.
bool TakeAhead() {
  const int64_t end = region::MonotonicNanos() + kPatienceAhead;
  for (int64_t left = kPatienceAhead; left > 0 && NvmlOpening(); left = end - region::MonotonicNanos()) {
    region::FutexWait(&Nvml().ahead, NvmlSessions::kOpening, left);
  }
  MoveAhead(NvmlSessions::kOpening, NvmlSessions::kGivenUp);
  return MoveAhead(NvmlSessions::kReady, NvmlSessions::kGivenUp);
}

void LeaveLocked() {
  if (--Nvml().uses != 0) return;
  Nvml().open.store(false, std::memory_order_relaxed);
  real::nvmlShutdown();
}

}  // namespace

bool NvmlUse::Open() {
  if (open_) return true;
  const Locked locked(Nvml().lock);
  if (Nvml().uses == 0 && !Nvml().open.load(std::memory_order_relaxed)) {
    if (TakeAhead() || real::nvmlInit_v2() == NVML_SUCCESS) Nvml().open.store(true, std::memory_order_relaxed);
  }
  open_ = Nvml().open.load(std::memory_order_relaxed);
  if (open_) ++Nvml().uses;
  return open_;
}

NvmlUse::~NvmlUse() {
  const Locked locked(Nvml().lock);
  if (open_) LeaveLocked();
}

void OpenNvmlAhead() {
  if (!DevicesAreFixed() || !MoveAhead(NvmlSessions::kNone, NvmlSessions::kOpening)) return;
  if (!real::nvmlInit_v2 || !StartThread(&OpenAhead)) MoveAhead(NvmlSessions::kOpening, NvmlSessions::kGivenUp);
}

bool NvmlOpening() { return Ahead() == NvmlSessions::kOpening; }

void KeepNvmlWhile(int contexts) {
  const Locked locked(Nvml().lock);
  if ((contexts != 0) == Nvml().kept) return;
  if (contexts != 0 && Nvml().uses != 0) {  // the caller has it open
    Nvml().kept = true;
    ++Nvml().uses;
  } else if (contexts == 0) {
    Nvml().kept = false;
    LeaveLocked();
  }
}

nvmlReturn_t ProgramInitialised(nvmlReturn_t result) {
  if (result == NVML_SUCCESS) Nvml().program.fetch_add(1, std::memory_order_relaxed);
  return result;
}

nvmlReturn_t ProgramShutsDown() {
  int sessions = Nvml().program.load(std::memory_order_relaxed);
  while (sessions > 0) {
    if (!Nvml().program.compare_exchange_weak(sessions, sessions - 1, std::memory_order_relaxed)) continue;
    return real::nvmlShutdown();
  }
  // One too many would end our own.
  return ForProgram(real::nvmlShutdown);
}

bool NvmlHiddenFromProgram() {
  const uint32_t ahead = Ahead();
  const bool open =
      Nvml().open.load(std::memory_order_relaxed) || ahead == NvmlSessions::kOpening || ahead == NvmlSessions::kReady;
  return open && Nvml().program.load(std::memory_order_relaxed) == 0;
}

unsigned NvmlPid() { return Nvml().pid.load(std::memory_order_relaxed); }

void FindOwn(const ProcessList& list, Measurement* measurement) {
  const unsigned self = NvmlPid();
  measurement->own = 0;
  for (unsigned i = 0; i < list.count && self != 0; ++i) {
    if (list.items[i].pid != self || list.items[i].usedGpuMemory == kNotAvailable) continue;
    measurement->own_known = true;
    measurement->own += list.items[i].usedGpuMemory;
  }
}

namespace {

bool AskFree(nvmlDevice_t handle, uint64_t* free) {
  nvmlMemory_t memory{};
  if (real::nvmlDeviceGetMemoryInfo(handle, &memory) != NVML_SUCCESS) return false;
  *free = memory.free;
  return true;
}

void AskList(nvmlDevice_t handle, ProcessList* list) {
  list->count = ProcessList::kRoom;
  if (real::nvmlDeviceGetComputeRunningProcesses_v3(handle, &list->count, list->items) != NVML_SUCCESS) {
    list->count = 0;
  }
  if (list->count > ProcessList::kRoom) list->count = ProcessList::kRoom;
}

}  // namespace

Measurement Measure(nvmlDevice_t handle, ProcessList* list) {
  Measurement out;
  out.free_known = AskFree(handle, &out.free);
  for (int attempt = 0; attempt < kAttempts && !out.of_one_moment; ++attempt) {
    AskList(handle, list);
    if (NvmlPid() != 0 || !out.free_known) break;
    const uint64_t before = out.free;
    out.of_one_moment = AskFree(handle, &out.free) && out.free == before;
  }
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

uint64_t WallMicros() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000 + static_cast<uint64_t>(now.tv_nsec) / 1000;
}

bool AskUtilization(unsigned fixed_device, UtilizationWatch* watch, Utilization* had) {
  constexpr unsigned kRoom = 1024;
  constexpr uint64_t kStale = 3'000'000;  // us
  const uint64_t now = WallMicros();
  if (watch->since > now || now - watch->since > kStale) {
    watch->since = now;
    return true;
  }
  nvmlDevice_t device = nullptr;
  nvmlProcessUtilizationSample_t figures[kRoom];
  unsigned count = kRoom;
  return FixedDeviceHandle(fixed_device, &device) == NVML_SUCCESS &&
         real::nvmlDeviceGetProcessUtilization(device, figures, &count, watch->since) == NVML_SUCCESS &&
         watch->Take(figures, std::min(count, kRoom), now, NvmlPid(), had);
}

void SetNvmlPid(unsigned pid) {
  Nvml().pid.store(pid, std::memory_order_relaxed);
  if (region::Attachment* const a = attachment(); a != nullptr) region::SetHostPid(a, static_cast<int32_t>(pid));
}

// In the child NVML is open as often as it was in the parent. Our own opening passes to the next NvmlUse.
void ResetNvmlProbe() {
  Nvml().lock.Reset();
  Nvml().uses = 0;
  Nvml().kept = false;
  Nvml().pid.store(0, std::memory_order_relaxed);
  MoveAhead(NvmlSessions::kOpening, NvmlSessions::kGivenUp);
}

}  // namespace hami::vgpu
