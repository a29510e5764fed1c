// SPDX-License-Identifier: Apache-2.0
// cuGetProcAddress in both forms. Works before cuInit, as every client expects.

#include "abi/cuda_abi.h"
#include "simgpu/driver/entry_points.h"
#include "simgpu/simgpu.h"

namespace {

CUresult Answer(const char* symbol, void** pfn, int version, cuuint64_t flags, CUdriverProcAddressQueryResult* status) {
  if (symbol == nullptr || pfn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
  void (*address)() = nullptr;
  const bool per_thread = flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  const simgpu::Lookup found = simgpu::FindEntryPoint(symbol, version, per_thread, &address);
  *pfn = reinterpret_cast<void*>(address);
  CUdriverProcAddressQueryResult told = CU_GET_PROC_ADDRESS_SUCCESS;
  if (found == simgpu::Lookup::kUnknownName) told = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  if (found == simgpu::Lookup::kVersionTooOld) told = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
  if (status != nullptr) *status = told;
  return found == simgpu::Lookup::kFound ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags) {
  return Answer(symbol, pfn, cudaVersion, flags, nullptr);
}

CUresult CUDAAPI cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags,
                                     CUdriverProcAddressQueryResult* symbolStatus) {
  return Answer(symbol, pfn, cudaVersion, flags, symbolStatus);
}

__attribute__((visibility("default"))) void* simgpu_own_function(const char* symbol) {
  if (symbol == nullptr) return nullptr;
  for (const simgpu::EntryPoint& entry : simgpu::EntryPoints()) {
    if (entry.symbol == symbol) return reinterpret_cast<void*>(entry.address);
  }
  return nullptr;
}

}  // extern "C"
