// SPDX-License-Identifier: Apache-2.0
//
// From the API's descriptions of nodes to what the graph keeps of them.
#include <algorithm>
#include <cstring>
#include <utility>

#include "simgpu/driver/engine_state.h"
#include "simgpu/driver/graph.h"
#include "simgpu/driver/stream_memop.h"

namespace simgpu {
namespace {

constexpr unsigned kMaxMemOps = 256;

// The context that a node names, the current one if it names none.
CUresult ContextFor(CUcontext handle, Context** out) {
  return handle == nullptr ? NeedContext(out) : ContextOf(handle, out);
}

CUmemorytype TypeOf(bool host) { return host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE; }

}  // namespace

NodeParams KernelNodeParams(Context& ctx, CUfunction function, const LaunchShape& shape,
                            const std::vector<std::byte>& packed, PreparedLaunch&& prepared) {
  KernelNode node;
  node.ctx = &ctx;
  node.function = function;
  node.shape = shape;
  node.packed = packed;
  node.prepared = std::move(prepared);
  NodeParams params;
  params.work = std::move(node);
  return params;
}

NodeParams HostNodeParams(CUhostFn fn, void* user_data) {
  NodeParams params;
  params.work = HostNode{fn, user_data};
  return params;
}

NodeParams EventNodeParams(CUgraphNodeType type, EventObject& event) {
  NodeParams params;
  params.work = EventNode{type == CU_GRAPH_NODE_TYPE_EVENT_RECORD, HandleOf(event)};
  return params;
}

NodeParams MemOpNodeParams(CUcontext ctx, unsigned count, const CUstreamBatchMemOpParams* ops, unsigned flags) {
  NodeParams params;
  params.work = MemOpNode{ctx, flags, {ops, ops + count}};
  return params;
}

NodeParams CopyNodeParams(Context& ctx, const CopyOp& op) {
  CopyNode node;
  node.ctx = &ctx;
  node.op = op;
  CUDA_MEMCPY3D& p = node.params;
  p.srcMemoryType = TypeOf(op.src_machine < 0);
  p.dstMemoryType = TypeOf(op.dst_machine < 0);
  p.srcHost = op.src;
  p.dstHost = op.dst;
  p.srcDevice = reinterpret_cast<CUdeviceptr>(op.src);
  p.dstDevice = reinterpret_cast<CUdeviceptr>(op.dst);
  p.WidthInBytes = op.width;
  p.Height = op.height;
  p.Depth = op.depth;
  p.srcPitch = std::max(op.src_pitch, op.width);
  p.dstPitch = std::max(op.dst_pitch, op.width);
  p.srcHeight = op.src_pitch != 0 ? std::max(op.src_slice / op.src_pitch, op.height) : op.height;
  p.dstHeight = op.dst_pitch != 0 ? std::max(op.dst_slice / op.dst_pitch, op.height) : op.height;
  NodeParams params;
  params.work = node;
  return params;
}

NodeParams FillNodeParams(Context& ctx, const FillOp& op) {
  FillNode node;
  node.ctx = &ctx;
  node.op = op;
  node.params.dst = reinterpret_cast<CUdeviceptr>(op.dst);
  node.params.pitch = op.pitch;
  node.params.value = op.value;
  node.params.elementSize = op.element;
  node.params.width = op.width;
  node.params.height = op.height;
  NodeParams params;
  params.work = node;
  return params;
}

CUresult MakeKernelNode(CUfunction f, CUkernel kern, CUcontext handle, const LaunchShape& shape, void** params,
                        void** extra, NodeParams* out) {
  Context* ctx = nullptr;
  SIMGPU_TRY(ContextFor(handle, &ctx));
  const CUfunction function = f != nullptr ? f : reinterpret_cast<CUfunction>(kern);
  if (function == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  KernelRef kernel;
  SIMGPU_TRY(KernelForLaunch(function, *ctx, &kernel));
  std::vector<std::byte> packed;
  SIMGPU_TRY(PackParams(InfoOf(*kernel), params, extra, &packed));
  PreparedLaunch prepared;
  SIMGPU_TRY(PrepareLaunch(*ctx, std::move(kernel), shape, packed, &prepared));
  *out = KernelNodeParams(*ctx, function, shape, packed, std::move(prepared));
  return CUDA_SUCCESS;
}

CUresult MakeCopyNode(const CUDA_MEMCPY3D* params, CUcontext handle, NodeParams* out) {
  if (params == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CopyNode node;
  SIMGPU_TRY(ContextFor(handle, &node.ctx));
  node.params = *params;
  SIMGPU_TRY(MakeCopy(*params, &node.op));
  out->work = node;
  return CUDA_SUCCESS;
}

CUresult MakeFillNode(const CUDA_MEMSET_NODE_PARAMS* params, CUcontext handle, NodeParams* out) {
  if (params == nullptr || params->width == 0 || params->height == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  FillNode node;
  SIMGPU_TRY(ContextFor(handle, &node.ctx));
  node.params = *params;
  SIMGPU_TRY(MakeFill(params->dst, params->pitch, params->value, params->elementSize, params->width, params->height,
                      &node.op));
  out->work = node;
  return CUDA_SUCCESS;
}

CUresult MakeHostNode(CUhostFn fn, void* user_data, NodeParams* out) {
  if (fn == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *out = HostNodeParams(fn, user_data);
  return CUDA_SUCCESS;
}

CUresult MakeEventNode(CUgraphNodeType type, CUevent handle, NodeParams* out) {
  EventObject* event = FindEvent(handle);
  if (event == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *out = EventNodeParams(type, *event);
  return CUDA_SUCCESS;
}

CUresult MakeAllocNode(CUDA_MEM_ALLOC_NODE_PARAMS* params, NodeParams* out) {
  if (params == nullptr || params->bytesize == 0 || params->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
      params->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      FindDevice(params->poolProps.location.id) == nullptr ||
      (params->accessDescCount > 0 && params->accessDescs == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (params->poolProps.handleTypes != CU_MEM_HANDLE_TYPE_NONE) {
    return CUDA_ERROR_NOT_SUPPORTED;  // graph memory is never shared between processes
  }
  AllocNode node;
  CUdeviceptr address = 0;
  SIMGPU_TRY(GraphReserve(params->poolProps.location.id, params->bytesize, &address));
  node.reservation = std::make_shared<Reservation>(address);
  params->dptr = address;
  node.params = *params;
  if (params->accessDescCount > 0) {
    node.access.assign(params->accessDescs, params->accessDescs + params->accessDescCount);
  }
  out->work = std::move(node);
  return CUDA_SUCCESS;
}

CUresult MakeFreeNode(CUdeviceptr address, NodeParams* out) {
  if (!IsGraphMemory(address)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  out->work = FreeNode{address, false};
  return CUDA_SUCCESS;
}

CUresult MakeMemOpNode(const CUDA_BATCH_MEM_OP_NODE_PARAMS* params, NodeParams* out) {
  if (params == nullptr || params->count > kMaxMemOps || (params->count > 0 && params->paramArray == nullptr) ||
      params->flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Context* ctx = nullptr;
  SIMGPU_TRY(ContextFor(params->ctx, &ctx));
  for (unsigned i = 0; i < params->count; ++i) {
    Op op;
    bool skip = false;
    SIMGPU_TRY(MakeMemOp(params->paramArray[i], &op, &skip));
  }
  *out = MemOpNodeParams(HandleOf(*ctx), params->count, params->paramArray, params->flags);
  return CUDA_SUCCESS;
}

CUresult MakeChildNode(CUgraph handle, NodeParams* out) {
  const Graph* child = FindGraph(handle);
  if (child == nullptr || child->capturing) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // An address that two graphs own at a time could be backed twice.
  const bool allocates = std::any_of(child->nodes.begin(), child->nodes.end(), [](GraphNode* node) {
    return node->params.As<AllocNode>() != nullptr || node->params.As<FreeNode>() != nullptr;
  });
  if (allocates || HasConditions(*child)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  Graph* clone = CloneGraph(*child, false);
  if (clone == nullptr) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  out->work = ChildNode{clone};
  return CUDA_SUCCESS;
}

namespace {

// The generic structure differs from the old one in how it is declared, not in what it holds.
CUresult MakeAllocNodeV2(CUDA_MEM_ALLOC_NODE_PARAMS_v2& params, NodeParams* out) {
  CUDA_MEM_ALLOC_NODE_PARAMS old = {};
  old.poolProps = params.poolProps;
  old.accessDescs = params.accessDescs;
  old.accessDescCount = params.accessDescCount;
  old.bytesize = params.bytesize;
  SIMGPU_TRY(MakeAllocNode(&old, out));
  params.dptr = old.dptr;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult MakeNode(CUgraphNodeParams* p, NodeParams* out) {
  if (p == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  switch (p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return MakeKernelNode(p->kernel.func, p->kernel.kern, p->kernel.ctx, ShapeOf(p->kernel), p->kernel.kernelParams,
                            p->kernel.extra, out);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return MakeCopyNode(&p->memcpy.copyParams, p->memcpy.copyCtx, out);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      CUDA_MEMSET_NODE_PARAMS fill = {};
      fill.dst = p->memset.dst;
      fill.pitch = p->memset.pitch;
      fill.value = p->memset.value;
      fill.elementSize = p->memset.elementSize;
      fill.width = p->memset.width;
      fill.height = p->memset.height;
      return MakeFillNode(&fill, p->memset.ctx, out);
    }
    case CU_GRAPH_NODE_TYPE_HOST:
      return MakeHostNode(p->host.fn, p->host.userData, out);
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return MakeChildNode(p->graph.graph, out);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      out->work = EmptyNode();
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return MakeEventNode(p->type, p->eventWait.event, out);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return MakeEventNode(p->type, p->eventRecord.event, out);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return MakeAllocNodeV2(p->alloc, out);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return MakeFreeNode(p->free.dptr, out);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
      CUDA_BATCH_MEM_OP_NODE_PARAMS ops = {};
      ops.ctx = p->memOp.ctx;
      ops.count = p->memOp.count;
      ops.paramArray = p->memOp.paramArray;
      ops.flags = p->memOp.flags;
      return MakeMemOpNode(&ops, out);
    }
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace simgpu
