// SPDX-License-Identifier: Apache-2.0
//
// Scalars, handles and plain constants of the CUDA driver API under their official names. Handles are pointers to types
// that nobody outside the driver completes; whoever implements them validates a handle before looking through it.
#pragma once

#include <stddef.h>
#include <stdint.h>

// The newest header these declarations were checked against.
#define CUDA_VERSION 13050
#define CUDAAPI
#define CUDA_CB

using cuuint32_t = uint32_t;
using cuuint64_t = uint64_t;

using CUdevice = int;
using CUdeviceptr_v1 = unsigned int;  // of the 32-bit API before 3.2, whose entry points a 64-bit driver still exports
using CUdeviceptr_v2 = unsigned long long;
using CUdeviceptr = CUdeviceptr_v2;
using CUtexObject = unsigned long long;
using CUsurfObject = unsigned long long;
using CUmemGenericAllocationHandle = unsigned long long;
using CUgraphConditionalHandle = cuuint64_t;
using CUlogIterator = unsigned int;
using CUlogicalEndpointId = cuuint32_t;

using CUcontext = struct CUctx_st*;
using CUgreenCtx = struct CUgreenCtx_st*;
using CUdevResourceDesc = struct CUdevResourceDesc_st*;
using CUmodule = struct CUmod_st*;
using CUlibrary = struct CUlib_st*;
using CUfunction = struct CUfunc_st*;
using CUkernel = struct CUkern_st*;
using CUlinkState = struct CUlinkState_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphNode = struct CUgraphNode_st*;
using CUgraphExec = struct CUgraphExec_st*;
using CUgraphDeviceNode = struct CUgraphDeviceUpdatableNode_st*;
using CUuserObject = struct CUuserObject_st*;
using CUmemoryPool = struct CUmemPoolHandle_st*;
using CUarray = struct CUarray_st*;
using CUmipmappedArray = struct CUmipmappedArray_st*;
using CUtexref = struct CUtexref_st*;
using CUsurfref = struct CUsurfref_st*;
using CUgraphicsResource = struct CUgraphicsResource_st*;
using CUexternalMemory = struct CUextMemory_st*;
using CUexternalSemaphore = struct CUextSemaphore_st*;
using CUasyncCallbackHandle = struct CUasyncCallbackEntry_st*;
using CUlogsCallbackHandle = struct CUlogsCallbackEntry_st*;
using CUcoredumpCallbackHandle = struct CUcoredumpCallbackEntry_st*;
using CUcheckpointOperationHandle = struct CUIcheckpointOperation_st*;

// Handles that are not objects.
#define CU_STREAM_LEGACY ((CUstream)1)
#define CU_STREAM_PER_THREAD ((CUstream)2)
#define CU_DEVICE_CPU ((CUdevice)(-1))
#define CU_DEVICE_INVALID ((CUdevice)(-2))

// Keys of the `extra` list of a launch.
#define CU_LAUNCH_PARAM_END_AS_INT 0
#define CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT 1
#define CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT 2
#define CU_LAUNCH_PARAM_END ((void*)CU_LAUNCH_PARAM_END_AS_INT)
#define CU_LAUNCH_PARAM_BUFFER_POINTER ((void*)CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT)
#define CU_LAUNCH_PARAM_BUFFER_SIZE ((void*)CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT)
#define CU_LAUNCH_KERNEL_REQUIRED_BLOCK_DIM 1
#define CU_PARAM_TR_DEFAULT (-1)
#define CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC 1
#define CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_POST_LAUNCH_SYNC 2

// Flags of host memory, VMM handles, pools and IPC.
#define CU_IPC_HANDLE_SIZE 64
#define CU_MEMHOSTALLOC_PORTABLE 1
#define CU_MEMHOSTALLOC_DEVICEMAP 2
#define CU_MEMHOSTALLOC_WRITECOMBINED 4
#define CU_MEMHOSTREGISTER_PORTABLE 1
#define CU_MEMHOSTREGISTER_DEVICEMAP 2
#define CU_MEMHOSTREGISTER_IOMEMORY 4
#define CU_MEMHOSTREGISTER_READ_ONLY 8
#define CU_MEM_CREATE_USAGE_TILE_POOL 1
#define CU_MEM_CREATE_USAGE_HW_DECOMPRESS 2
#define CU_MEM_CREATE_USAGE_GPU_DIRECT_RDMA_OVER_PCIE 4
#define CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS 2

// Flags of arrays, textures and external memory.
#define CUDA_ARRAY3D_LAYERED 0x01
#define CUDA_ARRAY3D_2DARRAY 0x01
#define CUDA_ARRAY3D_SURFACE_LDST 0x02
#define CUDA_ARRAY3D_CUBEMAP 0x04
#define CUDA_ARRAY3D_TEXTURE_GATHER 0x08
#define CUDA_ARRAY3D_DEPTH_TEXTURE 0x10
#define CUDA_ARRAY3D_COLOR_ATTACHMENT 0x20
#define CUDA_ARRAY3D_SPARSE 0x40
#define CUDA_ARRAY3D_DEFERRED_MAPPING 0x80
#define CUDA_ARRAY3D_VIDEO_ENCODE_DECODE 0x100
#define CU_ARRAY_SPARSE_PROPERTIES_SINGLE_MIPTAIL 1
#define CU_TRSA_OVERRIDE_FORMAT 0x01
#define CU_TRSF_READ_AS_INTEGER 0x01
#define CU_TRSF_NORMALIZED_COORDINATES 0x02
#define CU_TRSF_SRGB 0x10
#define CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION 0x20
#define CU_TRSF_SEAMLESS_CUBEMAP 0x40
#define CU_TENSOR_MAP_NUM_QWORDS 16
#define CUDA_EXTERNAL_MEMORY_DEDICATED 1
#define CUDA_EXTERNAL_SEMAPHORE_SIGNAL_SKIP_NVSCIBUF_MEMSYNC 1
#define CUDA_EXTERNAL_SEMAPHORE_WAIT_SKIP_NVSCIBUF_MEMSYNC 2

// Graphs.
#define CU_GRAPH_COND_ASSIGN_DEFAULT 1
#define CU_GRAPH_KERNEL_NODE_PORT_DEFAULT 0
#define CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC 1
#define CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER 2
