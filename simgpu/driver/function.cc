// SPDX-License-Identifier: Apache-2.0
// cuFunc*, cuKernel* and the parameter calls of the launches before CUDA 4.

#include <cstring>

#include "simgpu/driver/module.h"

namespace simgpu {
namespace {

// More than any kernel takes (32764 bytes): a wrong offset.
constexpr std::size_t kMaxLegacyParams = std::size_t{1} << 16;

CUresult FindFunction(CUfunction handle, KernelRef* out) {
  *out = FromHandle(handle);
  return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

// A CUkernel; a CUfunction is none.
CUresult FindKernel(CUkernel handle, KernelRef* out) {
  *out = Registry::Get().Find(static_cast<const void*>(handle));
  return *out && (*out)->context == nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

// A CUfunction, or a CUkernel cast to one, as a function of the current context: what attributes are set on.
CUresult FindHere(CUfunction handle, KernelRef* out) {
  SIMGPU_TRY(FindFunction(handle, out));
  if ((*out)->context != nullptr) return CUDA_SUCCESS;
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  return KernelForLaunch(handle, *ctx, out);
}

CUresult WriteParam(CUfunction handle, int offset, const void* value, std::size_t size) {
  if (offset < 0 || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  KernelRef kernel;
  SIMGPU_TRY(FindHere(handle, &kernel));
  const auto at = static_cast<std::size_t>(offset);
  if (at > kMaxLegacyParams || size > kMaxLegacyParams - at) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard<std::mutex> guard(kernel->legacy_lock);
  std::vector<std::byte>& params = kernel->legacy.params;
  if (params.size() < at + size) params.resize(at + size);
  std::memcpy(params.data() + at, value, size);
  return CUDA_SUCCESS;
}

CUresult CountParams(const KernelRef& kernel, size_t* count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = kernel->info->params.size();
  return CUDA_SUCCESS;
}

CUresult CheckCacheConfig(CUfunc_cache config) {
  return config >= CU_FUNC_CACHE_PREFER_NONE && config <= CU_FUNC_CACHE_PREFER_EQUAL ? CUDA_SUCCESS
                                                                                     : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace
}  // namespace simgpu

using namespace simgpu;

extern "C" {

CUresult CUDAAPI cuFuncGetAttribute(int* pi, CUfunction_attribute attrib, CUfunction hfunc) {
  SIMGPU_ENTER(cuFuncGetAttribute);
  if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
  KernelRef kernel;
  SIMGPU_TRY(FindHere(hfunc, &kernel));
  return GetKernelAttribute(*kernel, attrib, pi);
}

CUresult CUDAAPI cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
  SIMGPU_ENTER(cuFuncSetAttribute);
  KernelRef kernel;
  SIMGPU_TRY(FindHere(hfunc, &kernel));
  return SetKernelAttribute(*kernel, kernel->settings, *kernel->context->device, attrib, value);
}

CUresult CUDAAPI cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config) {
  SIMGPU_ENTER(cuFuncSetCacheConfig);
  KernelRef kernel;
  SIMGPU_TRY(FindFunction(hfunc, &kernel));
  return CheckCacheConfig(config);
}

CUresult CUDAAPI cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig config) {
  SIMGPU_ENTER(cuFuncSetSharedMemConfig);
  KernelRef kernel;
  SIMGPU_TRY(FindFunction(hfunc, &kernel));
  return config >= CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE && config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuFuncGetModule(CUmodule* hmod, CUfunction hfunc) {
  SIMGPU_ENTER(cuFuncGetModule);
  if (hmod == nullptr) return CUDA_ERROR_INVALID_VALUE;
  KernelRef kernel;
  SIMGPU_TRY(FindHere(hfunc, &kernel));
  const ModuleRef module = kernel->module.lock();
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  *hmod = HandleOf(*module);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuFuncGetName(const char** name, CUfunction hfunc) {
  SIMGPU_ENTER(cuFuncGetName);
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  KernelRef kernel;
  SIMGPU_TRY(FindFunction(hfunc, &kernel));
  *name = kernel->info->name.c_str();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t* paramOffset, size_t* paramSize) {
  SIMGPU_ENTER(cuFuncGetParamInfo);
  KernelRef kernel;
  SIMGPU_TRY(FindFunction(func, &kernel));
  return GetParamInfo(*kernel->info, paramIndex, paramOffset, paramSize);
}

CUresult CUDAAPI cuFuncGetParamCount(CUfunction func, size_t* paramCount) {
  SIMGPU_ENTER(cuFuncGetParamCount);
  KernelRef kernel;
  SIMGPU_TRY(FindFunction(func, &kernel));
  return CountParams(kernel, paramCount);
}

CUresult CUDAAPI cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
  SIMGPU_ENTER(cuFuncIsLoaded);
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  KernelRef kernel;
  SIMGPU_TRY(FindFunction(function, &kernel));
  // A module's functions come with it; a library's kernel is loaded where it was used.
  *state = kernel->context != nullptr ? CU_FUNCTION_LOADING_STATE_LOADED : CU_FUNCTION_LOADING_STATE_UNLOADED;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuFuncLoad(CUfunction function) {
  SIMGPU_ENTER(cuFuncLoad);
  KernelRef kernel;
  return FindHere(function, &kernel);
}

CUresult CUDAAPI cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z) {
  SIMGPU_ENTER(cuFuncSetBlockShape);
  if (x <= 0 || y <= 0 || z <= 0) return CUDA_ERROR_INVALID_VALUE;
  KernelRef kernel;
  SIMGPU_TRY(FindHere(hfunc, &kernel));
  const std::lock_guard<std::mutex> guard(kernel->legacy_lock);
  kernel->legacy.block = {static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z)};
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes) {
  SIMGPU_ENTER(cuFuncSetSharedSize);
  KernelRef kernel;
  SIMGPU_TRY(FindHere(hfunc, &kernel));
  const std::lock_guard<std::mutex> guard(kernel->legacy_lock);
  kernel->legacy.shared_bytes = bytes;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuParamSetSize(CUfunction hfunc, unsigned int numbytes) {
  SIMGPU_ENTER(cuParamSetSize);
  if (numbytes > kMaxLegacyParams) return CUDA_ERROR_INVALID_VALUE;
  KernelRef kernel;
  SIMGPU_TRY(FindHere(hfunc, &kernel));
  const std::lock_guard<std::mutex> guard(kernel->legacy_lock);
  kernel->legacy.params.resize(numbytes);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuParamSeti(CUfunction hfunc, int offset, unsigned int value) {
  SIMGPU_ENTER(cuParamSeti);
  return WriteParam(hfunc, offset, &value, sizeof value);
}

CUresult CUDAAPI cuParamSetf(CUfunction hfunc, int offset, float value) {
  SIMGPU_ENTER(cuParamSetf);
  return WriteParam(hfunc, offset, &value, sizeof value);
}

CUresult CUDAAPI cuParamSetv(CUfunction hfunc, int offset, void* ptr, unsigned int numbytes) {
  SIMGPU_ENTER(cuParamSetv);
  return WriteParam(hfunc, offset, ptr, numbytes);
}

CUresult CUDAAPI cuKernelGetFunction(CUfunction* pFunc, CUkernel kernel) {
  SIMGPU_ENTER(cuKernelGetFunction);
  if (pFunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  KernelRef found;
  SIMGPU_TRY(FindKernel(kernel, &found));
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  KernelRef function;
  SIMGPU_TRY(KernelForLaunch(HandleOf(*found), *ctx, &function));
  *pFunc = HandleOf(*function);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuKernelGetLibrary(CUlibrary* pLib, CUkernel kernel) {
  SIMGPU_ENTER(cuKernelGetLibrary);
  if (pLib == nullptr) return CUDA_ERROR_INVALID_VALUE;
  KernelRef found;
  SIMGPU_TRY(FindKernel(kernel, &found));
  const LibraryRef library = found->library.lock();
  if (!library) return CUDA_ERROR_INVALID_HANDLE;
  *pLib = HandleOf(*library);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuKernelGetAttribute(int* pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev) {
  SIMGPU_ENTER(cuKernelGetAttribute);
  if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
  KernelRef found;
  SIMGPU_TRY(FindKernel(kernel, &found));
  const Device* device = FindDevice(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  return GetKernelAttribute(*found, *device, attrib, pi);
}

CUresult CUDAAPI cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev) {
  SIMGPU_ENTER(cuKernelSetAttribute);
  KernelRef found;
  SIMGPU_TRY(FindKernel(kernel, &found));
  const Device* device = FindDevice(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  KernelSettings& settings = found->device_settings[static_cast<std::size_t>(device->ordinal)];
  return SetKernelAttribute(*found, settings, *device, attrib, val);
}

CUresult CUDAAPI cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev) {
  SIMGPU_ENTER(cuKernelSetCacheConfig);
  KernelRef found;
  SIMGPU_TRY(FindKernel(kernel, &found));
  if (FindDevice(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  return CheckCacheConfig(config);
}

CUresult CUDAAPI cuKernelGetName(const char** name, CUkernel hfunc) {
  SIMGPU_ENTER(cuKernelGetName);
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  KernelRef found;
  SIMGPU_TRY(FindKernel(hfunc, &found));
  *name = found->info->name.c_str();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t* paramOffset, size_t* paramSize) {
  SIMGPU_ENTER(cuKernelGetParamInfo);
  KernelRef found;
  SIMGPU_TRY(FindKernel(kernel, &found));
  return GetParamInfo(*found->info, paramIndex, paramOffset, paramSize);
}

CUresult CUDAAPI cuKernelGetParamCount(CUkernel kernel, size_t* paramCount) {
  SIMGPU_ENTER(cuKernelGetParamCount);
  KernelRef found;
  SIMGPU_TRY(FindKernel(kernel, &found));
  return CountParams(found, paramCount);
}

}  // extern "C"
