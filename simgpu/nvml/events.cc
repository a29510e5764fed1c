// SPDX-License-Identifier: Apache-2.0
//
// Event sets. A set sees what happens after a device was registered with it, in order, each event once.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>

#include "simgpu/nvml/common.h"

using namespace simgpu;
using namespace simgpu::nvml;

namespace {

constexpr unsigned long long kSupported =
    nvmlEventTypeXidCriticalError | nvmlEventTypeSingleBitEccError | nvmlEventTypeDoubleBitEccError;
constexpr unsigned long long kDefined = nvmlEventTypeXidCriticalError | nvmlEventTypeSingleBitEccError |
                                        nvmlEventTypeDoubleBitEccError | nvmlEventTypePState | nvmlEventTypeClock |
                                        0xff80;

struct EventSet {
  bool live;
  std::uint64_t after;
  std::uint64_t mask[kMaxDevices];
};

// Sets are few; a table lets a freed or foreign one be recognised.
constexpr int kSets = 256;
EventSet sets[kSets];

std::mutex& Lock() {
  static std::mutex* const mutex = new std::mutex;
  return *mutex;
}

EventSet* Find(nvmlEventSet_t handle) {
  const auto base = reinterpret_cast<std::uintptr_t>(&sets[0]), address = reinterpret_cast<std::uintptr_t>(handle);
  if (address < base || address >= base + sizeof sets || (address - base) % sizeof(EventSet) != 0) return nullptr;
  EventSet* const set = &sets[(address - base) / sizeof(EventSet)];
  return set->live ? set : nullptr;
}

nvmlReturn_t Wait(nvmlEventSet_t handle, unsigned int timeout_ms, Event* event) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  while (true) {
    EventSet copy = {};
    {
      const std::lock_guard<std::mutex> guard(Lock());
      const EventSet* const set = Find(handle);
      SIMGPU_NVML_NEED(set != nullptr);
      copy = *set;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    const auto wait = static_cast<std::uint32_t>(std::clamp<std::int64_t>(left, 0, timeout_ms));
    const bool got = Sim().WaitEvent(&copy.after, copy.mask, wait, event);
    const std::lock_guard<std::mutex> guard(Lock());
    EventSet* const set = Find(handle);
    SIMGPU_NVML_NEED(set != nullptr);                       // freed meanwhile
    const bool ours = got && set->after < event->sequence;  // else another thread that waits has it
    if (set->after < copy.after) set->after = copy.after;
    if (ours) return NVML_SUCCESS;
    if (!got) return NVML_ERROR_TIMEOUT;
  }
}

nvmlReturn_t WaitAndFill(const char* function, nvmlEventSet_t handle, nvmlEventData_t* data, unsigned int timeout_ms,
                         std::size_t size) {
  if (const nvmlReturn_t entered = Enter(function, -1); entered != NVML_SUCCESS) return entered;
  SIMGPU_NVML_NEED(data != nullptr);
  Event event = {};
  const nvmlReturn_t result = Wait(handle, timeout_ms, &event);
  if (result != NVML_SUCCESS) return result;
  nvmlEventData_t full = {};
  full.device = GpuHandle(event.dev);
  full.eventType = event.type;
  full.eventData = event.data;
  full.gpuInstanceId = event.gpu_instance;
  full.computeInstanceId = event.compute_instance;
  std::memcpy(static_cast<void*>(data), &full, size);
  return NVML_SUCCESS;
}

}  // namespace

SIMGPU_NVML nvmlEventSetCreate(nvmlEventSet_t* out) {
  SIMGPU_NVML_ENTER(nvmlEventSetCreate);
  SIMGPU_NVML_NEED(out != nullptr);
  const std::lock_guard<std::mutex> guard(Lock());
  for (EventSet& set : sets) {
    if (set.live) continue;
    set = {};
    set.live = true;
    set.after = Sim().EventSequence();
    *out = reinterpret_cast<nvmlEventSet_t>(&set);
    return NVML_SUCCESS;
  }
  return NVML_ERROR_MEMORY;
}

SIMGPU_NVML nvmlEventSetFree(nvmlEventSet_t handle) {
  SIMGPU_NVML_ENTER(nvmlEventSetFree);
  const std::lock_guard<std::mutex> guard(Lock());
  EventSet* const set = Find(handle);
  SIMGPU_NVML_NEED(set != nullptr);
  set->live = false;
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long* types) {
  SIMGPU_NVML_GPU(nvmlDeviceGetSupportedEventTypes, device);
  SIMGPU_NVML_NEED(types != nullptr);
  *types = Sim().spec(dev).ecc != 0 ? kSupported : nvmlEventTypeXidCriticalError;
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t handle) {
  SIMGPU_NVML_GPU(nvmlDeviceRegisterEvents, device);
  SIMGPU_NVML_NEED((types & ~kDefined) == 0);
  if ((types & ~kSupported) != 0) return NVML_ERROR_NOT_SUPPORTED;
  const std::lock_guard<std::mutex> guard(Lock());
  EventSet* const set = Find(handle);
  SIMGPU_NVML_NEED(set != nullptr);
  set->mask[dev] |= types;
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t* data, unsigned int timeout_ms) {
  return WaitAndFill("nvmlEventSetWait_v2", set, data, timeout_ms, sizeof *data);
}
// The first form ends before the instance ids.
SIMGPU_NVML nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t* data, unsigned int timeout_ms) {
  return WaitAndFill("nvmlEventSetWait", set, data, timeout_ms, offsetof(nvmlEventData_t, gpuInstanceId));
}
