// SPDX-License-Identifier: Apache-2.0

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <filesystem>

#include "base/fd.h"
#include "base/strings.h"
#include "nvml/functions.h"

namespace hami::nvml {
namespace {

using base::Fail;
using base::Result;

std::string OneLine(const char* text) {
  const auto lines = base::Split(text == nullptr ? "" : text, '\n');
  return lines.empty() ? "" : base::Printable(lines.front());
}

using Text = std::array<char, 128>;

// A function that fills a buffer with text; empty when it fails.
template <typename Function, typename... Arguments>
std::string GetText(Function function, Arguments... arguments) {
  Text text{};
  if (function == nullptr) return {};
  if (function(arguments..., text.data(), static_cast<unsigned>(text.size() - 1)) != NVML_SUCCESS) return {};
  return base::Printable(text.data());
}

// The kernel knows the node of the slot on every platform. What NVML calls the NUMA node is the GPU's own memory on
// machines where that is a node; it is asked only where sysfs does not show the device at all.
std::optional<int> NumaOf(const Functions& f, nvmlDevice_t device, const std::string& sysfs,
                          const std::string& bus_id) {
  const auto text = base::ReadLinkedFile(base::Concat({sysfs, "/bus/pci/devices/", bus_id, "/numa_node"}), 64);
  if (!bus_id.empty() && text) {
    const std::string_view digits = base::Trim(*text);
    int node = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), node);
    if (error != std::errc() || end != digits.data() + digits.size() || node < 0) return std::nullopt;
    return node;
  }
  const auto node = Get<unsigned>(f.nvmlDeviceGetNumaNodeId, device);
  return node ? std::optional<int>(static_cast<int>(*node)) : std::nullopt;
}

std::vector<MigDevice> MigDevicesOf(const Functions& f, nvmlDevice_t device) {
  std::vector<MigDevice> devices;
  const unsigned most = Get<unsigned>(f.nvmlDeviceGetMaxMigDeviceCount, device).value_or(0);
  for (unsigned index = 0; index < most; ++index) {
    const auto handle = Get<nvmlDevice_t>(f.nvmlDeviceGetMigDeviceHandleByIndex, device, index);
    if (!handle) continue;  // a hole
    const auto gpu_instance = Get<unsigned>(f.nvmlDeviceGetGpuInstanceId, *handle);
    const auto compute_instance = Get<unsigned>(f.nvmlDeviceGetComputeInstanceId, *handle);
    if (!gpu_instance || !compute_instance) continue;  // destroyed meanwhile
    devices.push_back({index, GetText(f.nvmlDeviceGetUUID, *handle), GetText(f.nvmlDeviceGetName, *handle),
                       *gpu_instance, *compute_instance, MemoryOf(f, *handle)});
  }
  return devices;
}

std::optional<ComputeMode> ComputeModeOf(const Functions& f, nvmlDevice_t device) {
  const auto mode = Get<nvmlComputeMode_t>(f.nvmlDeviceGetComputeMode, device);
  if (!mode) return std::nullopt;
  switch (*mode) {
    case NVML_COMPUTEMODE_DEFAULT:
      return ComputeMode::kDefault;
    case NVML_COMPUTEMODE_EXCLUSIVE_THREAD:
      return ComputeMode::kExclusiveThread;
    case NVML_COMPUTEMODE_PROHIBITED:
      return ComputeMode::kProhibited;
    case NVML_COMPUTEMODE_EXCLUSIVE_PROCESS:
      return ComputeMode::kExclusiveProcess;
    default:
      return std::nullopt;
  }
}

nvmlComputeMode_t CodeOf(ComputeMode mode) {
  switch (mode) {
    case ComputeMode::kExclusiveThread:
      return NVML_COMPUTEMODE_EXCLUSIVE_THREAD;
    case ComputeMode::kProhibited:
      return NVML_COMPUTEMODE_PROHIBITED;
    case ComputeMode::kExclusiveProcess:
      return NVML_COMPUTEMODE_EXCLUSIVE_PROCESS;
    default:
      return NVML_COMPUTEMODE_DEFAULT;
  }
}

void Describe(const Functions& f, nvmlDevice_t handle, const std::string& sysfs, Device& device) {
  device.name = GetText(f.nvmlDeviceGetName, handle);
  device.minor = Get<unsigned>(f.nvmlDeviceGetMinorNumber, handle);
  if (const auto pci = Get<nvmlPciInfo_t>(f.nvmlDeviceGetPciInfo_v3, handle)) device.bus_id = SysfsBusId(pci->busId);
  device.numa_node = NumaOf(f, handle, sysfs, device.bus_id);
  device.memory = MemoryOf(f, handle);
  ComputeCapability capability;
  if (f.nvmlDeviceGetCudaComputeCapability != nullptr &&
      f.nvmlDeviceGetCudaComputeCapability(handle, &capability.major, &capability.minor) == NVML_SUCCESS) {
    device.compute_capability = capability;
  }
  device.compute_mode = ComputeModeOf(f, handle);
  unsigned current = 0;
  unsigned pending = 0;
  if (f.nvmlDeviceGetMigMode != nullptr && f.nvmlDeviceGetMigMode(handle, &current, &pending) == NVML_SUCCESS) {
    device.mig_mode = MigMode{current == NVML_DEVICE_MIG_ENABLE, pending == NVML_DEVICE_MIG_ENABLE};
    if (device.mig_mode->current) device.mig_devices = MigDevicesOf(f, handle);
  }
}

Device ReadDevice(const Functions& f, const std::string& sysfs, unsigned index) {
  Device device;
  device.index = index;
  nvmlDevice_t handle{};
  nvmlReturn_t code = f.nvmlDeviceGetHandleByIndex_v2(index, &handle);
  Text text{};
  if (code == NVML_SUCCESS) {
    code = f.nvmlDeviceGetUUID(handle, text.data(), static_cast<unsigned>(text.size() - 1));
    // A lost GPU still has the answers that the driver remembers.
    Describe(f, handle, sysfs, device);
  }
  if (code == NVML_SUCCESS) {
    device.uuid = base::Printable(text.data());
    // Memory is asked of the GPU itself; it knows whether it is there.
    nvmlMemory_t memory{};
    code = f.nvmlDeviceGetMemoryInfo(handle, &memory);
    if (code == NVML_ERROR_NOT_SUPPORTED) code = NVML_SUCCESS;
  }
  if (code != NVML_SUCCESS) {
    device.condition = ConditionOf(code);
    device.trouble = f.Explain(code);
  }
  return device;
}

}  // namespace

Functions::~Functions() {
  // What nvmlShutdown says changes nothing any more.
  if (initialised && nvmlShutdown != nullptr) static_cast<void>(nvmlShutdown());
  if (handle != nullptr) ::dlclose(handle);
}

std::string Functions::Explain(nvmlReturn_t code) const {
  const char* text = nvmlErrorString == nullptr ? nullptr : nvmlErrorString(code);
  return base::Concat({OneLine(text), " (NVML error ", std::to_string(static_cast<int>(code)), ")"});
}

Condition ConditionOf(nvmlReturn_t code) {
  switch (code) {
    case NVML_SUCCESS:
      return Condition::kAnswers;
    case NVML_ERROR_GPU_IS_LOST:
      return Condition::kLost;
    case NVML_ERROR_RESET_REQUIRED:
      return Condition::kResetRequired;
    default:
      return Condition::kFails;
  }
}

Found Find(const Functions& f, const std::string& uuid) {
  Found found;
  found.code = f.nvmlDeviceGetHandleByUUID(uuid.c_str(), &found.device);
  return found;
}

std::optional<Memory> MemoryOf(const Functions& f, nvmlDevice_t device) {
  const auto whole = Get<nvmlMemory_t>(f.nvmlDeviceGetMemoryInfo, device);
  if (!whole) return std::nullopt;
  Memory memory{whole->total, whole->used, whole->free, std::nullopt};
  nvmlMemory_v2_t detail{};
  detail.version = nvmlMemory_v2;
  if (f.nvmlDeviceGetMemoryInfo_v2 != nullptr && f.nvmlDeviceGetMemoryInfo_v2(device, &detail) == NVML_SUCCESS &&
      detail.reserved < memory.total) {
    memory.reserved = detail.reserved;
  }
  return memory;
}

Library::Library(std::shared_ptr<const Functions> functions, std::string sysfs)
    : functions_(std::move(functions)), sysfs_(std::move(sysfs)) {}
Library::Library(Library&&) noexcept = default;
Library& Library::operator=(Library&&) noexcept = default;
Library::~Library() = default;

Result<Library> Library::Load(const LoadOptions& options) {
  auto functions = std::make_shared<Functions>();
  Functions& f = *functions;
  const std::string name = options.library.empty() ? "libnvidia-ml.so.1" : options.library;
  f.handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (f.handle == nullptr) return Fail("no GPU driver found (" + OneLine(::dlerror()) + ")");
#define HAMI_NVML_BIND(symbol) f.symbol = reinterpret_cast<decltype(f.symbol)>(::dlsym(f.handle, #symbol));
  HAMI_NVML_USED(HAMI_NVML_BIND)
#undef HAMI_NVML_BIND
  if (f.nvmlInit_v2 == nullptr || f.nvmlDeviceGetCount_v2 == nullptr || f.nvmlDeviceGetHandleByIndex_v2 == nullptr ||
      f.nvmlDeviceGetHandleByUUID == nullptr || f.nvmlDeviceGetUUID == nullptr ||
      f.nvmlDeviceGetMemoryInfo == nullptr) {
    return Fail(name + " is too old or not NVML");
  }
  const nvmlReturn_t code = f.nvmlInit_v2();
  if (code != NVML_SUCCESS) return Fail("the GPU driver does not start: " + f.Explain(code));
  f.initialised = true;
  return Library(std::move(functions), options.sysfs);
}

System Library::ReadSystem() const {
  const Functions& f = *functions_;
  System system;
  system.driver_version = GetText(f.nvmlSystemGetDriverVersion);
  if (const auto cuda = Get<int>(f.nvmlSystemGetCudaDriverVersion_v2)) {
    system.cuda_version = std::to_string(*cuda / 1000) + "." + std::to_string(*cuda % 1000 / 10);
  }
  return system;
}

Result<std::vector<Device>> Library::ReadDevices() const {
  const Functions& f = *functions_;
  unsigned count = 0;
  const nvmlReturn_t code = f.nvmlDeviceGetCount_v2(&count);
  if (code != NVML_SUCCESS) return Fail("the GPU driver does not count its GPUs: " + f.Explain(code));
  std::vector<Device> devices;
  for (unsigned index = 0; index < count; ++index) devices.push_back(ReadDevice(f, sysfs_, index));
  return devices;
}

std::string SysfsBusId(const std::string& text) {
  std::string id = base::ToLower(text);
  // NVML writes the domain with eight digits, the kernel with four.
  if (const auto colon = id.find(':'); colon == 8 && id.starts_with("0000")) id.erase(0, 4);
  return id;
}

std::optional<std::set<std::string>> KernelGpus(const std::string& proc_gpus) {
  std::error_code error;
  std::set<std::string> names;
  for (std::filesystem::directory_iterator entry(proc_gpus, error), end; !error && entry != end;
       entry.increment(error)) {
    names.insert(entry->path().filename());
  }
  if (error) return std::nullopt;
  return names;
}

base::Status Library::SetComputeMode(const std::string& uuid, ComputeMode mode) const {
  const Functions& f = *functions_;
  if (f.nvmlDeviceSetComputeMode == nullptr) return base::Fail("this driver's NVML cannot set compute modes");
  const Found found = Find(f, uuid);
  nvmlReturn_t code = found.code;
  if (code == NVML_SUCCESS) code = f.nvmlDeviceSetComputeMode(found.device, CodeOf(mode));
  if (code == NVML_SUCCESS) return {};
  return base::Fail(base::Concat({"the compute mode of ", uuid, " cannot be set: ", f.Explain(code)}),
                    "the plugin must be root, and privileged in its container");
}

}  // namespace hami::nvml
