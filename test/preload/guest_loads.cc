// SPDX-License-Identifier: Apache-2.0
// Loads of modules while other threads take, give back, or are in the driver for long: each is judged, by what it took.
#include <time.h>

#include <atomic>
#include <string>
#include <thread>

#include "test/preload/guest.h"

namespace guest {
namespace {

void SleepMs(long ms) {
  const timespec nap{ms / 1000, ms % 1000 * 1'000'000};
  nanosleep(&nap, nullptr);
}

std::string ImageOf(size_t bytes) {
  return "simgpu-image 1\ncode 4K\nkernel k\nglobal g " + std::to_string(bytes - 4096) + "\n";
}

void Inject(const char* text) { EXPECT_SAME(simgpu_inject(text, nullptr, 0), 1); }

// A thread that is inside the driver for `ms` with something that counts.
std::thread FreeSlowly(CUcontext context, CUdeviceptr block, int ms, std::atomic<bool>* done = nullptr) {
  Inject(("fault call=cuMemFree_v2 delay_ms=" + std::to_string(ms) + " count=1").c_str());
  std::thread thread([=] {
    OK(cuCtxSetCurrent(context));
    OK(cuMemFree_v2(block));
    if (done != nullptr) *done = true;
  });
  SleepMs(100);
  return thread;
}

// Nobody can measure then. Where there is much room a load is granted at once all the same, also when an earlier
// measurement has just waited in vain; near the limit it waits, and what does not fit is not kept.
SCENARIO(loads_beside_a_long_call) {
  CUcontext context = Begin();
  CUdeviceptr slow = 0;
  CUdeviceptr most = 0;
  CUmodule small = nullptr;
  CUmodule large = nullptr;
  std::atomic<bool> done = false;
  OK(cuMemAlloc_v2(&slow, kMiB));
  std::thread thread = FreeSlowly(context, slow, 2700, &done);
  OK(cuModuleLoadData(&small, ImageOf(4 * kMiB).c_str()));
  OK(cuModuleUnload(small));
  OK(cuModuleLoadData(&small, ImageOf(4 * kMiB).c_str()));
  EXPECT(!done);
  OK(cuMemAlloc_v2(&most, Room() - 8 * kMiB));
  OOM(cuModuleLoadData(&large, ImageOf(16 * kMiB).c_str()));
  OOM(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 24 * kMiB));
  EXPECT(Truth() <= kGiB);
  thread.join();
  Balanced();
  OK(cuModuleUnload(small));
  Balanced();
}

// What others give back while the measurement is waited for is room for the load.
SCENARIO(load_that_fits_after_a_long_call) {
  CUcontext context = Begin();
  CUdeviceptr slow = 0;
  CUdeviceptr most = 0;
  CUmodule module = nullptr;
  OK(cuMemAlloc_v2(&slow, 16 * kMiB));
  OK(cuMemAlloc_v2(&most, Room() - 4 * kMiB));
  std::thread thread = FreeSlowly(context, slow, 700);
  OK(cuModuleLoadData(&module, ImageOf(12 * kMiB).c_str()));
  thread.join();
  Balanced();
}

// What this process keeps without using gives way to a load as to any other request.
SCENARIO(load_into_unused_reserve) {
  Begin();
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemoryPool pool = nullptr;
  cuuint64_t keep = UINT64_MAX;
  OK(cuMemPoolCreate(&pool, &props));
  OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
  CUdeviceptr block = 0;
  OK(cuMemAllocFromPoolAsync(&block, 400 * kMiB, pool, nullptr));
  OK(cuMemFreeAsync(block, nullptr));
  OK(cuCtxSynchronize());
  OK(cuMemAlloc_v2(&block, Room() - 4 * kMiB));
  CUmodule module = nullptr;
  OK(cuModuleLoadData(&module, ImageOf(300 * kMiB).c_str()));
  EXPECT(Truth() <= kGiB);
  Balanced();
}

// A limit that does not fit is set back to what it was, and not to what another thread was about to be refused.
SCENARIO(limits_set_by_two_threads) {
  CUcontext context = Begin();
  size_t before = 0;
  size_t after = 0;
  CUdeviceptr most = 0;
  OK(cuCtxGetLimit(&before, CU_LIMIT_MALLOC_HEAP_SIZE));
  OK(cuMemAlloc_v2(&most, Room() - 4 * kMiB));
  Inject("fault call=cuCtxSetLimit delay_ms=100 count=4");
  std::thread thread([=] {
    OK(cuCtxSetCurrent(context));
    OOM(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, before + 24 * kMiB));
  });
  SleepMs(150);  // the other one's limit is in force, and about to be refused
  OOM(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, before + 48 * kMiB));
  thread.join();
  OK(cuCtxGetLimit(&after, CU_LIMIT_MALLOC_HEAP_SIZE));
  EXPECT_SAME(after, before);
  EXPECT(Truth() <= kGiB);
  Balanced();
}

// The device's free memory is the same before and after such a load, and it took memory nevertheless: the next request
// has no room left.
SCENARIO(load_while_as_much_is_freed) {
  constexpr size_t kBytes = 16 * kMiB;
  CUcontext context = Begin();
  CUdeviceptr freed = 0;
  CUdeviceptr most = 0;
  CUdeviceptr more = 0;
  for (int round = 0; round < 5; ++round) {
    CUmodule module = nullptr;
    OK(cuMemAlloc_v2(&freed, kBytes));
    OK(cuMemAlloc_v2(&most, Room() / 512 * 512));
    std::thread thread([=] {
      OK(cuCtxSetCurrent(context));
      SleepMs(10);
      OK(cuMemFree_v2(freed));
    });
    MemInfo();
    Inject("fault call=cuModuleLoadData delay_ms=20 count=1");
    const CUresult result = cuModuleLoadData(&module, ImageOf(kBytes).c_str());
    if (result == CUDA_SUCCESS) OOM(cuMemAlloc_v2(&more, kBytes));
    EXPECT(Truth() <= kGiB);
    thread.join();
    Balanced();
    if (result == CUDA_SUCCESS) OK(cuModuleUnload(module));
    OK(cuMemFree_v2(most));
  }
}

}  // namespace
}  // namespace guest
