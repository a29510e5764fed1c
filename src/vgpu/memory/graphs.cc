// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/graphs.h"

#include "vgpu/loader/driver.h"
#include "vgpu/memory/charge.h"
#include "vgpu/memory/memory.h"
#include "vgpu/memory/pool_granularity.h"
#include "vgpu/runtime/capture.h"
#include "vgpu/runtime/device_map.h"
#include "vgpu/runtime/lock.h"
#include "vgpu/runtime/mapped_vector.h"

namespace hami::vgpu {

namespace {

constexpr int kDeepestChild = 16;

uint64_t Attribute(CUdevice ordinal, CUgraphMem_attribute attribute) {
  const RelaxedCapture relaxed;
  cuuint64_t value = 0;
  return real::cuDeviceGetGraphMemAttribute(ordinal, attribute, &value) == CUDA_SUCCESS ? value : 0;
}

// What the nodes of a graph may take of each device. Nodes of one graph may allocate on several.
struct Demand {
  uint64_t bytes[region::kMaxDevices] = {};
  CUdevice ordinals[region::kMaxDevices] = {};
  bool forbidden = false;  // some of it on a device that the container does not have
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
    if (params.poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return;
    const CUdevice ordinal = params.poolProps.location.id;
    const int device = DeviceOfOrdinal(ordinal);
    if (device == kForbidden) demand->forbidden = true;
    if (device < 0) return;
    demand->bytes[device] += RoundUp(params.bytesize, kLeastGranularity);
    demand->ordinals[device] = ordinal;
  }
}

// An executable graph has an entry for each device that it allocates on. Handles are addresses of what is larger than
// this, so those of two graphs do not meet.
uint64_t KeyFor(CUgraphExec exec, int device) { return KeyOf(exec) + static_cast<uint64_t>(device); }
constexpr int kForbiddenKey = region::kMaxDevices;

bool SomeGraphHas(int key) { return (g_memory_flags.graph_devices.load(std::memory_order_relaxed) & 1U << key) != 0; }

void Remember(CUgraphExec exec, int key, int device, CUdevice ordinal, uint64_t bytes) {
  Entry entry;
  entry.key = KeyFor(exec, key);
  entry.bytes = bytes;
  entry.extra = static_cast<uint64_t>(ordinal);
  entry.kind = HandleKind::kGraphExec;
  entry.device = static_cast<int8_t>(device);
  table().Insert(entry);
  g_memory_flags.graph_devices.fetch_or(1U << key, std::memory_order_relaxed);
}

// One device's part of a launch.
struct Part {
  int device = -1;
  CUdevice ordinal = -1;
  uint64_t bytes = 0;
  uint64_t growth = 0;    // reserved for it
  uint64_t reserved = 0;  // by the driver, before
};

void SettleLocked(int device) {
  GraphBook::Device& memory = g_memory.graphs.devices[device];
  if (!memory.ordinal.known()) return;
  const uint64_t reserved = Attribute(memory.ordinal.get(), CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
  if (reserved < memory.charged) Refund(device, memory.charged - reserved, Kind::kData);
  if (reserved > memory.charged) ChargeAnyway(device, reserved - memory.charged, Kind::kData);
  memory.charged = reserved;
}

// Reserves what a launch may take of each device, or nothing. All of it, for what the driver's pool holds unused may be
// in pieces, and a launch can not be undone. Where that does not fit, the unused goes back first.
bool ReserveParts(Part* parts, int count) {
  for (int i = 0; i < count; ++i) {
    Part& part = parts[i];
    SettleGraphs(part.device, part.ordinal);
    const uint64_t step = LearntGranularity(part.device, Grows::kGraph, part.bytes);
    part.growth = RoundUp(part.bytes, step != 0 ? step : kLeastGranularity);
    if (!Reserve(part.device, part.growth, Kind::kData)) {
      while (i-- > 0) Refund(parts[i].device, parts[i].growth, Kind::kData);
      return false;
    }
    part.reserved = Attribute(part.ordinal, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
  }
  return true;
}

}  // namespace

void GraphInstantiated(CUgraph graph, CUgraphExec exec) {
  GraphExecDestroyed(exec);  // one of the same handle may have gone with its context
  Demand demand;
  AddGraph(graph, 0, &demand);
  for (int device = 0; device < static_cast<int>(region::kMaxDevices); ++device) {
    const uint64_t bytes = demand.bytes[device];
    if (bytes != 0) Remember(exec, device, device, demand.ordinals[device], bytes);
  }
  if (demand.forbidden) Remember(exec, kForbiddenKey, kForbidden, -1, 0);
}

void GraphExecDestroyed(CUgraphExec exec) {
  for (int key = 0; key <= kForbiddenKey; ++key) {
    Entry entry;
    if (!SomeGraphHas(key) || !table().Take(HandleKind::kGraphExec, KeyFor(exec, key), &entry)) continue;
    SettleGraphs(entry.device, static_cast<CUdevice>(entry.extra));
  }
}

CUresult LaunchAllocating(CUgraphExec exec, CUresult (*launch)(void*), void* arg) {
  if (!Active()) return launch(arg);
  Part parts[region::kMaxDevices];
  int count = 0;
  for (int key = 0; key <= kForbiddenKey; ++key) {
    Entry entry;
    if (!SomeGraphHas(key) || !table().Find(HandleKind::kGraphExec, KeyFor(exec, key), &entry)) continue;
    if (entry.device == kForbidden) return CUDA_ERROR_OUT_OF_MEMORY;
    parts[count++] = {entry.device, static_cast<CUdevice>(entry.extra), entry.bytes};
  }
  if (count == 0) return launch(arg);
  for (int i = 1; i < count; ++i) SettlePendingModules(parts[i].device);
  const Charging charging(parts[0].device);
  const Locked launching(g_memory.graphs.launch_lock);
  if (!ReserveParts(parts, count)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = launch(arg);
  const Locked locked(g_memory.graphs.lock);
  for (int i = 0; i < count; ++i) {
    const Part& part = parts[i];
    // The reservation becomes part of the pool's charge, and that is then made exact.
    const uint64_t grown = Attribute(part.ordinal, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
    if (result == CUDA_SUCCESS && grown > part.reserved) {
      LearnGranularity(part.device, Grows::kGraph, part.bytes, grown - part.reserved);
    }
    g_memory.graphs.devices[part.device].charged += part.growth;
    SettleLocked(part.device);
  }
  return result;
}

void SettleGraphs(int device, CUdevice ordinal) {
  if (device < 0) return;
  const Locked locked(g_memory.graphs.lock);
  g_memory.graphs.devices[device].ordinal.Learn(ordinal);
  SettleLocked(device);
}

void SettleGraphs(int device) {
  if (device < 0 || !SomeGraphHas(device)) return;
  const Locked locked(g_memory.graphs.lock);
  SettleLocked(device);
}

bool TrimGraphs(int device) {
  if (device < 0 || !SomeGraphHas(device)) return false;
  const Locked locked(g_memory.graphs.lock);
  GraphBook::Device& memory = g_memory.graphs.devices[device];
  const uint64_t before = memory.charged;
  if (!memory.ordinal.known() || before == 0) return false;
  if (Attribute(memory.ordinal.get(), CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) >= before) return false;
  {
    const RelaxedCapture relaxed;
    real::cuDeviceGraphMemTrim(memory.ordinal.get());
  }
  SettleLocked(device);
  return memory.charged < before;
}

void GraphBook::Reset() {
  launch_lock.Reset();
  lock.Reset();
  for (Device& device : devices) {
    device.charged = 0;
    device.ordinal.Reset();
  }
  g_memory_flags.graph_devices.store(0, std::memory_order_relaxed);
}

}  // namespace hami::vgpu
