// SPDX-License-Identifier: Apache-2.0
//
// What one /filter costs without HTTP: a request as kube-scheduler sends it, with every name, at N nodes × 8 cards and
// 20 running pods a node. `resident_MiB` is the whole process with those books.

#include <benchmark/benchmark.h>

#include <fstream>

#include "scheduler/extender.h"
#include "scheduler/testing/sim_cluster.h"

namespace hami::scheduler {
namespace {

constexpr int kPodsPerNode = 20;

std::string NodeName(int i) { return "gpu-node-" + std::to_string(10000 + i); }

double ResidentMiB() {
  std::ifstream statm("/proc/self/statm");
  double size = 0;
  double resident = 0;
  statm >> size >> resident;
  return resident * 4096 / (1 << 20);
}

struct Setup {
  explicit Setup(int nodes)
      : books(sched::testing::NvidiaOnly(), {}),
        api(cluster),
        lease(api, cluster, {}, {.enabled = false}),
        binder(books, api, cluster, lease, record, {}),
        extender(books, binder, cluster, record, [] { return true; }) {
    Registration registration;
    for (int i = 0; i < nodes; ++i) {
      NodeView view;
      view.name = NodeName(i);
      view.version = "1";
      view.allocatable["nvidia.com/gpu"] = "80";
      view.annotations["hami.io/node-nvidia-register"] = device::EncodeRegisterJson(
          sched::testing::Cards("GPU-0a1b2c3d-aaaa-bbbb-cccc-" + view.name, 8, 81559).devices);
      books.Locked([&](State& state) {
        state.NodeSeen(view);
        registration.Look(state, state.NodeAt(view.name), {1'700'000'000, 0});
      });
      names += (i == 0 ? "\"" : ",\"") + view.name + "\"";
    }
    for (int i = 0; i < nodes * kPodsPerNode; ++i) {
      device::Pod pod =
          sched::testing::PodOf("11111111-2222-3333-4444-running" + std::to_string(i), sched::testing::Wants(1, 8000));
      pod.node_name = NodeName(i % nodes);
      pod.annotations = {{device::kAssignedNode, pod.node_name},
                         {device::kBindPhase, device::kPhaseSuccess},
                         {"hami.io/vgpu-devices-allocated", "GPU-0a1b2c3d-aaaa-bbbb-cccc-" + pod.node_name + "-" +
                                                                std::to_string(i / nodes % 8) + ",NVIDIA,8000,0:;"}};
      books.Locked([&](State& state) { state.PodSeen(pod, 1'700'000'000); });
    }
  }
  // With the managed fields and defaults that a real pod comes with.
  std::string Body(int serial) const {
    std::string padding;
    for (int i = 0; i < 60; ++i) padding += R"("f:field)" + std::to_string(i) + R"(":{"f:name":{},"f:value":{}},)";
    return R"({"Pod":{"metadata":{"name":"pod","namespace":"default","uid":"22222222-3333-4444-5555-)" +
           std::to_string(serial) + R"(","resourceVersion":"123","managedFields":[{"fieldsV1":{)" + padding +
           R"("f:x":{}}}]},"spec":{"containers":[{"name":"c","resources":{"limits":{"nvidia.com/gpu":"1",)" +
           R"("nvidia.com/gpumem":"4000","nvidia.com/gpucores":"10"}}}]}},"Nodes":null,"NodeNames":[)" + names + "]}";
  }

  const RecordEvent record = [](const PodName&, const sched::Event&) {};
  testing::SimCluster cluster;
  Books books;
  testing::SimApi api;
  BindLease lease;
  Binder binder;
  Extender extender;
  std::string names;
};

void BM_Filter(benchmark::State& bench) {
  Setup setup(static_cast<int>(bench.range(0)));
  std::vector<std::string> bodies;
  for (int i = 0; i < 64; ++i) bodies.push_back(setup.Body(i));
  std::size_t next = 0;
  for (auto _ : bench) {
    benchmark::DoNotOptimize(setup.extender.Filter(bodies[next++ % bodies.size()], [] { return false; }));
  }
  bench.counters["resident_MiB"] = ResidentMiB();
  bench.counters["body_KB"] = static_cast<double>(bodies[0].size()) / 1000;
}
BENCHMARK(BM_Filter)->Arg(100)->Arg(1000)->Arg(5000)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace hami::scheduler

BENCHMARK_MAIN();
