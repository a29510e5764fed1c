// SPDX-License-Identifier: Apache-2.0
//
// Structures of the CUDA driver API that describe streams, launches and graph nodes. Same rules as cuda_structs.h.
#pragma once

#include "abi/cuda_structs.h"

// clang-format off

using CUhostFn = void (*)(void* user);
using CUstreamCallback = void (*)(CUstream, CUresult, void* user);
using CUoccupancyB2DSize = size_t (*)(int block_size);

// Stream memory operations
union CUstreamBatchMemOpParams {
  struct Wait { CUstreamBatchMemOpType operation; CUdeviceptr address; union { cuuint32_t value; cuuint64_t value64; };
    unsigned flags; CUdeviceptr alias; };
  struct Write { CUstreamBatchMemOpType operation; CUdeviceptr address; union { cuuint32_t value; cuuint64_t value64; };
    unsigned flags; CUdeviceptr alias; };
  struct Plain { CUstreamBatchMemOpType operation; unsigned flags; };
  struct Atomic { CUstreamBatchMemOpType operation; unsigned flags; CUstreamAtomicReductionOpType reductionOp;
    CUstreamAtomicReductionDataType dataType; CUdeviceptr address; cuuint64_t value; CUdeviceptr alias; };
  CUstreamBatchMemOpType operation;
  Wait waitValue;
  Write writeValue;
  Plain flushRemoteWrites;
  Plain memoryBarrier;
  Atomic atomicReduction;  // 13 only
  cuuint64_t pad[6];
};

// Launches
struct CUaccessPolicyWindow { void* base_ptr; size_t num_bytes; float hitRatio; CUaccessProperty hitProp, missProp; };
struct CUlaunchMemSyncDomainMap { unsigned char default_, remote; };
union CUlaunchAttributeValue {
  struct Dim { unsigned x, y, z; };
  char pad[64];
  CUaccessPolicyWindow accessPolicyWindow;
  int cooperative;
  CUsynchronizationPolicy syncPolicy;
  Dim clusterDim;
  CUclusterSchedulingPolicy clusterSchedulingPolicyPreference;
  int programmaticStreamSerializationAllowed;
  struct { CUevent event; int flags, triggerAtBlockStart; } programmaticEvent;
  struct { CUevent event; int flags; } launchCompletionEvent;
  int priority;
  CUlaunchMemSyncDomainMap memSyncDomainMap;
  CUlaunchMemSyncDomain memSyncDomain;
  Dim preferredClusterDim;
  struct { int deviceUpdatable; CUgraphDeviceNode devNode; } deviceUpdatableKernelNode;
  unsigned sharedMemCarveout;
  unsigned nvlinkUtilCentricScheduling;                         // this and the following: 13 only
  CUlaunchAttributePortableClusterMode portableClusterSizeMode;
  CUsharedMemoryMode sharedMemoryMode;
};
using CUkernelNodeAttrValue = CUlaunchAttributeValue;
using CUstreamAttrValue = CUlaunchAttributeValue;
struct CUlaunchAttribute { CUlaunchAttributeID id; char pad[4]; CUlaunchAttributeValue value; };
struct CUlaunchConfig { unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  CUstream hStream; CUlaunchAttribute* attrs; unsigned numAttrs; };
struct CUDA_LAUNCH_PARAMS { CUfunction function; unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ,
  sharedMemBytes; CUstream hStream; void** kernelParams; };

// Graph nodes
struct CUDA_KERNEL_NODE_PARAMS_v1 { CUfunction func; unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY,
  blockDimZ, sharedMemBytes; void** kernelParams; void** extra; };
struct CUDA_KERNEL_NODE_PARAMS_v2 { CUfunction func; unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY,
  blockDimZ, sharedMemBytes; void** kernelParams; void** extra; CUkernel kern; CUcontext ctx; };
struct CUDA_KERNEL_NODE_PARAMS_v3 { CUfunction func; unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY,
  blockDimZ, sharedMemBytes; void** kernelParams; void** extra; CUkernel kern; CUcontext ctx; };
using CUDA_KERNEL_NODE_PARAMS = CUDA_KERNEL_NODE_PARAMS_v2;
struct CUDA_MEMCPY_NODE_PARAMS { int flags, reserved; CUcontext copyCtx; CUDA_MEMCPY3D copyParams; };
struct CUDA_MEMSET_NODE_PARAMS_v1 { CUdeviceptr dst; size_t pitch; unsigned value, elementSize; size_t width, height; };
struct CUDA_MEMSET_NODE_PARAMS_v2 { CUdeviceptr dst; size_t pitch; unsigned value, elementSize; size_t width, height;
  CUcontext ctx; };
using CUDA_MEMSET_NODE_PARAMS = CUDA_MEMSET_NODE_PARAMS_v1;
struct CUDA_HOST_NODE_PARAMS_v1 { CUhostFn fn; void* userData; };
// 12.x: the first two fields only; inside CUgraphNodeParams the rest lies in reserved space.
struct CUDA_HOST_NODE_PARAMS_v2 { CUhostFn fn; void* userData; unsigned syncMode;
  union { CUcontext ctx; CUgreenCtx gCtx; }; };
using CUDA_HOST_NODE_PARAMS = CUDA_HOST_NODE_PARAMS_v1;
struct CUDA_CHILD_GRAPH_NODE_PARAMS { CUgraph graph; CUgraphChildGraphNodeOwnership ownership; };
struct CUDA_EVENT_WAIT_NODE_PARAMS { CUevent event; };
struct CUDA_EVENT_RECORD_NODE_PARAMS { CUevent event; union { CUcontext ctx; CUgreenCtx gCtx; }; };
  // 12.x: event alone
struct CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v1 { CUexternalSemaphore* extSemArray;
  const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS* paramsArray; unsigned numExtSems; };
struct CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v2 { CUexternalSemaphore* extSemArray;
  const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS* paramsArray; unsigned numExtSems;
  union { CUcontext ctx; CUgreenCtx gCtx; }; };  // 12.x: without the union
using CUDA_EXT_SEM_SIGNAL_NODE_PARAMS = CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v1;
struct CUDA_EXT_SEM_WAIT_NODE_PARAMS_v1 { CUexternalSemaphore* extSemArray;
  const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS* paramsArray; unsigned numExtSems; };
struct CUDA_EXT_SEM_WAIT_NODE_PARAMS_v2 { CUexternalSemaphore* extSemArray;
  const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS* paramsArray; unsigned numExtSems;
  union { CUcontext ctx; CUgreenCtx gCtx; }; };  // 12.x: without the union
using CUDA_EXT_SEM_WAIT_NODE_PARAMS = CUDA_EXT_SEM_WAIT_NODE_PARAMS_v1;
struct CUDA_MEM_ALLOC_NODE_PARAMS_v1 { CUmemPoolProps poolProps; const CUmemAccessDesc* accessDescs;
  size_t accessDescCount, bytesize; CUdeviceptr dptr; };
struct CUDA_MEM_ALLOC_NODE_PARAMS_v2 { CUmemPoolProps poolProps; const CUmemAccessDesc* accessDescs;
  size_t accessDescCount, bytesize; CUdeviceptr dptr; };
using CUDA_MEM_ALLOC_NODE_PARAMS = CUDA_MEM_ALLOC_NODE_PARAMS_v1;
struct CUDA_MEM_FREE_NODE_PARAMS { CUdeviceptr dptr; };
struct CUDA_BATCH_MEM_OP_NODE_PARAMS_v1 { CUcontext ctx; unsigned count; CUstreamBatchMemOpParams* paramArray;
  unsigned flags; };
struct CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 { CUcontext ctx; unsigned count; CUstreamBatchMemOpParams* paramArray;
  unsigned flags; };
using CUDA_BATCH_MEM_OP_NODE_PARAMS = CUDA_BATCH_MEM_OP_NODE_PARAMS_v1;
struct CUDA_CONDITIONAL_NODE_PARAMS { CUgraphConditionalHandle handle; CUgraphConditionalNodeType type; unsigned size;
  CUgraph* phGraph_out; CUcontext ctx; };
struct CUDA_MEMCPY_BATCH_NODE_PARAMS { size_t count; CUdeviceptr* dsts; CUdeviceptr* srcs; size_t* sizes;
  CUmemcpyAttributes* attrs; size_t* attrsIdxs; size_t numAttrs; union { CUcontext ctx; CUgreenCtx gCtx; }; };
struct CUDA_FABRIC_CPY_BATCH_NODE_PARAMS { size_t numOps; CUDA_FABRIC_COPY_BATCH_OP* opList; unsigned long long flags;
  union { CUcontext ctx; CUgreenCtx gCtx; }; };
struct CUgraphNodeParams {
  CUgraphNodeType type;
  int reserved0[3];
  union {
    long long reserved1[29];
    CUDA_KERNEL_NODE_PARAMS_v3 kernel;
    CUDA_MEMCPY_NODE_PARAMS memcpy;
    CUDA_MEMSET_NODE_PARAMS_v2 memset;
    CUDA_HOST_NODE_PARAMS_v2 host;
    CUDA_CHILD_GRAPH_NODE_PARAMS graph;
    CUDA_EVENT_WAIT_NODE_PARAMS eventWait;
    CUDA_EVENT_RECORD_NODE_PARAMS eventRecord;
    CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v2 extSemSignal;
    CUDA_EXT_SEM_WAIT_NODE_PARAMS_v2 extSemWait;
    CUDA_MEM_ALLOC_NODE_PARAMS_v2 alloc;
    CUDA_MEM_FREE_NODE_PARAMS free;
    CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 memOp;
    CUDA_CONDITIONAL_NODE_PARAMS conditional;
    CUDA_MEMCPY_BATCH_NODE_PARAMS memcpyBatch;          // this and the following: 13 only
    CUDA_FABRIC_CPY_BATCH_NODE_PARAMS fabricCpyBatch;
  };
  long long reserved2;
};
struct CUgraphEdgeData { unsigned char from_port, to_port, type, reserved[5]; };
struct CUDA_GRAPH_INSTANTIATE_PARAMS { cuuint64_t flags; CUstream hUploadStream; CUgraphNode hErrNode_out;
  CUgraphInstantiateResult result_out; };
struct CUgraphExecUpdateResultInfo { CUgraphExecUpdateResult result; CUgraphNode errorNode, errorFromNode; };
using CUgraphRecaptureCallback = CUresult (*)(void* user, CUgraphNode, const CUgraphNodeParams* original,
                                              const CUgraphNodeParams* recaptured, CUgraphRecaptureStatus);

// clang-format on
