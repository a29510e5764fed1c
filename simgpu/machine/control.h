// SPDX-License-Identifier: Apache-2.0
//
// Defines the functions of simgpu.h. To be included by exactly one source file of each driver library: a static
// library's members would not be linked for functions that nobody calls.
#pragma once

#include <cstring>
#include <string>

#include "simgpu/machine/machine.h"
#include "simgpu/simgpu.h"

#define SIMGPU_EXPORT extern "C" __attribute__((visibility("default")))

SIMGPU_EXPORT int simgpu_device_count() { return simgpu::Machine::Get().device_count(); }

SIMGPU_EXPORT int simgpu_inject(const char* text, char* error, size_t error_size) {
  std::string why;
  const bool ok = text != nullptr && simgpu::Machine::Get().Inject(text, &why);
  if (error != nullptr && error_size > 0) {
    const size_t n = why.size() < error_size - 1 ? why.size() : error_size - 1;
    std::memcpy(error, why.data(), n);
    error[n] = 0;
  }
  return ok ? 1 : 0;
}

SIMGPU_EXPORT uint64_t simgpu_busy_ns(int dev, int pid) {
  return simgpu::Machine::Get().BusyNanos(dev, simgpu::Busy::kSm, pid);
}
SIMGPU_EXPORT uint64_t simgpu_used_bytes(int dev) { return simgpu::Machine::Get().UsedBytes(dev); }
SIMGPU_EXPORT uint64_t simgpu_process_bytes(int dev, int pid) { return simgpu::Machine::Get().ProcessBytes(dev, pid); }
SIMGPU_EXPORT uint64_t simgpu_free_bytes(int dev) { return simgpu::Machine::Get().FreeBytes(dev); }
SIMGPU_EXPORT void simgpu_look_at_books(void (*grown)(int dev, uint64_t used),
                                        void (*giving)(int dev, uint64_t bytes)) {
  simgpu::Machine::Get().LookAtBooks({grown, giving});
}
SIMGPU_EXPORT int64_t simgpu_now_ns() { return simgpu::Machine::Get().Now(); }
SIMGPU_EXPORT void simgpu_advance_ns(int64_t by) { simgpu::Machine::Get().Advance(by); }
