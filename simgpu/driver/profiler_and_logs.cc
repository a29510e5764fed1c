// SPDX-License-Identifier: Apache-2.0
//
// The profiler's switch, which has nothing to switch, and the driver's log, which a program may listen to and which
// stays empty: refusals are told by their result codes alone.

#include <cstddef>
#include <cstdio>
#include <mutex>
#include <unordered_set>

#include "simgpu/driver/core.h"

namespace {

// Registered listeners, by handle. Never destroyed: programs unregister in exit handlers.
struct Listeners {
  std::mutex lock;
  std::unordered_set<std::uintptr_t> handles;
  std::uintptr_t next = 1;
};

Listeners& TheListeners() {
  static Listeners& listeners = *new Listeners;
  return listeners;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuProfilerStart() {
  SIMGPU_ENTER(cuProfilerStart);
  simgpu::Context* ctx = nullptr;
  return simgpu::NeedContext(&ctx);
}

CUresult CUDAAPI cuProfilerStop() {
  SIMGPU_ENTER(cuProfilerStop);
  simgpu::Context* ctx = nullptr;
  return simgpu::NeedContext(&ctx);
}

CUresult CUDAAPI cuLogsRegisterCallback(CUlogsCallback callbackFunc, void*, CUlogsCallbackHandle* callback_out) {
  if (callbackFunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Listeners& listeners = TheListeners();
  const std::lock_guard<std::mutex> guard(listeners.lock);
  const std::uintptr_t handle = listeners.next++;
  listeners.handles.insert(handle);
  if (callback_out != nullptr) *callback_out = reinterpret_cast<CUlogsCallbackHandle>(handle);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLogsUnregisterCallback(CUlogsCallbackHandle callback) {
  Listeners& listeners = TheListeners();
  const std::lock_guard<std::mutex> guard(listeners.lock);
  const bool known = listeners.handles.erase(reinterpret_cast<std::uintptr_t>(callback)) != 0;
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuLogsCurrent(CUlogIterator* iterator_out, unsigned int flags) {
  if (iterator_out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *iterator_out = 0;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLogsDumpToFile(CUlogIterator*, const char* pathToFile, unsigned int flags) {
  if (pathToFile == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  std::FILE* file = std::fopen(pathToFile, "ae");
  if (file == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::fclose(file);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLogsDumpToMemory(CUlogIterator*, char* buffer, size_t* size, unsigned int flags) {
  if (buffer == nullptr || size == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (*size != 0) buffer[0] = '\0';
  *size = 0;
  return CUDA_SUCCESS;
}

}  // extern "C"
