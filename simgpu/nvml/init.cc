// SPDX-License-Identifier: Apache-2.0
//
// Sessions, error texts, and what NVML says about the system.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "simgpu/machine/control.h"
#include "simgpu/machine/real_clock.h"
#include "simgpu/nvml/common.h"

namespace simgpu::nvml {
namespace {
std::atomic<int> sessions{0};
std::atomic<std::uint64_t> attached{0};  // devices, a bit each, of which somebody asked since the first session began

// What an H200's NVML took in a process: to open, for the first handle of a device, and to close. Handles that are
// asked for again take some us, as do memory and processes.
constexpr std::int64_t kOpenNanos = 1'750'000;
constexpr std::int64_t kAttachNanos = 6'100'000;
constexpr std::int64_t kCloseNanos = 2'500'000;

void Spend(int dev, std::int64_t nanos) {
  const Machine& machine = Machine::Get();
  const std::int64_t spent = nanos * machine.spec(dev).profile.nvml_percent / 100;
  if (machine.options().virtual_clock == 0 && spent != 0) WaitOut(RealNow() + spent);
}

nvmlReturn_t Open(const char* function) {
  Machine& machine = Machine::Get();
  if (!machine.ok()) return NVML_ERROR_DRIVER_NOT_LOADED;
  if (const int fault = machine.FaultFor(function); fault != 0) return static_cast<nvmlReturn_t>(fault);
  machine.Reap();
  if (sessions.fetch_add(1) == 0) Spend(0, kOpenNanos);
  return NVML_SUCCESS;
}

struct ErrorText {
  nvmlReturn_t code;
  const char* text;
};
constexpr ErrorText kTexts[] = {
    {NVML_SUCCESS, "Success"},
    {NVML_ERROR_UNINITIALIZED, "Uninitialized"},
    {NVML_ERROR_INVALID_ARGUMENT, "Invalid Argument"},
    {NVML_ERROR_NOT_SUPPORTED, "Not Supported"},
    {NVML_ERROR_NO_PERMISSION, "Insufficient Permissions"},
    {NVML_ERROR_ALREADY_INITIALIZED, "Already Initialized"},
    {NVML_ERROR_NOT_FOUND, "Not Found"},
    {NVML_ERROR_INSUFFICIENT_SIZE, "Insufficient Size"},
    {NVML_ERROR_INSUFFICIENT_POWER, "Insufficient External Power"},
    {NVML_ERROR_DRIVER_NOT_LOADED, "Driver Not Loaded"},
    {NVML_ERROR_TIMEOUT, "Timeout"},
    {NVML_ERROR_IRQ_ISSUE, "Interrupt Request Issue"},
    {NVML_ERROR_LIBRARY_NOT_FOUND, "NVML Shared Library Not Found"},
    {NVML_ERROR_FUNCTION_NOT_FOUND, "Function Not Found"},
    {NVML_ERROR_CORRUPTED_INFOROM, "Corrupted infoROM"},
    {NVML_ERROR_GPU_IS_LOST, "GPU is lost"},
    {NVML_ERROR_RESET_REQUIRED, "GPU requires reset"},
    {NVML_ERROR_OPERATING_SYSTEM, "GPU access blocked by the operating system"},
    {NVML_ERROR_LIB_RM_VERSION_MISMATCH, "Driver/library version mismatch"},
    {NVML_ERROR_IN_USE, "In use by another client"},
    {NVML_ERROR_MEMORY, "Insufficient Memory"},
    {NVML_ERROR_NO_DATA, "No data"},
    {NVML_ERROR_VGPU_ECC_NOT_SUPPORTED, "vGPU is not supported with ECC enabled"},
    {NVML_ERROR_INSUFFICIENT_RESOURCES, "Insufficient resources"},
    {NVML_ERROR_FREQ_NOT_SUPPORTED, "Frequency not supported"},
    {NVML_ERROR_ARGUMENT_VERSION_MISMATCH, "Argument version mismatch"},
    {NVML_ERROR_DEPRECATED, "Deprecated"},
    {NVML_ERROR_NOT_READY, "Not ready"},
    {NVML_ERROR_GPU_NOT_FOUND, "GPU not found"},
    {NVML_ERROR_INVALID_STATE, "Invalid state"},
};

}  // namespace

void Attach(int dev) {
  const std::uint64_t bit = std::uint64_t{1} << (dev % 64);
  if ((attached.fetch_or(bit) & bit) == 0) Spend(dev, kAttachNanos);
}

bool Initialised() { return sessions.load(std::memory_order_acquire) > 0; }

}  // namespace simgpu::nvml

using namespace simgpu;
using namespace simgpu::nvml;

SIMGPU_NVML nvmlInit_v2() { return Open("nvmlInit_v2"); }
SIMGPU_NVML nvmlInit() { return Open("nvmlInit"); }
SIMGPU_NVML nvmlInitWithFlags(unsigned int) { return Open("nvmlInitWithFlags"); }

SIMGPU_NVML nvmlShutdown() {
  int count = sessions.load();
  while (count > 0 && !sessions.compare_exchange_weak(count, count - 1)) {
  }
  if (count == 1) {
    attached = 0;
    Spend(0, kCloseNanos);
  }
  return count > 0 ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

extern "C" __attribute__((visibility("default"))) const char* nvmlErrorString(nvmlReturn_t result) {
  for (const ErrorText& row : kTexts) {
    if (row.code == result) return row.text;
  }
  return "Unknown Error";
}

SIMGPU_NVML nvmlSystemGetDriverVersion(char* version, unsigned int length) {
  SIMGPU_NVML_ENTER(nvmlSystemGetDriverVersion);
  return CopyText(Sim().options().driver_version, version, length);
}

SIMGPU_NVML nvmlSystemGetNVMLVersion(char* version, unsigned int length) {
  SIMGPU_NVML_ENTER(nvmlSystemGetNVMLVersion);
  char text[64];
  std::snprintf(text, sizeof text, "%u.%s", Sim().options().cuda_version / 1000, Sim().options().driver_version);
  return CopyText(text, version, length);
}

SIMGPU_NVML nvmlSystemGetCudaDriverVersion_v2(int* version) {
  SIMGPU_NVML_ENTER(nvmlSystemGetCudaDriverVersion_v2);
  SIMGPU_NVML_NEED(version != nullptr);
  *version = static_cast<int>(Sim().options().cuda_version);
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlSystemGetCudaDriverVersion(int* version) {
  SIMGPU_NVML_ENTER(nvmlSystemGetCudaDriverVersion);
  SIMGPU_NVML_NEED(version != nullptr);
  *version = static_cast<int>(Sim().options().cuda_version);
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlSystemGetHicVersion(unsigned int* count, nvmlHwbcEntry_t*) {
  SIMGPU_NVML_ENTER(nvmlSystemGetHicVersion);
  SIMGPU_NVML_NEED(count != nullptr);
  *count = 0;
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlSystemGetProcessName(unsigned int pid, char* name, unsigned int length) {
  SIMGPU_NVML_ENTER(nvmlSystemGetProcessName);
  SIMGPU_NVML_NEED(name != nullptr && length > 0);
  char path[40], text[1024] = {};
  std::snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return NVML_ERROR_NOT_FOUND;
  const ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n < 0) return NVML_ERROR_NOT_FOUND;
  std::snprintf(name, length, "%s", text);  // the first word, cut to what fits, as NVML does
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlGetExcludedDeviceCount(unsigned int* count) {
  SIMGPU_NVML_NEED(count != nullptr);
  *count = 0;
  return NVML_SUCCESS;
}
