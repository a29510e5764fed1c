// SPDX-License-Identifier: Apache-2.0
//
// All that the runtime of this process knows, in one place. Invariant: zero bytes are a right beginning of every part,
// so that it is there before any constructor runs and takes no room in the library's file; what cannot begin as zeros
// is built when the process starts (process.cc). In the child of a fork process.cc makes the parts anew.
//
// Not in it, because they have to lie elsewhere: the words that the kernel wipes at a fork (process.h), the number that
// each launch reads (contexts.h), what each thread has, and what the log and CUDA_DISABLE_CONTROL need before that.
#pragma once

#include <stdint.h>

#include <atomic>
#include <new>

#include "region/region.h"
#include "vgpu/runtime/contexts.h"
#include "vgpu/runtime/device_map.h"
#include "vgpu/runtime/nvml_probe.h"
#include "vgpu/runtime/settings.h"
#include "vgpu/runtime/timed_events.h"
#include "vgpu/runtime/visible.h"

namespace hami::vgpu {

// Zeros until it is built; not destroyed.
template <typename T>
class Built {
 public:
  void Build() { new (bytes_) T(); }
  T& operator*() { return *std::launder(reinterpret_cast<T*>(bytes_)); }
  T* operator->() { return &**this; }

 private:
  alignas(T) unsigned char bytes_[sizeof(T)] = {};
};

struct Runtime {
  Settings settings;
  Built<region::Config> config;  // what a region that this process makes says
  Built<region::Attachment> attachment;
  bool attached = false;  // there was a start, here or in the parent of a fork
  bool fork_guarded = false;
  bool refuses = false;
  ContextRegistry contexts;
  DeviceMap devices;
  NvmlSessions nvml;
  TimedEvents events;
  uint32_t thread_key_and_one = 0;  // threads.cc; 0: not made yet
  ShownEnvironment shown;
};
extern Runtime g_runtime;

}  // namespace hami::vgpu
