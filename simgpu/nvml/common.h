// SPDX-License-Identifier: Apache-2.0
//
// What every NVML function begins with: initialised? valid handle? a fault to play? Handles are addresses inside fixed
// tables, so a wrong one is recognised without being read. Refuses: any handle that the tables do not hold, and those
// of instances that are gone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "abi/nvml_abi.h"
#include "simgpu/machine/machine.h"

#define SIMGPU_NVML extern "C" __attribute__((visibility("default"))) nvmlReturn_t

// First statement of a function without a device.
#define SIMGPU_NVML_ENTER(name)                                                                               \
  do {                                                                                                        \
    if (const nvmlReturn_t entered = simgpu::nvml::Enter(#name, -1); entered != NVML_SUCCESS) return entered; \
  } while (false)

// First statement of a function of a whole GPU: defines `dev`. MIG handles are not valid for it.
#define SIMGPU_NVML_GPU(name, handle)                                                                      \
  int dev = -1;                                                                                            \
  do {                                                                                                     \
    if (const nvmlReturn_t entered = simgpu::nvml::EnterGpu(#name, handle, &dev); entered != NVML_SUCCESS) \
      return entered;                                                                                      \
  } while (false)

// First statement of a function that MIG handles have too: defines `at`.
#define SIMGPU_NVML_DEVICE(name, handle)                                                                     \
  simgpu::nvml::Place at = {};                                                                               \
  do {                                                                                                       \
    if (const nvmlReturn_t entered = simgpu::nvml::EnterDevice(#name, handle, &at); entered != NVML_SUCCESS) \
      return entered;                                                                                        \
  } while (false)

#define SIMGPU_NVML_NEED(condition)                       \
  do {                                                    \
    if (!(condition)) return NVML_ERROR_INVALID_ARGUMENT; \
  } while (false)

namespace simgpu::nvml {

// Where a handle points: a GPU, one of its GPU instances, or a compute instance (which is a MIG device too).
struct Place {
  int dev, gi, ci;
  bool mig() const { return gi >= 0; }
};

inline Machine& Sim() { return Machine::Get(); }

bool Initialised();
// The device is asked for: the first time in a session takes its while.
void Attach(int dev);
nvmlReturn_t Enter(const char* function, int dev);
nvmlReturn_t EnterGpu(const char* function, nvmlDevice_t handle, int* dev);
nvmlReturn_t EnterDevice(const char* function, nvmlDevice_t handle, Place* at);
// A second device of a call: valid or not, without playing the call's fault again.
nvmlReturn_t OtherDevice(nvmlDevice_t handle, Place* at);
nvmlReturn_t EnterGpuInstance(const char* function, nvmlGpuInstance_t handle, Place* at);
nvmlReturn_t EnterComputeInstance(const char* function, nvmlComputeInstance_t handle, Place* at);

nvmlDevice_t GpuHandle(int dev);
nvmlDevice_t MigHandle(int dev, int gi, int ci);
nvmlGpuInstance_t GpuInstanceHandle(int dev, int gi);
nvmlComputeInstance_t ComputeInstanceHandle(int dev, int gi, int ci);

// What lives: false when there is no such instance (any more).
bool FindGpuInstance(int dev, int gi, MigInstance* out);
bool FindComputeInstance(int dev, int gi, int ci, MigInstance* out);
// The MIG device with number `index` among the live ones of a GPU; null when there is none.
nvmlDevice_t MigHandleAt(int dev, unsigned int index);

// Copies a text as NVML does: INSUFFICIENT_SIZE when it and its end do not fit.
nvmlReturn_t CopyText(const char* text, char* to, unsigned int length);

// Microseconds since 1970 of a moment on the machine's clock.
unsigned long long WallMicros(Nanos when);
Nanos FromWallMicros(unsigned long long micros);

// The value a test has set, or else `otherwise`.
inline std::uint64_t ValueOr(int dev, Machine::Value value, std::uint64_t otherwise) {
  std::uint64_t v = 0;
  return Sim().GetValue(dev, value, &v) ? v : otherwise;
}

// How busy the GPU is shown, and what follows from it.
unsigned int ShownUtil(int dev);
unsigned int Temperature(int dev);
unsigned int PowerMilliwatt(int dev);
unsigned long long EnergyMillijoule(int dev);
void FillPci(int dev, nvmlPciInfo_t* pci);
bool HasNvLink(int dev, unsigned int link);

nvmlReturn_t FromMig(MigError error);

}  // namespace simgpu::nvml
