// SPDX-License-Identifier: Apache-2.0
//
// Functions of the CUDA driver API: memory in all its forms, copies, fills, arrays, textures, external memory.
#pragma once

#include "abi/cuda_declare.h"

// clang-format off
extern "C" {

// Plain, host and managed memory
HAMI_CU(cuMemGetInfo, unsigned* free, unsigned* total);
HAMI_CU(cuMemGetInfo_v2, size_t* free, size_t* total);
HAMI_CU(cuMemAlloc, CUdeviceptr_v1* ptr, unsigned bytes);
HAMI_CU(cuMemAlloc_v2, CUdeviceptr* ptr, size_t bytes);
HAMI_CU(cuMemAllocPitch, CUdeviceptr_v1* ptr, unsigned* pitch, unsigned width, unsigned height, unsigned element);
HAMI_CU(cuMemAllocPitch_v2, CUdeviceptr* ptr, size_t* pitch, size_t width, size_t height, unsigned element);
HAMI_CU(cuMemFree, CUdeviceptr_v1 ptr);
HAMI_CU(cuMemFree_v2, CUdeviceptr ptr);
HAMI_CU(cuMemGetAddressRange, CUdeviceptr_v1* base, unsigned* size, CUdeviceptr_v1 ptr);
HAMI_CU(cuMemGetAddressRange_v2, CUdeviceptr* base, size_t* size, CUdeviceptr ptr);
HAMI_CU(cuMemAllocManaged, CUdeviceptr* ptr, size_t bytes, unsigned flags);
HAMI_CU(cuMemAllocHost, void** ptr, unsigned bytes);
HAMI_CU(cuMemAllocHost_v2, void** ptr, size_t bytes);
HAMI_CU(cuMemHostAlloc, void** ptr, size_t bytes, unsigned flags);
HAMI_CU(cuMemFreeHost, void* ptr);
HAMI_CU(cuMemHostGetDevicePointer, CUdeviceptr_v1* device_ptr, void* ptr, unsigned flags);
HAMI_CU(cuMemHostGetDevicePointer_v2, CUdeviceptr* device_ptr, void* ptr, unsigned flags);
HAMI_CU(cuMemHostGetFlags, unsigned* flags, void* ptr);
HAMI_CU(cuMemHostRegister, void* ptr, size_t bytes, unsigned flags);
HAMI_CU(cuMemHostRegister_v2, void* ptr, size_t bytes, unsigned flags);
HAMI_CU(cuMemHostUnregister, void* ptr);

// What is known about a pointer or a range
HAMI_CU(cuPointerGetAttribute, void* value, CUpointer_attribute attribute, CUdeviceptr ptr);
HAMI_CU(cuPointerGetAttributes, unsigned n, CUpointer_attribute* attributes, void** values, CUdeviceptr ptr);
HAMI_CU(cuPointerSetAttribute, const void* value, CUpointer_attribute attribute, CUdeviceptr ptr);
HAMI_CU(cuMemAdvise, CUdeviceptr ptr, size_t bytes, CUmem_advise advice, CUdevice device);
HAMI_CU(cuMemAdvise_v2, CUdeviceptr ptr, size_t bytes, CUmem_advise advice, CUmemLocation location);
HAMI_CU_PTSZ(cuMemPrefetchAsync, CUdeviceptr ptr, size_t bytes, CUdevice device, CUstream stream);
HAMI_CU_PTSZ(cuMemPrefetchAsync_v2, CUdeviceptr ptr, size_t bytes, CUmemLocation location, unsigned flags,
             CUstream stream);
HAMI_CU_PTSZ(cuMemPrefetchBatchAsync, CUdeviceptr* ptrs, size_t* sizes, size_t n, CUmemLocation* locations,
             size_t* location_index, size_t location_count, unsigned long long flags, CUstream stream);
HAMI_CU_PTSZ(cuMemDiscardBatchAsync, CUdeviceptr* ptrs, size_t* sizes, size_t n, unsigned long long flags,
             CUstream stream);
HAMI_CU_PTSZ(cuMemDiscardAndPrefetchBatchAsync, CUdeviceptr* ptrs, size_t* sizes, size_t n, CUmemLocation* locations,
             size_t* location_index, size_t location_count, unsigned long long flags, CUstream stream);
HAMI_CU(cuMemRangeGetAttribute, void* value, size_t size, CUmem_range_attribute attribute, CUdeviceptr ptr,
        size_t bytes);
HAMI_CU(cuMemRangeGetAttributes, void** values, size_t* sizes, CUmem_range_attribute* attributes, size_t n,
        CUdeviceptr ptr,
        size_t bytes);
HAMI_CU(cuMemGetLocationInfo, CUdeviceptr base, size_t bytes, size_t offset, size_t n, CUmemLocation* locations);
HAMI_CU(cuMemGetHandleForAddressRange, void* handle, CUdeviceptr ptr, size_t bytes, CUmemRangeHandleType type,
        unsigned long long flags);

// Memory and events of other processes
HAMI_CU(cuIpcGetMemHandle, CUipcMemHandle* handle, CUdeviceptr ptr);
HAMI_CU(cuIpcOpenMemHandle, CUdeviceptr* ptr, CUipcMemHandle handle, unsigned flags);
HAMI_CU(cuIpcOpenMemHandle_v2, CUdeviceptr* ptr, CUipcMemHandle handle, unsigned flags);
HAMI_CU(cuIpcCloseMemHandle, CUdeviceptr ptr);
HAMI_CU(cuIpcGetEventHandle, CUipcEventHandle* handle, CUevent event);
HAMI_CU(cuIpcOpenEventHandle, CUevent* event, CUipcEventHandle handle);

// Virtual memory management
HAMI_CU(cuMemAddressReserve, CUdeviceptr* ptr, size_t size, size_t alignment, CUdeviceptr hint,
        unsigned long long flags);
HAMI_CU(cuMemAddressFree, CUdeviceptr ptr, size_t size);
HAMI_CU(cuMemCreate, CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp* prop,
        unsigned long long flags);
HAMI_CU(cuMemRelease, CUmemGenericAllocationHandle handle);
HAMI_CU(cuMemRetainAllocationHandle, CUmemGenericAllocationHandle* handle, void* addr);
HAMI_CU(cuMemMap, CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
        unsigned long long flags);
HAMI_CU(cuMemUnmap, CUdeviceptr ptr, size_t size);
HAMI_CU_PTSZ(cuMemMapArrayAsync, CUarrayMapInfo* maps, unsigned count, CUstream stream);
HAMI_CU(cuMemSetAccess, CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc, size_t count);
HAMI_CU(cuMemGetAccess, unsigned long long* flags, const CUmemLocation* location, CUdeviceptr ptr);
HAMI_CU(cuMemGetAllocationGranularity, size_t* granularity, const CUmemAllocationProp* prop,
        CUmemAllocationGranularity_flags option);
HAMI_CU(cuMemGetAllocationPropertiesFromHandle, CUmemAllocationProp* prop, CUmemGenericAllocationHandle handle);
HAMI_CU(cuMemExportToShareableHandle, void* shareable, CUmemGenericAllocationHandle handle,
        CUmemAllocationHandleType type,
        unsigned long long flags);
HAMI_CU(cuMemImportFromShareableHandle, CUmemGenericAllocationHandle* handle, void* shareable,
        CUmemAllocationHandleType type);
HAMI_CU(cuMulticastCreate, CUmemGenericAllocationHandle* handle, const CUmulticastObjectProp* prop);
HAMI_CU(cuMulticastAddDevice, CUmemGenericAllocationHandle handle, CUdevice device);
HAMI_CU(cuMulticastBindMem, CUmemGenericAllocationHandle mc, size_t mc_offset, CUmemGenericAllocationHandle mem,
        size_t mem_offset, size_t size, unsigned long long flags);
HAMI_CU(cuMulticastBindMem_v2, CUmemGenericAllocationHandle mc, CUdevice device, size_t mc_offset,
        CUmemGenericAllocationHandle mem, size_t mem_offset, size_t size, unsigned long long flags);
HAMI_CU(cuMulticastBindAddr, CUmemGenericAllocationHandle mc, size_t mc_offset, CUdeviceptr ptr, size_t size,
        unsigned long long flags);
HAMI_CU(cuMulticastBindAddr_v2, CUmemGenericAllocationHandle mc, CUdevice device, size_t mc_offset, CUdeviceptr ptr,
        size_t size, unsigned long long flags);
HAMI_CU(cuMulticastUnbind, CUmemGenericAllocationHandle mc, CUdevice device, size_t mc_offset, size_t size);
HAMI_CU(cuMulticastGetGranularity, size_t* granularity, const CUmulticastObjectProp* prop,
        CUmulticastGranularity_flags option);

// Stream-ordered memory and pools
HAMI_CU_PTSZ(cuMemAllocAsync, CUdeviceptr* ptr, size_t bytes, CUstream stream);
HAMI_CU_PTSZ(cuMemAllocFromPoolAsync, CUdeviceptr* ptr, size_t bytes, CUmemoryPool pool, CUstream stream);
HAMI_CU_PTSZ(cuMemFreeAsync, CUdeviceptr ptr, CUstream stream);
HAMI_CU(cuMemPoolCreate, CUmemoryPool* pool, const CUmemPoolProps* props);
HAMI_CU(cuMemPoolDestroy, CUmemoryPool pool);
HAMI_CU(cuMemPoolTrimTo, CUmemoryPool pool, size_t keep);
HAMI_CU(cuMemPoolSetAttribute, CUmemoryPool pool, CUmemPool_attribute attribute, void* value);
HAMI_CU(cuMemPoolGetAttribute, CUmemoryPool pool, CUmemPool_attribute attribute, void* value);
HAMI_CU(cuMemPoolSetAccess, CUmemoryPool pool, const CUmemAccessDesc* desc, size_t count);
HAMI_CU(cuMemPoolGetAccess, CUmemAccess_flags* flags, CUmemoryPool pool, CUmemLocation* location);
HAMI_CU(cuMemPoolExportToShareableHandle, void* handle, CUmemoryPool pool, CUmemAllocationHandleType type,
        unsigned long long flags);
HAMI_CU(cuMemPoolImportFromShareableHandle, CUmemoryPool* pool, void* handle, CUmemAllocationHandleType type,
        unsigned long long flags);
HAMI_CU(cuMemPoolExportPointer, CUmemPoolPtrExportData* data, CUdeviceptr ptr);
HAMI_CU(cuMemPoolImportPointer, CUdeviceptr* ptr, CUmemoryPool pool, CUmemPoolPtrExportData* data);
HAMI_CU(cuDeviceGetDefaultMemPool, CUmemoryPool* pool, CUdevice device);
HAMI_CU(cuDeviceGetMemPool, CUmemoryPool* pool, CUdevice device);
HAMI_CU(cuDeviceSetMemPool, CUdevice device, CUmemoryPool pool);
HAMI_CU(cuMemGetDefaultMemPool, CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type);
HAMI_CU(cuMemGetMemPool, CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type);
HAMI_CU(cuMemSetMemPool, CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool);
HAMI_CU_PTSZ(cuMemBatchDecompressAsync, CUmemDecompressParams* params, size_t n, unsigned flags, size_t* error_index,
             CUstream stream);

// Copies (D device, H host, A array)
HAMI_CU_PTDS(cuMemcpy, CUdeviceptr dst, CUdeviceptr src, size_t bytes);
HAMI_CU_PTSZ(cuMemcpyAsync, CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream);
HAMI_CU_PTDS(cuMemcpyPeer, CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx, size_t bytes);
HAMI_CU_PTSZ(cuMemcpyPeerAsync, CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx, size_t bytes,
             CUstream stream);
HAMI_CU(cuMemcpyHtoD, CUdeviceptr_v1 dst, const void* src, unsigned bytes);
HAMI_CU_PTDS(cuMemcpyHtoD_v2, CUdeviceptr dst, const void* src, size_t bytes);
HAMI_CU(cuMemcpyHtoDAsync, CUdeviceptr_v1 dst, const void* src, unsigned bytes, CUstream stream);
HAMI_CU_PTSZ(cuMemcpyHtoDAsync_v2, CUdeviceptr dst, const void* src, size_t bytes, CUstream stream);
HAMI_CU(cuMemcpyDtoH, void* dst, CUdeviceptr_v1 src, unsigned bytes);
HAMI_CU_PTDS(cuMemcpyDtoH_v2, void* dst, CUdeviceptr src, size_t bytes);
HAMI_CU(cuMemcpyDtoHAsync, void* dst, CUdeviceptr_v1 src, unsigned bytes, CUstream stream);
HAMI_CU_PTSZ(cuMemcpyDtoHAsync_v2, void* dst, CUdeviceptr src, size_t bytes, CUstream stream);
HAMI_CU(cuMemcpyDtoD, CUdeviceptr_v1 dst, CUdeviceptr_v1 src, unsigned bytes);
HAMI_CU_PTDS(cuMemcpyDtoD_v2, CUdeviceptr dst, CUdeviceptr src, size_t bytes);
HAMI_CU(cuMemcpyDtoDAsync, CUdeviceptr_v1 dst, CUdeviceptr_v1 src, unsigned bytes, CUstream stream);
HAMI_CU_PTSZ(cuMemcpyDtoDAsync_v2, CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream);
HAMI_CU(cuMemcpyDtoA, CUarray dst, unsigned offset, CUdeviceptr_v1 src, unsigned bytes);
HAMI_CU_PTDS(cuMemcpyDtoA_v2, CUarray dst, size_t offset, CUdeviceptr src, size_t bytes);
HAMI_CU(cuMemcpyAtoD, CUdeviceptr_v1 dst, CUarray src, unsigned offset, unsigned bytes);
HAMI_CU_PTDS(cuMemcpyAtoD_v2, CUdeviceptr dst, CUarray src, size_t offset, size_t bytes);
HAMI_CU(cuMemcpyHtoA, CUarray dst, unsigned offset, const void* src, unsigned bytes);
HAMI_CU_PTDS(cuMemcpyHtoA_v2, CUarray dst, size_t offset, const void* src, size_t bytes);
HAMI_CU(cuMemcpyHtoAAsync, CUarray dst, unsigned offset, const void* src, unsigned bytes, CUstream stream);
HAMI_CU_PTSZ(cuMemcpyHtoAAsync_v2, CUarray dst, size_t offset, const void* src, size_t bytes, CUstream stream);
HAMI_CU(cuMemcpyAtoH, void* dst, CUarray src, unsigned offset, unsigned bytes);
HAMI_CU_PTDS(cuMemcpyAtoH_v2, void* dst, CUarray src, size_t offset, size_t bytes);
HAMI_CU(cuMemcpyAtoHAsync, void* dst, CUarray src, unsigned offset, unsigned bytes, CUstream stream);
HAMI_CU_PTSZ(cuMemcpyAtoHAsync_v2, void* dst, CUarray src, size_t offset, size_t bytes, CUstream stream);
HAMI_CU(cuMemcpyAtoA, CUarray dst, unsigned dst_offset, CUarray src, unsigned src_offset, unsigned bytes);
HAMI_CU_PTDS(cuMemcpyAtoA_v2, CUarray dst, size_t dst_offset, CUarray src, size_t src_offset, size_t bytes);
HAMI_CU(cuMemcpy2D, const CUDA_MEMCPY2D_v1* copy);
HAMI_CU_PTDS(cuMemcpy2D_v2, const CUDA_MEMCPY2D* copy);
HAMI_CU(cuMemcpy2DUnaligned, const CUDA_MEMCPY2D_v1* copy);
HAMI_CU_PTDS(cuMemcpy2DUnaligned_v2, const CUDA_MEMCPY2D* copy);
HAMI_CU(cuMemcpy2DAsync, const CUDA_MEMCPY2D_v1* copy, CUstream stream);
HAMI_CU_PTSZ(cuMemcpy2DAsync_v2, const CUDA_MEMCPY2D* copy, CUstream stream);
HAMI_CU(cuMemcpy3D, const CUDA_MEMCPY3D_v1* copy);
HAMI_CU_PTDS(cuMemcpy3D_v2, const CUDA_MEMCPY3D* copy);
HAMI_CU(cuMemcpy3DAsync, const CUDA_MEMCPY3D_v1* copy, CUstream stream);
HAMI_CU_PTSZ(cuMemcpy3DAsync_v2, const CUDA_MEMCPY3D* copy, CUstream stream);
HAMI_CU_PTDS(cuMemcpy3DPeer, const CUDA_MEMCPY3D_PEER* copy);
HAMI_CU_PTSZ(cuMemcpy3DPeerAsync, const CUDA_MEMCPY3D_PEER* copy, CUstream stream);
HAMI_CU_PTSZ(cuMemcpyBatchAsync, CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t n,
             CUmemcpyAttributes* attrs,
             size_t* attr_index, size_t attr_count, size_t* fail_index, CUstream stream);
HAMI_CU_PTSZ(cuMemcpyBatchAsync_v2, CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t n,
             CUmemcpyAttributes* attrs, size_t* attr_index, size_t attr_count, CUstream stream);
HAMI_CU_PTSZ(cuMemcpy3DBatchAsync, size_t n, CUDA_MEMCPY3D_BATCH_OP* ops, size_t* fail_index, unsigned long long flags,
             CUstream stream);
HAMI_CU_PTSZ(cuMemcpy3DBatchAsync_v2, size_t n, CUDA_MEMCPY3D_BATCH_OP* ops, unsigned long long flags, CUstream stream);
HAMI_CU_PTSZ(cuMemcpyWithAttributesAsync, CUdeviceptr dst, CUdeviceptr src, size_t bytes,
             CUmemcpyAttributes* attributes,
             CUstream stream);
HAMI_CU_PTSZ(cuMemcpy3DWithAttributesAsync, CUDA_MEMCPY3D_BATCH_OP* op, unsigned long long flags, CUstream stream);

// Fills
HAMI_CU(cuMemsetD8, CUdeviceptr_v1 dst, unsigned char value, unsigned n);
HAMI_CU_PTDS(cuMemsetD8_v2, CUdeviceptr dst, unsigned char value, size_t n);
HAMI_CU_PTSZ(cuMemsetD8Async, CUdeviceptr dst, unsigned char value, size_t n, CUstream stream);
HAMI_CU(cuMemsetD16, CUdeviceptr_v1 dst, unsigned short value, unsigned n);
HAMI_CU_PTDS(cuMemsetD16_v2, CUdeviceptr dst, unsigned short value, size_t n);
HAMI_CU_PTSZ(cuMemsetD16Async, CUdeviceptr dst, unsigned short value, size_t n, CUstream stream);
HAMI_CU(cuMemsetD32, CUdeviceptr_v1 dst, unsigned value, unsigned n);
HAMI_CU_PTDS(cuMemsetD32_v2, CUdeviceptr dst, unsigned value, size_t n);
HAMI_CU_PTSZ(cuMemsetD32Async, CUdeviceptr dst, unsigned value, size_t n, CUstream stream);
HAMI_CU(cuMemsetD2D8, CUdeviceptr_v1 dst, unsigned pitch, unsigned char value, unsigned width, unsigned height);
HAMI_CU_PTDS(cuMemsetD2D8_v2, CUdeviceptr dst, size_t pitch, unsigned char value, size_t width, size_t height);
HAMI_CU_PTSZ(cuMemsetD2D8Async, CUdeviceptr dst, size_t pitch, unsigned char value, size_t width, size_t height,
             CUstream stream);
HAMI_CU(cuMemsetD2D16, CUdeviceptr_v1 dst, unsigned pitch, unsigned short value, unsigned width, unsigned height);
HAMI_CU_PTDS(cuMemsetD2D16_v2, CUdeviceptr dst, size_t pitch, unsigned short value, size_t width, size_t height);
HAMI_CU_PTSZ(cuMemsetD2D16Async, CUdeviceptr dst, size_t pitch, unsigned short value, size_t width, size_t height,
             CUstream stream);
HAMI_CU(cuMemsetD2D32, CUdeviceptr_v1 dst, unsigned pitch, unsigned value, unsigned width, unsigned height);
HAMI_CU_PTDS(cuMemsetD2D32_v2, CUdeviceptr dst, size_t pitch, unsigned value, size_t width, size_t height);
HAMI_CU_PTSZ(cuMemsetD2D32Async, CUdeviceptr dst, size_t pitch, unsigned value, size_t width, size_t height,
             CUstream stream);

// Arrays
HAMI_CU(cuArrayCreate, CUarray* array, const CUDA_ARRAY_DESCRIPTOR_v1* desc);
HAMI_CU(cuArrayCreate_v2, CUarray* array, const CUDA_ARRAY_DESCRIPTOR* desc);
HAMI_CU(cuArray3DCreate, CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR_v1* desc);
HAMI_CU(cuArray3DCreate_v2, CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* desc);
HAMI_CU(cuArrayDestroy, CUarray array);
HAMI_CU(cuArrayGetDescriptor, CUDA_ARRAY_DESCRIPTOR_v1* desc, CUarray array);
HAMI_CU(cuArrayGetDescriptor_v2, CUDA_ARRAY_DESCRIPTOR* desc, CUarray array);
HAMI_CU(cuArray3DGetDescriptor, CUDA_ARRAY3D_DESCRIPTOR_v1* desc, CUarray array);
HAMI_CU(cuArray3DGetDescriptor_v2, CUDA_ARRAY3D_DESCRIPTOR* desc, CUarray array);
HAMI_CU(cuArrayGetPlane, CUarray* plane, CUarray array, unsigned index);
HAMI_CU(cuArrayGetSparseProperties, CUDA_ARRAY_SPARSE_PROPERTIES* properties, CUarray array);
HAMI_CU(cuArrayGetMemoryRequirements, CUDA_ARRAY_MEMORY_REQUIREMENTS* requirements, CUarray array, CUdevice device);
HAMI_CU(cuMipmappedArrayCreate, CUmipmappedArray* array, const CUDA_ARRAY3D_DESCRIPTOR* desc, unsigned levels);
HAMI_CU(cuMipmappedArrayDestroy, CUmipmappedArray array);
HAMI_CU(cuMipmappedArrayGetLevel, CUarray* level, CUmipmappedArray array, unsigned index);
HAMI_CU(cuMipmappedArrayGetSparseProperties, CUDA_ARRAY_SPARSE_PROPERTIES* properties, CUmipmappedArray array);
HAMI_CU(cuMipmappedArrayGetMemoryRequirements, CUDA_ARRAY_MEMORY_REQUIREMENTS* requirements, CUmipmappedArray array,
        CUdevice device);

// Texture and surface objects, tensor maps
HAMI_CU(cuTexObjectCreate, CUtexObject* object, const CUDA_RESOURCE_DESC* resource, const CUDA_TEXTURE_DESC* texture,
        const CUDA_RESOURCE_VIEW_DESC* view);
HAMI_CU(cuTexObjectDestroy, CUtexObject object);
HAMI_CU(cuTexObjectGetResourceDesc, CUDA_RESOURCE_DESC* desc, CUtexObject object);
HAMI_CU(cuTexObjectGetTextureDesc, CUDA_TEXTURE_DESC* desc, CUtexObject object);
HAMI_CU(cuTexObjectGetResourceViewDesc, CUDA_RESOURCE_VIEW_DESC* desc, CUtexObject object);
HAMI_CU(cuSurfObjectCreate, CUsurfObject* object, const CUDA_RESOURCE_DESC* resource);
HAMI_CU(cuSurfObjectDestroy, CUsurfObject object);
HAMI_CU(cuSurfObjectGetResourceDesc, CUDA_RESOURCE_DESC* desc, CUsurfObject object);
HAMI_CU(cuTensorMapEncodeTiled, CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* base,
        const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box, const cuuint32_t* element_strides,
        CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2,
          CUtensorMapFloatOOBfill fill);
HAMI_CU(cuTensorMapEncodeIm2col, CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* base,
        const cuuint64_t* dims, const cuuint64_t* strides, const int* lower, const int* upper, cuuint32_t channels,
        cuuint32_t pixels, const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
          CUtensorMapSwizzle swizzle,
        CUtensorMapL2promotion l2, CUtensorMapFloatOOBfill fill);
HAMI_CU(cuTensorMapEncodeIm2colWide, CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* base,
        const cuuint64_t* dims, const cuuint64_t* strides, int lower_width, int upper_width, cuuint32_t channels,
        cuuint32_t pixels, const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
        CUtensorMapIm2ColWideMode mode, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2,
          CUtensorMapFloatOOBfill fill);
HAMI_CU(cuTensorMapReplaceAddress, CUtensorMap* map, void* base);

// Texture and surface references, gone from the language since CUDA 12 and still exported
HAMI_CU(cuTexRefCreate, CUtexref* ref);
HAMI_CU(cuTexRefDestroy, CUtexref ref);
HAMI_CU(cuTexRefSetArray, CUtexref ref, CUarray array, unsigned flags);
HAMI_CU(cuTexRefSetMipmappedArray, CUtexref ref, CUmipmappedArray array, unsigned flags);
HAMI_CU(cuTexRefSetAddress, unsigned* offset, CUtexref ref, CUdeviceptr_v1 ptr, unsigned bytes);
HAMI_CU(cuTexRefSetAddress_v2, size_t* offset, CUtexref ref, CUdeviceptr ptr, size_t bytes);
HAMI_CU(cuTexRefSetAddress2D, CUtexref ref, const CUDA_ARRAY_DESCRIPTOR_v1* desc, CUdeviceptr_v1 ptr, unsigned pitch);
HAMI_CU(cuTexRefSetAddress2D_v2, CUtexref ref, const CUDA_ARRAY_DESCRIPTOR* desc, CUdeviceptr ptr, size_t pitch);
HAMI_CU(cuTexRefSetAddress2D_v3, CUtexref ref, const CUDA_ARRAY_DESCRIPTOR* desc, CUdeviceptr ptr, size_t pitch);
HAMI_CU(cuTexRefSetFormat, CUtexref ref, CUarray_format format, int components);
HAMI_CU(cuTexRefSetAddressMode, CUtexref ref, int dim, CUaddress_mode mode);
HAMI_CU(cuTexRefSetFilterMode, CUtexref ref, CUfilter_mode mode);
HAMI_CU(cuTexRefSetMipmapFilterMode, CUtexref ref, CUfilter_mode mode);
HAMI_CU(cuTexRefSetMipmapLevelBias, CUtexref ref, float bias);
HAMI_CU(cuTexRefSetMipmapLevelClamp, CUtexref ref, float least, float most);
HAMI_CU(cuTexRefSetMaxAnisotropy, CUtexref ref, unsigned most);
HAMI_CU(cuTexRefSetBorderColor, CUtexref ref, float* color);
HAMI_CU(cuTexRefSetFlags, CUtexref ref, unsigned flags);
HAMI_CU(cuTexRefGetAddress, CUdeviceptr_v1* ptr, CUtexref ref);
HAMI_CU(cuTexRefGetAddress_v2, CUdeviceptr* ptr, CUtexref ref);
HAMI_CU(cuTexRefGetArray, CUarray* array, CUtexref ref);
HAMI_CU(cuTexRefGetMipmappedArray, CUmipmappedArray* array, CUtexref ref);
HAMI_CU(cuTexRefGetFormat, CUarray_format* format, int* channels, CUtexref ref);
HAMI_CU(cuTexRefGetAddressMode, CUaddress_mode* mode, CUtexref ref, int dim);
HAMI_CU(cuTexRefGetFilterMode, CUfilter_mode* mode, CUtexref ref);
HAMI_CU(cuTexRefGetMipmapFilterMode, CUfilter_mode* mode, CUtexref ref);
HAMI_CU(cuTexRefGetMipmapLevelBias, float* bias, CUtexref ref);
HAMI_CU(cuTexRefGetMipmapLevelClamp, float* least, float* most, CUtexref ref);
HAMI_CU(cuTexRefGetMaxAnisotropy, int* most, CUtexref ref);
HAMI_CU(cuTexRefGetBorderColor, float* color, CUtexref ref);
HAMI_CU(cuTexRefGetFlags, unsigned* flags, CUtexref ref);
HAMI_CU(cuSurfRefSetArray, CUsurfref ref, CUarray array, unsigned flags);
HAMI_CU(cuSurfRefGetArray, CUarray* array, CUsurfref ref);

// Memory and semaphores of other APIs
HAMI_CU(cuImportExternalMemory, CUexternalMemory* memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* desc);
HAMI_CU(cuDestroyExternalMemory, CUexternalMemory memory);
HAMI_CU(cuExternalMemoryGetMappedBuffer, CUdeviceptr* ptr, CUexternalMemory memory,
        const CUDA_EXTERNAL_MEMORY_BUFFER_DESC* desc);
HAMI_CU(cuExternalMemoryGetMappedMipmappedArray, CUmipmappedArray* array, CUexternalMemory memory,
        const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC* desc);
HAMI_CU(cuImportExternalSemaphore, CUexternalSemaphore* semaphore, const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC* desc);
HAMI_CU(cuDestroyExternalSemaphore, CUexternalSemaphore semaphore);
HAMI_CU_PTSZ(cuSignalExternalSemaphoresAsync, const CUexternalSemaphore* semaphores,
             const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS* params, unsigned n, CUstream stream);
HAMI_CU_PTSZ(cuWaitExternalSemaphoresAsync, const CUexternalSemaphore* semaphores,
             const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS* params, unsigned n, CUstream stream);
HAMI_CU_PTSZ(cuGraphicsMapResources, unsigned n, CUgraphicsResource* resources, CUstream stream);
HAMI_CU_PTSZ(cuGraphicsUnmapResources, unsigned n, CUgraphicsResource* resources, CUstream stream);
HAMI_CU(cuGraphicsUnregisterResource, CUgraphicsResource resource);
HAMI_CU(cuGraphicsResourceSetMapFlags, CUgraphicsResource resource, unsigned flags);
HAMI_CU(cuGraphicsResourceSetMapFlags_v2, CUgraphicsResource resource, unsigned flags);
HAMI_CU(cuGraphicsResourceGetMappedPointer, CUdeviceptr_v1* ptr, unsigned* bytes, CUgraphicsResource resource);
HAMI_CU(cuGraphicsResourceGetMappedPointer_v2, CUdeviceptr* ptr, size_t* bytes, CUgraphicsResource resource);
HAMI_CU(cuGraphicsResourceGetMappedMipmappedArray, CUmipmappedArray* array, CUgraphicsResource resource);
HAMI_CU(cuGraphicsSubResourceGetMappedArray, CUarray* array, CUgraphicsResource resource, unsigned index,
        unsigned level);

}  // extern "C"
// clang-format on
