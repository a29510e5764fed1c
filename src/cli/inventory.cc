// SPDX-License-Identifier: Apache-2.0

#include "cli/inventory.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>

#include "base/strings.h"

namespace hami::cli {
namespace {

constexpr const char* kNoDriverHint =
    "On a machine with an NVIDIA driver, check that nvidia-smi works.\n"
    "Without a GPU, use the simulated driver that comes with hami:\n"
    "    hami sim --gpus 2xH100 -- hami run --mem 3g -- ./program\n"
    "which sets SIMGPU=2xH100 and puts the simulated libraries on LD_LIBRARY_PATH.";

// What to do about a driver that does not start. Where the simulated one is asked for already, simgpu has told on
// stderr what is wrong; to ask for it is no advice then.
std::string DriverHint() {
  for (const char* variable : {"SIMGPU_CONFIG", "SIMGPU"}) {
    const char* value = std::getenv(variable);
    if (value == nullptr || *value == '\0') continue;
    return base::Concat(
        {variable, "=", base::Printable(value),
         " is set, so this is about the simulated driver.\n"
         "Where it found a mistake there is a line of simgpu's above. Without such a line its libraries\n"
         "are not on LD_LIBRARY_PATH; `hami sim -- COMMAND` puts them there."});
  }
  return kNoDriverHint;
}

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
  if (device.mig_mode && device.mig_mode->current) return "is divided by MIG: its instances are shared, each by itself";
  return "";
}

std::vector<Gpu> InstancesOf(const nvml::Device& device, const std::vector<nvml::Process>& processes) {
  std::vector<Gpu> instances;
  for (const nvml::MigDevice& mig : device.mig_devices) {
    Gpu gpu;
    gpu.index = device.index;
    gpu.uuid = mig.uuid;
    gpu.name = mig.name;
    if (!mig.memory) {
      gpu.trouble = "does not tell its memory";
    } else {
      const std::uint64_t reserved = mig.memory->reserved.value_or(0);
      gpu.total_bytes = mig.memory->total - reserved;
      gpu.used_bytes = mig.memory->used > reserved ? mig.memory->used - reserved : 0;
    }
    std::vector<nvml::Process> own;
    std::copy_if(processes.begin(), processes.end(), std::back_inserter(own), [&](const nvml::Process& process) {
      return process.gpu_instance == mig.gpu_instance && process.compute_instance == mig.compute_instance;
    });
    gpu.processes = Gather(own);
    instances.push_back(std::move(gpu));
  }
  return instances;
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
  if (!library) return base::Fail(library.error().message, DriverHint());
  return Nvml(*std::move(library));
}

base::Result<Inventory> Nvml::Read() const {
  const auto devices = library_.ReadDevices();
  if (!devices) return base::Fail(devices.error().message, DriverHint());
  if (devices->empty()) return base::Fail("the GPU driver knows no GPU", DriverHint());
  Inventory inventory;
  const nvml::System system = library_.ReadSystem();
  inventory.driver_version = system.driver_version;
  inventory.cuda_version = system.cuda_version;
  for (const nvml::Device& device : *devices) {
    inventory.gpus.push_back(ReadGpu(library_, device));
    if (device.mig_devices.empty()) continue;
    const auto processes = library_.ReadProcesses(device.uuid).value_or(std::vector<nvml::Process>{});
    for (Gpu& instance : InstancesOf(device, processes)) inventory.gpus.push_back(std::move(instance));
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
