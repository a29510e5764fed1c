// SPDX-License-Identifier: Apache-2.0
// Conditional nodes, whose handles keep their default value.
#include "simgpu/driver/testing/time.h"

namespace simgpu::testing {
namespace {

class ConditionTest : public TimedTest {
 protected:
  // A conditional node at the end of a graph of its own; each body is a kernel of so many microseconds.
  struct Conditional {
    CUgraph graph = nullptr;
    CUgraphConditionalHandle handle = 0;
    CUgraphNode node = nullptr;
    CUgraph* bodies = nullptr;
  };

  static CUgraphConditionalHandle NewHandle(CUgraph graph, unsigned value,
                                            unsigned flags = CU_GRAPH_COND_ASSIGN_DEFAULT) {
    CUgraphConditionalHandle handle = 0;
    EXPECT_OK(cuGraphConditionalHandleCreate(&handle, graph, nullptr, value, flags));
    return handle;
  }

  static CUresult Add(CUgraph graph, CUgraphConditionalHandle handle, CUgraphConditionalNodeType type, unsigned size,
                      CUgraphNode* node, CUgraph** bodies) {
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional.handle = handle;
    params.conditional.type = type;
    params.conditional.size = size;
    const CUresult result = cuGraphAddNode(node, graph, nullptr, 0, &params);
    *bodies = params.conditional.phGraph_out;
    return result;
  }

  static CUgraphNode AddSpin(const Gpu& gpu, CUgraph graph, std::int64_t ns, CUgraphNode after = nullptr) {
    std::uint64_t cost = static_cast<std::uint64_t>(ns) * kSms;
    void* params[] = {&cost};
    CUDA_KERNEL_NODE_PARAMS_v2 p = {};
    p.func = gpu.spin();
    p.gridDimX = kSms;
    p.gridDimY = p.gridDimZ = p.blockDimY = p.blockDimZ = 1;
    p.blockDimX = 1024;
    p.sharedMemBytes = Gpu::kShared;
    p.kernelParams = params;
    CUgraphNode node = nullptr;
    EXPECT_OK(cuGraphAddKernelNode_v2(&node, graph, &after, after != nullptr ? 1 : 0, &p));
    return node;
  }

  static Conditional Make(const Gpu& gpu, CUgraphConditionalNodeType type, unsigned value,
                          std::initializer_list<int> micros, unsigned flags = CU_GRAPH_COND_ASSIGN_DEFAULT) {
    Conditional made;
    EXPECT_OK(cuGraphCreate(&made.graph, 0));
    made.handle = NewHandle(made.graph, value, flags);
    EXPECT_OK(Add(made.graph, made.handle, type, static_cast<unsigned>(micros.size()), &made.node, &made.bodies));
    int i = 0;
    for (const int micro : micros) AddSpin(gpu, made.bodies[i++], micro * kMicro);
    return made;
  }

  static std::int64_t TimeOf(CUgraphExec exec) {
    const CUstream s = NewStream();
    const CUevent start = Mark(s);
    EXPECT_OK(cuGraphLaunch(exec, s));
    const CUevent end = Mark(s);
    EXPECT_OK(cuStreamSynchronize(s));
    return Between(start, end);
  }

  // Of one launch.
  static std::int64_t TimeOf(const Conditional& made) {
    CUgraphExec exec = nullptr;
    EXPECT_OK(cuGraphInstantiateWithFlags(&exec, made.graph, 0));
    const std::int64_t time = TimeOf(exec);
    EXPECT_OK(cuGraphExecDestroy(exec));
    EXPECT_OK(cuGraphDestroy(made.graph));
    return time;
  }
};

TEST_F(ConditionTest, GivenDefaultsWhenLaunchedThenTheyChooseTheBody) {
  RunWithContext([] {
    const Gpu gpu;
    EXPECT_EQ(TimeOf(Make(gpu, CU_GRAPH_COND_TYPE_IF, 1, {30})), 30 * kMicro);
    EXPECT_EQ(TimeOf(Make(gpu, CU_GRAPH_COND_TYPE_IF, 0, {30})), 0);
    EXPECT_EQ(TimeOf(Make(gpu, CU_GRAPH_COND_TYPE_IF, 7, {30, 50})), 30 * kMicro);
    EXPECT_EQ(TimeOf(Make(gpu, CU_GRAPH_COND_TYPE_IF, 0, {30, 50})), 50 * kMicro);
    EXPECT_EQ(TimeOf(Make(gpu, CU_GRAPH_COND_TYPE_SWITCH, 1, {30, 50, 70})), 50 * kMicro);
    EXPECT_EQ(TimeOf(Make(gpu, CU_GRAPH_COND_TYPE_SWITCH, 3, {30, 50, 70})), 0);
    EXPECT_EQ(TimeOf(Make(gpu, CU_GRAPH_COND_TYPE_WHILE, 0, {30})), 0);
    EXPECT_EQ(TimeOf(Make(gpu, CU_GRAPH_COND_TYPE_WHILE, 5, {30})), 30 * kMicro) << "once: nothing ends a loop here";
    EXPECT_EQ(TimeOf(Make(gpu, CU_GRAPH_COND_TYPE_IF, 1, {30, 50}, 0)), 50 * kMicro) << "no default: zero";
  });
}

TEST_F(ConditionTest, GivenNodesAroundThenTheBodyRunsBetweenThem) {
  RunWithContext([] {
    const Gpu gpu;
    CUgraph graph = nullptr;
    ASSERT_OK(cuGraphCreate(&graph, 0));
    const CUgraphNode first = AddSpin(gpu, graph, 10 * kMicro);
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional = {NewHandle(graph, 1), CU_GRAPH_COND_TYPE_IF, 1, nullptr, nullptr};
    CUgraphNode middle = nullptr;
    ASSERT_OK(cuGraphAddNode_v2(&middle, graph, &first, nullptr, 1, &params));
    AddSpin(gpu, params.conditional.phGraph_out[0], 30 * kMicro);
    AddSpin(gpu, graph, 50 * kMicro, middle);
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    EXPECT_OK(cuGraphNodeGetType(middle, &type));
    EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_CONDITIONAL);
    CUgraphExec exec = nullptr;
    ASSERT_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    EXPECT_EQ(TimeOf(exec), 90 * kMicro);
  });
}

TEST_F(ConditionTest, GivenABodyThatIsCapturedIntoThenItsWorkIsTheBodys) {
  RunWithContext([] {
    const Gpu gpu;
    const Conditional outer = Make(gpu, CU_GRAPH_COND_TYPE_IF, 1, {30});
    CUgraphNode node = nullptr;
    CUgraph* inner = nullptr;
    // A handle of the outer graph serves nodes of the graphs inside.
    ASSERT_OK(Add(outer.bodies[0], NewHandle(outer.graph, 1), CU_GRAPH_COND_TYPE_IF, 1, &node, &inner));
    const CUstream stream = NewStream();
    ASSERT_OK(cuStreamBeginCaptureToGraph(stream, inner[0], nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_OK(gpu.Launch(stream, 50 * kMicro));
    CUgraph captured = nullptr;
    EXPECT_OK(cuStreamEndCapture(stream, &captured));
    EXPECT_EQ(captured, inner[0]);
    EXPECT_EQ(cuGraphDestroy(inner[0]), CUDA_ERROR_INVALID_VALUE) << "its node's";
    EXPECT_EQ(TimeOf(outer), 80 * kMicro);
  });
}

TEST_F(ConditionTest, GivenExecutableGraph_WhenUpdated_ThenNewDefaultAndWorkCount) {
  RunWithContext([] {
    const Gpu gpu;
    const Conditional old = Make(gpu, CU_GRAPH_COND_TYPE_IF, 1, {30, 50});
    CUgraphExec exec = nullptr;
    ASSERT_OK(cuGraphInstantiateWithFlags(&exec, old.graph, 0));
    EXPECT_EQ(TimeOf(exec), 30 * kMicro);
    CUgraphNode asleep = nullptr;
    std::size_t one = 1;
    CUDA_KERNEL_NODE_PARAMS_v2 same{};
    ASSERT_OK(cuGraphGetNodes(old.bodies[1], &asleep, &one));
    ASSERT_OK(cuGraphKernelNodeGetParams_v2(asleep, &same));
    EXPECT_OK(cuGraphExecKernelNodeSetParams_v2(exec, asleep, &same)) << "a node of the body that does not run";
    CUgraphExecUpdateResultInfo info{};
    const Conditional fresh = Make(gpu, CU_GRAPH_COND_TYPE_IF, 0, {40, 60});
    EXPECT_OK(cuGraphExecUpdate_v2(exec, fresh.graph, &info));
    EXPECT_EQ(TimeOf(exec), 60 * kMicro);
    const Conditional other = Make(gpu, CU_GRAPH_COND_TYPE_SWITCH, 0, {40, 60});
    EXPECT_EQ(cuGraphExecUpdate_v2(exec, other.graph, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
  });
}

TEST_F(ConditionTest, GivenWhatADriverRefusesThenItIsRefused) {
  RunWithContext([] {
    const Gpu gpu;
    const Conditional made = Make(gpu, CU_GRAPH_COND_TYPE_IF, 1, {30});
    CUgraph graph = nullptr;
    CUgraph* bodies = nullptr;
    CUgraphNode node = nullptr;
    CUgraphConditionalHandle handle = 0;
    ASSERT_OK(cuGraphCreate(&graph, 0));
    EXPECT_EQ(cuGraphConditionalHandleCreate(nullptr, graph, nullptr, 0, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuGraphConditionalHandleCreate(&handle, nullptr, nullptr, 0, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuGraphConditionalHandleCreate(&handle, graph, nullptr, 0, 2), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(Add(graph, made.handle, CU_GRAPH_COND_TYPE_IF, 1, &node, &bodies), CUDA_ERROR_INVALID_VALUE)
        << "another graph's";
    EXPECT_EQ(Add(made.graph, 0xdead, CU_GRAPH_COND_TYPE_IF, 1, &node, &bodies), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(Add(made.graph, made.handle, CU_GRAPH_COND_TYPE_IF, 3, &node, &bodies), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(Add(made.graph, made.handle, CU_GRAPH_COND_TYPE_WHILE, 2, &node, &bodies), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(Add(made.graph, made.handle, CU_GRAPH_COND_TYPE_SWITCH, 0, &node, &bodies), CUDA_ERROR_INVALID_VALUE);
    CUgraph clone = nullptr;
    EXPECT_EQ(cuGraphClone(&clone, made.graph), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(cuGraphAddChildGraphNode(&node, graph, nullptr, 0, made.graph), CUDA_ERROR_NOT_SUPPORTED);
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    EXPECT_EQ(cuGraphNodeSetParams(made.node, &params), CUDA_ERROR_NOT_SUPPORTED);
    CUgraphExec exec = nullptr;
    CUgraphExec second = nullptr;
    ASSERT_OK(cuGraphInstantiateWithFlags(&exec, made.graph, 0));
    EXPECT_EQ(cuGraphInstantiateWithFlags(&second, made.graph, 0), CUDA_ERROR_NOT_SUPPORTED) << "one at a time";
    EXPECT_OK(cuGraphExecDestroy(exec));
    EXPECT_OK(cuGraphInstantiateWithFlags(&second, made.graph, 0));
    EXPECT_OK(cuGraphExecDestroy(second));
    CUDA_HOST_NODE_PARAMS host{};
    host.fn = [](void*) {};
    ASSERT_OK(cuGraphAddHostNode(&node, made.bodies[0], nullptr, 0, &host));
    EXPECT_EQ(cuGraphInstantiateWithFlags(&exec, made.graph, 0), CUDA_ERROR_NOT_SUPPORTED) << "no body holds that";
    NewHandle(graph, 1);
    CUDA_GRAPH_INSTANTIATE_PARAMS how{};
    EXPECT_EQ(cuGraphInstantiateWithParams(&exec, graph, &how), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(how.result_out, CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED);
    EXPECT_OK(cuGraphDestroy(graph));
    EXPECT_OK(cuGraphDestroy(made.graph));
  });
}

}  // namespace
}  // namespace simgpu::testing
