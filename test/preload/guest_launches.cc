// SPDX-License-Identifier: Apache-2.0
// Every way to launch, one after the other: work that takes half a millisecond each, under a limit of 20 %.
#include <unistd.h>

#include <chrono>
#include <functional>

#include "test/preload/guest_kernels.h"

namespace guest {
namespace {

using Step = std::function<void()>;

constexpr const char* kImage =
    "simgpu-image 1\n"
    "kernel half\n  cost total 500us\n"  // of one block, so on one SM
    "kernel cheap\n  cost total 5us\n"
    "kernel dear\n  cost total 5ms\n"
    "kernel given\n  param 8\n  cost param 0\n";

CUfunction Kernel(const char* name) {
  static const CUmodule module = LoadImage(kImage);
  return KernelOf(module, name);
}

CUlaunchConfig OneBlock(CUstream stream) {
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  return config;
}

CUDA_KERNEL_NODE_PARAMS KernelNode(const char* name) {
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = Kernel(name);
  params.gridDimX = params.gridDimY = params.gridDimZ = 1;
  params.blockDimX = params.blockDimY = params.blockDimZ = 1;
  return params;
}

CUgraph GraphOf(const char* name, CUgraphNode* node) {
  CUgraph graph = nullptr;
  OK(cuGraphCreate(&graph, 0));
  const CUDA_KERNEL_NODE_PARAMS params = KernelNode(name);
  OK(cuGraphAddKernelNode_v2(node, graph, nullptr, 0, &params));
  return graph;
}

CUgraph GraphOf(const char* name) {
  CUgraphNode node = nullptr;
  return GraphOf(name, &node);
}

CUgraphExec Instantiate(CUgraph graph) {
  CUgraphExec exec = nullptr;
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  return exec;
}

CUgraph Parent(CUgraph child, CUgraphNode* node) {
  CUgraph graph = nullptr;
  OK(cuGraphCreate(&graph, 0));
  OK(cuGraphAddChildGraphNode(node, graph, nullptr, 0, child));
  return graph;
}

CUgraph Conditional(const char* name) {
  CUgraph graph = nullptr;
  OK(cuGraphCreate(&graph, 0));
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  OK(cuGraphConditionalHandleCreate(&params.conditional.handle, graph, nullptr, 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
  params.conditional.type = CU_GRAPH_COND_TYPE_IF;
  params.conditional.size = 1;
  CUgraphNode node = nullptr;
  OK(cuGraphAddNode(&node, graph, nullptr, 0, &params));
  const CUDA_KERNEL_NODE_PARAMS body = KernelNode(name);
  OK(cuGraphAddKernelNode_v2(&node, params.conditional.phGraph_out[0], nullptr, 0, &body));
  return graph;
}

CUgraph Captured(CUstream stream, const Step& begin) {
  CUgraph graph = nullptr;
  begin();
  Launch(Kernel("half"), stream);
  OK(cuStreamEndCapture(stream, &graph));
  return graph;
}

CUstream GreenStream() {
  const CUgreenCtx green = GreenContext(0);
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  OK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
  OK(cuCtxFromGreenCtx(&context, green));
  OK(cuCtxSetCurrent(context));
  return stream;
}

Step KernelStep(const std::string& name, CUfunction f, CUstream s) {
  if (name == "kernel") return [f, s] { Launch(f, s); };
  if (name == "legacy_stream") return [f] { Launch(f, nullptr); };
  if (name == "per_thread_stream") return [f] { Launch(f, CU_STREAM_PER_THREAD); };
  if (name == "kernel_ptsz") return [f] { OK(cuLaunchKernel_ptsz(f, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr)); };
  if (name == "ex") return [f, c = OneBlock(s)] { OK(cuLaunchKernelEx(&c, f, nullptr, nullptr)); };
  if (name == "ex_ptsz") return [f, c = OneBlock(nullptr)] { OK(cuLaunchKernelEx_ptsz(&c, f, nullptr, nullptr)); };
  if (name == "dependent") {  // the next kernel may begin before this one has ended
    return [f, s] {
      CUlaunchAttribute attribute{};
      attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
      attribute.value.programmaticStreamSerializationAllowed = 1;
      CUlaunchConfig config = OneBlock(s);
      config.attrs = &attribute;
      config.numAttrs = 1;
      OK(cuLaunchKernelEx(&config, f, nullptr, nullptr));
    };
  }
  if (name == "cooperative") return [f, s] { OK(cuLaunchCooperativeKernel(f, 1, 1, 1, 1, 1, 1, 0, s, nullptr)); };
  if (name == "cooperative_ptsz") {
    return [f] { OK(cuLaunchCooperativeKernel_ptsz(f, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr)); };
  }
  if (name == "multi_device") {
    return [f, s] {
      CUDA_LAUNCH_PARAMS launch{};
      launch.function = f;
      launch.gridDimX = launch.gridDimY = launch.gridDimZ = 1;
      launch.blockDimX = launch.blockDimY = launch.blockDimZ = 1;
      launch.hStream = s;
      OK(cuLaunchCooperativeKernelMultiDevice(&launch, 1, 0));
    };
  }
  if (name == "green") return [f = Kernel("half"), green = GreenStream()] { Launch(f, green); };
  OK(cuFuncSetBlockShape(f, 1, 1, 1));
  if (name == "launch") return [f] { OK(cuLaunch(f)); };
  if (name == "grid") return [f] { OK(cuLaunchGrid(f, 1, 1)); };
  if (name == "grid_async") return [f, s] { OK(cuLaunchGridAsync(f, 1, 1, s)); };
  return nullptr;
}

Step LibraryStep(CUstream s, bool as_function) {
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  OK(cuLibraryLoadData(&library, kImage, nullptr, nullptr, 0, nullptr, nullptr, 0));
  OK(cuLibraryGetKernel(&kernel, library, "half"));
  auto f = reinterpret_cast<CUfunction>(kernel);
  if (as_function) OK(cuKernelGetFunction(&f, kernel));
  return [f, s] { Launch(f, s); };
}

Step GraphStep(const std::string& name, CUstream s) {
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  const auto mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
  if (name == "graph" || name == "graph_ptsz" || name == "graph_uploaded") graph = GraphOf("half");
  if (name == "child_graph") graph = Parent(GraphOf("half"), &node);
  if (name == "conditional_graph") graph = Conditional("half");
  if (name == "captured") graph = Captured(s, [&] { OK(cuStreamBeginCapture_v2(s, mode)); });
  if (name == "captured_into") {
    CUgraph into = nullptr;
    OK(cuGraphCreate(&into, 0));
    graph = Captured(s, [&] { OK(cuStreamBeginCaptureToGraph(s, into, nullptr, nullptr, 0, mode)); });
  }
  EXPECT(graph != nullptr);
  const CUgraphExec exec = Instantiate(graph);
  if (name == "graph_uploaded") OK(cuGraphUpload(exec, s));
  if (name == "graph_ptsz") return [exec] { OK(cuGraphLaunch_ptsz(exec, nullptr)); };
  return [exec, s] { OK(cuGraphLaunch(exec, s)); };
}

Step StepOf(const std::string& name) {
  const CUstream stream = NewStream();
  if (name == "library_kernel" || name == "library_function") return LibraryStep(stream, name == "library_function");
  if (Step step = KernelStep(name, Kernel("half"), stream); step != nullptr) return step;
  return GraphStep(name, stream);
}

// What the device did, in ns, may not be more than the limit of 20 % allows, whatever is kept for a moment.
void Metered(const Step& step, int times, CUstream stream = nullptr) {
  constexpr double kKept = 12e6;
  const auto begin = Clock::now();
  const uint64_t before = simgpu_busy_ns(0, 0);
  for (int i = 0; i < times; ++i) step();
  OK(stream == nullptr ? cuCtxSynchronize() : cuStreamSynchronize(stream));
  const auto wall = static_cast<double>((Clock::now() - begin) / std::chrono::nanoseconds(1));
  const uint64_t busy = simgpu_busy_ns(0, 0) - before;
  if (static_cast<double>(busy) > 0.2 * wall + kKept) {
    Fail(__FILE__, __LINE__, "ns that the device was busy, beside 20 % of the time", static_cast<long long>(busy),
         static_cast<long long>(0.2 * wall));
  }
}

// metered WAY: tells how long the device was busy.
SCENARIO(metered) {
  Begin();
  alarm(30);
  Metered(StepOf(arguments.at(0)), 80);
  Tell("busy", simgpu_busy_ns(0, 0));
  EXPECT(simgpu_busy_ns(0, 0) >= 39'000'000);
}

// The driver loads the kernel's code when it is launched first, and the GPU waits for it.
SCENARIO(metered_loading) {
  Begin();
  alarm(30);
  const bool graph = arguments.at(0) == "graph";
  const Step step = StepOf(arguments.at(0));
  EXPECT_SAME(simgpu_inject(graph ? "fault call=cuGraphLaunch delay_ms=100 count=1"
                                  : "fault call=cuLaunchKernel delay_ms=100 count=1",
                            nullptr, 0),
              1);
  Metered(step, 80);
  Tell("busy", simgpu_busy_ns(0, 0));
}

// --- an executable graph that comes to cost a thousand times as much

void Update(CUgraphExec exec, CUgraph graph) {
  CUgraphExecUpdateResultInfo info{};
  OK(cuGraphExecUpdate_v2(exec, graph, &info));
}

void UpdateV1(CUgraphExec exec, CUgraph graph) {
  CUgraphNode node = nullptr;
  CUgraphExecUpdateResult result{};
  OK(cuGraphExecUpdate(exec, graph, &node, &result));
}

// metered_update HOW
SCENARIO(metered_update) {
  Begin();
  alarm(30);
  const std::string& how = arguments.at(0);
  const CUstream stream = NewStream();
  CUgraphNode node = nullptr;
  CUgraph graph = GraphOf("cheap", &node);
  if (how == "child") graph = Parent(graph, &node);
  if (how == "enabled") {
    const CUDA_KERNEL_NODE_PARAMS dear = KernelNode("dear");
    CUgraphNode first = node;
    OK(cuGraphAddKernelNode_v2(&node, graph, &first, 1, &dear));
  }
  const CUgraphExec exec = Instantiate(graph);
  if (how == "enabled") OK(cuGraphNodeSetEnabled(exec, node, 0));
  for (int i = 0; i < 2000; ++i) OK(cuGraphLaunch(exec, stream));
  OK(cuStreamSynchronize(stream));

  CUDA_KERNEL_NODE_PARAMS dear = KernelNode("dear");
  if (how == "update") Update(exec, GraphOf("dear"));
  if (how == "update_v1") UpdateV1(exec, GraphOf("dear"));
  if (how == "kernel_node") OK(cuGraphExecKernelNodeSetParams_v2(exec, node, &dear));
  if (how == "kernel_node_v1") {
    CUDA_KERNEL_NODE_PARAMS_v1 old{};
    old.func = dear.func;
    old.gridDimX = old.gridDimY = old.gridDimZ = 1;
    old.blockDimX = old.blockDimY = old.blockDimZ = 1;
    OK(cuGraphExecKernelNodeSetParams(exec, node, &old));
  }
  if (how == "node") {
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_KERNEL;
    params.kernel.func = dear.func;
    params.kernel.gridDimX = params.kernel.gridDimY = params.kernel.gridDimZ = 1;
    params.kernel.blockDimX = params.kernel.blockDimY = params.kernel.blockDimZ = 1;
    OK(cuGraphExecNodeSetParams(exec, node, &params));
  }
  if (how == "child") OK(cuGraphExecChildGraphNodeSetParams(exec, node, GraphOf("dear")));
  if (how == "enabled") OK(cuGraphNodeSetEnabled(exec, node, 1));
  Metered([&] { OK(cuGraphLaunch(exec, stream)); }, 20);
}

// launch_arguments: what a launch is called with reaches the driver as it is, whether it was looked at or not: what is
// wrong is refused as the driver does, and what a kernel is given decides how long it takes.
SCENARIO(launch_arguments) {
  Begin();
  const CUstream stream = NewStream();
  const CUfunction f = Kernel("given");
  uint64_t nanos = 1'000;
  void* params[] = {&nanos};
  size_t size = sizeof nanos;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &nanos, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
  for (const auto launch : {&cuLaunchKernel, &cuLaunchKernel_ptsz}) {
    for (int i = 0; i < 300; ++i) {  // so that a lease pays for the next ones, where there are leases
      OK(launch(f, 2, 3, 4, 5, 6, 7, 8, stream, params, nullptr));
      if (i % 10 == 0) OK(cuStreamSynchronize(stream));
    }
    EXPECT_SAME(launch(nullptr, 2, 3, 4, 5, 6, 7, 8, stream, params, nullptr), CUDA_ERROR_INVALID_HANDLE);
    for (int wrong = 0; wrong < 6; ++wrong) {
      unsigned n[] = {2, 3, 4, 5, 6, 7};
      for (const unsigned value : {0u, ~0u}) {
        if (wrong == 0 && value != 0) continue;  // a grid may be that wide
        n[wrong] = value;
        EXPECT_SAME(launch(f, n[0], n[1], n[2], n[3], n[4], n[5], 8, stream, params, nullptr),
                    CUDA_ERROR_INVALID_VALUE);
      }
    }
    EXPECT_SAME(launch(f, 2, 3, 4, 5, 6, 7, 1 << 20, stream, params, nullptr), CUDA_ERROR_INVALID_VALUE);
    EXPECT_SAME(launch(f, 2, 3, 4, 5, 6, 7, 8, reinterpret_cast<CUstream>(0x123450), params, nullptr),
                CUDA_ERROR_INVALID_HANDLE);
    EXPECT_SAME(launch(f, 2, 3, 4, 5, 6, 7, 8, stream, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
    for (const bool packed : {false, true}) {
      OK(cuStreamSynchronize(stream));
      const uint64_t before = simgpu_busy_ns(0, getpid());
      nanos = 3'000'000;
      OK(launch(f, 2, 3, 4, 5, 6, 7, 8, stream, packed ? nullptr : params, packed ? extra : nullptr));
      OK(cuStreamSynchronize(stream));
      EXPECT(simgpu_busy_ns(0, getpid()) - before >= nanos / 24);  // each block on an SM of its own
      nanos = 1'000;
    }
  }
}

// Graphs of nothing: what is measured of them is next to nothing.
SCENARIO(metered_nothing) {
  Begin();
  alarm(30);
  const CUstream stream = NewStream();
  CUgraph graph = nullptr;
  OK(cuGraphCreate(&graph, 0));
  const CUgraphExec exec = Instantiate(graph);
  for (int i = 0; i < 1000; ++i) OK(cuGraphLaunch(exec, stream));
  OK(cuStreamSynchronize(stream));
}

// Launches that fail are not paid for, and the driver's answer is the program's.
SCENARIO(metered_failing) {
  Begin();
  alarm(30);
  const CUstream stream = NewStream();
  const CUfunction f = Kernel("half");
  for (int i = 0; i < 1000; ++i) {
    EXPECT_SAME(cuLaunchKernel(f, 0, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
    EXPECT_SAME(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 1 << 30, stream, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr) != CUDA_SUCCESS);
    EXPECT(cuLaunchKernelEx(nullptr, f, nullptr, nullptr) != CUDA_SUCCESS);
    EXPECT(cuLaunchCooperativeKernelMultiDevice(nullptr, 1, 0) != CUDA_SUCCESS);
    EXPECT(cuGraphLaunch(nullptr, stream) != CUDA_SUCCESS);
  }
  Launch(f, stream);
  OK(cuStreamSynchronize(stream));
  Tell("busy", simgpu_busy_ns(0, 0));
}

// Two GPUs, of which one may work less: what the other's part waits for is not its cost.
SCENARIO(metered_two_devices) {
  OK(cuInit(0));
  alarm(30);
  CUDA_LAUNCH_PARAMS launches[2] = {};
  for (int device = 0; device < 2; ++device) {
    Begin(device);
    launches[device].function = KernelOf(LoadImage(kImage), "dear");
    launches[device].gridDimX = launches[device].gridDimY = launches[device].gridDimZ = 1;
    launches[device].blockDimX = launches[device].blockDimY = launches[device].blockDimZ = 1;
    launches[device].hStream = NewStream();
  }
  for (int i = 0; i < 20; ++i) OK(cuLaunchCooperativeKernelMultiDevice(launches, 2, 0));
  for (int device = 0; device < 2; ++device) OK(cuStreamSynchronize(launches[device].hStream));
  Tell("busy", simgpu_busy_ns(0, 0));
}

// metered_elsewhere CURRENT WHAT: a library's kernel or a graph runs where its stream is, whatever context is current.
SCENARIO(metered_elsewhere) {
  OK(cuInit(0));
  alarm(30);
  const std::string& current = arguments.at(0);
  Begin();
  const CUstream stream = NewStream();
  const CUgraphExec exec = Instantiate(GraphOf("half"));
  const Step kernel = LibraryStep(stream, false);
  CUcontext context = nullptr;
  if (current == "none") OK(cuCtxSetCurrent(nullptr));
  if (current == "another") OK(cuCtxCreate_v2(&context, 0, 0));
  if (current == "device") context = Begin(1);
  Metered(arguments.at(1) == "graph" ? [&] { OK(cuGraphLaunch(exec, stream)); } : kernel, 80, stream);
  CUcontext now = nullptr;
  OK(cuCtxGetCurrent(&now));
  EXPECT(now == context);
  Tell("busy", simgpu_busy_ns(0, 0));
}

// metered_context HOW: what each launch is in ends, or may end, before anybody came by to see what it took.
SCENARIO(metered_context) {
  Begin();
  alarm(30);
  const std::string& how = arguments.at(0);
  const CUstream stream = NewStream();
  const CUfunction dear = Kernel("dear");
  Metered(
      [&] {
        CUcontext context = nullptr;
        if (how == "released") {
          Launch(dear, stream);
          OK(cuDevicePrimaryCtxRetain(&context, 0));
          OK(cuDevicePrimaryCtxRelease_v2(0));
          return;
        }
        OK(cuCtxCreate_v2(&context, 0, 0));
        Launch(KernelOf(LoadImage(kImage), "dear"), nullptr);
        if (how == "synchronized") OK(cuCtxSynchronize());
        OK(cuCtxDestroy_v2(context));
      },
      40, stream);
}

// metered_job HOW: a process that launches one kernel of 100 ms, waits for it, and ends.
SCENARIO(metered_job) {
  Begin();
  alarm(30);
  const CUfunction f = KernelOf(LoadImage("simgpu-image 1\nkernel long\n  cost total 100ms\n"), "long");
  CUevent end = nullptr;
  OK(cuEventCreate(&end, CU_EVENT_DEFAULT));
  Launch(f, nullptr);
  OK(cuEventRecord(end, nullptr));
  OK(cuEventSynchronize(end));
  Tell("busy", simgpu_busy_ns(0, 0));
}

// metered_threads: each launch by a thread of its own.
SCENARIO(metered_threads) {
  const CUcontext context = Begin();
  alarm(30);
  const CUstream stream = NewStream();
  const CUfunction f = Kernel("cheap");
  for (int i = 0; i < 1000; ++i) {
    std::thread([&] {
      OK(cuCtxSetCurrent(context));
      Launch(f, stream);
    }).join();
  }
  OK(cuStreamSynchronize(stream));
  Tell("busy", simgpu_busy_ns(0, 0));
}

}  // namespace
}  // namespace guest
