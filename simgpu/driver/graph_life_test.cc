// SPDX-License-Identifier: Apache-2.0
// What outlives an executable graph: its launches under way, the memory they use, and what user objects keep for them.
#include <atomic>

#include "simgpu/driver/testing/time.h"

namespace simgpu::testing {
namespace {

class GraphLifeTest : public TimedTest {
 protected:
  static constexpr std::size_t kSize = 4 * kMiB;

  static CUgraphExec Ready(CUgraph graph) {
    CUgraphExec exec = nullptr;
    EXPECT_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
  }

  static CUgraph NewGraph() {
    CUgraph graph = nullptr;
    EXPECT_OK(cuGraphCreate(&graph, 0));
    return graph;
  }

  static CUgraphNode AddAlloc(CUgraph graph, CUdeviceptr* address) {
    CUDA_MEM_ALLOC_NODE_PARAMS params{};
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    params.bytesize = kSize;
    CUgraphNode node = nullptr;
    EXPECT_OK(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &params));
    *address = params.dptr;
    return node;
  }

  static CUgraphNode AddHost(CUgraph graph, CUhostFn fn) {
    CUDA_HOST_NODE_PARAMS params{fn, nullptr};
    CUgraphNode node = nullptr;
    EXPECT_OK(cuGraphAddHostNode(&node, graph, nullptr, 0, &params));
    return node;
  }

  // The graph alone holds an object that counts its end in `destroyed`.
  static void Hold(CUgraph graph, std::atomic<int>* destroyed) {
    CUuserObject object = nullptr;
    EXPECT_OK(cuUserObjectCreate(
        &object, destroyed, [](void* count) { ++*static_cast<std::atomic<int>*>(count); }, 1,
        CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    EXPECT_OK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  }

  static bool Exists(CUdeviceptr address) {
    CUdeviceptr base = 0;
    std::size_t size = 0;
    return cuMemGetAddressRange_v2(&base, &size, address) == CUDA_SUCCESS;
  }

  static std::uint64_t InUse() {
    std::uint64_t in_use = ~std::uint64_t{0};
    EXPECT_OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &in_use));
    return in_use;
  }

  // Destructors run on a thread of the driver's.
  static void Await(const std::atomic<int>& count) {
    while (count == 0) usleep(100);
    EXPECT_EQ(count, 1);
  }
  static void ExpectNone(const std::atomic<int>& count) {
    usleep(20'000);
    EXPECT_EQ(count, 0);
  }
};

TEST_F(GraphLifeTest, GivenUnfreedMemory_WhenItsGraphsGo_ThenItLivesUntilFreed) {
  RunWithContext([] {
    CUstream s = NewStream();
    CUgraph graph = NewGraph();
    CUdeviceptr address = 0;
    AddAlloc(graph, &address);
    CUgraphExec exec = Ready(graph);
    EXPECT_OK(cuGraphLaunch(exec, s));
    EXPECT_OK(cuStreamSynchronize(s));
    EXPECT_OK(cuGraphExecDestroy(exec));
    EXPECT_OK(cuGraphDestroy(graph));
    EXPECT_OK(cuMemsetD8_v2(address, 1, kSize));
    EXPECT_EQ(InUse(), kSize);
    EXPECT_OK(cuMemFreeAsync(address, s));
    EXPECT_OK(cuStreamSynchronize(s));
    EXPECT_EQ(InUse(), 0U);
    EXPECT_FALSE(Exists(address));
  });
}

TEST_F(GraphLifeTest, GivenLaunch_WhenGraphsAreDestroyed_ThenItOwnsMemoryUntilDone) {
  RunWithContext([] {
    const Gpu gpu;
    CUstream s = NewStream();
    CUgraph graph = NewGraph();
    CUdeviceptr address = 0;
    CUgraphNode alloc = AddAlloc(graph, &address);
    CUgraphNode free = nullptr;
    EXPECT_OK(cuGraphAddMemFreeNode(&free, graph, &alloc, 1, address));
    CUgraphExec exec = Ready(graph);
    EXPECT_OK(gpu.Launch(s, kMilli));
    EXPECT_OK(cuGraphLaunch(exec, s));
    EXPECT_OK(cuGraphExecDestroy(exec));
    EXPECT_OK(cuGraphDestroy(graph));
    EXPECT_TRUE(Exists(address));
    EXPECT_EQ(InUse(), kSize);
    EXPECT_OK(cuStreamSynchronize(s));
    EXPECT_FALSE(Exists(address));
    EXPECT_EQ(InUse(), 0U);
  });
}

TEST_F(GraphLifeTest, GivenLaunch_WhenGraphIsDestroyed_ThenUserObjectsEndAfterIt) {
  RunWithContext([] {
    static std::atomic<int> destroyed{0};
    static std::atomic<int> seen{-1};
    const Gpu gpu;
    CUstream s = NewStream();
    CUgraph graph = NewGraph();
    Hold(graph, &destroyed);
    AddHost(graph, [](void*) { seen = destroyed.load(); });
    CUgraphExec exec = Ready(graph);
    EXPECT_OK(cuGraphDestroy(graph));
    EXPECT_OK(gpu.Launch(s, kMilli));
    EXPECT_OK(cuGraphLaunch(exec, s));
    EXPECT_OK(cuGraphExecDestroy(exec));
    ExpectNone(destroyed);
    EXPECT_OK(cuStreamSynchronize(s));
    EXPECT_EQ(seen, 0);
    Await(destroyed);
  });
}

TEST_F(GraphLifeTest, GivenLaunch_WhenItsContextIsDestroyed_ThenUserObjectsEnd) {
  RunWithContext([] {
    static std::atomic<int> destroyed{0};
    CUcontext ctx = nullptr;
    ASSERT_OK(cuCtxCreate_v4(&ctx, nullptr, 0, 0));
    CUstream s = NewStream();
    CUdeviceptr never = 0;
    ASSERT_OK(cuMemAlloc_v2(&never, 4));
    ASSERT_OK(cuMemsetD32_v2(never, 0, 1));
    ASSERT_OK(cuStreamWaitValue32_v2(s, never, 1, CU_STREAM_WAIT_VALUE_EQ));
    CUgraph graph = NewGraph();
    Hold(graph, &destroyed);
    AddHost(graph, [](void*) {});
    CUgraphExec exec = Ready(graph);
    EXPECT_OK(cuGraphDestroy(graph));
    EXPECT_OK(cuGraphLaunch(exec, s));
    EXPECT_OK(cuGraphExecDestroy(exec));
    ExpectNone(destroyed);
    EXPECT_OK(cuCtxDestroy_v2(ctx));
    Await(destroyed);
  });
}

TEST_F(GraphLifeTest, GivenLaunch_WhenUpdated_ThenObjectsSwapAndOldOnesEndAfterIt) {
  RunWithContext([] {
    static std::atomic<int> first{0};
    static std::atomic<int> second{0};
    const Gpu gpu;
    CUstream s = NewStream();
    CUgraph one = NewGraph();
    CUgraph two = NewGraph();
    Hold(one, &first);
    Hold(two, &second);
    AddHost(one, [](void*) {});
    AddHost(two, [](void*) {});
    CUgraphExec exec = Ready(one);
    EXPECT_OK(cuGraphDestroy(one));
    EXPECT_OK(gpu.Launch(s, kMilli));
    EXPECT_OK(cuGraphLaunch(exec, s));
    CUgraphExecUpdateResultInfo info{};
    EXPECT_OK(cuGraphExecUpdate_v2(exec, two, &info));
    EXPECT_OK(cuGraphDestroy(two));
    ExpectNone(first);
    EXPECT_OK(cuStreamSynchronize(s));
    Await(first);
    ExpectNone(second);
    EXPECT_OK(cuGraphExecDestroy(exec));
    Await(second);
  });
}

TEST_F(GraphLifeTest, GivenLaunchUnderWay_WhenChildReplaced_ThenItsObjectsGoAfter) {
  RunWithContext([] {
    static std::atomic<int> destroyed{0};
    const Gpu gpu;
    CUstream s = NewStream();
    CUgraph child = NewGraph();
    Hold(child, &destroyed);
    AddHost(child, [](void*) {});
    CUgraph other = NewGraph();
    AddHost(other, [](void*) {});
    CUgraph graph = NewGraph();
    CUgraphNode node = nullptr;
    EXPECT_OK(cuGraphAddChildGraphNode(&node, graph, nullptr, 0, child));
    CUgraphExec exec = Ready(graph);
    EXPECT_OK(gpu.Launch(s, kMilli));
    EXPECT_OK(cuGraphLaunch(exec, s));
    EXPECT_OK(cuGraphExecChildGraphNodeSetParams(exec, node, other));
    EXPECT_OK(cuGraphDestroy(graph));
    EXPECT_OK(cuGraphDestroy(child));
    ExpectNone(destroyed);
    EXPECT_OK(cuStreamSynchronize(s));
    Await(destroyed);
  });
}

}  // namespace
}  // namespace simgpu::testing
