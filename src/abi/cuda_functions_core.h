// SPDX-License-Identifier: Apache-2.0
//
// Functions of the CUDA driver API: initialisation, devices, contexts, modules, libraries, kernels, linking.
#pragma once

#include "abi/cuda_declare.h"

// clang-format off
extern "C" {

// Initialisation, errors, look-up
HAMI_CU(cuInit, unsigned flags);
HAMI_CU(cuDriverGetVersion, int* version);
HAMI_CU(cuGetErrorName, CUresult code, const char** name);
HAMI_CU(cuGetErrorString, CUresult code, const char** text);
HAMI_CU(cuGetProcAddress, const char* name, void** fn, int version, cuuint64_t flags);
HAMI_CU(cuGetProcAddress_v2, const char* name, void** fn, int version, cuuint64_t flags,
        CUdriverProcAddressQueryResult* status);
HAMI_CU(cuGetExportTable, const void** table, const CUuuid* id);
HAMI_CU(cuLogsRegisterCallback, CUlogsCallback fn, void* user, CUlogsCallbackHandle* handle);
HAMI_CU(cuLogsUnregisterCallback, CUlogsCallbackHandle handle);
HAMI_CU(cuLogsCurrent, CUlogIterator* end, unsigned flags);
HAMI_CU(cuLogsDumpToFile, CUlogIterator* from, const char* path, unsigned flags);
HAMI_CU(cuLogsDumpToMemory, CUlogIterator* from, char* buffer, size_t* size, unsigned flags);
// The configuration form left the API with 12; its mode was an enumeration of int's size.
HAMI_CU(cuProfilerInitialize, const char* config_path, const char* output_path, int mode);
HAMI_CU(cuProfilerStart, void);
HAMI_CU(cuProfilerStop, void);

// Devices
HAMI_CU(cuDeviceGetCount, int* count);
HAMI_CU(cuDeviceGet, CUdevice* device, int ordinal);
HAMI_CU(cuDeviceGetByPCIBusId, CUdevice* device, const char* bus_id);
HAMI_CU(cuDeviceGetPCIBusId, char* bus_id, int length, CUdevice device);
HAMI_CU(cuDeviceGetName, char* name, int length, CUdevice device);
HAMI_CU(cuDeviceGetUuid, CUuuid* uuid, CUdevice device);
HAMI_CU(cuDeviceGetUuid_v2, CUuuid* uuid, CUdevice device);
HAMI_CU(cuDeviceGetLuid, char* luid, unsigned* node_mask, CUdevice device);
HAMI_CU(cuDeviceTotalMem, unsigned* bytes, CUdevice device);
HAMI_CU(cuDeviceTotalMem_v2, size_t* bytes, CUdevice device);
HAMI_CU(cuDeviceGetAttribute, int* value, CUdevice_attribute attribute, CUdevice device);
HAMI_CU(cuDeviceGetProperties, CUdevprop* properties, CUdevice device);
HAMI_CU(cuDeviceComputeCapability, int* major, int* minor, CUdevice device);
HAMI_CU(cuDeviceGetTexture1DLinearMaxWidth, size_t* width, CUarray_format format, unsigned channels, CUdevice device);
HAMI_CU(cuDeviceGetNvSciSyncAttributes, void* attributes, CUdevice device, int flags);
HAMI_CU(cuDeviceGetExecAffinitySupport, int* supported, CUexecAffinityType type, CUdevice device);
HAMI_CU(cuDeviceRegisterAsyncNotification, CUdevice device, CUasyncCallback fn, void* user,
        CUasyncCallbackHandle* handle);
HAMI_CU(cuDeviceUnregisterAsyncNotification, CUdevice device, CUasyncCallbackHandle handle);
HAMI_CU(cuDeviceCanAccessPeer, int* can, CUdevice device, CUdevice peer);
HAMI_CU(cuDeviceGetP2PAttribute, int* value, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to);
HAMI_CU(cuFlushGPUDirectRDMAWrites, CUflushGPUDirectRDMAWritesTarget target, CUflushGPUDirectRDMAWritesScope scope);

// Contexts
HAMI_CU(cuCtxCreate, CUcontext* ctx, unsigned flags, CUdevice device);
HAMI_CU(cuCtxCreate_v2, CUcontext* ctx, unsigned flags, CUdevice device);
HAMI_CU(cuCtxCreate_v3, CUcontext* ctx, CUexecAffinityParam* affinity, int count, unsigned flags, CUdevice device);
HAMI_CU(cuCtxCreate_v4, CUcontext* ctx, CUctxCreateParams* params, unsigned flags, CUdevice device);
HAMI_CU(cuCtxDestroy, CUcontext ctx);
HAMI_CU(cuCtxDestroy_v2, CUcontext ctx);
HAMI_CU(cuCtxAttach, CUcontext* ctx, unsigned flags);
HAMI_CU(cuCtxDetach, CUcontext ctx);
HAMI_CU(cuCtxPushCurrent, CUcontext ctx);
HAMI_CU(cuCtxPushCurrent_v2, CUcontext ctx);
HAMI_CU(cuCtxPopCurrent, CUcontext* ctx);
HAMI_CU(cuCtxPopCurrent_v2, CUcontext* ctx);
HAMI_CU(cuCtxSetCurrent, CUcontext ctx);
HAMI_CU(cuCtxGetCurrent, CUcontext* ctx);
HAMI_CU(cuCtxGetDevice, CUdevice* device);
HAMI_CU(cuCtxGetDevice_v2, CUdevice* device, CUcontext ctx);
HAMI_CU(cuCtxGetFlags, unsigned* flags);
HAMI_CU(cuCtxSetFlags, unsigned flags);
HAMI_CU(cuCtxGetId, CUcontext ctx, unsigned long long* id);
HAMI_CU(cuCtxSynchronize, void);
HAMI_CU(cuCtxSynchronize_v2, CUcontext ctx);
HAMI_CU(cuCtxSetLimit, CUlimit limit, size_t value);
HAMI_CU(cuCtxGetLimit, size_t* value, CUlimit limit);
HAMI_CU(cuCtxGetCacheConfig, CUfunc_cache* config);
HAMI_CU(cuCtxSetCacheConfig, CUfunc_cache config);
HAMI_CU(cuCtxGetSharedMemConfig, CUsharedconfig* config);
HAMI_CU(cuCtxSetSharedMemConfig, CUsharedconfig config);
HAMI_CU(cuCtxGetApiVersion, CUcontext ctx, unsigned* version);
HAMI_CU(cuCtxGetStreamPriorityRange, int* least, int* greatest);
HAMI_CU(cuCtxResetPersistingL2Cache, void);
HAMI_CU(cuCtxGetExecAffinity, CUexecAffinityParam* affinity, CUexecAffinityType type);
HAMI_CU(cuCtxRecordEvent, CUcontext ctx, CUevent event);
HAMI_CU(cuCtxWaitEvent, CUcontext ctx, CUevent event);
HAMI_CU(cuCtxEnablePeerAccess, CUcontext peer, unsigned flags);
HAMI_CU(cuCtxDisablePeerAccess, CUcontext peer);
HAMI_CU(cuDevicePrimaryCtxRetain, CUcontext* ctx, CUdevice device);
HAMI_CU(cuDevicePrimaryCtxRelease, CUdevice device);
HAMI_CU(cuDevicePrimaryCtxRelease_v2, CUdevice device);
HAMI_CU(cuDevicePrimaryCtxReset, CUdevice device);
HAMI_CU(cuDevicePrimaryCtxReset_v2, CUdevice device);
HAMI_CU(cuDevicePrimaryCtxSetFlags, CUdevice device, unsigned flags);
HAMI_CU(cuDevicePrimaryCtxSetFlags_v2, CUdevice device, unsigned flags);
HAMI_CU(cuDevicePrimaryCtxGetState, CUdevice device, unsigned* flags, int* active);

// Green contexts and the resources they are made of
HAMI_CU(cuGreenCtxCreate, CUgreenCtx* green, CUdevResourceDesc desc, CUdevice device, unsigned flags);
HAMI_CU(cuGreenCtxDestroy, CUgreenCtx green);
HAMI_CU(cuGreenCtxGetId, CUgreenCtx green, unsigned long long* id);
HAMI_CU(cuGreenCtxGetDevResource, CUgreenCtx green, CUdevResource* resource, CUdevResourceType type);
HAMI_CU(cuGreenCtxRecordEvent, CUgreenCtx green, CUevent event);
HAMI_CU(cuGreenCtxWaitEvent, CUgreenCtx green, CUevent event);
HAMI_CU(cuGreenCtxStreamCreate, CUstream* stream, CUgreenCtx green, unsigned flags, int priority);
HAMI_CU(cuCtxFromGreenCtx, CUcontext* ctx, CUgreenCtx green);
HAMI_CU(cuCtxGetDevResource, CUcontext ctx, CUdevResource* resource, CUdevResourceType type);
HAMI_CU(cuDeviceGetDevResource, CUdevice device, CUdevResource* resource, CUdevResourceType type);
HAMI_CU(cuDevResourceGenerateDesc, CUdevResourceDesc* desc, CUdevResource* resources, unsigned count);
HAMI_CU(cuDevSmResourceSplitByCount, CUdevResource* groups, unsigned* count, const CUdevResource* input,
        CUdevResource* remainder, unsigned flags, unsigned min_count);

// Modules
HAMI_CU(cuModuleLoad, CUmodule* module, const char* path);
HAMI_CU(cuModuleLoadData, CUmodule* module, const void* image);
HAMI_CU(cuModuleLoadDataEx, CUmodule* module, const void* image, unsigned n, CUjit_option* options, void** values);
HAMI_CU(cuModuleLoadFatBinary, CUmodule* module, const void* image);
HAMI_CU(cuModuleUnload, CUmodule module);
HAMI_CU(cuModuleGetFunction, CUfunction* function, CUmodule module, const char* name);
HAMI_CU(cuModuleGetFunctionCount, unsigned* count, CUmodule module);
HAMI_CU(cuModuleEnumerateFunctions, CUfunction* functions, unsigned count, CUmodule module);
HAMI_CU(cuModuleGetGlobal, CUdeviceptr_v1* ptr, unsigned* bytes, CUmodule module, const char* name);
HAMI_CU(cuModuleGetGlobal_v2, CUdeviceptr* ptr, size_t* bytes, CUmodule module, const char* name);
HAMI_CU(cuModuleGetTexRef, CUtexref* ref, CUmodule module, const char* name);
HAMI_CU(cuModuleGetSurfRef, CUsurfref* ref, CUmodule module, const char* name);
HAMI_CU(cuModuleGetLoadingMode, CUmoduleLoadingMode* mode);

// Functions and kernels
HAMI_CU(cuFuncGetAttribute, int* value, CUfunction_attribute attribute, CUfunction function);
HAMI_CU(cuFuncSetAttribute, CUfunction function, CUfunction_attribute attribute, int value);
HAMI_CU(cuFuncSetCacheConfig, CUfunction function, CUfunc_cache config);
HAMI_CU(cuFuncSetSharedMemConfig, CUfunction function, CUsharedconfig config);
HAMI_CU(cuFuncGetModule, CUmodule* module, CUfunction function);
HAMI_CU(cuFuncGetName, const char** name, CUfunction function);
HAMI_CU(cuFuncGetParamInfo, CUfunction function, size_t index, size_t* offset, size_t* size);
HAMI_CU(cuFuncGetParamCount, CUfunction function, size_t* count);
HAMI_CU(cuFuncIsLoaded, CUfunctionLoadingState* state, CUfunction function);
HAMI_CU(cuFuncLoad, CUfunction function);
HAMI_CU(cuFuncSetBlockShape, CUfunction function, int x, int y, int z);
HAMI_CU(cuFuncSetSharedSize, CUfunction function, unsigned bytes);
HAMI_CU(cuParamSetSize, CUfunction function, unsigned bytes);
HAMI_CU(cuParamSeti, CUfunction function, int offset, unsigned value);
HAMI_CU(cuParamSetf, CUfunction function, int offset, float value);
HAMI_CU(cuParamSetv, CUfunction function, int offset, void* ptr, unsigned bytes);
HAMI_CU(cuParamSetTexRef, CUfunction function, int unit, CUtexref ref);
HAMI_CU(cuKernelGetFunction, CUfunction* function, CUkernel kernel);
HAMI_CU(cuKernelGetLibrary, CUlibrary* library, CUkernel kernel);
HAMI_CU(cuKernelGetName, const char** name, CUkernel kernel);
HAMI_CU(cuKernelGetAttribute, int* value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device);
HAMI_CU(cuKernelSetAttribute, CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device);
HAMI_CU(cuKernelSetCacheConfig, CUkernel kernel, CUfunc_cache config, CUdevice device);
HAMI_CU(cuKernelGetParamInfo, CUkernel kernel, size_t index, size_t* offset, size_t* size);
HAMI_CU(cuKernelGetParamCount, CUkernel kernel, size_t* count);

// Libraries
HAMI_CU(cuLibraryLoadData, CUlibrary* library, const void* code, CUjit_option* jit, void** jit_values,
        unsigned jit_count,
        CUlibraryOption* options, void** values, unsigned count);
HAMI_CU(cuLibraryLoadFromFile, CUlibrary* library, const char* path, CUjit_option* jit, void** jit_values,
        unsigned jit_count, CUlibraryOption* options, void** values, unsigned count);
HAMI_CU(cuLibraryUnload, CUlibrary library);
HAMI_CU(cuLibraryGetKernel, CUkernel* kernel, CUlibrary library, const char* name);
HAMI_CU(cuLibraryGetKernelCount, unsigned* count, CUlibrary library);
HAMI_CU(cuLibraryEnumerateKernels, CUkernel* kernels, unsigned count, CUlibrary library);
HAMI_CU(cuLibraryGetModule, CUmodule* module, CUlibrary library);
HAMI_CU(cuLibraryGetGlobal, CUdeviceptr* ptr, size_t* bytes, CUlibrary library, const char* name);
HAMI_CU(cuLibraryGetManaged, CUdeviceptr* ptr, size_t* bytes, CUlibrary library, const char* name);
HAMI_CU(cuLibraryGetUnifiedFunction, void** fn, CUlibrary library, const char* symbol);

// Linking
HAMI_CU(cuLinkCreate, unsigned n, CUjit_option* options, void** values, CUlinkState* state);
HAMI_CU(cuLinkCreate_v2, unsigned n, CUjit_option* options, void** values, CUlinkState* state);
HAMI_CU(cuLinkAddData, CUlinkState state, CUjitInputType type, void* data, size_t size, const char* name, unsigned n,
        CUjit_option* options, void** values);
HAMI_CU(cuLinkAddData_v2, CUlinkState state, CUjitInputType type, void* data, size_t size, const char* name, unsigned n,
        CUjit_option* options, void** values);
HAMI_CU(cuLinkAddFile, CUlinkState state, CUjitInputType type, const char* path, unsigned n, CUjit_option* options,
        void** values);
HAMI_CU(cuLinkAddFile_v2, CUlinkState state, CUjitInputType type, const char* path, unsigned n, CUjit_option* options,
        void** values);
HAMI_CU(cuLinkComplete, CUlinkState state, void** cubin, size_t* size);
HAMI_CU(cuLinkDestroy, CUlinkState state);

// Checkpoints and core dumps
HAMI_CU(cuCheckpointProcessGetRestoreThreadId, int pid, int* tid);
HAMI_CU(cuCheckpointProcessGetState, int pid, CUprocessState* state);
HAMI_CU(cuCheckpointProcessLock, int pid, CUcheckpointLockArgs* args);
HAMI_CU(cuCheckpointProcessCheckpoint, int pid, CUcheckpointCheckpointArgs* args);
HAMI_CU(cuCheckpointProcessRestore, int pid, CUcheckpointRestoreArgs* args);
HAMI_CU(cuCheckpointProcessUnlock, int pid, CUcheckpointUnlockArgs* args);
HAMI_CU(cuCoredumpGetAttribute, CUcoredumpSettings key, void* value, size_t* size);
HAMI_CU(cuCoredumpGetAttributeGlobal, CUcoredumpSettings key, void* value, size_t* size);
HAMI_CU(cuCoredumpSetAttribute, CUcoredumpSettings key, void* value, size_t* size);
HAMI_CU(cuCoredumpSetAttributeGlobal, CUcoredumpSettings key, void* value, size_t* size);

}  // extern "C"
// clang-format on
