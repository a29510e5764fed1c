// SPDX-License-Identifier: Apache-2.0
// Stream-ordered memory while a stream is being captured, in every mode, by the capturing thread and by another: what
// PyTorch does with its cudaMallocAsync allocator. Run on a driver that forbids all but what is known to be allowed.
#include <thread>

#include "test/preload/guest_kernels.h"

namespace guest {
namespace {

CUstreamCaptureMode ModeOf(const std::string& name) {
  if (name == "relaxed") return CU_STREAM_CAPTURE_MODE_RELAXED;
  return name == "thread" ? CU_STREAM_CAPTURE_MODE_THREAD_LOCAL : CU_STREAM_CAPTURE_MODE_GLOBAL;
}

// Calls `body` on this thread or, as an autograd engine does, on one that never made a context current.
template <typename Body>
void By(const std::string& who, Body body) {
  if (who == "this") return body();
  std::thread(body).join();
}

bool Active(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  OK(cuStreamIsCapturing(stream, &status));
  return status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

CUdeviceptr Allocated(size_t bytes, CUstream stream) {
  CUdeviceptr block = 0;
  OK(cuMemAllocAsync(&block, bytes, stream));
  return block;
}

CUfunction Kernel() {
  static const CUfunction kernel = KernelOf(LoadImage("simgpu-image 1\nkernel k\n"), "k");
  return kernel;
}

struct Recording {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUdeviceptr left = 0;  // by its last launch
};

// What is captured: blocks that the graph allocates, uses and frees, and one that it leaves.
template <typename Meanwhile>
Recording Record(CUstream stream, CUstreamCaptureMode mode, const std::string& who, Meanwhile meanwhile) {
  Recording made;
  OK(cuStreamBeginCapture_v2(stream, mode));
  CUcontext context = nullptr;
  OK(cuCtxGetCurrent(&context));
  By(who, [&] {
    OK(cuCtxSetCurrent(context));
    const CUdeviceptr a = Allocated(64 * kMiB, stream);
    OK(cuLaunchKernel(Kernel(), 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
    const CUdeviceptr b = Allocated(32 * kMiB, stream);
    OK(cuMemsetD8Async(b, 1, kMiB, stream));
    OK(cuMemFreeAsync(a, stream));
    EXPECT(Active(stream));
    meanwhile();
    EXPECT(Active(stream));
    OK(cuMemFreeAsync(b, stream));
    made.left = Allocated(kMiB, stream);  // stays, as a tensor that the program looks at later
  });
  OK(cuStreamEndCapture(stream, &made.graph));
  OK(cuGraphInstantiateWithFlags(&made.exec, made.graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
  return made;
}

void Destroy(const Recording& recording) {
  OK(cuGraphExecDestroy(recording.exec));
  OK(cuGraphDestroy(recording.graph));
}

// capture_pool MODE WHO
SCENARIO(capture_pool) {
  Begin();
  const CUstreamCaptureMode mode = ModeOf(arguments.at(0));
  const std::string& who = arguments.at(1);
  const CUstream stream = NewStream();
  const CUstream side = NewStream();
  Kernel();
  OK(cuMemFreeAsync(Allocated(kMiB, side), side));  // the pool is there
  OK(cuStreamSynchronize(side));
  const size_t before = Room();
  const CUdeviceptr by_its_stream = Allocated(64 * kMiB, side);
  const CUdeviceptr by_the_null_stream = Allocated(64 * kMiB, side);
  const CUdeviceptr by_the_capturing = Allocated(64 * kMiB, side);
  const Recording early = Record(side, mode, "this", [] {});
  OK(cuGraphLaunch(early.exec, side));
  OK(cuStreamSynchronize(side));
  CUdeviceptr meanwhile = 0;
  CUdeviceptr refused = 0;
  const Recording made = Record(stream, mode, who, [&] {
    OK(cuMemFreeAsync(by_its_stream, side));
    EXPECT(Active(stream));
    OK(cuMemFreeAsync(by_the_null_stream, nullptr));
    EXPECT(Active(stream));
    EXPECT(cuMemFreeAsync(by_the_capturing, stream) != CUDA_SUCCESS);  // no memory of a graph's
    EXPECT(Active(stream));
    OK(cuMemAllocAsync(&meanwhile, 32 * kMiB, side));
    OOM(cuMemAllocAsync(&refused, kGiB, side));
    EXPECT(Active(stream));
    OK(cuGraphLaunch(early.exec, side));
    OK(cuStreamSynchronize(side));
    EXPECT(Active(stream));
    const CUstream another = NewStream();
    OK(cuStreamDestroy_v2(another));
    OK(cuMemFreeAsync(early.left, side));
    Destroy(early);
  });
  for (int i = 0; i < 3; ++i) OK(cuGraphLaunch(made.exec, stream));
  OK(cuStreamSynchronize(stream));
  Balanced();
  OK(cuMemFreeAsync(made.left, stream));
  OK(cuStreamSynchronize(stream));
  OK(cuMemFreeAsync(meanwhile, side));
  OK(cuMemFreeAsync(by_the_capturing, side));  // still the program's
  OK(cuStreamSynchronize(side));
  Destroy(made);
  OK(cuDeviceGraphMemTrim(0));
  OK(cuCtxSynchronize());
  Balanced();
  EXPECT_SAME(Room(), before);
}

// What else comes and goes beside a capture: plain memory freed in order, an explicit pool, the stream that each thread
// has, graphs that another thread destroys, and frees that wait.
SCENARIO(capture_beside_other_memory) {
  Begin();
  const CUstreamCaptureMode mode = ModeOf(arguments.at(0));
  const std::string& who = arguments.at(1);
  const CUstream stream = NewStream();
  const CUstream side = NewStream();
  Kernel();
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemoryPool pool = nullptr;
  OK(cuMemPoolCreate(&pool, &props));
  OK(cuMemFreeAsync(Allocated(kMiB, side), side));
  OK(cuStreamSynchronize(side));
  const size_t before = Room();
  CUdeviceptr plain = 0;
  CUdeviceptr small = 0;
  OK(cuMemAlloc_v2(&plain, 9 * kMiB));
  OK(cuMemAlloc_v2(&small, 100));
  CUdeviceptr of_pool = 0;
  OK(cuMemAllocFromPoolAsync(&of_pool, 16 * kMiB, pool, side));
  const Recording early = Record(side, mode, "this", [] {});
  OK(cuGraphLaunch(early.exec, side));
  OK(cuStreamSynchronize(side));
  CUcontext context = nullptr;
  OK(cuCtxGetCurrent(&context));
  const Recording made = Record(stream, mode, who, [&] {
    CUdeviceptr recorded = 0;
    OK(cuMemAllocFromPoolAsync(&recorded, kMiB, pool, stream));
    OK(cuMemFreeAsync(recorded, stream));
    OK(cuMemFreeAsync(plain, side));
    EXPECT(Active(stream));
    OK(cuMemFreeAsync(small, side));
    OK(cuMemFreeAsync(of_pool, side));
    OK(cuMemFreeAsync(early.left, side));
    EXPECT(Active(stream));
    CUdeviceptr per_thread = 0;
    OK(cuMemAllocAsync_ptsz(&per_thread, kMiB, nullptr));
    OK(cuMemFreeAsync_ptsz(per_thread, nullptr));
    EXPECT(Active(stream));
    std::thread([&] {
      OK(cuCtxSetCurrent(context));
      Destroy(early);
    }).join();
    OK(cuStreamSynchronize(side));
    EXPECT(Active(stream));
  });
  OK(cuGraphLaunch(made.exec, stream));
  OK(cuMemFreeAsync(made.left, stream));
  OK(cuStreamSynchronize(stream));
  Destroy(made);
  OK(cuDeviceGraphMemTrim(0));
  OK(cuMemPoolDestroy(pool));
  OK(cuCtxSynchronize());
  Balanced();
  EXPECT_SAME(Room(), before);
}

// More than the limit, by a capture: nothing is allocated by it, and the launch is refused.
SCENARIO(capture_too_large) {
  Begin();
  const CUstream stream = NewStream();
  const size_t before = Room();
  OK(cuStreamBeginCapture_v2(stream, ModeOf(arguments.at(0))));
  OK(cuMemFreeAsync(Allocated(2 * kGiB, stream), stream));
  Recording made;
  OK(cuStreamEndCapture(stream, &made.graph));
  EXPECT_SAME(Room(), before);
  OK(cuGraphInstantiateWithFlags(&made.exec, made.graph, 0));
  OOM(cuGraphLaunch(made.exec, stream));
  Destroy(made);
  Balanced();
}

}  // namespace
}  // namespace guest
