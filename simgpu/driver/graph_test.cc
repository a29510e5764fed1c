// SPDX-License-Identifier: Apache-2.0
// Graphs and stream capture on the virtual clock.
#include <vector>

#include "simgpu/driver/testing/time.h"

namespace simgpu::testing {
namespace {

class GraphTest : public TimedTest {};

CUgraphExec Ready(CUgraph graph) {
  CUgraphExec exec = nullptr;
  EXPECT_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  return exec;
}

std::size_t CountNodes(CUgraph graph) {
  std::size_t count = 0;
  EXPECT_OK(cuGraphGetNodes(graph, nullptr, &count));
  return count;
}

// How long a launch takes from submission to its end.
std::int64_t TimeOf(CUgraphExec exec) {
  CUstream s = NewStream();
  CUevent start = Mark(s);
  EXPECT_OK(cuGraphLaunch(exec, s));
  CUevent end = Mark(s);
  EXPECT_OK(cuStreamSynchronize(s));
  return Between(start, end);
}

CUgraphNode AddSpin(const Gpu& gpu, CUgraph graph, const std::vector<CUgraphNode>& after, std::int64_t ns,
                    unsigned sms) {
  std::uint64_t cost = static_cast<std::uint64_t>(ns) * sms;
  void* params[] = {&cost};
  CUDA_KERNEL_NODE_PARAMS_v2 p = {};
  p.func = gpu.spin();
  p.gridDimX = sms;
  p.gridDimY = p.gridDimZ = p.blockDimY = p.blockDimZ = 1;
  p.blockDimX = 1024;
  p.sharedMemBytes = Gpu::kShared;
  p.kernelParams = params;
  CUgraphNode node = nullptr;
  EXPECT_OK(cuGraphAddKernelNode_v2(&node, graph, after.data(), after.size(), &p));
  return node;
}

TEST_F(GraphTest, GivenADiamondWhenLaunchedThenItsBranchesOverlap) {
  RunWithContext([] {
    const Gpu gpu;
    CUgraph graph = nullptr;
    ASSERT_OK(cuGraphCreate(&graph, 0));
    CUgraphNode top = AddSpin(gpu, graph, {}, 10 * kMicro, 20);
    CUgraphNode left = AddSpin(gpu, graph, {top}, 30 * kMicro, 20);
    CUgraphNode right = AddSpin(gpu, graph, {top}, 50 * kMicro, 20);
    AddSpin(gpu, graph, {left, right}, 5 * kMicro, 20);
    CUgraphExec exec = Ready(graph);
    EXPECT_EQ(TimeOf(exec), 65 * kMicro);
    EXPECT_EQ(TimeOf(exec), 65 * kMicro);
    EXPECT_OK(cuGraphExecDestroy(exec));
    EXPECT_OK(cuGraphDestroy(graph));
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
  });
}

TEST_F(GraphTest, GivenACycleWhenAddedThenItIsRefused) {
  RunWithContext([] {
    CUgraph graph = nullptr;
    ASSERT_OK(cuGraphCreate(&graph, 0));
    CUgraphNode a = nullptr;
    CUgraphNode b = nullptr;
    EXPECT_OK(cuGraphAddEmptyNode(&a, graph, nullptr, 0));
    EXPECT_OK(cuGraphAddEmptyNode(&b, graph, &a, 1));
    EXPECT_EQ(cuGraphAddDependencies(graph, &b, &a, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuGraphRemoveDependencies(graph, &a, &b, 1));
    EXPECT_OK(cuGraphAddDependencies(graph, &b, &a, 1));
  });
}

TEST_F(GraphTest, GivenStreamsJoinedByEvents_WhenCaptured_ThenGraphHasTheOrder) {
  RunWithContext([] {
    const Gpu gpu;
    CUstream a = NewStream();
    CUstream b = NewStream();
    CUevent fork = NewEvent();
    CUevent join = NewEvent();
    ASSERT_OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT_OK(cuEventRecord(fork, a));
    EXPECT_OK(cuStreamWaitEvent(b, fork, 0));
    EXPECT_OK(gpu.Launch(a, 40 * kMicro, 10));
    EXPECT_OK(gpu.Launch(b, 60 * kMicro, 10));
    EXPECT_OK(cuEventRecord(join, b));
    EXPECT_OK(cuStreamWaitEvent(a, join, 0));
    EXPECT_OK(gpu.Launch(a, 10 * kMicro, 10));
    CUgraph graph = nullptr;
    ASSERT_OK(cuStreamEndCapture(a, &graph));
    EXPECT_EQ(CountNodes(graph), 3U);
    EXPECT_EQ(simgpu_busy_ns(0, 0), 0U);
    EXPECT_EQ(TimeOf(Ready(graph)), 70 * kMicro);
  });
}

TEST_F(GraphTest, GivenAnUnjoinedStreamWhenTheCaptureEndsThenItFails) {
  RunWithContext([] {
    const Gpu gpu;
    CUstream a = NewStream();
    CUstream b = NewStream();
    CUevent fork = NewEvent();
    ASSERT_OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT_OK(cuEventRecord(fork, a));
    EXPECT_OK(cuStreamWaitEvent(b, fork, 0));
    EXPECT_OK(gpu.Launch(b, 60 * kMicro, 10));
    CUgraph graph = nullptr;
    EXPECT_EQ(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    EXPECT_EQ(graph, nullptr);
  });
}

TEST_F(GraphTest, GivenIllegalCallsWhenCapturingThenTheCaptureBecomesInvalid) {
  RunWithContext([] {
    const auto after = [](const std::function<CUresult(CUstream)>& call) {
      CUstream s = NewStream(CU_STREAM_DEFAULT);
      EXPECT_OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
      const CUresult result = call(s);
      CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
      EXPECT_OK(cuStreamIsCapturing(s, &status));
      EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
      CUgraph graph = nullptr;
      EXPECT_EQ(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
      return result;
    };
    EXPECT_EQ(after([](CUstream s) { return cuStreamSynchronize(s); }), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_EQ(after([](CUstream s) { return cuStreamQuery(s); }), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_EQ(after([](CUstream) { return cuCtxSynchronize(); }), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_EQ(after([](CUstream) {
                CUdeviceptr address = 0;
                return cuMemAlloc_v2(&address, 512);
              }),
              CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_EQ(after([](CUstream) { return cuEventRecord(NewEvent(), nullptr); }), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  });
}

TEST_F(GraphTest, GivenARelaxedThreadWhenCapturingThenMemoryMayBeAllocated) {
  RunWithContext([] {
    CUstream s = NewStream();
    ASSERT_OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    EXPECT_OK(cuThreadExchangeStreamCaptureMode(&mode));
    EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUdeviceptr address = 0;
    EXPECT_OK(cuMemAlloc_v2(&address, 512));
    EXPECT_OK(cuThreadExchangeStreamCaptureMode(&mode));
    CUgraph graph = nullptr;
    EXPECT_OK(cuStreamEndCapture(s, &graph));
  });
}

TEST_F(GraphTest, GivenCapturedAllocation_WhenLaunched_ThenChargedUntilTrimmed) {
  RunWithContext([] {
    CUstream s = NewStream();
    const std::uint64_t before = Used();
    ASSERT_OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CUdeviceptr address = 0;
    EXPECT_OK(cuMemAllocAsync(&address, 4 * kMiB, s));
    EXPECT_OK(cuMemsetD8Async(address, 3, 4 * kMiB, s));
    EXPECT_OK(cuMemFreeAsync(address, s));
    CUgraph graph = nullptr;
    ASSERT_OK(cuStreamEndCapture(s, &graph));
    EXPECT_EQ(CountNodes(graph), 3U);
    CUgraphExec exec = Ready(graph);
    EXPECT_OK(cuGraphLaunch(exec, s));
    EXPECT_OK(cuStreamSynchronize(s));
    EXPECT_EQ(Used() - before, 4 * kMiB);
    std::uint64_t in_use = 1;
    EXPECT_OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &in_use));
    EXPECT_EQ(in_use, 0U);
    EXPECT_OK(cuDeviceGraphMemTrim(0));
    EXPECT_EQ(Used(), before);
  });
}

// A graph that allocates and leaves the free to others.
CUgraph AllocatingGraph(CUstream s, CUdeviceptr* address) {
  CUgraph graph = nullptr;
  EXPECT_OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_OK(cuMemAllocAsync(address, 4 * kMiB, s));
  EXPECT_OK(cuStreamEndCapture(s, &graph));
  return graph;
}

TEST_F(GraphTest, GivenUnfreedGraphAllocation_WhenLaunchedAgain_ThenRefused) {
  RunWithContext([] {
    const Gpu gpu;
    CUstream s = NewStream();
    CUdeviceptr address = 0;
    CUgraphExec exec = Ready(AllocatingGraph(s, &address));
    const std::uint64_t before = Used();
    EXPECT_EQ(cuMemFreeAsync(address, s), CUDA_ERROR_INVALID_VALUE);  // not launched yet
    EXPECT_OK(cuGraphLaunch(exec, s));
    EXPECT_EQ(cuGraphLaunch(exec, s), CUDA_ERROR_INVALID_VALUE);
    // The free need only be asked for: the launch comes after it in the stream.
    EXPECT_OK(gpu.Launch(s, kMilli));
    EXPECT_OK(cuMemFreeAsync(address, s));
    EXPECT_EQ(cuMemFreeAsync(address, s), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuGraphLaunch(exec, s));
    EXPECT_OK(cuStreamSynchronize(s));
    std::uint64_t in_use = 0;
    EXPECT_OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &in_use));
    EXPECT_EQ(in_use, 4 * kMiB);
    EXPECT_OK(cuMemFree_v2(address));
    EXPECT_EQ(cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &in_use));
    EXPECT_EQ(in_use, 0U);
    EXPECT_OK(cuDeviceGraphMemTrim(0));
    EXPECT_EQ(Used(), before);
  });
}

TEST_F(GraphTest, GivenAutoFreeOnLaunch_WhenLaunchedTwice_ThenMemoryThereOnce) {
  RunWithContext([] {
    CUstream s = NewStream();
    CUdeviceptr address = 0;
    CUgraph graph = AllocatingGraph(s, &address);
    CUgraphExec exec = nullptr;
    ASSERT_OK(cuGraphInstantiateWithFlags(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
    for (int i = 0; i < 3; ++i) EXPECT_OK(cuGraphLaunch(exec, s));
    EXPECT_OK(cuStreamSynchronize(s));
    std::uint64_t in_use = 0;
    EXPECT_OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &in_use));
    EXPECT_EQ(in_use, 4 * kMiB);
    EXPECT_OK(cuMemFreeAsync(address, s));
    EXPECT_OK(cuStreamSynchronize(s));
    EXPECT_OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &in_use));
    EXPECT_EQ(in_use, 0U);
  });
}

TEST_F(GraphTest, GivenAnUpdateWhenTheShapeIsTheSameThenTheNewParametersCount) {
  RunWithContext([] {
    const Gpu gpu;
    CUgraph one = nullptr;
    CUgraph two = nullptr;
    ASSERT_OK(cuGraphCreate(&one, 0));
    ASSERT_OK(cuGraphCreate(&two, 0));
    CUgraphNode node = AddSpin(gpu, one, {}, 10 * kMicro, 1);
    AddSpin(gpu, two, {}, 30 * kMicro, 1);
    CUgraphExec exec = Ready(one);
    CUgraphExecUpdateResultInfo info = {};
    EXPECT_OK(cuGraphExecUpdate_v2(exec, two, &info));
    EXPECT_EQ(TimeOf(exec), 30 * kMicro);
    AddSpin(gpu, two, {}, 30 * kMicro, 1);
    EXPECT_EQ(cuGraphExecUpdate_v2(exec, two, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    CUDA_KERNEL_NODE_PARAMS_v2 params = {};
    EXPECT_OK(cuGraphKernelNodeGetParams_v2(node, &params));
    EXPECT_EQ(*static_cast<std::uint64_t*>(params.kernelParams[0]), 10'000U);
  });
}

TEST_F(GraphTest, GivenADisabledNodeWhenLaunchedThenItIsSkipped) {
  RunWithContext([] {
    const Gpu gpu;
    CUgraph graph = nullptr;
    ASSERT_OK(cuGraphCreate(&graph, 0));
    CUgraphNode a = AddSpin(gpu, graph, {}, 10 * kMicro, 1);
    AddSpin(gpu, graph, {a}, 20 * kMicro, 1);
    CUgraphExec exec = Ready(graph);
    EXPECT_OK(cuGraphNodeSetEnabled(exec, a, 0));
    EXPECT_EQ(TimeOf(exec), 20 * kMicro);
  });
}

// As wide as each other they are submitted as one.
TEST_F(GraphTest, GivenAChainOfKernelsWhenLaunchedThenEachTakesItsTime) {
  RunWithContext([] {
    const Gpu gpu;
    CUgraph graph = nullptr;
    ASSERT_OK(cuGraphCreate(&graph, 0));
    std::vector<CUgraphNode> nodes;
    const auto add = [&](std::int64_t ns, unsigned width) {
      const std::vector<CUgraphNode> before(nodes.empty() ? nodes.end() : nodes.end() - 1, nodes.end());
      nodes.push_back(AddSpin(gpu, graph, before, ns, width));
    };
    for (const unsigned width : {1U, 1U, 4U, 4U, 4U, 2U, 1U}) add(10 * kMicro, width);
    CUgraphExec exec = Ready(graph);
    EXPECT_EQ(TimeOf(exec), 70 * kMicro);
    EXPECT_OK(cuGraphNodeSetEnabled(exec, nodes[3], 0));
    EXPECT_EQ(TimeOf(exec), 60 * kMicro);
    EXPECT_OK(cuGraphNodeSetEnabled(exec, nodes[6], 0));
    EXPECT_EQ(TimeOf(exec), 50 * kMicro);
  });
}

TEST_F(GraphTest, GivenAChildGraphWhenLaunchedThenItsNodesAreInPlace) {
  RunWithContext([] {
    const Gpu gpu;
    CUgraph child = nullptr;
    CUgraph graph = nullptr;
    ASSERT_OK(cuGraphCreate(&child, 0));
    ASSERT_OK(cuGraphCreate(&graph, 0));
    AddSpin(gpu, child, {}, 10 * kMicro, 1);
    AddSpin(gpu, child, {}, 20 * kMicro, 1);
    CUgraphNode first = AddSpin(gpu, graph, {}, 5 * kMicro, 1);
    CUgraphNode inner = nullptr;
    EXPECT_OK(cuGraphAddChildGraphNode(&inner, graph, &first, 1, child));
    AddSpin(gpu, graph, {inner}, 7 * kMicro, 1);
    EXPECT_EQ(TimeOf(Ready(graph)), 32 * kMicro);
  });
}

TEST_F(GraphTest, GivenUserObject_WhenLastReferenceGoes_ThenDestroyedOnce) {
  RunWithContext([] {
    static std::atomic<int> destroyed{0};
    CUgraph graph = nullptr;
    ASSERT_OK(cuGraphCreate(&graph, 0));
    CUuserObject object = nullptr;
    EXPECT_OK(cuUserObjectCreate(
        &object, nullptr, [](void*) { ++destroyed; }, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    EXPECT_OK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    EXPECT_EQ(destroyed, 0);
    EXPECT_OK(cuGraphDestroy(graph));
    while (destroyed == 0) {
      usleep(100);
    }
    EXPECT_EQ(destroyed, 1);
  });
}

}  // namespace
}  // namespace simgpu::testing
