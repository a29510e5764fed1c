// SPDX-License-Identifier: Apache-2.0
//
// Functions of the CUDA driver API whose types only CUDA 13 defines. They stand apart because with
// NVIDIA's 12.x header they could not even be written down.
#pragma once

#include "abi/cuda_declare.h"

#if CUDA_VERSION >= 13000
// clang-format off
extern "C" {

HAMI_CU(cuDeviceGetCliqueCount, size_t* count, CUdevice device);
HAMI_CU(cuDeviceGetCliqueInfo, CUcliqueInfo* info, size_t* count, CUdevice device);
HAMI_CU(cuDeviceGetFabricClusterUuid, CUuuid* uuid, CUdevice device);
HAMI_CU(cuDeviceGetHostAtomicCapabilities, unsigned* capabilities, const CUatomicOperation* ops, unsigned n,
        CUdevice device);
HAMI_CU(cuDeviceGetP2PAtomicCapabilities, unsigned* capabilities, const CUatomicOperation* ops, unsigned n,
        CUdevice from,
        CUdevice to);
HAMI_CU(cuDevSmResourceSplit, CUdevResource* groups, unsigned count, const CUdevResource* input,
        CUdevResource* remainder,
        unsigned flags, CU_DEV_SM_RESOURCE_GROUP_PARAMS* params);
HAMI_CU(cuCheckpointOperationComplete, CUcheckpointOperationHandle handle);
HAMI_CU(cuCoredumpRegisterStartCallback, CUcoredumpStatusCallback fn, void* user, CUcoredumpCallbackHandle* handle);
HAMI_CU(cuCoredumpRegisterCompleteCallback, CUcoredumpStatusCallback fn, void* user, CUcoredumpCallbackHandle* handle);
HAMI_CU(cuCoredumpDeregisterStartCallback, CUcoredumpCallbackHandle handle);
HAMI_CU(cuCoredumpDeregisterCompleteCallback, CUcoredumpCallbackHandle handle);

HAMI_CU_PTSZ(cuStreamGetDevResource, CUstream stream, CUdevResource* resource, CUdevResourceType type);
HAMI_CU_PTSZ(cuStreamBeginCaptureToCig, CUstream stream, CUstreamCigCaptureParams* params);
HAMI_CU_PTSZ(cuStreamEndCaptureToCig, CUstream stream);
HAMI_CU_PTSZ(cuStreamBeginRecaptureToGraph, CUstream stream, CUstreamCaptureMode mode, CUgraph graph,
             CUgraphRecaptureCallback fn, void* user);
HAMI_CU_PTSZ(cuFabricCpyBatchAsync, size_t n, CUDA_FABRIC_COPY_BATCH_OP* ops, unsigned long long flags,
             CUstream stream);
HAMI_CU(cuTensorMapSetAllocationClass, CUtensorMap* map, CUtensorMapAllocClass wanted, CUtensorMapAllocClass* granted);

HAMI_CU(cuLogicalEndpointIdReserve, CUlogicalEndpointId* first, cuuint32_t count);
HAMI_CU(cuLogicalEndpointIdRelease, CUlogicalEndpointId first, cuuint32_t count);
HAMI_CU(cuLogicalEndpointCreate, CUlogicalEndpointId id, const CUlogicalEndpointProp* prop);
HAMI_CU(cuLogicalEndpointDestroy, CUlogicalEndpointId id);
HAMI_CU(cuLogicalEndpointAddDevice, CUlogicalEndpointId id, CUdevice device);
HAMI_CU(cuLogicalEndpointBindAddr, CUlogicalEndpointId id, CUdevice device, cuuint64_t offset, void* addr,
        cuuint64_t size,
        unsigned long long flags);
HAMI_CU(cuLogicalEndpointBindMem, CUlogicalEndpointId id, CUdevice device, cuuint64_t offset,
        CUmemGenericAllocationHandle handle, cuuint64_t handle_offset, cuuint64_t size, unsigned long long flags);
HAMI_CU(cuLogicalEndpointUnbind, CUlogicalEndpointId id, CUdevice device, cuuint64_t offset, cuuint64_t size);
HAMI_CU(cuLogicalEndpointExport, void* handle, CUlogicalEndpointId id, CUlogicalEndpointIpcHandleType type);
HAMI_CU(cuLogicalEndpointImport, CUlogicalEndpointId id, const void* handle, CUlogicalEndpointIpcHandleType type);
HAMI_CU(cuLogicalEndpointGetLimits, cuuint64_t* alignment, cuuint64_t* max_size, const CUlogicalEndpointProp* prop);
HAMI_CU(cuLogicalEndpointQuery, CUlogicalEndpointId first, cuuint32_t count, int* statuses);

}  // extern "C"
// clang-format on
#endif
