// SPDX-License-Identifier: Apache-2.0
#include "test/preload/guest_shapes.h"

#include <chrono>
#include <random>
#include <thread>

namespace guest {
namespace {

constexpr const char* kImage =
    "simgpu-image 1\n"
    "kernel us5\n  cost total 660us\n"  // 5 us on the 132 SMs of an H100 when it fills them
    "kernel us20\n  cost total 2640us\n"
    "kernel us500\n  cost total 66ms\n"
    "kernel ms3\n  cost total 396ms\n"
    "kernel ms50\n  cost total 6600ms\n"
    "kernel ms300\n  cost total 39600ms\n"
    "kernel narrow\n  cost total 2ms\n"  // 100 us on 20 SMs: eight streams overlap though a host launches one in 10 us
    "kernel eighth\n  cost total 3200us\n"  // 200 us on 16 SMs
    "kernel block\n  cost per-block 10us\n"
    "kernel nothing\n  cost total 1ns\n"
    "kernel given\n  param 8\n  cost param 0\n";

constexpr unsigned kNarrow = 40;

void LaunchEx(CUfunction function, CUstream stream) {
  CUlaunchConfig config{};
  config.gridDimX = kWide;
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.blockDimX = 1024;
  config.hStream = stream;
  OK(cuLaunchKernelEx(&config, function, nullptr, nullptr));
}

// Launches of one kernel and one grid that last 20 us or longer, by chance: an argument decides. Or so many grids a
// second, one block less each time, so that none is known for long.
std::function<void()> Mixed(CUstream stream, uint64_t longer, double grids = 0) {
  return [f = Kernel("given"), stream, longer, grids, begin = Clock::now(), random = std::minstd_rand()]() mutable {
    uint64_t work = (random() / 4096 % 2 == 0 ? 20'000 : longer) * 132;
    void* params[] = {&work};
    LaunchWide(f, stream, kWide - static_cast<unsigned>(grids * Seconds(begin)), params);
  };
}

// The same, but only one in twenty lasts longer.
std::function<void()> Rarely(CUstream stream, uint64_t longer) {
  return [f = Kernel("given"), stream, longer, random = std::minstd_rand()]() mutable {
    uint64_t work = (random() / 4096 % 20 != 0 ? 10'000 : longer) * 132;
    void* params[] = {&work};
    LaunchWide(f, stream, kWide, params);
  };
}

// Launches of one kernel, of 10 to 80 us, of which no two have the same grid. How long they last goes by that, or is 20
// or 80 us by chance.
std::function<void()> Anew(CUstream stream, bool by_chance) {
  return [f = Kernel(by_chance ? "given" : "block"), stream, launched = 0u, random = std::minstd_rand()]() mutable {
    constexpr unsigned kFewest = 132, kSizes = 924;
    const unsigned blocks = kFewest + launched * 97 % kSizes;
    const unsigned threads = 1024 - launched / kSizes % 300;
    ++launched;
    uint64_t work = (random() / 4096 % 2 == 0 ? 20'000 : 80'000) * 132;
    void* params[] = {&work};
    Launch(f, stream, blocks, threads, params);
  };
}

// Never more than 64 of them.
std::function<void()> InFlight(std::function<void()> launch, CUstream stream) {
  std::vector<CUevent> ring(64);
  for (CUevent& event : ring) OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  return [launch = std::move(launch), stream, ring, next = size_t{0}]() mutable {
    const CUevent event = ring[next++ % ring.size()];
    OK(cuEventSynchronize(event));  // at once where it was never recorded
    launch();
    OK(cuEventRecord(event, stream));
  };
}

CUgraphExec Captured(CUfunction function, int launches) {
  const CUstream stream = NewStream();
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  for (int i = 0; i < launches; ++i) LaunchWide(function, stream);
  OK(cuStreamEndCapture(stream, &graph));
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  return exec;
}

std::function<void()> Synchronised(std::function<void()> launch, CUstream stream) {
  return [launch = std::move(launch), stream] {
    launch();
    OK(cuStreamSynchronize(stream));
  };
}

}  // namespace

CUfunction Kernel(const char* name) {
  static const CUmodule module = LoadImage(kImage);
  return KernelOf(module, name);
}

void LaunchWide(CUfunction function, CUstream stream, unsigned blocks, void** params) {
  Launch(function, stream, blocks, 1024, params);
}

std::function<void()> UpdatedGraph(CUstream stream, std::function<uint64_t()> ns, bool anew) {
  CUDA_KERNEL_NODE_PARAMS node{};
  node.func = Kernel("given");
  node.gridDimX = kWide;
  node.gridDimY = node.gridDimZ = node.blockDimY = node.blockDimZ = 1;
  node.blockDimX = 1024;
  CUgraph graph = nullptr;
  CUgraphNode added = nullptr;
  CUgraphExec exec = nullptr;
  uint64_t work = 132;
  void* params[] = {&work};
  node.kernelParams = params;
  OK(cuGraphCreate(&graph, 0));
  OK(cuGraphAddKernelNode_v2(&added, graph, nullptr, 0, &node));
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  return [ns = std::move(ns), anew, node, graph, added, exec, stream]() mutable {
    uint64_t given = ns() * 132;
    void* given_params[] = {&given};
    node.kernelParams = given_params;
    if (anew) {
      OK(cuGraphExecDestroy(exec));
      OK(cuGraphKernelNodeSetParams_v2(added, &node));
      OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    } else {
      OK(cuGraphExecKernelNodeSetParams_v2(exec, added, &node));
    }
    OK(cuGraphLaunch(exec, stream));
  };
}

std::function<void()> Shape(const std::string& name) {
  const CUstream stream = NewStream();
  if (name == "tiny") return [f = Kernel("us5"), stream] { LaunchWide(f, stream); };
  if (name == "ms3") return [f = Kernel("ms3"), stream] { LaunchWide(f, stream); };
  if (name == "half") return [f = Kernel("us500"), stream] { LaunchWide(f, stream); };
  if (name == "ex") return [f = Kernel("us20"), stream] { LaunchEx(f, stream); };
  if (name == "huge_grid") {  // more than 2^32 blocks: what counts is how long they take (A12)
    return [f = Kernel("us20"), stream] {
      OK(cuLaunchKernel(f, 65536, 65535, 3, 1024, 1, 1, 0, stream, nullptr, nullptr));
    };
  }
  if (name == "cooperative") {
    return
        [f = Kernel("us20"), stream] { OK(cuLaunchCooperativeKernel(f, kWide, 1, 1, 1024, 1, 1, 0, stream, nullptr)); };
  }
  if (name == "multi_device") {
    return [f = Kernel("us20"), stream] {
      CUDA_LAUNCH_PARAMS launch{};
      launch.function = f;
      launch.gridDimX = kWide;
      launch.gridDimY = launch.gridDimZ = launch.blockDimY = launch.blockDimZ = 1;
      launch.blockDimX = 1024;
      launch.hStream = stream;
      OK(cuLaunchCooperativeKernelMultiDevice(&launch, 1, 0));
    };
  }
  if (name == "grid_async") {
    const CUfunction f = Kernel("us20");
    OK(cuFuncSetBlockShape(f, 1024, 1, 1));
    return [f, stream] { OK(cuLaunchGridAsync(f, static_cast<int>(kWide), 1, stream)); };
  }
  if (name == "per_thread") {
    return [f = Kernel("us20")] { OK(cuLaunchKernel_ptsz(f, kWide, 1, 1, 1024, 1, 1, 0, nullptr, nullptr, nullptr)); };
  }
  if (name == "mixed") return InFlight(Mixed(stream, 80'000), stream);
  if (name == "anew" || name == "anew_mixed") return InFlight(Anew(stream, name == "anew_mixed"), stream);
  if (name.starts_with("graph_")) {
    const auto ns = [name, launched = 0u, random = std::minstd_rand()]() mutable -> uint64_t {
      ++launched;
      if (name == "graph_mixed") return launched > 20 && random() / 4096 % 2 == 0 ? 180'000 : 100'000;
      if (name == "graph_dearer") return launched > 40 ? 2'000'000 : 100'000;
      if (name == "graph_anew") return launched % 50 == 0 ? 20'000'000 : 50'000;
      EXPECT(name == "graph_updated");
      return 100'000;
    };
    return InFlight(UpdatedGraph(stream, ns, name == "graph_anew"), stream);
  }
  if (name == "rare") return Rarely(stream, 3'000'000);
  if (name == "mixed_sync") return Synchronised(Mixed(stream, 80'000), stream);
  if (name == "mixed_anew_sync") return Synchronised(Mixed(stream, 80'000, 2), stream);
  if (name == "near_sync") return Synchronised(Mixed(stream, 44'000), stream);
  if (name == "sync20us") return Synchronised([f = Kernel("us20"), stream] { LaunchWide(f, stream); }, stream);
  if (name == "sync50") return Synchronised([f = Kernel("ms50"), stream] { LaunchWide(f, stream); }, stream);
  if (name == "graph") return [exec = Captured(Kernel("us5"), 100), stream] { OK(cuGraphLaunch(exec, stream)); };
  if (name == "step100" || name == "step500") {  // a step of a training: one graph, which is waited for
    const int kernels = name == "step100" ? 2 : 10;
    return Synchronised([exec = Captured(Kernel("ms50"), kernels), stream] { OK(cuGraphLaunch(exec, stream)); },
                        stream);
  }
  if (name == "bursts") {  // 100 ms of work, and as long a rest
    return [f = Kernel("us500"), stream] {
      for (int i = 0; i < 200; ++i) LaunchWide(f, stream);
      OK(cuStreamSynchronize(stream));
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    };
  }
  std::vector<CUstream> streams;
  const bool narrow = name == "streams_narrow";
  const size_t count = name == "streams32" ? 32 : name == "streams100" ? 100 : 8;
  EXPECT(narrow || name == "streams" || count != 8);
  for (size_t i = 0; i < count; ++i) streams.push_back(NewStream());
  return [f = Kernel(narrow ? "narrow" : "us20"), blocks = narrow ? kNarrow : kWide, streams, next = 0u]() mutable {
    LaunchWide(f, streams[next++ % streams.size()], blocks);
  };
}

}  // namespace guest
