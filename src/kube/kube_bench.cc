// SPDX-License-Identifier: Apache-2.0
//
// What a call costs over loopback, and what a LIST of many pods costs in time and memory. Client and fake server share
// the machine (and this process), so the numbers are those of both together.

#include <benchmark/benchmark.h>

#include <string>

#include "kube/reflector.h"
#include "kube/testing/fake_apiserver.h"
#include "kube/views.h"

namespace {

using namespace hami::kube;

json::value PodOf(int number) {
  return {{"metadata",
           {{"name", "pod-" + std::to_string(number)},
            {"namespace", "default"},
            {"labels", {{"app", "bench"}}},
            {"annotations", {{"hami.io/vgpu-devices-allocated", "GPU-0000,NVIDIA,3000,30:;"}}}}},
          {"spec",
           {{"nodeName", "node-1"},
            {"containers", json::array{json::object{{"name", "c"},
                                                    {"image", "registry.example/image:1"},
                                                    {"resources", {{"limits", {{"nvidia.com/gpu", "1"}}}}}}}}}},
          {"status", {{"phase", "Running"}}}};
}

void BM_Get(benchmark::State& state) {
  static FakeApiServer server;
  static const auto client = *Client::Make(server.config());
  if (state.thread_index() == 0) server.Put(kPods, PodOf(0));
  for (auto _ : state) {
    if (!client->Get(kPods, "default", "pod-0")) state.SkipWithError("get failed");
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_Get)->ThreadRange(1, 4)->UseRealTime();

void BM_MergePatch(benchmark::State& state) {
  static FakeApiServer server;
  static const auto client = *Client::Make(server.config());
  const std::string name = "pod-" + std::to_string(state.thread_index());
  server.Put(kPods, PodOf(state.thread_index()));
  int i = 0;
  for (auto _ : state) {
    const json::value patch{{"metadata", {{"annotations", {{"hami.io/bind-time", std::to_string(++i)}}}}}};
    if (!client->Patch(kPods, "default", name, PatchType::kMerge, patch)) state.SkipWithError("patch failed");
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_MergePatch)->ThreadRange(1, 4)->UseRealTime();

void BM_ListPods(benchmark::State& state) {
  FakeApiServer server;
  const auto client = *Client::Make(server.config());
  for (int i = 0; i < state.range(0); ++i) server.Put(kPods, PodOf(i));
  for (auto _ : state) {
    std::int64_t pods = 0;
    ListSink sink;
    sink.item = [&](const json::value& item) { pods += ReadPod(item) ? 1 : 0; };
    if (!client->List(kPods, "", {}, sink) || pods != state.range(0)) state.SkipWithError("list failed");
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_ListPods)->Arg(1000)->Arg(100'000)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
