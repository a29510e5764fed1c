// SPDX-License-Identifier: Apache-2.0

#include "cli/inventory.h"

#include <algorithm>
#include <map>

namespace hami::cli {
namespace {

constexpr const char* kNoDriverHint =
    "On a machine with an NVIDIA driver, check that nvidia-smi works.\n"
    "Without a GPU, use the simulated driver that comes with hami:\n"
    "    hami sim --gpus 2xH100 -- hami run --mem 3g -- ./program\n"
    "which sets SIMGPU=2xH100 and puts the simulated libraries on LD_LIBRARY_PATH.";

Gpu ReadGpu(const nvml::Library& library, const nvml::Device& device) {
  Gpu gpu;
  gpu.index = device.index;
  gpu.uuid = device.uuid;
  gpu.name = device.name;
  gpu.trouble = TroubleOf(device);
  if (device.condition != nvml::Condition::kAnswers || !device.memory) return gpu;
  const nvml::Telemetry gauges = library.Sample(device.uuid);
  const std::uint64_t reserved = device.memory->reserved.value_or(0);
  gpu.total_bytes = device.memory->total - reserved;
  gpu.used_bytes = device.memory->used > reserved ? device.memory->used - reserved : 0;
  gpu.utilization_percent = gauges.gpu_percent;
  gpu.temperature_celsius = gauges.temperature_celsius;
  gpu.power_milliwatts = gauges.power_milliwatts;
  gpu.processes = Gather(library.ReadProcesses(device.uuid).value_or(std::vector<nvml::Process>{}));
  return gpu;
}

}  // namespace

std::string TroubleOf(const nvml::Device& device) {
  if (device.condition != nvml::Condition::kAnswers) return "does not answer: " + device.trouble;
  if (!device.memory) return "has no memory of its own to share";
  if (device.mig_mode && device.mig_mode->current) return "is divided by MIG, and such GPUs can not be shared yet";
  return "";
}

std::vector<GpuProcess> Gather(const std::vector<nvml::Process>& listed) {
  std::map<pid_t, std::uint64_t> bytes;
  for (const nvml::Process& process : listed) {
    std::uint64_t& known = bytes[process.pid];
    known = std::max(known, process.bytes.value_or(0));
  }
  std::vector<GpuProcess> processes;
  for (const auto& [pid, used] : bytes) processes.push_back({pid, used});
  return processes;
}

base::Result<Nvml> Nvml::Load(const std::string& path) {
  auto library = nvml::Library::Load({path, "/sys"});
  if (!library) return base::Fail(library.error().message, kNoDriverHint);
  return Nvml(*std::move(library));
}

base::Result<Inventory> Nvml::Read() const {
  const auto devices = library_.ReadDevices();
  if (!devices) return base::Fail(devices.error().message, kNoDriverHint);
  if (devices->empty()) return base::Fail("the GPU driver knows no GPU", kNoDriverHint);
  Inventory inventory;
  const nvml::System system = library_.ReadSystem();
  inventory.driver_version = system.driver_version;
  inventory.cuda_version = system.cuda_version;
  for (const nvml::Device& device : *devices) inventory.gpus.push_back(ReadGpu(library_, device));
  return inventory;
}

const Gpu* Inventory::Find(const std::string& uuid) const {
  for (const Gpu& gpu : gpus) {
    if (gpu.uuid == uuid) return &gpu;
  }
  return nullptr;
}

}  // namespace hami::cli
