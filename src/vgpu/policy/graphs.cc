// SPDX-License-Identifier: Apache-2.0
#include "vgpu/policy/graphs.h"

#include "vgpu/loader/driver.h"
#include "vgpu/policy/charge.h"
#include "vgpu/policy/device_map.h"
#include "vgpu/policy/lock.h"
#include "vgpu/policy/pages.h"
#include "vgpu/policy/steps.h"

namespace hami::vgpu {

constinit std::atomic<bool> g_graphs_allocate{false};

namespace {

constexpr int kDeepestChild = 16;

struct GraphMemory {
  uint64_t charged = 0;
  CUdevice ordinal = -1;
};
constinit Lock g_launch_lock{};  // two launches must not count on the same unused memory; taken before any other lock
constinit Lock g_lock{};
constinit GraphMemory g_memory[region::kMaxDevices]{};

uint64_t Attribute(CUdevice ordinal, CUgraphMem_attribute attribute) {
  cuuint64_t value = 0;
  return real::cuDeviceGetGraphMemAttribute(ordinal, attribute, &value) == CUDA_SUCCESS ? value : 0;
}

struct Demand {
  uint64_t bytes = 0;
  CUdevice ordinal = -1;
};

void AddNode(CUgraphNode node, int depth, Demand* demand);

void AddGraph(CUgraph graph, int depth, Demand* demand) {
  size_t count = 0;
  if (depth > kDeepestChild || real::cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS || count == 0) return;
  const size_t bytes = count * sizeof(CUgraphNode);
  auto* const nodes = static_cast<CUgraphNode*>(MapPages(bytes));
  if (nodes == nullptr) return;
  if (real::cuGraphGetNodes(graph, nodes, &count) == CUDA_SUCCESS) {
    for (size_t i = 0; i < count; ++i) AddNode(nodes[i], depth, demand);
  }
  UnmapPages(nodes, bytes);
}

void AddNode(CUgraphNode node, int depth, Demand* demand) {
  CUgraphNodeType type{};
  if (real::cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) return;
  if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
    CUgraph child = nullptr;
    if (real::cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS) AddGraph(child, depth + 1, demand);
  } else if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
    CUDA_MEM_ALLOC_NODE_PARAMS params{};
    if (real::cuGraphMemAllocNodeGetParams(node, &params) != CUDA_SUCCESS) return;
    demand->bytes += RoundUp(params.bytesize, kLeastStep);
    if (params.poolProps.location.type == CU_MEM_LOCATION_TYPE_DEVICE) demand->ordinal = params.poolProps.location.id;
  }
}

void SettleLocked(int device) {
  GraphMemory& memory = g_memory[device];
  if (memory.ordinal < 0) return;
  const uint64_t reserved = Attribute(memory.ordinal, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
  if (reserved < memory.charged) Refund(device, memory.charged - reserved, Kind::kData);
  if (reserved > memory.charged) ChargeAnyway(device, reserved - memory.charged, Kind::kData);
  memory.charged = reserved;
}

}  // namespace

void GraphInstantiated(CUgraph graph, CUgraphExec exec) {
  Demand demand;
  AddGraph(graph, 0, &demand);
  if (demand.bytes == 0 || demand.ordinal < 0) return;
  Entry entry;
  entry.key = KeyOf(exec);
  entry.bytes = demand.bytes;
  entry.extra = static_cast<uint64_t>(demand.ordinal);
  entry.space = Space::kGraphExec;
  entry.device = static_cast<int8_t>(DeviceOfOrdinal(demand.ordinal));
  table().Insert(entry);
  g_graphs_allocate.store(true, std::memory_order_relaxed);
}

void GraphExecDestroyed(CUgraphExec exec) {
  Entry entry;
  if (!table().Take(Space::kGraphExec, KeyOf(exec), &entry)) return;
  SettleGraphs(entry.device, static_cast<CUdevice>(entry.extra));
}

CUresult LaunchAllocating(CUgraphExec exec, CUresult (*launch)(void*), void* arg) {
  Entry entry;
  if (!Active() || !table().Find(Space::kGraphExec, KeyOf(exec), &entry) || entry.device == kUnlimited) {
    return launch(arg);
  }
  if (entry.device == kForbidden) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto ordinal = static_cast<CUdevice>(entry.extra);
  const Charging charging(entry.device);
  const Locked launching(g_launch_lock);
  SettleGraphs(entry.device, ordinal);
  // All of it, for what the pool holds unused may be in pieces, and a launch can not be undone. Where that does not
  // fit, the unused goes back first.
  const uint64_t step = LearntStep(entry.device, Grows::kGraph, entry.bytes);
  const uint64_t growth = RoundUp(entry.bytes, step != 0 ? step : kLeastStep);
  if (!Reserve(entry.device, growth, Kind::kData)) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t reserved = Attribute(ordinal, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
  const CUresult result = launch(arg);
  const Locked locked(g_lock);
  // The reservation becomes part of the pool's charge, and that is then made exact.
  const uint64_t grown = Attribute(ordinal, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
  if (result == CUDA_SUCCESS && grown > reserved) {
    LearnStep(entry.device, Grows::kGraph, entry.bytes, grown - reserved);
  }
  g_memory[entry.device].charged += growth;
  SettleLocked(entry.device);
  return result;
}

void SettleGraphs(int device, CUdevice ordinal) {
  if (device < 0) return;
  const Locked locked(g_lock);
  g_memory[device].ordinal = ordinal;
  SettleLocked(device);
}

void SettleGraphs(int device) {
  if (device < 0 || !g_graphs_allocate.load(std::memory_order_relaxed)) return;
  const Locked locked(g_lock);
  SettleLocked(device);
}

bool TrimGraphs(int device) {
  if (device < 0 || !g_graphs_allocate.load(std::memory_order_relaxed)) return false;
  const Locked locked(g_lock);
  GraphMemory& memory = g_memory[device];
  const uint64_t before = memory.charged;
  if (memory.ordinal < 0 || before == 0) return false;
  if (Attribute(memory.ordinal, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) >= before) return false;
  real::cuDeviceGraphMemTrim(memory.ordinal);
  SettleLocked(device);
  return memory.charged < before;
}

void ResetGraphs() {
  g_launch_lock.Reset();
  g_lock.Reset();
  for (GraphMemory& memory : g_memory) memory = GraphMemory{};
  g_graphs_allocate.store(false, std::memory_order_relaxed);
}

}  // namespace hami::vgpu
