// SPDX-License-Identifier: Apache-2.0

#include <algorithm>

#include "nvml/functions.h"

namespace hami::nvml {
namespace {

constexpr unsigned long long kUnknownBytes = ~0ULL;

std::optional<unsigned> Instance(unsigned id) {
  return id == NVML_GPU_INSTANCE_ID_ANY ? std::nullopt : std::optional<unsigned>(id);
}

using List = decltype(&::nvmlDeviceGetComputeRunningProcesses_v3);

// False when the driver does not list processes of that kind.
bool AddProcesses(List list, nvmlDevice_t device, ProcessKind kind, std::vector<Process>& out) {
  if (list == nullptr) return false;
  const auto infos = ReadList<nvmlProcessInfo_t>(
      [&](unsigned* count, nvmlProcessInfo_t* items) { return list(device, count, items); });
  if (!infos) return false;
  for (const nvmlProcessInfo_t& info : *infos) {
    Process process;
    process.pid = static_cast<pid_t>(info.pid);
    process.kind = kind;
    if (info.usedGpuMemory != kUnknownBytes) process.bytes = info.usedGpuMemory;
    process.gpu_instance = Instance(info.gpuInstanceId);
    process.compute_instance = Instance(info.computeInstanceId);
    out.push_back(process);
  }
  return true;
}

}  // namespace

std::optional<std::vector<Process>> Library::ReadProcesses(const std::string& uuid) const {
  const Functions& f = *functions_;
  const Found found = Find(f, uuid);
  if (found.code != NVML_SUCCESS) return std::nullopt;
  std::vector<Process> processes;
  if (!AddProcesses(f.nvmlDeviceGetComputeRunningProcesses_v3, found.device, ProcessKind::kCompute, processes)) {
    return std::nullopt;
  }
  AddProcesses(f.nvmlDeviceGetGraphicsRunningProcesses_v3, found.device, ProcessKind::kGraphics, processes);
  AddProcesses(f.nvmlDeviceGetMPSComputeRunningProcesses_v3, found.device, ProcessKind::kMps, processes);
  return processes;
}

std::optional<std::vector<ProcessUtilization>> Library::ReadProcessUtilization(const std::string& uuid,
                                                                               std::uint64_t since) const {
  const Functions& f = *functions_;
  const Found found = Find(f, uuid);
  if (found.code != NVML_SUCCESS || f.nvmlDeviceGetProcessUtilization == nullptr) return std::nullopt;
  // Nobody having run since is "not found".
  const auto samples = ReadList<nvmlProcessUtilizationSample_t>(
      [&](unsigned* count, nvmlProcessUtilizationSample_t* items) {
        return f.nvmlDeviceGetProcessUtilization(found.device, items, count, since);
      },
      NVML_ERROR_NOT_FOUND);
  if (!samples) return std::nullopt;
  std::map<pid_t, ProcessUtilization> newest;
  for (const nvmlProcessUtilizationSample_t& sample : *samples) {
    if (sample.timeStamp <= since) continue;
    ProcessUtilization& entry = newest[static_cast<pid_t>(sample.pid)];
    if (entry.microseconds >= sample.timeStamp) continue;
    entry = {static_cast<pid_t>(sample.pid),
             sample.timeStamp,
             sample.smUtil,
             sample.memUtil,
             sample.encUtil,
             sample.decUtil};
  }
  std::vector<ProcessUtilization> out;
  for (const auto& [pid, entry] : newest) out.push_back(entry);
  return out;
}

}  // namespace hami::nvml
