// SPDX-License-Identifier: Apache-2.0
//
// Memory, processes and utilisation in NVML: the container's own.

#include "vgpu/loader/driver.h"
#include "vgpu/memory/nvml_view.h"
#include "vgpu/memory/queries.h"
#include "vgpu/runtime/device_map.h"
#include "vgpu/runtime/nvml_probe.h"
#include "vgpu/runtime/process.h"

using namespace hami::vgpu;  // NOLINT: this file only exports

namespace {

constexpr unsigned kMostProcesses = 1024;
constexpr unsigned kWholeDevice = 0xffffffff;

// The region device behind a handle for which the driver just answered; < 0 = show what the driver shows.
int Device(nvmlReturn_t result, nvmlDevice_t handle) {
  if (result != NVML_SUCCESS || !Active()) return kUnlimited;
  return DeviceOfHandle(handle);
}

template <typename Memory>
void Show(int device, Memory* memory) {
  const MemoryView view = ViewOf(device, memory->total, memory->free);
  if (!view.limited) return;
  memory->total = view.total;
  memory->used = view.used;
  memory->free = view.free;
}

void Fill(nvmlProcessInfo_v1_t* out, const OwnProcess& process) {
  out->pid = process.pid;
  out->usedGpuMemory = process.bytes;
}
void Fill(nvmlProcessInfo_v2_t* out, const OwnProcess& process) {
  *out = {process.pid, process.bytes, kWholeDevice, kWholeDevice};
}

// The size protocol of the process lists: too little room answers how much there should be.
template <typename Info>
nvmlReturn_t Deliver(const OwnProcess* processes, unsigned count, unsigned* room, Info* out) {
  const bool fits = count <= *room && (out != nullptr || count == 0);
  *room = count;
  if (!fits) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (unsigned i = 0; i < count; ++i) Fill(&out[i], processes[i]);
  return NVML_SUCCESS;
}

// Compute processes: the region knows them all.
template <typename Info, typename Real>
nvmlReturn_t ComputeProcesses(nvmlDevice_t handle, unsigned* room, Info* out, Real list) {
  unsigned none = 0;
  const nvmlReturn_t result = ForProgram(list, handle, room == nullptr ? nullptr : &none, static_cast<Info*>(nullptr));
  const bool answered = result == NVML_SUCCESS || result == NVML_ERROR_INSUFFICIENT_SIZE;
  if (room == nullptr || !answered || !Active()) return room == nullptr ? result : ForProgram(list, handle, room, out);
  const int device = DeviceOfHandle(handle);
  if (device < 0) return ForProgram(list, handle, room, out);
  SweepForQuery();
  OwnProcess processes[kMostProcesses];
  const unsigned count = OwnProcesses(device, processes, kMostProcesses);
  return Deliver(processes, count < kMostProcesses ? count : kMostProcesses, room, out);
}

// Graphics and MPS processes: what the driver lists, without the others.
template <typename Info, typename Real>
nvmlReturn_t OtherProcesses(nvmlDevice_t handle, unsigned* room, Info* out, Real list) {
  if (room == nullptr || !Active()) return ForProgram(list, handle, room, out);
  Info all[kMostProcesses];
  unsigned count = kMostProcesses;
  const nvmlReturn_t result = ForProgram(list, handle, &count, &all[0]);
  if (result != NVML_SUCCESS || DeviceOfHandle(handle) < 0) return ForProgram(list, handle, room, out);
  count = KeepOurs(all, count < kMostProcesses ? count : kMostProcesses);
  const bool fits = count <= *room && (out != nullptr || count == 0);
  *room = count;
  if (!fits) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (unsigned i = 0; i < count; ++i) out[i] = all[i];
  return NVML_SUCCESS;
}

bool Filters(nvmlReturn_t result, nvmlDevice_t handle) { return Device(result, handle) >= 0; }

}  // namespace

HAMI_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t handle, nvmlMemory_t* memory) {
  const nvmlReturn_t result = ForProgram(real::nvmlDeviceGetMemoryInfo, handle, memory);
  if (const int device = Device(result, handle); device >= 0 && memory != nullptr) Show(device, memory);
  return result;
}

HAMI_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t handle, nvmlMemory_v2_t* memory) {
  const nvmlReturn_t result = ForProgram(real::nvmlDeviceGetMemoryInfo_v2, handle, memory);
  const int device = Device(result, handle);
  if (device < 0 || memory == nullptr) return result;
  Show(device, memory);
  // What the driver keeps of the card for itself is not the container's: its own figures add up to its total.
  if (LimitBytes(device) != 0) memory->reserved = 0;
  return result;
}

// The window stays as large as it is; of what is mapped in it, no more than the container could have mapped.
HAMI_EXPORT nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t handle, nvmlBAR1Memory_t* memory) {
  const nvmlReturn_t result = ForProgram(real::nvmlDeviceGetBAR1MemoryInfo, handle, memory);
  const int device = Device(result, handle);
  if (device < 0 || memory == nullptr || LimitBytes(device) == 0) return result;
  const uint64_t used = UsedBytes(device);
  if (memory->bar1Used > used) memory->bar1Used = used;
  memory->bar1Free = memory->bar1Total - memory->bar1Used;
  return result;
}

// NOLINTBEGIN(bugprone-macro-parentheses): a declaration
#define HAMI_PROCESS_LIST(symbol, Info, body)                                          \
  HAMI_EXPORT nvmlReturn_t symbol(nvmlDevice_t handle, unsigned* count, Info* infos) { \
    return body(handle, count, infos, real::symbol);                                   \
  }
// NOLINTEND(bugprone-macro-parentheses)
HAMI_PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, ComputeProcesses)
HAMI_PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, ComputeProcesses)
HAMI_PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t, ComputeProcesses)
HAMI_PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t, OtherProcesses)
HAMI_PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t, OtherProcesses)
HAMI_PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t, OtherProcesses)
HAMI_PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t, OtherProcesses)
HAMI_PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, OtherProcesses)
HAMI_PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t, OtherProcesses)
#undef HAMI_PROCESS_LIST

HAMI_EXPORT nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t handle, nvmlProcessDetailList_t* list) {
  const nvmlReturn_t result = ForProgram(real::nvmlDeviceGetRunningProcessDetailList, handle, list);
  if (!Filters(result, handle) || list == nullptr || list->procArray == nullptr) return result;
  list->numProcArrayEntries = KeepOurs(list->procArray, list->numProcArrayEntries);
  return result;
}

HAMI_EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t handle, nvmlUtilization_t* rates) {
  const nvmlReturn_t result = ForProgram(real::nvmlDeviceGetUtilizationRates, handle, rates);
  const int device = Device(result, handle);
  if (device < 0 || rates == nullptr || OwnUtilization(handle, rates)) return result;
  // NVML does not tell per process: what the container measured itself. A neighbour's load is never shown.
  *rates = {RecordedUtilization(device), 0};
  return result;
}

HAMI_EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t handle, nvmlProcessUtilizationSample_t* samples,
                                                         unsigned* count, unsigned long long after) {
  const nvmlReturn_t result = ForProgram(real::nvmlDeviceGetProcessUtilization, handle, samples, count, after);
  if (Filters(result, handle) && samples != nullptr && count != nullptr) *count = KeepOurs(samples, *count);
  return result;
}

HAMI_EXPORT nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t handle,
                                                               nvmlProcessesUtilizationInfo_t* info) {
  const nvmlReturn_t result = ForProgram(real::nvmlDeviceGetProcessesUtilizationInfo, handle, info);
  if (!Filters(result, handle) || info == nullptr || info->procUtilArray == nullptr) return result;
  info->processSamplesCount = KeepOurs(info->procUtilArray, info->processSamplesCount);
  return result;
}

HAMI_EXPORT nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t handle, unsigned* count, unsigned* pids) {
  const nvmlReturn_t result = ForProgram(real::nvmlDeviceGetAccountingPids, handle, count, pids);
  if (!Filters(result, handle) || count == nullptr || pids == nullptr) return result;
  unsigned kept = 0;
  for (unsigned i = 0; i < *count; ++i) {
    if (const unsigned pid = ContainerPid(pids[i]); pid != 0) pids[kept++] = pid;
  }
  *count = kept;
  return result;
}

// Statistics by pid: the program knows the container's pids, the driver its own.
HAMI_EXPORT nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t handle, unsigned pid, nvmlAccountingStats_t* stats) {
  if (NvmlHiddenFromProgram()) return NVML_ERROR_UNINITIALIZED;
  if (!Active() || DeviceOfHandle(handle) < 0) return real::nvmlDeviceGetAccountingStats(handle, pid, stats);
  const unsigned known_as = PidInNvml(pid);
  return known_as == 0 ? NVML_ERROR_NOT_FOUND : real::nvmlDeviceGetAccountingStats(handle, known_as, stats);
}

HAMI_EXPORT nvmlReturn_t nvmlDeviceGetAccountingStats_v2(nvmlDevice_t handle, nvmlAccountingStats_v2_t* stats) {
  if (NvmlHiddenFromProgram()) return NVML_ERROR_UNINITIALIZED;
  if (stats == nullptr || !Active() || DeviceOfHandle(handle) < 0) {
    return real::nvmlDeviceGetAccountingStats_v2(handle, stats);
  }
  const unsigned pid = stats->pid;
  const unsigned known_as = PidInNvml(pid);
  if (known_as == 0) return NVML_ERROR_NOT_FOUND;
  stats->pid = known_as;
  const nvmlReturn_t result = real::nvmlDeviceGetAccountingStats_v2(handle, stats);
  stats->pid = pid;
  return result;
}
