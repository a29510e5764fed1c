// SPDX-License-Identifier: Apache-2.0
//
// For scenarios that launch: kernels of an image, streams to launch on, clocks, and the files by which a scenario and
// its test tell each other how far they are.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "test/preload/guest.h"

namespace guest {

using Clock = std::chrono::steady_clock;

inline double Seconds(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }
inline int64_t Monotonic() { return Clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

inline CUmodule LoadImage(const char* image) {
  CUmodule module = nullptr;
  OK(cuModuleLoadData(&module, image));
  return module;
}

inline CUfunction KernelOf(CUmodule module, const char* name) {
  CUfunction function = nullptr;
  OK(cuModuleGetFunction(&function, module, name));
  return function;
}

inline CUstream NewStream() {
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

inline CUgreenCtx GreenContext(CUdevice ordinal) {
  CUdevResource all{};
  CUdevResource part{};
  CUdevResource rest{};
  unsigned groups = 1;
  CUdevResourceDesc description = nullptr;
  CUgreenCtx green = nullptr;
  OK(cuDeviceGetDevResource(ordinal, &all, CU_DEV_RESOURCE_TYPE_SM));
  OK(cuDevSmResourceSplitByCount(&part, &groups, &all, &rest, 0, 16));
  OK(cuDevResourceGenerateDesc(&description, &part, 1));
  OK(cuGreenCtxCreate(&green, description, ordinal, CU_GREEN_CTX_DEFAULT_STREAM));
  return green;
}

inline CUresult TryLaunch(CUfunction f, CUstream stream, unsigned blocks = 1, unsigned threads = 1,
                          void** params = nullptr) {
  return cuLaunchKernel(f, blocks, 1, 1, threads, 1, 1, 0, stream, params, nullptr);
}
inline void Launch(CUfunction f, CUstream stream, unsigned blocks = 1, unsigned threads = 1, void** params = nullptr) {
  OK(TryLaunch(f, stream, blocks, threads, params));
}

inline std::string Path(const char* name) { return std::string(std::getenv("GUEST_FOLDER")) + "/" + name; }
template <typename T>
void Tell(const char* name, const T& value) {
  std::ofstream(Path(name)) << value;
}
inline void Touch(const char* name) { Tell(name, "x"); }
inline bool Exists(const char* name) { return access(Path(name).c_str(), F_OK) == 0; }
inline void AwaitFile(const char* name) {
  while (!Exists(name)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}
inline int64_t NumberIn(const char* name) {
  int64_t number = 0;
  std::ifstream(Path(name)) >> number;
  return number;
}

}  // namespace guest
