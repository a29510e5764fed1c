// SPDX-License-Identifier: Apache-2.0
//
// cuGraphInstantiate*, cuGraphLaunch, cuGraphUpload, cuGraphExec*.
#include <algorithm>
#include <cstring>
#include <utility>

#include "simgpu/driver/capture.h"
#include "simgpu/driver/context.h"
#include "simgpu/driver/engine_state.h"
#include "simgpu/driver/graph.h"
#include "simgpu/driver/graph_exec.h"

namespace simgpu {
namespace {

constexpr unsigned long long kKnownFlags =
    CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
    CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

// Graph memory belongs to one executable graph at a time: the node's reservation is then held by the graph alone.
bool AllocatesAlready(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](GraphNode* node) {
    const AllocNode* alloc = node->params.As<AllocNode>();
    return alloc != nullptr && alloc->reservation.use_count() > 1;
  });
}

CUresult Instantiate(CUgraphExec* out, CUgraph handle, unsigned long long flags, CUgraphInstantiateResult* why) {
  *why = CUDA_GRAPH_INSTANTIATE_ERROR;
  if (out == nullptr || (flags & ~kKnownFlags) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  const GraphLock lock;
  const Graph* graph = FindGraph(handle);
  if (graph == nullptr || graph->capturing) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0 || AllocatesAlready(*graph)) {
    *why = CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  SIMGPU_TRY(CheckConditions(*graph, why));
  const std::size_t nodes = graph->nodes.size();
  SIMGPU_TRY(GraphNodesBegin(*ctx, nodes));
  GraphExec* exec = NewExec();
  Graph* clone = exec != nullptr ? CloneGraph(*graph, true) : nullptr;
  if (clone == nullptr) {
    if (exec != nullptr) {
      DeleteExec(exec);
    }
    GraphNodesEnd(*ctx, nodes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  exec->ctx = ctx;
  exec->flags = flags;
  exec->graph = clone;
  BuildProgram(*exec);
  *out = HandleOf(exec);
  *why = CUDA_GRAPH_INSTANTIATE_SUCCESS;
  return CUDA_SUCCESS;
}

CUresult Instantiate(CUgraphExec* out, CUgraph handle, unsigned long long flags) {
  CUgraphInstantiateResult why = CUDA_GRAPH_INSTANTIATE_SUCCESS;
  return Instantiate(out, handle, flags, &why);
}

CUresult InstantiateV1(CUgraphExec* out, CUgraph graph, CUgraphNode* error_node, char* log, std::size_t size) {
  if (error_node != nullptr) {
    *error_node = nullptr;
  }
  if (log != nullptr && size > 0) {
    log[0] = '\0';
  }
  return Instantiate(out, graph, 0);
}

CUresult Upload(CUgraphExec handle, CUstream stream, bool per_thread) {
  SIMGPU_STREAM(s, stream, per_thread);
  const GraphLock lock;
  return FindExec(handle) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult InstantiateWithParams(CUgraphExec* out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* params,
                               bool per_thread) {
  if (params == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  params->hErrNode_out = nullptr;
  CUresult result = Instantiate(out, graph, params->flags, &params->result_out);
  if (result == CUDA_SUCCESS && (params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0) {
    result = Upload(*out, params->hUploadStream, per_thread);
    if (result != CUDA_SUCCESS) {
      params->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
    }
  }
  return result;
}

// A launch into a captured stream becomes a child graph.
CUresult CaptureGraphLaunch(Stream& s, CUgraphExec handle) {
  NodeParams node;
  {
    const GraphLock lock;
    const GraphExec* exec = FindExec(handle);
    if (exec == nullptr) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (HasConditions(*exec->graph)) {
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    Graph* clone = CloneGraph(*exec->graph, false);
    if (clone == nullptr) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    node.work = ChildNode{clone};
  }
  Graph* clone = node.As<ChildNode>()->graph;
  const CUresult result = CaptureNode(s, std::move(node));
  if (result != CUDA_SUCCESS) {
    const GraphLock lock;
    DeleteGraph(clone);
  }
  return result;
}

CUresult Launch(CUgraphExec handle, CUstream stream, bool per_thread) {
  SIMGPU_STREAM(s, stream, per_thread);
  if (IsCapturing(*s)) {
    return CaptureGraphLaunch(*s, handle);
  }
  SIMGPU_TRY(s->kind == StreamKind::kLegacy ? CheckLegacyUse(*s->ctx) : CUDA_SUCCESS);
  WaitForRoomFor(*s);
  const GraphLock lock;
  GraphExec* exec = FindExec(handle);
  return exec == nullptr ? CUDA_ERROR_INVALID_VALUE : LaunchGraph(*exec, *s);
}

CUresult DestroyExec(CUgraphExec handle) {
  const GraphLock lock;
  GraphExec* exec = FindExec(handle);
  if (exec == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  DeleteExec(exec);
  return CUDA_SUCCESS;
}

bool CanChange(CUgraphNodeType type) {
  return type != CU_GRAPH_NODE_TYPE_MEM_ALLOC && type != CU_GRAPH_NODE_TYPE_MEM_FREE &&
         type != CU_GRAPH_NODE_TYPE_EMPTY && type != CU_GRAPH_NODE_TYPE_CONDITIONAL;
}

// Gives a node of an executable graph new parameters, made by `make(NodeParams*)` under the lock.
template <typename Make>
CUresult SetInExec(CUgraphExec exec_handle, CUgraphNode node_handle, Make make) {
  const GraphLock lock;
  GraphExec* exec = FindExec(exec_handle);
  const GraphNode* node = FindNode(node_handle);
  GraphNode* inner = exec != nullptr && node != nullptr ? NodeIn(*exec, *node) : nullptr;
  if (inner == nullptr || !CanChange(inner->params.type())) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  NodeParams params;
  SIMGPU_TRY(make(&params));
  if (const ChildNode* child = params.As<ChildNode>()) {
    child->graph->hidden = true;
  }
  HeldObjects held;
  const ChildNode* old = inner->params.type() == params.type() ? inner->params.As<ChildNode>() : nullptr;
  if (old != nullptr) {
    TakeUserObjects(*old->graph, &held);
  }
  SIMGPU_TRY(ReplaceParams(*inner, std::move(params)));
  ReleaseAfterLaunches(*exec, std::move(held));
  BuildProgram(*exec);
  return CUDA_SUCCESS;
}

template <typename Params>
CUresult SetKernel(CUgraphExec exec, CUgraphNode node, const Params* p, CUkernel kern, CUcontext ctx) {
  if (p == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  LaunchShape shape;
  shape.grid = {p->gridDimX, p->gridDimY, p->gridDimZ};
  shape.block = {p->blockDimX, p->blockDimY, p->blockDimZ};
  shape.shared_bytes = p->sharedMemBytes;
  return SetInExec(exec, node, [&](NodeParams* out) {
    return MakeKernelNode(p->func, kern, ctx, shape, p->kernelParams, p->extra, out);
  });
}

CUresult SetEnabled(CUgraphExec exec_handle, CUgraphNode node_handle, const unsigned* set, unsigned* get) {
  const GraphLock lock;
  GraphExec* exec = FindExec(exec_handle);
  const GraphNode* node = FindNode(node_handle);
  GraphNode* inner = exec != nullptr && node != nullptr ? NodeIn(*exec, *node) : nullptr;
  if (inner == nullptr || (set == nullptr && get == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUgraphNodeType type = inner->params.type();
  if (type != CU_GRAPH_NODE_TYPE_KERNEL && type != CU_GRAPH_NODE_TYPE_MEMCPY && type != CU_GRAPH_NODE_TYPE_MEMSET) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (set != nullptr) {
    inner->enabled = *set != 0;
  } else {
    *get = inner->enabled ? 1 : 0;
  }
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace simgpu

using simgpu::NodeParams;

CUresult cuGraphInstantiate(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log, size_t size) {
  SIMGPU_ENTER(cuGraphInstantiate);
  return simgpu::InstantiateV1(exec, graph, error_node, log, size);
}

CUresult cuGraphInstantiate_v2(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log, size_t size) {
  SIMGPU_ENTER(cuGraphInstantiate_v2);
  return simgpu::InstantiateV1(exec, graph, error_node, log, size);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  SIMGPU_ENTER(cuGraphInstantiateWithFlags);
  return simgpu::Instantiate(exec, graph, flags & ~0ULL);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  SIMGPU_ENTER(cuGraphInstantiateWithParams);
  return simgpu::InstantiateWithParams(exec, graph, params, false);
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec* exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  SIMGPU_ENTER(cuGraphInstantiateWithParams_ptsz);
  return simgpu::InstantiateWithParams(exec, graph, params, true);
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) {
  SIMGPU_ENTER(cuGraphUpload);
  return simgpu::Upload(exec, stream, false);
}

CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream) {
  SIMGPU_ENTER(cuGraphUpload_ptsz);
  return simgpu::Upload(exec, stream, true);
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  SIMGPU_ENTER(cuGraphLaunch);
  return simgpu::Launch(exec, stream, false);
}

CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) {
  SIMGPU_ENTER(cuGraphLaunch_ptsz);
  return simgpu::Launch(exec, stream, true);
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
  SIMGPU_ENTER(cuGraphExecDestroy);
  return simgpu::DestroyExec(exec);
}

CUresult cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t* flags) {
  SIMGPU_ENTER(cuGraphExecGetFlags);
  const simgpu::GraphLock lock;
  const simgpu::GraphExec* exec = simgpu::FindExec(handle);
  if (exec == nullptr || flags == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *flags = exec->flags;
  return CUDA_SUCCESS;
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* params) {
  SIMGPU_ENTER(cuGraphExecKernelNodeSetParams);
  return simgpu::SetKernel(exec, node, params, nullptr, nullptr);
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS_v2* params) {
  SIMGPU_ENTER(cuGraphExecKernelNodeSetParams_v2);
  return params == nullptr ? CUDA_ERROR_INVALID_VALUE
                           : simgpu::SetKernel(exec, node, params, params->kern, params->ctx);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D* params,
                                        CUcontext ctx) {
  SIMGPU_ENTER(cuGraphExecMemcpyNodeSetParams);
  return simgpu::SetInExec(exec, node, [&](NodeParams* out) { return simgpu::MakeCopyNode(params, ctx, out); });
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* params,
                                        CUcontext ctx) {
  SIMGPU_ENTER(cuGraphExecMemsetNodeSetParams);
  return simgpu::SetInExec(exec, node, [&](NodeParams* out) { return simgpu::MakeFillNode(params, ctx, out); });
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS* params) {
  SIMGPU_ENTER(cuGraphExecHostNodeSetParams);
  if (params == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return simgpu::SetInExec(exec, node,
                           [&](NodeParams* out) { return simgpu::MakeHostNode(params->fn, params->userData, out); });
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child) {
  SIMGPU_ENTER(cuGraphExecChildGraphNodeSetParams);
  return simgpu::SetInExec(exec, node, [&](NodeParams* out) { return simgpu::MakeChildNode(child, out); });
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
  SIMGPU_ENTER(cuGraphExecEventRecordNodeSetEvent);
  return simgpu::SetInExec(
      exec, node, [&](NodeParams* out) { return simgpu::MakeEventNode(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event, out); });
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
  SIMGPU_ENTER(cuGraphExecEventWaitNodeSetEvent);
  return simgpu::SetInExec(
      exec, node, [&](NodeParams* out) { return simgpu::MakeEventNode(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event, out); });
}

CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
  SIMGPU_ENTER(cuGraphExecBatchMemOpNodeSetParams);
  return simgpu::SetInExec(exec, node, [&](NodeParams* out) { return simgpu::MakeMemOpNode(params, out); });
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams* params) {
  SIMGPU_ENTER(cuGraphExecNodeSetParams);
  return simgpu::SetInExec(exec, node, [&](NodeParams* out) { return simgpu::MakeNode(params, out); });
}

CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int enabled) {
  SIMGPU_ENTER(cuGraphNodeSetEnabled);
  return simgpu::SetEnabled(exec, node, &enabled, nullptr);
}

CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int* enabled) {
  SIMGPU_ENTER(cuGraphNodeGetEnabled);
  return simgpu::SetEnabled(exec, node, nullptr, enabled);
}

#if CUDA_VERSION >= 13000
CUresult cuGraphExecGetId(CUgraphExec handle, unsigned int* id) {
  SIMGPU_ENTER(cuGraphExecGetId);
  const simgpu::GraphLock lock;
  const simgpu::GraphExec* exec = simgpu::FindExec(handle);
  if (exec == nullptr || id == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *id = exec->id;
  return CUDA_SUCCESS;
}
#endif
