// SPDX-License-Identifier: Apache-2.0

#include "cli/inventory.h"

#include <dlfcn.h>

#include <array>

#include "abi/nvml_abi.h"
#include "base/strings.h"

namespace hami::cli {
namespace {

constexpr const char* kNoDriverHint =
    "On a machine with an NVIDIA driver, check that nvidia-smi works.\n"
    "Without a GPU, use the simulated driver that comes with hami:\n"
    "    hami sim --gpus 2xH100 -- hami run --mem 3g -- ./program\n"
    "which sets SIMGPU=2xH100 and puts the simulated libraries on LD_LIBRARY_PATH.";

std::string OneLine(const char* text) {
  const auto lines = base::Split(text == nullptr ? "" : text, '\n');
  return lines.empty() ? "" : lines.front();
}

}  // namespace

struct Nvml::Functions {
  void* handle = nullptr;
  bool initialised = false;

#define HAMI_NVML_MEMBER(name) decltype(&::name) name = nullptr;
#define HAMI_NVML_ALL(X)               \
  X(nvmlInit_v2)                       \
  X(nvmlShutdown)                      \
  X(nvmlErrorString)                   \
  X(nvmlSystemGetDriverVersion)        \
  X(nvmlSystemGetCudaDriverVersion_v2) \
  X(nvmlDeviceGetCount_v2)             \
  X(nvmlDeviceGetHandleByIndex_v2)     \
  X(nvmlDeviceGetUUID)                 \
  X(nvmlDeviceGetName)                 \
  X(nvmlDeviceGetMemoryInfo)           \
  X(nvmlDeviceGetMemoryInfo_v2)        \
  X(nvmlDeviceGetUtilizationRates)     \
  X(nvmlDeviceGetTemperature)          \
  X(nvmlDeviceGetPowerUsage)           \
  X(nvmlDeviceGetComputeRunningProcesses_v3)
  HAMI_NVML_ALL(HAMI_NVML_MEMBER)
#undef HAMI_NVML_MEMBER

  void Bind() {
#define HAMI_NVML_BIND(name) name = reinterpret_cast<decltype(name)>(::dlsym(handle, #name));
    HAMI_NVML_ALL(HAMI_NVML_BIND)
#undef HAMI_NVML_BIND
  }

  ~Functions() {
    // What nvmlShutdown says changes nothing any more.
    if (initialised && nvmlShutdown != nullptr) static_cast<void>(nvmlShutdown());
    if (handle != nullptr) ::dlclose(handle);
  }
};
#undef HAMI_NVML_ALL

namespace {

// Calls one of the optional functions: false when the library lacks it or it fails.
template <typename Function, typename... Arguments>
bool Ask(Function function, Arguments... arguments) {
  return function != nullptr && function(arguments...) == NVML_SUCCESS;
}

}  // namespace

Nvml::Nvml(std::unique_ptr<Functions> functions) : functions_(std::move(functions)) {}
Nvml::Nvml(Nvml&&) noexcept = default;
Nvml& Nvml::operator=(Nvml&&) noexcept = default;
Nvml::~Nvml() = default;

base::Result<Nvml> Nvml::Load(const std::string& path) {
  auto functions = std::make_unique<Functions>();
  const std::string name = path.empty() ? "libnvidia-ml.so.1" : path;
  functions->handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (functions->handle == nullptr) {
    return base::Fail("no GPU driver found (" + OneLine(::dlerror()) + ")", kNoDriverHint);
  }
  functions->Bind();
  const auto& f = *functions;
  for (const void* needed :
       {reinterpret_cast<const void*>(f.nvmlInit_v2), reinterpret_cast<const void*>(f.nvmlDeviceGetCount_v2),
        reinterpret_cast<const void*>(f.nvmlDeviceGetHandleByIndex_v2),
        reinterpret_cast<const void*>(f.nvmlDeviceGetUUID), reinterpret_cast<const void*>(f.nvmlDeviceGetMemoryInfo)}) {
    if (needed == nullptr) return base::Fail(name + " is too old or not NVML", kNoDriverHint);
  }
  const nvmlReturn_t result = f.nvmlInit_v2();
  if (result != NVML_SUCCESS) {
    const char* text = f.nvmlErrorString == nullptr ? nullptr : f.nvmlErrorString(result);
    return base::Fail("the GPU driver does not start: " + OneLine(text) + " (NVML error " +
                          std::to_string(static_cast<int>(result)) + ")",
                      kNoDriverHint);
  }
  functions->initialised = true;
  return Nvml(std::move(functions));
}

namespace {

template <typename Functions>
std::vector<GpuProcess> ReadProcesses(const Functions& f, nvmlDevice_t device) {
  if (f.nvmlDeviceGetComputeRunningProcesses_v3 == nullptr) return {};
  std::vector<nvmlProcessInfo_t> buffer(64);
  // The list may grow between two calls; a few rounds are enough for any but a storm.
  for (int round = 0; round < 8; ++round) {
    auto count = static_cast<unsigned>(buffer.size());
    const nvmlReturn_t result = f.nvmlDeviceGetComputeRunningProcesses_v3(device, &count, buffer.data());
    if (result == NVML_ERROR_INSUFFICIENT_SIZE && count < 1u << 20) {
      buffer.resize(std::size_t{count} + 64);
      continue;
    }
    if (result != NVML_SUCCESS) return {};
    std::vector<GpuProcess> processes;
    for (unsigned i = 0; i < count && i < buffer.size(); ++i) {
      const bool known = buffer[i].usedGpuMemory != ~0ULL;
      processes.push_back({static_cast<pid_t>(buffer[i].pid), known ? buffer[i].usedGpuMemory : 0});
    }
    return processes;
  }
  return {};
}

template <typename Functions>
base::Result<Gpu> ReadGpu(const Functions& f, unsigned index) {
  nvmlDevice_t device{};
  std::array<char, 128> text{};
  nvmlMemory_t memory{};
  if (!Ask(f.nvmlDeviceGetHandleByIndex_v2, index, &device) ||
      !Ask(f.nvmlDeviceGetUUID, device, text.data(), static_cast<unsigned>(text.size() - 1)) ||
      !Ask(f.nvmlDeviceGetMemoryInfo, device, &memory)) {
    return base::Fail("GPU " + std::to_string(index) + " does not answer",
                      "nvidia-smi may say why (lost from the bus?)");
  }
  Gpu gpu;
  gpu.index = index;
  gpu.uuid = base::Printable(text.data());
  gpu.total_bytes = memory.total;
  gpu.used_bytes = memory.used;
  nvmlMemory_v2_t detail{};
  detail.version = nvmlMemory_v2;
  if (Ask(f.nvmlDeviceGetMemoryInfo_v2, device, &detail) && detail.reserved < detail.total) {
    gpu.total_bytes = detail.total - detail.reserved;
    gpu.used_bytes = detail.used;
  }
  text.fill(0);
  if (Ask(f.nvmlDeviceGetName, device, text.data(), static_cast<unsigned>(text.size() - 1))) {
    gpu.name = base::Printable(text.data());
  }
  nvmlUtilization_t utilization{};
  if (Ask(f.nvmlDeviceGetUtilizationRates, device, &utilization)) gpu.utilization_percent = utilization.gpu;
  unsigned value = 0;
  if (Ask(f.nvmlDeviceGetTemperature, device, NVML_TEMPERATURE_GPU, &value)) gpu.temperature_celsius = value;
  if (Ask(f.nvmlDeviceGetPowerUsage, device, &value)) gpu.power_milliwatts = value;
  gpu.processes = ReadProcesses(f, device);
  return gpu;
}

}  // namespace

base::Result<Inventory> Nvml::Read() const {
  const Functions& f = *functions_;
  Inventory inventory;
  std::array<char, 128> text{};
  if (Ask(f.nvmlSystemGetDriverVersion, text.data(), static_cast<unsigned>(text.size() - 1))) {
    inventory.driver_version = base::Printable(text.data());
  }
  int cuda = 0;
  if (Ask(f.nvmlSystemGetCudaDriverVersion_v2, &cuda)) {
    inventory.cuda_version = std::to_string(cuda / 1000) + "." + std::to_string(cuda % 1000 / 10);
  }
  unsigned count = 0;
  if (!Ask(f.nvmlDeviceGetCount_v2, &count)) return base::Fail("the GPU driver does not count its GPUs", kNoDriverHint);
  for (unsigned index = 0; index < count; ++index) {
    auto gpu = ReadGpu(f, index);
    if (!gpu) return tl::unexpected(gpu.error());
    inventory.gpus.push_back(*std::move(gpu));
  }
  if (inventory.gpus.empty()) return base::Fail("the GPU driver knows no GPU", kNoDriverHint);
  return inventory;
}

const Gpu* Inventory::Find(const std::string& uuid) const {
  for (const Gpu& gpu : gpus) {
    if (gpu.uuid == uuid) return &gpu;
  }
  return nullptr;
}

}  // namespace hami::cli
