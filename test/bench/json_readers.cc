// SPDX-License-Identifier: Apache-2.0
//
// Our JSON readers beside simdjson's On-Demand, on the three texts that hami-scheduler reads all day: a pod, the names
// of a /filter request, a list of pods. Both read the same into the same structures, which are compared first. What
// simdjson passes over it does not check; `dom` is its parser that checks everything, as ours do. See
// docs/design/decisions.md.

#include <benchmark/benchmark.h>
#include <simdjson.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_cursor.h"
#include "device/pod.h"
#include "kube/scanner.h"

namespace {

using namespace hami;

// As an API server writes one: most of it is of no interest to anybody here.
std::string PodText(int number) {
  std::string fields;
  for (int i = 0; i < 60; ++i) fields += R"("f:field)" + std::to_string(i) + R"(":{"f:name":{},"f:value":{}},)";
  std::string env;
  for (int i = 0; i < 12; ++i) env += R"({"name":"VARIABLE_)" + std::to_string(i) + R"(","value":"a value of it"},)";
  std::string conditions;
  for (const char* type : {"Initialized", "Ready", "ContainersReady", "PodScheduled"}) {
    conditions += R"({"type":")" + std::string(type) +
                  R"(","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-01-01T00:00:00Z"},)";
  }
  conditions.pop_back();
  const std::string serial = std::to_string(number);
  return R"({"kind":"Pod","apiVersion":"v1","metadata":{"name":"train-)" + serial +
         R"(","generateName":"train-","namespace":"research","uid":"22222222-3333-4444-5555-)" + serial +
         R"(","resourceVersion":"1234567","creationTimestamp":"2026-01-01T00:00:00Z","labels":{"app":"train","team":"a"},)" +
         R"("annotations":{"hami.io/vgpu-node":"gpu-node-17","hami.io/bind-phase":"success",)" +
         R"("hami.io/vgpu-devices-allocated":"GPU-0a1b2c3d-aaaa-bbbb-cccc-000000000000,NVIDIA,8000,30:;",)" +
         R"("kubectl.kubernetes.io/last-applied-configuration":"{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"spec\":{}}\n"},)" +
         R"("managedFields":[{"manager":"kubectl","fieldsV1":{)" + fields +
         R"("f:x":{}}}]},"spec":{"nodeName":"gpu-node-17",)" +
         R"("volumes":[{"name":"kube-api-access","projected":{"sources":[{"serviceAccountToken":{"expirationSeconds":3607,)" +
         R"("path":"token"}}],"defaultMode":420}}],"containers":[{"name":"main","image":"registry.example/train:17",)" +
         R"("command":["python3","train.py"],"env":[)" + env + R"({"name":"CUDA_TASK_PRIORITY","value":"1"}],)" +
         R"("resources":{"limits":{"nvidia.com/gpu":"1","nvidia.com/gpumem":"8000","nvidia.com/gpucores":"30"},)" +
         R"("requests":{"cpu":"4","memory":"16Gi"}},"terminationMessagePath":"/dev/termination-log"}],)" +
         R"("restartPolicy":"Always","tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists",)" +
         R"("effect":"NoExecute","tolerationSeconds":300}]},"status":{"phase":"Running","conditions":[)" + conditions +
         R"(],"hostIP":"10.0.0.17","podIP":"10.244.3.7","startTime":"2026-01-01T00:00:00Z"}})";
}

std::string NamesText(int count) {
  std::string text = "[";
  for (int i = 0; i < count; ++i) text += (i == 0 ? "\"" : ",\"") + ("gpu-node-" + std::to_string(10000 + i)) + "\"";
  return text + "]";
}

std::string ListText(int count) {
  std::string text = R"({"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"77"},"items":[)";
  for (int i = 0; i < count; ++i) text += (i == 0 ? "" : ",") + PodText(i);
  return text + "]}";
}

template <typename Value>
void Read(Value value, std::string& out) {
  std::string_view text;
  if (value.get_string().get(text) == simdjson::SUCCESS) out = text;
}

template <typename Object>
void ReadMap(Object object, device::StringMap& out) {
  for (auto field : object) {
    if constexpr (requires { field.key; }) {  // of a document
      Read(field.value, out.emplace_hint(out.end(), std::string(field.key), "")->second);
    } else {
      const std::string key(std::string_view(field.unescaped_key()));
      Read(field.value(), out.emplace_hint(out.end(), key, "")->second);
    }
  }
}

constexpr std::string_view kGroup = "scheduling.x-k8s.io/pod-group";

void ReadContainer(simdjson::ondemand::object object, device::Container& out) {
  for (auto field : object) {
    const std::string_view key = field.unescaped_key();
    if (key == "name") {
      Read(field.value(), out.name);
    } else if (key == "resources") {
      for (auto part : field.value().get_object()) {
        const std::string_view which = part.unescaped_key();
        if (which == "limits") ReadMap(part.value().get_object(), out.limits);
        if (which == "requests") ReadMap(part.value().get_object(), out.requests);
      }
    } else if (key == "env") {
      std::string name;
      std::string value;
      for (auto item : field.value().get_array()) {
        for (auto part : item.get_object()) {
          const std::string_view which = part.unescaped_key();
          if (which == "name") Read(part.value(), name);
          if (which == "value") Read(part.value(), value);
        }
        if (name == "CUDA_DISABLE_CONTROL" || name == "CUDA_OVERSUBSCRIBE" || name == "CUDA_TASK_PRIORITY" ||
            name == "GPU_CORE_UTILIZATION_POLICY") {
          out.terms[name] = value;
        }
      }
    }
  }
}

void ReadOnDemand(simdjson::ondemand::object object, device::Pod& pod) {
  for (auto member : object) {
    const std::string_view key = member.unescaped_key();
    if (key == "metadata") {
      for (auto field : member.value().get_object()) {
        const std::string_view name = field.unescaped_key();
        if (name == "namespace") Read(field.value(), pod.ns);
        if (name == "name") Read(field.value(), pod.name);
        if (name == "uid") Read(field.value(), pod.uid);
        if (name == "annotations") ReadMap(field.value().get_object(), pod.annotations);
      }
    } else if (key == "spec") {
      for (auto field : member.value().get_object()) {
        const std::string_view name = field.unescaped_key();
        if (name == "nodeName") Read(field.value(), pod.node_name);
        if (name != "containers") continue;
        for (auto item : field.value().get_array()) ReadContainer(item.get_object(), pod.containers.emplace_back());
      }
    } else if (key == "status") {
      std::string phase;
      for (auto field : member.value().get_object()) {
        if (std::string_view(field.unescaped_key()) == "phase") Read(field.value(), phase);
      }
      pod.terminated = phase == "Succeeded" || phase == "Failed";
    }
  }
}

void Must(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "json_readers: %s\n", what);
  std::exit(1);
}

void BM_PodOurs(benchmark::State& state) {
  const std::string text = PodText(1);
  for (auto _ : state) benchmark::DoNotOptimize(device::ReadPod(text));
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.size()));
}
BENCHMARK(BM_PodOurs);

void BM_PodOnDemand(benchmark::State& state) {
  const simdjson::padded_string text(PodText(1));
  simdjson::ondemand::parser parser;
  const auto read = [&] {
    device::Pod pod;
    auto document = parser.iterate(text);
    ReadOnDemand(document.get_object(), pod);
    return pod;
  };
  Must(read() == *device::ReadPod(PodText(1)), "the pods differ");
  for (auto _ : state) benchmark::DoNotOptimize(read());
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.size()));
}
BENCHMARK(BM_PodOnDemand);

// What comes from a socket has no padding behind it.
void BM_PodOnDemandCopied(benchmark::State& state) {
  const std::string text = PodText(1);
  simdjson::ondemand::parser parser;
  for (auto _ : state) {
    const simdjson::padded_string padded(text);
    device::Pod pod;
    auto document = parser.iterate(padded);
    ReadOnDemand(document.get_object(), pod);
    benchmark::DoNotOptimize(pod);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.size()));
}
BENCHMARK(BM_PodOnDemandCopied);

// The check of everything alone, nothing read.
void BM_PodDom(benchmark::State& state) {
  const simdjson::padded_string text(PodText(1));
  simdjson::dom::parser parser;
  for (auto _ : state) benchmark::DoNotOptimize(parser.parse(text).error());
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.size()));
}
BENCHMARK(BM_PodDom);

void BM_NamesOurs(benchmark::State& state) {
  const std::string text = NamesText(5000);
  std::vector<std::string_view> names;
  for (auto _ : state) {
    names.clear();
    base::JsonCursor cursor(text);
    Must(cursor.Take('['), "no list");
    cursor.TakePlainStrings(names);
    do {
      bool plain = false;
      Must(cursor.TakeString(names.emplace_back(), plain), "no name");
    } while (cursor.Take(','));
    Must(cursor.Take(']') && names.size() == 5000, "not all names");
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.size()));
}
BENCHMARK(BM_NamesOurs);

void BM_NamesOnDemand(benchmark::State& state) {
  const simdjson::padded_string text(NamesText(5000));
  simdjson::ondemand::parser parser;
  std::vector<std::string_view> names;
  for (auto _ : state) {
    names.clear();
    auto document = parser.iterate(text);
    for (auto item : document.get_array()) names.push_back(item.get_string());
    Must(names.size() == 5000, "not all names");
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.size()));
}
BENCHMARK(BM_NamesOnDemand);

constexpr int kPods = 1000;
constexpr std::size_t kPiece = 16384;

void BM_ListOurs(benchmark::State& state) {
  const std::string text = ListText(kPods);
  for (auto _ : state) {
    int pods = 0;
    kube::ListScanner scanner([&](std::string_view item) -> kube::Status {
      pods += device::ReadPod(item) ? 1 : 0;
      return {};
    });
    for (std::size_t at = 0; at < text.size(); at += kPiece) {
      Must(scanner.Feed(std::string_view(text).substr(at, kPiece)).has_value(), "no list");
    }
    Must(scanner.Finish() && pods == kPods, "not all pods");
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.size()));
}
BENCHMARK(BM_ListOurs)->Unit(benchmark::kMillisecond);

// simdjson reads no document in pieces: all of it is collected first, with its index beside it.
void BM_ListOnDemand(benchmark::State& state) {
  const std::string text = ListText(kPods);
  for (auto _ : state) {
    std::string whole;
    for (std::size_t at = 0; at < text.size(); at += kPiece) whole += std::string_view(text).substr(at, kPiece);
    whole.reserve(whole.size() + simdjson::SIMDJSON_PADDING);
    simdjson::ondemand::parser parser;
    auto document = parser.iterate(whole.data(), whole.size(), whole.capacity());
    int pods = 0;
    for (auto item : document["items"].get_array()) {
      device::Pod pod;
      ReadOnDemand(item.get_object(), pod);
      benchmark::DoNotOptimize(pod);
      ++pods;
    }
    Must(pods == kPods, "not all pods");
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.size()));
}
BENCHMARK(BM_ListOnDemand)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
