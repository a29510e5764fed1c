// SPDX-License-Identifier: Apache-2.0
// Threads that are cancelled: nothing the library does is a place at which that takes effect, or it would die with
// locks that nobody opens again. A scenario that hangs is ended by its alarm, and has failed.
#include <pthread.h>

#include <atomic>
#include <functional>
#include <thread>

#include "test/preload/guest_kernels.h"
#include "test/preload/guest_peer.h"

namespace guest {
namespace {

// A thread that is cancelled before its call or while it waits in it, and that ends behind the call.
class Cancelled {
 public:
  explicit Cancelled(std::function<CUresult()> call) : call_(std::move(call)) {
    EXPECT_SAME(pthread_create(&thread_, nullptr, &Run, this), 0);
  }
  void Cancel() { EXPECT_SAME(pthread_cancel(thread_), 0); }
  // False when the call never came back.
  bool Join() {
    void* ended = nullptr;
    EXPECT_SAME(pthread_join(thread_, &ended), 0);
    EXPECT(ended == PTHREAD_CANCELED);
    return returned_;
  }
  bool called() const { return called_; }
  bool returned() const { return returned_; }
  CUresult result() const { return result_; }

 private:
  static void* Run(void* arg) {
    auto* const self = static_cast<Cancelled*>(arg);
    self->called_ = true;
    self->result_ = self->call_();
    self->returned_ = true;
    for (;;) pthread_testcancel();
  }

  std::function<CUresult()> call_;
  std::atomic<bool> called_{false};
  std::atomic<bool> returned_{false};
  std::atomic<CUresult> result_{CUDA_ERROR_UNKNOWN};
  pthread_t thread_{};
};

// The call that makes the library start. The driver refuses it at once.
SCENARIO(cancel_start) {
  alarm(20);
  Cancelled first([] {
    pthread_cancel(pthread_self());
    return cuMemFree_v2(0);
  });
  const bool returned = first.Join();
  Begin();
  CUdeviceptr block = 0;
  OK(cuMemAlloc_v2(&block, kMiB));
  Balanced();
  EXPECT(returned);
}

// cancel_sweep HOW: a request that only fits once somebody has looked who of those that hold memory has died.
SCENARIO(cancel_sweep) {
  const auto allocate = [pooled = arguments.at(0) == "pooled"](CUdeviceptr* block, size_t bytes) {
    return pooled ? cuMemAllocAsync(block, bytes, nullptr) : cuMemAlloc_v2(block, bytes);
  };
  Peer peer;
  peer.Create(400 * kMiB);
  const CUcontext context = Begin();
  alarm(20);
  const size_t bytes = Room() + 200 * kMiB;
  peer.Kill();
  CUdeviceptr block = 0;
  CUdeviceptr other = 0;
  Cancelled takes([&] {
    OK(cuCtxSetCurrent(context));
    pthread_cancel(pthread_self());
    return allocate(&block, bytes);
  });
  const bool returned = takes.Join();
  OK(allocate(&other, kMiB));
  EXPECT(returned);
  OK(takes.result());
  Balanced();
}

// A request that waits for a free under way.
SCENARIO(cancel_awaiting_frees) {
  const CUcontext context = Begin();
  alarm(20);
  const CUstream busy = NewStream();
  const CUstream other = NewStream();
  CUdeviceptr block = 0;
  CUdeviceptr plain = 0;
  CUdeviceptr next = 0;
  OK(cuMemAllocAsync(&block, 400 * kMiB, busy));
  OK(cuMemAlloc_v2(&plain, Room() - 10 * kMiB));
  Launch(KernelOf(LoadImage("simgpu-image 1\nkernel spin\n  cost total 200ms\n"), "spin"), busy);
  OK(cuMemFreeAsync(block, busy));
  Cancelled waits([&] {
    OK(cuCtxSetCurrent(context));
    return cuMemAllocAsync(&next, 300 * kMiB, other);
  });
  while (!waits.called()) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT(!waits.returned());
  waits.Cancel();
  EXPECT(waits.Join());
  OK(waits.result());
  OK(cuMemFreeAsync(next, other));
  OK(cuCtxSynchronize());
  Balanced();
}

// The first launch under a limit: it begins to measure, to keep the account, and to tell others.
SCENARIO(cancel_launch) {
  const CUcontext context = Begin();
  alarm(20);
  const CUfunction f = KernelOf(LoadImage("simgpu-image 1\nkernel ms1\n  cost total 1ms\n"), "ms1");
  const CUstream stream = NewStream();
  Cancelled launches([=] {
    OK(cuCtxSetCurrent(context));
    pthread_cancel(pthread_self());
    return TryLaunch(f, stream);
  });
  EXPECT(launches.Join());
  OK(launches.result());
  for (int i = 0; i < 100; ++i) Launch(f, stream);
  OK(cuCtxSynchronize());
}

}  // namespace
}  // namespace guest
