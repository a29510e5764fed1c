// SPDX-License-Identifier: Apache-2.0

#include "cli/inventory.h"

namespace hami::cli {
namespace {

constexpr const char* kNoDriverHint =
    "On a machine with an NVIDIA driver, check that nvidia-smi works.\n"
    "Without a GPU, use the simulated driver that comes with hami:\n"
    "    hami sim --gpus 2xH100 -- hami run --mem 3g -- ./program\n"
    "which sets SIMGPU=2xH100 and puts the simulated libraries on LD_LIBRARY_PATH.";

std::vector<GpuProcess> ComputeProcesses(const nvml::Library& library, const std::string& uuid) {
  std::vector<GpuProcess> processes;
  const auto all = library.ReadProcesses(uuid);
  if (!all) return processes;
  for (const nvml::Process& process : *all) {
    if (process.kind == nvml::ProcessKind::kCompute) processes.push_back({process.pid, process.bytes.value_or(0)});
  }
  return processes;
}

base::Result<Gpu> ReadGpu(const nvml::Library& library, const nvml::Device& device) {
  if (device.condition != nvml::Condition::kAnswers || !device.memory) {
    return base::Fail("GPU " + std::to_string(device.index) + " does not answer",
                      "nvidia-smi may say why (lost from the bus?)");
  }
  const nvml::Telemetry gauges = library.Sample(device.uuid);
  const std::uint64_t reserved = device.memory->reserved.value_or(0);
  Gpu gpu;
  gpu.index = device.index;
  gpu.uuid = device.uuid;
  gpu.name = device.name;
  gpu.total_bytes = device.memory->total - reserved;
  gpu.used_bytes = device.memory->used > reserved ? device.memory->used - reserved : 0;
  gpu.utilization_percent = gauges.gpu_percent;
  gpu.temperature_celsius = gauges.temperature_celsius;
  gpu.power_milliwatts = gauges.power_milliwatts;
  gpu.processes = ComputeProcesses(library, device.uuid);
  return gpu;
}

}  // namespace

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
  for (const nvml::Device& device : *devices) {
    auto gpu = ReadGpu(library_, device);
    if (!gpu) return tl::unexpected(gpu.error());
    inventory.gpus.push_back(*std::move(gpu));
  }
  return inventory;
}

const Gpu* Inventory::Find(const std::string& uuid) const {
  for (const Gpu& gpu : gpus) {
    if (gpu.uuid == uuid) return &gpu;
  }
  return nullptr;
}

}  // namespace hami::cli
