// SPDX-License-Identifier: Apache-2.0
//
// Functions of the CUDA driver API: streams, events, launches, occupancy, graphs.
#pragma once

#include "abi/cuda_declare.h"

// clang-format off
extern "C" {

// Streams
HAMI_CU(cuStreamCreate, CUstream* stream, unsigned flags);
HAMI_CU(cuStreamCreateWithPriority, CUstream* stream, unsigned flags, int priority);
HAMI_CU(cuStreamDestroy, CUstream stream);
HAMI_CU(cuStreamDestroy_v2, CUstream stream);
HAMI_CU_PTSZ(cuStreamGetPriority, CUstream stream, int* priority);
HAMI_CU_PTSZ(cuStreamGetFlags, CUstream stream, unsigned* flags);
HAMI_CU_PTSZ(cuStreamGetId, CUstream stream, unsigned long long* id);
HAMI_CU_PTSZ(cuStreamGetDevice, CUstream stream, CUdevice* device);
HAMI_CU_PTSZ(cuStreamGetCtx, CUstream stream, CUcontext* ctx);
HAMI_CU_PTSZ(cuStreamGetCtx_v2, CUstream stream, CUcontext* ctx, CUgreenCtx* green);
HAMI_CU(cuStreamGetGreenCtx, CUstream stream, CUgreenCtx* green);
HAMI_CU_PTSZ(cuStreamQuery, CUstream stream);
HAMI_CU_PTSZ(cuStreamSynchronize, CUstream stream);
HAMI_CU_PTSZ(cuStreamWaitEvent, CUstream stream, CUevent event, unsigned flags);
HAMI_CU_PTSZ(cuStreamAddCallback, CUstream stream, CUstreamCallback fn, void* user, unsigned flags);
HAMI_CU_PTSZ(cuStreamAttachMemAsync, CUstream stream, CUdeviceptr ptr, size_t bytes, unsigned flags);
HAMI_CU_PTSZ(cuStreamCopyAttributes, CUstream dst, CUstream src);
HAMI_CU_PTSZ(cuStreamGetAttribute, CUstream stream, CUstreamAttrID id, CUstreamAttrValue* value);
HAMI_CU_PTSZ(cuStreamSetAttribute, CUstream stream, CUstreamAttrID id, const CUstreamAttrValue* value);

// Waiting for and writing memory in stream order
HAMI_CU_PTSZ(cuStreamWaitValue32, CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned flags);
HAMI_CU_PTSZ(cuStreamWaitValue32_v2, CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned flags);
HAMI_CU_PTSZ(cuStreamWaitValue64, CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned flags);
HAMI_CU_PTSZ(cuStreamWaitValue64_v2, CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned flags);
HAMI_CU_PTSZ(cuStreamWriteValue32, CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned flags);
HAMI_CU_PTSZ(cuStreamWriteValue32_v2, CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned flags);
HAMI_CU_PTSZ(cuStreamWriteValue64, CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned flags);
HAMI_CU_PTSZ(cuStreamWriteValue64_v2, CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned flags);
HAMI_CU_PTSZ(cuStreamBatchMemOp, CUstream stream, unsigned count, CUstreamBatchMemOpParams* ops, unsigned flags);
HAMI_CU_PTSZ(cuStreamBatchMemOp_v2, CUstream stream, unsigned count, CUstreamBatchMemOpParams* ops, unsigned flags);

// Capture
HAMI_CU_PTSZ(cuStreamBeginCapture, CUstream stream);
HAMI_CU_PTSZ(cuStreamBeginCapture_v2, CUstream stream, CUstreamCaptureMode mode);
HAMI_CU_PTSZ(cuStreamBeginCaptureToGraph, CUstream stream, CUgraph graph, const CUgraphNode* dependencies,
             const CUgraphEdgeData* edges, size_t count, CUstreamCaptureMode mode);
HAMI_CU_PTSZ(cuStreamEndCapture, CUstream stream, CUgraph* graph);
HAMI_CU_PTSZ(cuStreamIsCapturing, CUstream stream, CUstreamCaptureStatus* status);
HAMI_CU_PTSZ(cuStreamGetCaptureInfo, CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id);
HAMI_CU_PTSZ(cuStreamGetCaptureInfo_v2, CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
             const CUgraphNode** dependencies, size_t* count);
HAMI_CU_PTSZ(cuStreamGetCaptureInfo_v3, CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
             const CUgraphNode** dependencies, const CUgraphEdgeData** edges, size_t* count);
HAMI_CU_PTSZ(cuStreamUpdateCaptureDependencies, CUstream stream, CUgraphNode* dependencies, size_t count,
             unsigned flags);
HAMI_CU_PTSZ(cuStreamUpdateCaptureDependencies_v2, CUstream stream, CUgraphNode* dependencies,
             const CUgraphEdgeData* edges,
             size_t count, unsigned flags);
HAMI_CU(cuThreadExchangeStreamCaptureMode, CUstreamCaptureMode* mode);

// Events
HAMI_CU(cuEventCreate, CUevent* event, unsigned flags);
HAMI_CU(cuEventDestroy, CUevent event);
HAMI_CU(cuEventDestroy_v2, CUevent event);
HAMI_CU_PTSZ(cuEventRecord, CUevent event, CUstream stream);
HAMI_CU_PTSZ(cuEventRecordWithFlags, CUevent event, CUstream stream, unsigned flags);
HAMI_CU(cuEventQuery, CUevent event);
HAMI_CU(cuEventSynchronize, CUevent event);
HAMI_CU(cuEventElapsedTime, float* ms, CUevent start, CUevent end);
HAMI_CU(cuEventElapsedTime_v2, float* ms, CUevent start, CUevent end);

// Launches
HAMI_CU_PTSZ(cuLaunchKernel, CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
             unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void** params, void** extra);
HAMI_CU_PTSZ(cuLaunchKernelEx, const CUlaunchConfig* config, CUfunction function, void** params, void** extra);
HAMI_CU_PTSZ(cuLaunchCooperativeKernel, CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
             unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream,
               void** params);
HAMI_CU(cuLaunchCooperativeKernelMultiDevice, CUDA_LAUNCH_PARAMS* launches, unsigned count, unsigned flags);
HAMI_CU_PTSZ(cuLaunchHostFunc, CUstream stream, CUhostFn fn, void* user);
HAMI_CU_PTSZ(cuLaunchHostFunc_v2, CUstream stream, CUhostFn fn, void* user, unsigned sync_mode);
HAMI_CU(cuLaunch, CUfunction function);
HAMI_CU(cuLaunchGrid, CUfunction function, int grid_x, int grid_y);
HAMI_CU(cuLaunchGridAsync, CUfunction function, int grid_x, int grid_y, CUstream stream);

// Occupancy
HAMI_CU(cuOccupancyMaxActiveBlocksPerMultiprocessor, int* blocks, CUfunction function, int block_size,
        size_t shared_bytes);
HAMI_CU(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, int* blocks, CUfunction function, int block_size,
        size_t shared_bytes, unsigned flags);
HAMI_CU(cuOccupancyMaxPotentialBlockSize, int* min_grid, int* block_size, CUfunction function,
        CUoccupancyB2DSize shared_of,
        size_t shared_bytes, int limit);
HAMI_CU(cuOccupancyMaxPotentialBlockSizeWithFlags, int* min_grid, int* block_size, CUfunction function,
        CUoccupancyB2DSize shared_of, size_t shared_bytes, int limit, unsigned flags);
HAMI_CU(cuOccupancyAvailableDynamicSMemPerBlock, size_t* bytes, CUfunction function, int blocks, int block_size);
HAMI_CU(cuOccupancyMaxPotentialClusterSize, int* size, CUfunction function, const CUlaunchConfig* config);
HAMI_CU(cuOccupancyMaxActiveClusters, int* clusters, CUfunction function, const CUlaunchConfig* config);

// Graphs: life and shape
HAMI_CU(cuGraphCreate, CUgraph* graph, unsigned flags);
HAMI_CU(cuGraphDestroy, CUgraph graph);
HAMI_CU(cuGraphClone, CUgraph* clone, CUgraph graph);
HAMI_CU(cuGraphDestroyNode, CUgraphNode node);
HAMI_CU(cuGraphNodeFindInClone, CUgraphNode* node, CUgraphNode original, CUgraph clone);
HAMI_CU(cuGraphNodeGetType, CUgraphNode node, CUgraphNodeType* type);
HAMI_CU(cuGraphNodeGetContainingGraph, CUgraphNode node, CUgraph* graph);
HAMI_CU(cuGraphNodeGetLocalId, CUgraphNode node, unsigned* id);
HAMI_CU(cuGraphNodeGetToolsId, CUgraphNode node, unsigned long long* id);
HAMI_CU(cuGraphGetId, CUgraph graph, unsigned* id);
HAMI_CU(cuGraphGetNodes, CUgraph graph, CUgraphNode* nodes, size_t* count);
HAMI_CU(cuGraphGetRootNodes, CUgraph graph, CUgraphNode* nodes, size_t* count);
HAMI_CU(cuGraphGetEdges, CUgraph graph, CUgraphNode* from, CUgraphNode* to, size_t* count);
HAMI_CU(cuGraphGetEdges_v2, CUgraph graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* edges, size_t* count);
HAMI_CU(cuGraphNodeGetDependencies, CUgraphNode node, CUgraphNode* nodes, size_t* count);
HAMI_CU(cuGraphNodeGetDependencies_v2, CUgraphNode node, CUgraphNode* nodes, CUgraphEdgeData* edges, size_t* count);
HAMI_CU(cuGraphNodeGetDependentNodes, CUgraphNode node, CUgraphNode* nodes, size_t* count);
HAMI_CU(cuGraphNodeGetDependentNodes_v2, CUgraphNode node, CUgraphNode* nodes, CUgraphEdgeData* edges, size_t* count);
HAMI_CU(cuGraphAddDependencies, CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t count);
HAMI_CU(cuGraphAddDependencies_v2, CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
        const CUgraphEdgeData* edges, size_t count);
HAMI_CU(cuGraphRemoveDependencies, CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t count);
HAMI_CU(cuGraphRemoveDependencies_v2, CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
        const CUgraphEdgeData* edges, size_t count);
HAMI_CU(cuGraphDebugDotPrint, CUgraph graph, const char* path, unsigned flags);
HAMI_CU(cuGraphConditionalHandleCreate, CUgraphConditionalHandle* handle, CUgraph graph, CUcontext ctx,
        unsigned initial,
        unsigned flags);
HAMI_CU(cuUserObjectCreate, CUuserObject* object, void* ptr, CUhostFn destroy, unsigned references, unsigned flags);
HAMI_CU(cuUserObjectRetain, CUuserObject object, unsigned count);
HAMI_CU(cuUserObjectRelease, CUuserObject object, unsigned count);
HAMI_CU(cuGraphRetainUserObject, CUgraph graph, CUuserObject object, unsigned count, unsigned flags);
HAMI_CU(cuGraphReleaseUserObject, CUgraph graph, CUuserObject object, unsigned count);
HAMI_CU(cuDeviceGraphMemTrim, CUdevice device);
HAMI_CU(cuDeviceGetGraphMemAttribute, CUdevice device, CUgraphMem_attribute attribute, void* value);
HAMI_CU(cuDeviceSetGraphMemAttribute, CUdevice device, CUgraphMem_attribute attribute, void* value);

// Graphs: adding nodes. All take the node to fill, the graph, the dependencies and their number first.
#define HAMI_CU_ADD(name, ...) \
  HAMI_CU(name, CUgraphNode* node, CUgraph graph, const CUgraphNode* deps, size_t n, __VA_ARGS__)
HAMI_CU(cuGraphAddEmptyNode, CUgraphNode* node, CUgraph graph, const CUgraphNode* deps, size_t n);
HAMI_CU_ADD(cuGraphAddKernelNode, const CUDA_KERNEL_NODE_PARAMS_v1* params);
HAMI_CU_ADD(cuGraphAddKernelNode_v2, const CUDA_KERNEL_NODE_PARAMS* params);
HAMI_CU_ADD(cuGraphAddMemcpyNode, const CUDA_MEMCPY3D* copy, CUcontext ctx);
HAMI_CU_ADD(cuGraphAddMemsetNode, const CUDA_MEMSET_NODE_PARAMS* params, CUcontext ctx);
HAMI_CU_ADD(cuGraphAddHostNode, const CUDA_HOST_NODE_PARAMS* params);
HAMI_CU_ADD(cuGraphAddChildGraphNode, CUgraph child);
HAMI_CU_ADD(cuGraphAddEventRecordNode, CUevent event);
HAMI_CU_ADD(cuGraphAddEventWaitNode, CUevent event);
HAMI_CU_ADD(cuGraphAddExternalSemaphoresSignalNode, const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS* params);
HAMI_CU_ADD(cuGraphAddExternalSemaphoresWaitNode, const CUDA_EXT_SEM_WAIT_NODE_PARAMS* params);
HAMI_CU_ADD(cuGraphAddBatchMemOpNode, const CUDA_BATCH_MEM_OP_NODE_PARAMS* params);
HAMI_CU_ADD(cuGraphAddMemAllocNode, CUDA_MEM_ALLOC_NODE_PARAMS* params);
HAMI_CU_ADD(cuGraphAddMemFreeNode, CUdeviceptr ptr);
HAMI_CU_ADD(cuGraphAddNode, CUgraphNodeParams* params);
HAMI_CU(cuGraphAddNode_v2, CUgraphNode* node, CUgraph graph, const CUgraphNode* deps, const CUgraphEdgeData* edges,
        size_t n,
        CUgraphNodeParams* params);
HAMI_CU(cuGraphAddNode_v3, CUgraphNode* node, CUgraph graph, const CUgraphNode* deps, const CUgraphEdgeData* edges,
        size_t n,
        CUgraphNodeParams* params);
#undef HAMI_CU_ADD

// Graphs: what nodes hold
HAMI_CU(cuGraphNodeGetParams, CUgraphNode node, CUgraphNodeParams* params);
HAMI_CU(cuGraphNodeSetParams, CUgraphNode node, CUgraphNodeParams* params);
HAMI_CU(cuGraphNodeSetParams_v2, CUgraphNode node, CUgraphNodeParams* params);
HAMI_CU(cuGraphKernelNodeGetParams, CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1* params);
HAMI_CU(cuGraphKernelNodeGetParams_v2, CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* params);
HAMI_CU(cuGraphKernelNodeSetParams, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* params);
HAMI_CU(cuGraphKernelNodeSetParams_v2, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* params);
HAMI_CU(cuGraphKernelNodeCopyAttributes, CUgraphNode dst, CUgraphNode src);
HAMI_CU(cuGraphKernelNodeGetAttribute, CUgraphNode node, CUkernelNodeAttrID id, CUkernelNodeAttrValue* value);
HAMI_CU(cuGraphKernelNodeSetAttribute, CUgraphNode node, CUkernelNodeAttrID id, const CUkernelNodeAttrValue* value);
HAMI_CU(cuGraphMemcpyNodeGetParams, CUgraphNode node, CUDA_MEMCPY3D* copy);
HAMI_CU(cuGraphMemcpyNodeSetParams, CUgraphNode node, const CUDA_MEMCPY3D* copy);
HAMI_CU(cuGraphMemsetNodeGetParams, CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* params);
HAMI_CU(cuGraphMemsetNodeSetParams, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* params);
HAMI_CU(cuGraphHostNodeGetParams, CUgraphNode node, CUDA_HOST_NODE_PARAMS* params);
HAMI_CU(cuGraphHostNodeSetParams, CUgraphNode node, const CUDA_HOST_NODE_PARAMS* params);
HAMI_CU(cuGraphChildGraphNodeGetGraph, CUgraphNode node, CUgraph* child);
HAMI_CU(cuGraphEventRecordNodeGetEvent, CUgraphNode node, CUevent* event);
HAMI_CU(cuGraphEventRecordNodeSetEvent, CUgraphNode node, CUevent event);
HAMI_CU(cuGraphEventWaitNodeGetEvent, CUgraphNode node, CUevent* event);
HAMI_CU(cuGraphEventWaitNodeSetEvent, CUgraphNode node, CUevent event);
HAMI_CU(cuGraphExternalSemaphoresSignalNodeGetParams, CUgraphNode node, CUDA_EXT_SEM_SIGNAL_NODE_PARAMS* params);
HAMI_CU(cuGraphExternalSemaphoresSignalNodeSetParams, CUgraphNode node, const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS* params);
HAMI_CU(cuGraphExternalSemaphoresWaitNodeGetParams, CUgraphNode node, CUDA_EXT_SEM_WAIT_NODE_PARAMS* params);
HAMI_CU(cuGraphExternalSemaphoresWaitNodeSetParams, CUgraphNode node, const CUDA_EXT_SEM_WAIT_NODE_PARAMS* params);
HAMI_CU(cuGraphBatchMemOpNodeGetParams, CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS* params);
HAMI_CU(cuGraphBatchMemOpNodeSetParams, CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS* params);
HAMI_CU(cuGraphMemAllocNodeGetParams, CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* params);
HAMI_CU(cuGraphMemFreeNodeGetParams, CUgraphNode node, CUdeviceptr* ptr);

// Executable graphs
HAMI_CU(cuGraphInstantiate, CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log, size_t log_size);
HAMI_CU(cuGraphInstantiate_v2, CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log, size_t log_size);
HAMI_CU(cuGraphInstantiateWithFlags, CUgraphExec* exec, CUgraph graph, unsigned long long flags);
HAMI_CU_PTSZ(cuGraphInstantiateWithParams, CUgraphExec* exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* params);
HAMI_CU_PTSZ(cuGraphLaunch, CUgraphExec exec, CUstream stream);
HAMI_CU_PTSZ(cuGraphUpload, CUgraphExec exec, CUstream stream);
HAMI_CU(cuGraphExecDestroy, CUgraphExec exec);
HAMI_CU(cuGraphExecGetFlags, CUgraphExec exec, cuuint64_t* flags);
HAMI_CU(cuGraphExecGetId, CUgraphExec exec, unsigned* id);
HAMI_CU(cuGraphExecUpdate, CUgraphExec exec, CUgraph graph, CUgraphNode* error_node, CUgraphExecUpdateResult* result);
HAMI_CU(cuGraphExecUpdate_v2, CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* info);
HAMI_CU(cuGraphNodeGetEnabled, CUgraphExec exec, CUgraphNode node, unsigned* enabled);
HAMI_CU(cuGraphNodeSetEnabled, CUgraphExec exec, CUgraphNode node, unsigned enabled);
HAMI_CU(cuGraphExecNodeSetParams, CUgraphExec exec, CUgraphNode node, CUgraphNodeParams* params);
HAMI_CU(cuGraphExecKernelNodeSetParams, CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* params);
HAMI_CU(cuGraphExecKernelNodeSetParams_v2, CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* params);
HAMI_CU(cuGraphExecMemcpyNodeSetParams, CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D* copy, CUcontext ctx);
HAMI_CU(cuGraphExecMemsetNodeSetParams, CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* params,
        CUcontext ctx);
HAMI_CU(cuGraphExecHostNodeSetParams, CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS* params);
HAMI_CU(cuGraphExecChildGraphNodeSetParams, CUgraphExec exec, CUgraphNode node, CUgraph child);
HAMI_CU(cuGraphExecEventRecordNodeSetEvent, CUgraphExec exec, CUgraphNode node, CUevent event);
HAMI_CU(cuGraphExecEventWaitNodeSetEvent, CUgraphExec exec, CUgraphNode node, CUevent event);
HAMI_CU(cuGraphExecExternalSemaphoresSignalNodeSetParams, CUgraphExec exec, CUgraphNode node,
        const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS* params);
HAMI_CU(cuGraphExecExternalSemaphoresWaitNodeSetParams, CUgraphExec exec, CUgraphNode node,
        const CUDA_EXT_SEM_WAIT_NODE_PARAMS* params);
HAMI_CU(cuGraphExecBatchMemOpNodeSetParams, CUgraphExec exec, CUgraphNode node,
        const CUDA_BATCH_MEM_OP_NODE_PARAMS* params);

}  // extern "C"
// clang-format on
