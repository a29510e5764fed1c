// SPDX-License-Identifier: Apache-2.0
//
// Who uses the GPU, how much of its memory and of its time. Process ids are the host's.
#include <cstring>
#include <vector>

#include "simgpu/nvml/common.h"

using namespace simgpu;
using namespace simgpu::nvml;

namespace {

constexpr unsigned int kNoInstance = 0xffffffff;

// Those that a handle shows: all of the GPU, or those inside a MIG device.
std::vector<ProcessUsage> List(const Place& at) {
  std::vector<ProcessUsage> list(Machine::kMaxProcesses);
  list.resize(Sim().Processes(at.dev, list.data(), list.size()));
  if (at.mig()) {
    std::erase_if(list, [&](const ProcessUsage& p) { return p.gpu_instance != at.gi || p.compute_instance != at.ci; });
  }
  return list;
}

void Fill(const ProcessUsage& from, nvmlProcessInfo_v1_t* to) {
  to->pid = static_cast<unsigned int>(from.host_pid);
  to->usedGpuMemory = from.total();
}
void Fill(const ProcessUsage& from, nvmlProcessInfo_v2_t* to) {
  to->pid = static_cast<unsigned int>(from.host_pid);
  to->usedGpuMemory = from.total();
  to->gpuInstanceId = from.gpu_instance < 0 ? kNoInstance : static_cast<unsigned int>(from.gpu_instance);
  to->computeInstanceId = from.compute_instance < 0 ? kNoInstance : static_cast<unsigned int>(from.compute_instance);
}

// The two-call pattern: too little room answers INSUFFICIENT_SIZE and how much it takes.
using Lister = std::vector<ProcessUsage>(const Place& at);
template <typename Info>
nvmlReturn_t Listed(const char* function, nvmlDevice_t device, unsigned int* count, Info* infos, Lister* lister) {
  Place at = {};
  if (const nvmlReturn_t entered = EnterDevice(function, device, &at); entered != NVML_SUCCESS) return entered;
  SIMGPU_NVML_NEED(count != nullptr && (*count == 0 || infos != nullptr));
  const std::vector<ProcessUsage> list = lister(at);
  const unsigned int room = *count;
  *count = static_cast<unsigned int>(list.size());
  if (list.size() > room) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (std::size_t i = 0; i < list.size(); ++i) Fill(list[i], &infos[i]);
  return NVML_SUCCESS;
}

// Clients of MPS are in both lists: they have contexts of compute, and those are the server's.
std::vector<ProcessUsage> ListMps(const Place& at) {
  std::vector<ProcessUsage> list = List(at);
  std::erase_if(list, [](const ProcessUsage& p) { return !p.mps; });
  return list;
}

// Nobody draws pictures here.
template <typename Info>
nvmlReturn_t None(const char* function, nvmlDevice_t device, unsigned int* count, Info* infos) {
  Place at = {};
  if (const nvmlReturn_t entered = EnterDevice(function, device, &at); entered != NVML_SUCCESS) return entered;
  SIMGPU_NVML_NEED(count != nullptr && (*count == 0 || infos != nullptr));
  *count = 0;
  return NVML_SUCCESS;
}

// The newest sample of each process that did something in it.
struct Used {
  unsigned int pid;
  UtilSample sample;
};
std::vector<Used> Samples(int dev, unsigned long long last_seen) {
  std::vector<Used> used;
  const Nanos after = FromWallMicros(last_seen);
  for (const ProcessUsage& process : List({dev, -1, -1})) {
    UtilSample sample = {};
    if (Sim().ProcessUtil(dev, process.slot, after < 0 ? 0 : after, &sample, 1) == 0) continue;
    if (sample.sm == 0 && sample.memory == 0 && sample.encoder == 0 && sample.decoder == 0) continue;
    used.push_back({static_cast<unsigned int>(process.host_pid), sample});
  }
  return used;
}

}  // namespace

SIMGPU_NVML nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t d, unsigned int* count, nvmlProcessInfo_v1_t* infos) {
  return Listed("nvmlDeviceGetComputeRunningProcesses", d, count, infos, List);
}
SIMGPU_NVML nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t d, unsigned int* count, nvmlProcessInfo_v2_t* infos) {
  return Listed("nvmlDeviceGetComputeRunningProcesses_v2", d, count, infos, List);
}
SIMGPU_NVML nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t d, unsigned int* count, nvmlProcessInfo_t* infos) {
  return Listed("nvmlDeviceGetComputeRunningProcesses_v3", d, count, infos, List);
}
SIMGPU_NVML nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t d, unsigned int* count, nvmlProcessInfo_v1_t* infos) {
  return None("nvmlDeviceGetGraphicsRunningProcesses", d, count, infos);
}
SIMGPU_NVML nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t d, unsigned int* count, nvmlProcessInfo_v2_t* infos) {
  return None("nvmlDeviceGetGraphicsRunningProcesses_v2", d, count, infos);
}
SIMGPU_NVML nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t d, unsigned int* count, nvmlProcessInfo_t* infos) {
  return None("nvmlDeviceGetGraphicsRunningProcesses_v3", d, count, infos);
}
SIMGPU_NVML nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t d, unsigned int* count, nvmlProcessInfo_v1_t* infos) {
  return Listed("nvmlDeviceGetMPSComputeRunningProcesses", d, count, infos, ListMps);
}
SIMGPU_NVML nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t d, unsigned int* count,
                                                       nvmlProcessInfo_v2_t* infos) {
  return Listed("nvmlDeviceGetMPSComputeRunningProcesses_v2", d, count, infos, ListMps);
}
SIMGPU_NVML nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t d, unsigned int* count, nvmlProcessInfo_t* infos) {
  return Listed("nvmlDeviceGetMPSComputeRunningProcesses_v3", d, count, infos, ListMps);
}

SIMGPU_NVML nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_t* list) {
  SIMGPU_NVML_DEVICE(nvmlDeviceGetRunningProcessDetailList, device);
  SIMGPU_NVML_NEED(list != nullptr);
  if (list->version != nvmlProcessDetailList_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  SIMGPU_NVML_NEED(list->mode <= NVML_PROCESS_MODE_ALL);
  SIMGPU_NVML_NEED(list->numProcArrayEntries == 0 || list->procArray != nullptr);
  std::vector<ProcessUsage> processes;
  if (list->mode == NVML_PROCESS_MODE_COMPUTE || list->mode == NVML_PROCESS_MODE_ALL) processes = List(at);
  if (list->mode == NVML_PROCESS_MODE_MPS) processes = ListMps(at);
  const unsigned int room = list->numProcArrayEntries;
  list->numProcArrayEntries = static_cast<unsigned int>(processes.size());
  if (processes.size() > room) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (std::size_t i = 0; i < processes.size(); ++i) {
    nvmlProcessInfo_v2_t info = {};
    Fill(processes[i], &info);
    list->procArray[i] = {info.pid, info.usedGpuMemory, info.gpuInstanceId, info.computeInstanceId, 0};
  }
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t* samples,
                                            unsigned int* count, unsigned long long last_seen) {
  SIMGPU_NVML_GPU(nvmlDeviceGetProcessUtilization, device);
  SIMGPU_NVML_NEED(count != nullptr);
  if (Sim().MigEnabled(dev)) return NVML_ERROR_NOT_SUPPORTED;
  if (samples == nullptr || *count == 0) {
    // The size of the driver's buffer, whether or not anybody runs.
    *count = static_cast<unsigned int>(List({dev, -1, -1}).size() + 100);
    return NVML_ERROR_INSUFFICIENT_SIZE;
  }
  const std::vector<Used> used = Samples(dev, last_seen);
  const unsigned int room = *count;
  *count = static_cast<unsigned int>(used.size());
  if (used.empty()) return NVML_ERROR_NOT_FOUND;
  if (used.size() > room) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (std::size_t i = 0; i < used.size(); ++i) {
    const UtilSample& s = used[i].sample;
    samples[i] = {used[i].pid, WallMicros(s.when), s.sm, s.memory, s.encoder, s.decoder};
  }
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, nvmlProcessesUtilizationInfo_t* info) {
  SIMGPU_NVML_GPU(nvmlDeviceGetProcessesUtilizationInfo, device);
  SIMGPU_NVML_NEED(info != nullptr);
  if (info->version != nvmlProcessesUtilizationInfo_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  if (Sim().MigEnabled(dev)) return NVML_ERROR_NOT_SUPPORTED;
  if (info->procUtilArray == nullptr || info->processSamplesCount == 0) {
    info->processSamplesCount = static_cast<unsigned int>(List({dev, -1, -1}).size() + 100);
    return NVML_ERROR_INSUFFICIENT_SIZE;
  }
  const std::vector<Used> used = Samples(dev, info->lastSeenTimeStamp);
  const unsigned int room = info->processSamplesCount;
  info->processSamplesCount = static_cast<unsigned int>(used.size());
  if (used.empty()) return NVML_ERROR_NOT_FOUND;
  if (used.size() > room) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (std::size_t i = 0; i < used.size(); ++i) {
    const UtilSample& s = used[i].sample;
    info->procUtilArray[i] = {WallMicros(s.when), used[i].pid, s.sm, s.memory, s.encoder, s.decoder, 0, 0};
  }
  return NVML_SUCCESS;
}

// --- Utilisation of the whole GPU ---------------------------------------------------------------------------------

namespace {
unsigned int PeriodMicros() { return static_cast<unsigned int>(Sim().options().nvml_period_ns / 1000); }

nvmlReturn_t Engine(const char* function, nvmlDevice_t device, unsigned int UtilSample::*member, unsigned int* util,
                    unsigned int* period_us) {
  int dev = -1;
  if (const nvmlReturn_t entered = EnterGpu(function, device, &dev); entered != NVML_SUCCESS) return entered;
  SIMGPU_NVML_NEED(util != nullptr && period_us != nullptr);
  *util = member == nullptr ? 0 : Sim().DeviceUtil(dev).*member;
  *period_us = PeriodMicros();
  return NVML_SUCCESS;
}
}  // namespace

SIMGPU_NVML nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t* rates) {
  SIMGPU_NVML_GPU(nvmlDeviceGetUtilizationRates, device);
  SIMGPU_NVML_NEED(rates != nullptr);
  if (Sim().MigEnabled(dev)) return NVML_ERROR_NOT_SUPPORTED;
  const UtilSample sample = Sim().DeviceUtil(dev);
  *rates = {sample.sm, sample.memory};
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned int* util, unsigned int* period_us) {
  return Engine("nvmlDeviceGetEncoderUtilization", device, &UtilSample::encoder, util, period_us);
}
SIMGPU_NVML nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned int* util, unsigned int* period_us) {
  return Engine("nvmlDeviceGetDecoderUtilization", device, &UtilSample::decoder, util, period_us);
}
SIMGPU_NVML nvmlDeviceGetJpgUtilization(nvmlDevice_t device, unsigned int* util, unsigned int* period_us) {
  return Engine("nvmlDeviceGetJpgUtilization", device, nullptr, util, period_us);
}
SIMGPU_NVML nvmlDeviceGetOfaUtilization(nvmlDevice_t device, unsigned int* util, unsigned int* period_us) {
  return Engine("nvmlDeviceGetOfaUtilization", device, nullptr, util, period_us);
}

SIMGPU_NVML nvmlDeviceGetSamples(nvmlDevice_t device, nvmlSamplingType_t type, unsigned long long last_seen,
                                 nvmlValueType_t* value_type, unsigned int* count, nvmlSample_t* samples) {
  SIMGPU_NVML_GPU(nvmlDeviceGetSamples, device);
  SIMGPU_NVML_NEED(value_type != nullptr && count != nullptr);
  unsigned int UtilSample::*member = nullptr;
  if (type == NVML_GPU_UTILIZATION_SAMPLES) member = &UtilSample::sm;
  if (type == NVML_MEMORY_UTILIZATION_SAMPLES) member = &UtilSample::memory;
  if (type == NVML_ENC_UTILIZATION_SAMPLES) member = &UtilSample::encoder;
  if (type == NVML_DEC_UTILIZATION_SAMPLES) member = &UtilSample::decoder;
  if (member == nullptr || Sim().MigEnabled(dev)) return NVML_ERROR_NOT_SUPPORTED;
  constexpr unsigned int kBuffer = 120;
  *value_type = NVML_VALUE_TYPE_UNSIGNED_INT;
  if (samples == nullptr) {
    *count = kBuffer;
    return NVML_SUCCESS;
  }
  UtilSample found[kBuffer];
  const Nanos after = FromWallMicros(last_seen);
  const std::size_t n = Sim().DeviceUtilHistory(dev, after < 0 ? 0 : after, found, *count < kBuffer ? *count : kBuffer);
  *count = static_cast<unsigned int>(n);
  if (n == 0) return NVML_ERROR_NOT_FOUND;
  for (std::size_t i = 0; i < n; ++i) {
    samples[i] = {};
    samples[i].timeStamp = WallMicros(found[i].when);
    samples[i].sampleValue.uiVal = found[i].*member;
  }
  return NVML_SUCCESS;
}
