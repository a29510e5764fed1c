// SPDX-License-Identifier: Apache-2.0
//
// Structures of the CUDA driver API that describe devices, contexts, memory, copies, arrays and external objects; those
// of streams, launches and graphs are in cuda_graph_structs.h. Layouts are those of a 64-bit driver and of CUDA 13
// headers; they only name fields that older headers kept reserved, so that sizes and offsets fit 12.x as well (the few
// exceptions are marked). cuda_layout.inc holds them to their numbers.
#pragma once

#include "abi/cuda_codes.h"
#include "abi/cuda_enums.h"
#include "abi/cuda_types.h"

// clang-format off

// Identities, and handles that travel between processes
struct CUuuid { char bytes[16]; };
struct CUmemFabricHandle { unsigned char data[64]; };
struct CUipcEventHandle { char reserved[CU_IPC_HANDLE_SIZE]; };
struct CUipcMemHandle { char reserved[CU_IPC_HANDLE_SIZE]; };
struct CUmemPoolPtrExportData { unsigned char reserved[64]; };
struct CUlogicalEndpointFabricHandle { unsigned char data[64]; };

// Devices and contexts
struct CUdevprop { int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], sharedMemPerBlock, totalConstantMemory,
  SIMDWidth, memPitch, regsPerBlock, clockRate, textureAlign; };
struct CUasyncNotificationInfo {
  CUasyncNotificationType type;
  union Info { struct { unsigned long long bytesOverBudget; } overBudget; } info;
};
using CUasyncCallback = void (*)(CUasyncNotificationInfo*, void* user, CUasyncCallbackHandle);
using CUlogsCallback = void (*)(void* user, CUlogLevel, char* message, size_t length);
using CUcoredumpStatusCallback = void (*)(void* user, int pid, CUdevice);

struct CUexecAffinitySmCount { unsigned val; };
struct CUexecAffinityParam { CUexecAffinityType type; union Param { CUexecAffinitySmCount smCount; } param; };
struct CUctxCigParam { CUcigDataType sharedDataType; void* sharedData; };
struct CUctxCreateParams { CUexecAffinityParam* execAffinityParams; int numExecAffinityParams;
  CUctxCigParam* cigParams; };
struct CUstreamCigParam { CUstreamCigDataType streamSharedDataType; void* streamSharedData; };
struct CUstreamCigCaptureParams { CUstreamCigParam* streamCigParams; };

// 12.x: only smCount; the union around it is 48 bytes there, and nextResource took 8 of them in 13.
struct CUdevSmResource { unsigned smCount, minSmPartitionSize, smCoscheduledAlignment, flags, localityDomainId; };
struct CUdevWorkqueueConfigResource { CUdevice device; unsigned wqConcurrencyLimit;
  CUdevWorkqueueConfigScope sharingScope; };
struct CUdevWorkqueueResource { unsigned char reserved[40]; };
struct CU_DEV_SM_RESOURCE_GROUP_PARAMS { unsigned smCount, coscheduledSmCount, preferredCoscheduledSmCount, flags,
  localityDomainId, reserved[11]; };
struct CUdevResource {
  CUdevResourceType type;
  unsigned char _internal_padding[92];
  union {
    CUdevSmResource sm;
    CUdevWorkqueueConfigResource wqConfig;
    CUdevWorkqueueResource wq;
    unsigned char _oversize[40];
  };
  CUdevResource* nextResource;
};
struct CUcliqueInfo { CUcliqueType type; unsigned id; };

struct CUcheckpointGpuPair { CUuuid oldUuid, newUuid; };
struct CUcheckpointLockArgs { unsigned timeoutMs, reserved0; cuuint64_t reserved1[7]; };
struct CUcheckpointUnlockArgs { cuuint64_t reserved[8]; };
struct CUcheckpointCustomStoragePerDeviceData { CUdeviceptr devPtr; size_t size; CUstream stream; };
struct CUcheckpointCustomStorageInfo { CUcheckpointOperationHandle handle;
  CUcheckpointCustomStoragePerDeviceData* perDeviceData; unsigned deviceCount; };
// 12.x: the arguments of checkpoint and restore are 64 reserved bytes.
struct CUcheckpointCheckpointArgs { CUcheckpointCustomStorageInfo** customStorageInfo_out; char reserved[56]; };
struct CUcheckpointRestoreArgs {
  CUcheckpointGpuPair* gpuPairs;
  unsigned gpuPairsCount, padding0;
  CUcheckpointCustomStorageInfo** customStorageInfo_out;
  char reserved[40];
};

struct CUlibraryHostUniversalFunctionAndDataTable { void* functionTable; size_t functionWindowSize; void* dataTable;
  size_t dataWindowSize; };

// Places, VMM, pools
struct CUmemLocation {
  struct Localized { unsigned char deviceId, localityDomainId; };
  CUmemLocationType type;
  union { int id; Localized localized; };  // 12.x: id alone
};
struct CUmemAccessDesc { CUmemLocation location; CUmemAccess_flags flags; };
struct CUmemAllocationProp {
  struct Flags { unsigned char compressionType, gpuDirectRDMACapable; unsigned short usage; unsigned char reserved[4];
    };
  CUmemAllocationType type;
  CUmemAllocationHandleType requestedHandleTypes;
  CUmemLocation location;
  void* win32HandleMetaData;
  Flags allocFlags;
};
struct CUmulticastObjectProp { unsigned numDevices; size_t size; unsigned long long handleTypes, flags; };
struct CUmemPoolProps {
  CUmemAllocationType allocType;
  CUmemAllocationHandleType handleTypes;
  CUmemLocation location;
  void* win32SecurityAttributes;
  size_t maxSize;
  unsigned short usage;
  unsigned char gpuDirectRDMACapable;  // 12.x: the first of 54 reserved bytes
  unsigned char reserved[53];
};
struct CUarrayMapInfo {
  struct SparseLevel { unsigned level, layer, offsetX, offsetY, offsetZ, extentWidth, extentHeight, extentDepth; };
  struct Miptail { unsigned layer; unsigned long long offset, size; };
  CUresourcetype resourceType;
  union { CUmipmappedArray mipmap; CUarray array; } resource;
  CUarraySparseSubresourceType subresourceType;
  union { SparseLevel sparseLevel; Miptail miptail; } subresource;
  CUmemOperationType memOperationType;
  CUmemHandleType memHandleType;
  union { CUmemGenericAllocationHandle memHandle; } memHandle;
  unsigned long long offset;
  unsigned deviceBitMask, flags, reserved[2];
};
struct CUDA_POINTER_ATTRIBUTE_P2P_TOKENS { unsigned long long p2pToken; unsigned vaSpaceToken; };
struct CUmemDecompressParams { size_t srcNumBytes, dstNumBytes; cuuint32_t* dstActBytes; const void* src; void* dst;
  CUmemDecompressAlgorithm algo; unsigned char padding[20]; };

struct CUlogicalEndpointProp {
  struct Unicast { CUdevice device; };
  struct Multicast { unsigned numDevices; };
  CUlogicalEndpointType type;
  union { Unicast unicast; Multicast multicast; };
  unsigned long long size;
  unsigned ipcHandleTypes, flags;
};

// Copies. The _v1 forms are those of the 32-bit API.
struct CUDA_MEMCPY2D_v1 {
  unsigned srcXInBytes, srcY; CUmemorytype srcMemoryType; const void* srcHost; CUdeviceptr_v1 srcDevice;
    CUarray srcArray;
  unsigned srcPitch;
  unsigned dstXInBytes, dstY; CUmemorytype dstMemoryType; void* dstHost; CUdeviceptr_v1 dstDevice; CUarray dstArray;
  unsigned dstPitch;
  unsigned WidthInBytes, Height;
};
struct CUDA_MEMCPY2D_v2 {
  size_t srcXInBytes, srcY; CUmemorytype srcMemoryType; const void* srcHost; CUdeviceptr srcDevice; CUarray srcArray;
  size_t srcPitch;
  size_t dstXInBytes, dstY; CUmemorytype dstMemoryType; void* dstHost; CUdeviceptr dstDevice; CUarray dstArray;
  size_t dstPitch;
  size_t WidthInBytes, Height;
};
using CUDA_MEMCPY2D = CUDA_MEMCPY2D_v2;
struct CUDA_MEMCPY3D_v1 {
  unsigned srcXInBytes, srcY, srcZ, srcLOD; CUmemorytype srcMemoryType; const void* srcHost; CUdeviceptr_v1 srcDevice;
  CUarray srcArray; void* reserved0; unsigned srcPitch, srcHeight;
  unsigned dstXInBytes, dstY, dstZ, dstLOD; CUmemorytype dstMemoryType; void* dstHost; CUdeviceptr_v1 dstDevice;
  CUarray dstArray; void* reserved1; unsigned dstPitch, dstHeight;
  unsigned WidthInBytes, Height, Depth;
};
struct CUDA_MEMCPY3D_v2 {
  size_t srcXInBytes, srcY, srcZ, srcLOD; CUmemorytype srcMemoryType; const void* srcHost; CUdeviceptr srcDevice;
  CUarray srcArray; void* reserved0; size_t srcPitch, srcHeight;
  size_t dstXInBytes, dstY, dstZ, dstLOD; CUmemorytype dstMemoryType; void* dstHost; CUdeviceptr dstDevice;
  CUarray dstArray; void* reserved1; size_t dstPitch, dstHeight;
  size_t WidthInBytes, Height, Depth;
};
using CUDA_MEMCPY3D = CUDA_MEMCPY3D_v2;
struct CUDA_MEMCPY3D_PEER {
  size_t srcXInBytes, srcY, srcZ, srcLOD; CUmemorytype srcMemoryType; const void* srcHost; CUdeviceptr srcDevice;
  CUarray srcArray; CUcontext srcContext; size_t srcPitch, srcHeight;
  size_t dstXInBytes, dstY, dstZ, dstLOD; CUmemorytype dstMemoryType; void* dstHost; CUdeviceptr dstDevice;
  CUarray dstArray; CUcontext dstContext; size_t dstPitch, dstHeight;
  size_t WidthInBytes, Height, Depth;
};
struct CUmemcpyAttributes { CUmemcpySrcAccessOrder srcAccessOrder; CUmemLocation srcLocHint, dstLocHint;
  unsigned flags; };
struct CUoffset3D { size_t x, y, z; };
struct CUextent3D { size_t width, height, depth; };
struct CUmemcpy3DOperand {
  struct Pointer { CUdeviceptr ptr; size_t rowLength, layerHeight; CUmemLocation locHint; };
  struct Array { CUarray array; CUoffset3D offset; };
  CUmemcpy3DOperandType type;
  union { Pointer ptr; Array array; } op;
};
struct CUDA_MEMCPY3D_BATCH_OP { CUmemcpy3DOperand src, dst; CUextent3D extent; CUmemcpySrcAccessOrder srcAccessOrder;
  unsigned flags; };
struct CUfabricCpyOperand {
  struct Pointer { CUdeviceptr ptr; CUmemLocation locHint; };
  struct Endpoint { CUlogicalEndpointId id; cuuint64_t offset; };
  CUfabricCpyOperandType type;
  union { Pointer ptr; Endpoint le; } op;
};
struct CUDA_FABRIC_COPY_BATCH_OP { CUfabricCpyOperand src, dst; size_t size; unsigned flags; };

// Arrays and textures
struct CUDA_ARRAY_DESCRIPTOR_v1 { unsigned Width, Height; CUarray_format Format; unsigned NumChannels; };
struct CUDA_ARRAY_DESCRIPTOR_v2 { size_t Width, Height; CUarray_format Format; unsigned NumChannels; };
using CUDA_ARRAY_DESCRIPTOR = CUDA_ARRAY_DESCRIPTOR_v2;
struct CUDA_ARRAY3D_DESCRIPTOR_v1 { unsigned Width, Height, Depth; CUarray_format Format; unsigned NumChannels, Flags;
  };
struct CUDA_ARRAY3D_DESCRIPTOR_v2 { size_t Width, Height, Depth; CUarray_format Format; unsigned NumChannels, Flags; };
using CUDA_ARRAY3D_DESCRIPTOR = CUDA_ARRAY3D_DESCRIPTOR_v2;
struct CUDA_ARRAY_SPARSE_PROPERTIES {
  struct Extent { unsigned width, height, depth; };
  Extent tileExtent;
  unsigned miptailFirstLevel;
  unsigned long long miptailSize;
  unsigned flags, reserved[4];
};
struct CUDA_ARRAY_MEMORY_REQUIREMENTS { size_t size, alignment; unsigned reserved[4]; };
struct CUDA_RESOURCE_DESC {
  struct Linear { CUdeviceptr devPtr; CUarray_format format; unsigned numChannels; size_t sizeInBytes; };
  struct Pitch2D { CUdeviceptr devPtr; CUarray_format format; unsigned numChannels; size_t width, height, pitchInBytes;
    };
  CUresourcetype resType;
  union {
    struct { CUarray hArray; } array;
    struct { CUmipmappedArray hMipmappedArray; } mipmap;
    Linear linear;
    Pitch2D pitch2D;
    struct { int reserved[32]; } reserved;
  } res;
  unsigned flags;
};
struct CUDA_TEXTURE_DESC { CUaddress_mode addressMode[3]; CUfilter_mode filterMode; unsigned flags, maxAnisotropy;
  CUfilter_mode mipmapFilterMode; float mipmapLevelBias, minMipmapLevelClamp, maxMipmapLevelClamp, borderColor[4];
  int reserved[12]; };
struct CUDA_RESOURCE_VIEW_DESC { CUresourceViewFormat format; size_t width, height, depth; unsigned firstMipmapLevel,
  lastMipmapLevel, firstLayer, lastLayer, reserved[16]; };
struct alignas(128) CUtensorMap { cuuint64_t opaque[CU_TENSOR_MAP_NUM_QWORDS]; };  // 12.x: aligned to 64

// External memory and semaphores
struct CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
  CUexternalMemoryHandleType type;
  union { int fd; struct { void* handle; const void* name; } win32; const void* nvSciBufObject; } handle;
  unsigned long long size;
  unsigned flags, reserved[16];
};
struct CUDA_EXTERNAL_MEMORY_BUFFER_DESC { unsigned long long offset, size; unsigned flags, reserved[16]; };
struct CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC { unsigned long long offset; CUDA_ARRAY3D_DESCRIPTOR arrayDesc;
  unsigned numLevels, reserved[16]; };
struct CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC {
  CUexternalSemaphoreHandleType type;
  union { int fd; struct { void* handle; const void* name; } win32; const void* nvSciSyncObj; } handle;
  unsigned flags, reserved[16];
};
struct CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS {
  struct {
    struct { unsigned long long value; } fence;
    union { void* fence; unsigned long long reserved; } nvSciSync;
    struct { unsigned long long key; } keyedMutex;
    unsigned reserved[12];
  } params;
  unsigned flags, reserved[16];
};
struct CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS {
  struct {
    struct { unsigned long long value; } fence;
    union { void* fence; unsigned long long reserved; } nvSciSync;
    struct { unsigned long long key; unsigned timeoutMs; } keyedMutex;
    unsigned reserved[10];
  } params;
  unsigned flags, reserved[16];
};

// clang-format on
