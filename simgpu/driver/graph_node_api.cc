// SPDX-License-Identifier: Apache-2.0
//
// Nodes of graphs in the API: adding them, and their parameters.
#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "simgpu/driver/engine_state.h"
#include "simgpu/driver/graph.h"

namespace simgpu {
namespace {

// Adds a node that `make(NodeParams*)`, or `make(Graph&, NodeParams*)`, describes, under the lock.
template <typename Make>
CUresult Add(CUgraphNode* out, CUgraph handle, const CUgraphNode* dependencies, const CUgraphEdgeData* edges,
             std::size_t count, Make make) {
  if (out == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const GraphLock lock;
  Graph* graph = FindGraph(handle);
  if (graph == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  NodeParams params;
  if constexpr (std::is_invocable_v<Make, Graph&, NodeParams*>) {
    SIMGPU_TRY(make(*graph, &params));
  } else {
    SIMGPU_TRY(make(&params));
  }
  std::vector<Graph*> inner;
  ForEachInner(params, [&inner](Graph* one) { inner.push_back(one); });
  GraphNode* node = nullptr;
  const CUresult result = AddNode(*graph, dependencies, edges, count, std::move(params), &node);
  if (result != CUDA_SUCCESS) {
    for (Graph* one : inner) {
      DeleteGraph(one);
    }
    return result;
  }
  *out = HandleOf(node);
  return CUDA_SUCCESS;
}

// The node's work of type T; null when the handle is none or the node does something else. Under the lock.
template <typename T>
T* WorkOf(CUgraphNode handle) {
  GraphNode* node = FindNode(handle);
  return node != nullptr ? node->params.As<T>() : nullptr;
}

template <typename Make>
CUresult Set(CUgraphNode handle, Make make) {
  const GraphLock lock;
  GraphNode* node = FindNode(handle);
  if (node == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUgraphNodeType type = node->params.type();
  if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
      type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  NodeParams params;
  SIMGPU_TRY(make(&params));
  return ReplaceParams(*node, std::move(params));
}

template <typename Params>
void TellKernel(KernelNode& node, Params* out) {
  const KernelInfo& info = InfoOf(*node.prepared.kernel);
  node.pointers.clear();
  for (const ParamInfo& param : info.params) {
    node.pointers.push_back(node.packed.data() + param.offset);
  }
  *out = {};
  out->func = node.function;
  out->gridDimX = node.shape.grid[0];
  out->gridDimY = node.shape.grid[1];
  out->gridDimZ = node.shape.grid[2];
  out->blockDimX = node.shape.block[0];
  out->blockDimY = node.shape.block[1];
  out->blockDimZ = node.shape.block[2];
  out->sharedMemBytes = node.shape.shared_bytes;
  out->kernelParams = node.pointers.empty() ? nullptr : node.pointers.data();
}

template <typename Params>
CUresult GetKernel(CUgraphNode handle, Params* out) {
  const GraphLock lock;
  KernelNode* node = WorkOf<KernelNode>(handle);
  if (node == nullptr || out == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  TellKernel(*node, out);
  return CUDA_SUCCESS;
}

CUresult GetEvent(CUgraphNode handle, CUevent* out, bool record) {
  const GraphLock lock;
  const EventNode* node = WorkOf<EventNode>(handle);
  if (node == nullptr || out == nullptr || node->record != record) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *out = node->event;
  return CUDA_SUCCESS;
}

CUresult KernelAttribute(CUgraphNode handle, CUkernelNodeAttrID id, CUkernelNodeAttrValue* get,
                         const CUkernelNodeAttrValue* set) {
  const GraphLock lock;
  KernelNode* node = WorkOf<KernelNode>(handle);
  if (node == nullptr || (get == nullptr && set == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (set != nullptr) {
    const CUlaunchAttribute attribute{id, {}, *set};
    CUevent unused = nullptr;
    SIMGPU_TRY(ApplyLaunchAttributes(&attribute, 1, &node->shape, &unused, &unused));
  }
  auto found = std::find_if(node->attributes.begin(), node->attributes.end(),
                            [id](const auto& entry) { return entry.first == id; });
  if (set != nullptr) {
    if (found == node->attributes.end()) {
      found = node->attributes.insert(found, {id, {}});
    }
    found->second = *set;
  } else if (found != node->attributes.end()) {
    *get = found->second;
  } else {
    std::memset(static_cast<void*>(get), 0, sizeof *get);
  }
  return CUDA_SUCCESS;
}

CUresult CopyKernelAttributes(CUgraphNode to, CUgraphNode from) {
  const GraphLock lock;
  KernelNode* dst = WorkOf<KernelNode>(to);
  const KernelNode* src = WorkOf<KernelNode>(from);
  if (dst == nullptr || src == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  dst->attributes = src->attributes;
  dst->shape.cooperative = src->shape.cooperative;
  dst->shape.cluster = src->shape.cluster;
  return CUDA_SUCCESS;
}

template <typename T, typename Out, typename Get>
CUresult Tell(CUgraphNode handle, Out* out, Get get) {
  const GraphLock lock;
  T* node = WorkOf<T>(handle);
  if (node == nullptr || out == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *out = get(*node);
  return CUDA_SUCCESS;
}

// What the generic functions tell of a node; the arrays in it belong to the node.
struct Describe {
  CUgraphNodeParams& out;
  void operator()(EmptyNode&) const {}
  void operator()(KernelNode& node) const {
    TellKernel(node, &out.kernel);
    out.kernel.ctx = HandleOf(*node.ctx);
  }
  void operator()(CopyNode& node) const {
    out.memcpy.copyCtx = HandleOf(*node.ctx);
    out.memcpy.copyParams = node.params;
  }
  void operator()(FillNode& node) const {
    out.memset.dst = node.params.dst;
    out.memset.pitch = node.params.pitch;
    out.memset.value = node.params.value;
    out.memset.elementSize = node.params.elementSize;
    out.memset.width = node.params.width;
    out.memset.height = node.params.height;
    out.memset.ctx = HandleOf(*node.ctx);
  }
  void operator()(HostNode& node) const {
    out.host.fn = node.fn;
    out.host.userData = node.user_data;
  }
  void operator()(ChildNode& node) const { out.graph.graph = HandleOf(node.graph); }
  void operator()(EventNode& node) const { (node.record ? out.eventRecord.event : out.eventWait.event) = node.event; }
  void operator()(AllocNode& node) const {
    out.alloc.poolProps = node.params.poolProps;
    out.alloc.accessDescs = node.access.data();
    out.alloc.accessDescCount = node.access.size();
    out.alloc.bytesize = node.params.bytesize;
    out.alloc.dptr = node.params.dptr;
  }
  void operator()(FreeNode& node) const { out.free.dptr = node.address; }
  void operator()(MemOpNode& node) const {
    out.memOp.ctx = node.ctx;
    out.memOp.count = static_cast<unsigned>(node.ops.size());
    out.memOp.paramArray = node.ops.data();
    out.memOp.flags = node.flags;
  }
  void operator()(ConditionalNode& node) const {
    out.conditional.handle = node.handle;
    out.conditional.type = node.type;
    out.conditional.size = static_cast<unsigned>(node.bodies.size());
    out.conditional.phGraph_out = node.public_bodies->data();
    out.conditional.ctx = node.ctx;
  }
};

[[maybe_unused]] CUresult GetParams(CUgraphNode handle, CUgraphNodeParams* out) {
  const GraphLock lock;
  GraphNode* node = FindNode(handle);
  if (node == nullptr || out == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::memset(static_cast<void*>(out), 0, sizeof *out);
  out->type = node->params.type();
  std::visit(Describe{*out}, node->params.work);
  return CUDA_SUCCESS;
}

CUresult AddAny(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, const CUgraphEdgeData* edges,
                std::size_t count, CUgraphNodeParams* params) {
  return Add(out, graph, dependencies, edges, count, [params](Graph& of, NodeParams* made) {
    const bool conditional = params != nullptr && params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL;
    return conditional ? MakeConditionalNode(of, &params->conditional, made) : MakeNode(params, made);
  });
}

template <typename Params>
CUresult AddKernel(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, std::size_t count, const Params* p,
                   CUkernel kern, CUcontext ctx) {
  return Add(out, graph, dependencies, nullptr, count, [&](NodeParams* made) {
    return MakeKernelNode(p->func, kern, ctx, ShapeOf(*p), p->kernelParams, p->extra, made);
  });
}

template <typename Params>
CUresult SetKernel(CUgraphNode node, const Params* p, CUkernel kern, CUcontext ctx) {
  return Set(node, [&](NodeParams* made) {
    return MakeKernelNode(p->func, kern, ctx, ShapeOf(*p), p->kernelParams, p->extra, made);
  });
}

}  // namespace
}  // namespace simgpu

using simgpu::Add;
using simgpu::NodeParams;
using simgpu::Set;

CUresult cuGraphAddKernelNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                              const CUDA_KERNEL_NODE_PARAMS_v1* params) {
  SIMGPU_ENTER(cuGraphAddKernelNode);
  return params == nullptr ? CUDA_ERROR_INVALID_VALUE
                           : simgpu::AddKernel(out, graph, dependencies, count, params, nullptr, nullptr);
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                 const CUDA_KERNEL_NODE_PARAMS_v2* params) {
  SIMGPU_ENTER(cuGraphAddKernelNode_v2);
  return params == nullptr ? CUDA_ERROR_INVALID_VALUE
                           : simgpu::AddKernel(out, graph, dependencies, count, params, params->kern, params->ctx);
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1* params) {
  SIMGPU_ENTER(cuGraphKernelNodeGetParams);
  return simgpu::GetKernel(node, params);
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2* params) {
  SIMGPU_ENTER(cuGraphKernelNodeGetParams_v2);
  return simgpu::GetKernel(node, params);
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* params) {
  SIMGPU_ENTER(cuGraphKernelNodeSetParams);
  return params == nullptr ? CUDA_ERROR_INVALID_VALUE : simgpu::SetKernel(node, params, nullptr, nullptr);
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2* params) {
  SIMGPU_ENTER(cuGraphKernelNodeSetParams_v2);
  return params == nullptr ? CUDA_ERROR_INVALID_VALUE : simgpu::SetKernel(node, params, params->kern, params->ctx);
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode node, CUkernelNodeAttrID id, CUkernelNodeAttrValue* value) {
  SIMGPU_ENTER(cuGraphKernelNodeGetAttribute);
  return simgpu::KernelAttribute(node, id, value, nullptr);
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID id, const CUkernelNodeAttrValue* value) {
  SIMGPU_ENTER(cuGraphKernelNodeSetAttribute);
  return simgpu::KernelAttribute(node, id, nullptr, value);
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src) {
  SIMGPU_ENTER(cuGraphKernelNodeCopyAttributes);
  return simgpu::CopyKernelAttributes(dst, src);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                              const CUDA_MEMCPY3D* params, CUcontext ctx) {
  SIMGPU_ENTER(cuGraphAddMemcpyNode);
  return Add(out, graph, dependencies, nullptr, count,
             [&](NodeParams* made) { return simgpu::MakeCopyNode(params, ctx, made); });
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D* params) {
  SIMGPU_ENTER(cuGraphMemcpyNodeGetParams);
  return simgpu::Tell<simgpu::CopyNode>(node, params, [](const simgpu::CopyNode& copy) { return copy.params; });
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D* params) {
  SIMGPU_ENTER(cuGraphMemcpyNodeSetParams);
  return Set(node, [&](NodeParams* made) { return simgpu::MakeCopyNode(params, nullptr, made); });
}

CUresult cuGraphAddMemsetNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                              const CUDA_MEMSET_NODE_PARAMS* params, CUcontext ctx) {
  SIMGPU_ENTER(cuGraphAddMemsetNode);
  return Add(out, graph, dependencies, nullptr, count,
             [&](NodeParams* made) { return simgpu::MakeFillNode(params, ctx, made); });
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* params) {
  SIMGPU_ENTER(cuGraphMemsetNodeGetParams);
  return simgpu::Tell<simgpu::FillNode>(node, params, [](const simgpu::FillNode& fill) { return fill.params; });
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* params) {
  SIMGPU_ENTER(cuGraphMemsetNodeSetParams);
  return Set(node, [&](NodeParams* made) { return simgpu::MakeFillNode(params, nullptr, made); });
}

CUresult cuGraphAddHostNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                            const CUDA_HOST_NODE_PARAMS* params) {
  SIMGPU_ENTER(cuGraphAddHostNode);
  if (params == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return Add(out, graph, dependencies, nullptr, count,
             [&](NodeParams* made) { return simgpu::MakeHostNode(params->fn, params->userData, made); });
}

CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS* params) {
  SIMGPU_ENTER(cuGraphHostNodeGetParams);
  return simgpu::Tell<simgpu::HostNode>(node, params, [](const simgpu::HostNode& host) {
    return CUDA_HOST_NODE_PARAMS{host.fn, host.user_data};
  });
}

CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS* params) {
  SIMGPU_ENTER(cuGraphHostNodeSetParams);
  if (params == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return Set(node, [&](NodeParams* made) { return simgpu::MakeHostNode(params->fn, params->userData, made); });
}

CUresult cuGraphAddChildGraphNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                  CUgraph child) {
  SIMGPU_ENTER(cuGraphAddChildGraphNode);
  return Add(out, graph, dependencies, nullptr, count,
             [&](NodeParams* made) { return simgpu::MakeChildNode(child, made); });
}

CUresult cuGraphAddEmptyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count) {
  SIMGPU_ENTER(cuGraphAddEmptyNode);
  return Add(out, graph, dependencies, nullptr, count, [](NodeParams*) { return CUDA_SUCCESS; });
}

CUresult cuGraphAddEventRecordNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                   CUevent event) {
  SIMGPU_ENTER(cuGraphAddEventRecordNode);
  return Add(out, graph, dependencies, nullptr, count,
             [&](NodeParams* made) { return simgpu::MakeEventNode(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event, made); });
}

CUresult cuGraphAddEventWaitNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                 CUevent event) {
  SIMGPU_ENTER(cuGraphAddEventWaitNode);
  return Add(out, graph, dependencies, nullptr, count,
             [&](NodeParams* made) { return simgpu::MakeEventNode(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event, made); });
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent* event) {
  SIMGPU_ENTER(cuGraphEventRecordNodeGetEvent);
  return simgpu::GetEvent(node, event, true);
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent* event) {
  SIMGPU_ENTER(cuGraphEventWaitNodeGetEvent);
  return simgpu::GetEvent(node, event, false);
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event) {
  SIMGPU_ENTER(cuGraphEventRecordNodeSetEvent);
  return Set(node,
             [&](NodeParams* made) { return simgpu::MakeEventNode(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event, made); });
}

CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event) {
  SIMGPU_ENTER(cuGraphEventWaitNodeSetEvent);
  return Set(node, [&](NodeParams* made) { return simgpu::MakeEventNode(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event, made); });
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                  const CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
  SIMGPU_ENTER(cuGraphAddBatchMemOpNode);
  return Add(out, graph, dependencies, nullptr, count,
             [&](NodeParams* made) { return simgpu::MakeMemOpNode(params, made); });
}

CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
  SIMGPU_ENTER(cuGraphBatchMemOpNodeGetParams);
  return simgpu::Tell<simgpu::MemOpNode>(node, params, [](simgpu::MemOpNode& ops) {
    return CUDA_BATCH_MEM_OP_NODE_PARAMS{ops.ctx, static_cast<unsigned>(ops.ops.size()), ops.ops.data(), ops.flags};
  });
}

CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
  SIMGPU_ENTER(cuGraphBatchMemOpNodeSetParams);
  return Set(node, [&](NodeParams* made) { return simgpu::MakeMemOpNode(params, made); });
}

CUresult cuGraphAddMemAllocNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  SIMGPU_ENTER(cuGraphAddMemAllocNode);
  return Add(out, graph, dependencies, nullptr, count,
             [&](NodeParams* made) { return simgpu::MakeAllocNode(params, made); });
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  SIMGPU_ENTER(cuGraphMemAllocNodeGetParams);
  return simgpu::Tell<simgpu::AllocNode>(node, params, [](const simgpu::AllocNode& alloc) {
    CUDA_MEM_ALLOC_NODE_PARAMS told = alloc.params;
    told.accessDescs = alloc.access.data();
    return told;
  });
}

CUresult cuGraphAddMemFreeNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                               CUdeviceptr address) {
  SIMGPU_ENTER(cuGraphAddMemFreeNode);
  return Add(out, graph, dependencies, nullptr, count,
             [&](NodeParams* made) { return simgpu::MakeFreeNode(address, made); });
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr* address) {
  SIMGPU_ENTER(cuGraphMemFreeNodeGetParams);
  return simgpu::Tell<simgpu::FreeNode>(node, address, [](const simgpu::FreeNode& free) { return free.address; });
}

CUresult cuGraphAddNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                        CUgraphNodeParams* params) {
  SIMGPU_ENTER(cuGraphAddNode);
  return simgpu::AddAny(out, graph, dependencies, nullptr, count, params);
}

CUresult cuGraphAddNode_v2(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                           const CUgraphEdgeData* edges, size_t count, CUgraphNodeParams* params) {
  SIMGPU_ENTER(cuGraphAddNode_v2);
  return simgpu::AddAny(out, graph, dependencies, edges, count, params);
}

CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams* params) {
  SIMGPU_ENTER(cuGraphNodeSetParams);
  return Set(node, [&](NodeParams* made) { return simgpu::MakeNode(params, made); });
}

#if CUDA_VERSION >= 13020
CUresult cuGraphNodeGetParams(CUgraphNode node, CUgraphNodeParams* params) {
  SIMGPU_ENTER(cuGraphNodeGetParams);
  return simgpu::GetParams(node, params);
}
#endif
