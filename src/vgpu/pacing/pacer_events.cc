// SPDX-License-Identifier: Apache-2.0
#include "vgpu/pacing/pacer_events.h"

#include <atomic>

#include "vgpu/loader/driver.h"
#include "vgpu/pacing/pacer.h"

namespace hami::vgpu {
namespace {

constexpr int kContexts = 16;
constexpr int kEvents = 640;

struct Pool {
  CUcontext context;
  CUdevice ordinal;
  int count;
  CUevent free[kEvents];
};

constinit Pool g_pools[kContexts]{};
constinit std::atomic<int64_t> g_event_time{0};  // of all events since a launch was timed

}  // namespace

CUresult RecordEvent(CUevent event, CUstream stream, bool per_thread) {
  const int64_t begin = MonotonicNanos();
  const CUresult result = per_thread ? real::cuEventRecord_ptsz(event, stream) : real::cuEventRecord(event, stream);
  g_event_time.fetch_add(MonotonicNanos() - begin, std::memory_order_relaxed);
  return result;
}

int64_t TakeEventTime() { return g_event_time.exchange(0, std::memory_order_relaxed); }

CUevent TakeEvent(CUcontext context) {
  for (Pool& pool : g_pools) {
    if (pool.context == context && pool.count > 0) return pool.free[--pool.count];
  }
  CUevent event = nullptr;
  return real::cuEventCreate(&event, CU_EVENT_DEFAULT) == CUDA_SUCCESS ? event : nullptr;
}

void GiveEvent(CUcontext context, CUdevice ordinal, CUevent event) {
  if (event == nullptr) return;
  Pool* mine = nullptr;
  for (Pool& pool : g_pools) {
    if (pool.context == context) mine = &pool;
    if (mine == nullptr && pool.context == nullptr) mine = &pool;
  }
  if (mine == nullptr || mine->count == kEvents) {
    real::cuEventDestroy_v2(event);
    return;
  }
  mine->context = context;
  mine->ordinal = ordinal;
  mine->free[mine->count++] = event;
}

[[gnu::cold]] void DropEvents(CUcontext context, CUdevice ordinal) {
  for (Pool& pool : g_pools) {
    if (pool.context == nullptr || (context != nullptr ? pool.context != context : pool.ordinal != ordinal)) continue;
    for (int i = 0; i < pool.count; ++i) real::cuEventDestroy_v2(pool.free[i]);
    pool.context = nullptr;
    pool.count = 0;
  }
}

void ResetEvents() {
  g_event_time.store(0);
  for (Pool& pool : g_pools) pool = Pool{};
}

}  // namespace hami::vgpu
