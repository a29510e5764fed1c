// SPDX-License-Identifier: Apache-2.0
//
// Events of the library's own that say when the GPU came to them, kept to be used again. What is asked here ends no
// capture. All state is a part of g_runtime (runtime.h).
#pragma once

#include <stdint.h>

#include <atomic>

#include "abi/cuda_abi.h"
#include "vgpu/runtime/lock.h"

namespace hami::vgpu {

struct TimedEvent {
  CUevent event = nullptr;
  CUcontext context = nullptr;
  bool taken = false;
};

struct TimedEvents {
  static constexpr int kRoom = 1024;
  Lock lock{LockRank::kTimeEvents};
  TimedEvent events[kRoom] = {};
  int used = 0;
  std::atomic<int32_t> captures{0};  // that are under way
  std::atomic<bool> ended{false};    // late in the process's life the driver may be gone before its threads are
};

// nullptr: there is none, or the process ends.
TimedEvent* RecordTimedEvent(CUcontext context, CUstream stream, bool per_thread);
void ReleaseTimedEvent(TimedEvent* event);
// The context ends.
void DropTimedEvents(CUcontext context);
void ResetTimedEvents();

// What the driver says of it: CUDA_SUCCESS once the GPU came to it, CUDA_ERROR_NOT_READY before.
CUresult QueryTimedEvent(const TimedEvent* event);
// The same, and the ns to it from one that was reached; any other answer: the driver does not say.
CUresult Elapsed(const TimedEvent* from, const TimedEvent* to, int64_t* ns);
// Something that was launched on the stream has not ended.
bool StreamIsBusy(CUstream stream);

// Some capture is under way, so our own calls must not count against it.
bool AnyCapture();
bool Capturing(CUstream stream, bool per_thread);

}  // namespace hami::vgpu
