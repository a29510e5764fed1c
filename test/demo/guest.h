// SPDX-License-Identifier: Apache-2.0
//
// What the guest programs have in common: the driver's entry points, loaded with dlopen and dlsym as frameworks do, a
// context on device 0, and a report of what the program saw, one "key value" per line on stdout. A failure of anything
// but an allocation ends the program with status 1 and a line on stderr.

#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>

#include "abi/cuda_abi.h"
#include "abi/nvml_abi.h"

namespace guest {

inline constexpr size_t kMiB = size_t{1} << 20;
inline constexpr size_t kGiB = size_t{1} << 30;

struct Cuda {
  decltype(&::cuInit) cuInit;
  decltype(&::cuDeviceGet) cuDeviceGet;
  decltype(&::cuDevicePrimaryCtxRetain) cuDevicePrimaryCtxRetain;
  decltype(&::cuCtxSetCurrent) cuCtxSetCurrent;
  decltype(&::cuMemGetInfo_v2) cuMemGetInfo_v2;
  decltype(&::cuMemAlloc_v2) cuMemAlloc_v2;
  decltype(&::cuMemFree_v2) cuMemFree_v2;
  decltype(&::cuMemAllocPitch_v2) cuMemAllocPitch_v2;
  decltype(&::cuMemAllocManaged) cuMemAllocManaged;
  decltype(&::cuMemAllocAsync) cuMemAllocAsync;
  decltype(&::cuMemFreeAsync) cuMemFreeAsync;
  decltype(&::cuStreamSynchronize) cuStreamSynchronize;
  decltype(&::cuMemsetD8_v2) cuMemsetD8_v2;
  decltype(&::cuMemCreate) cuMemCreate;
  decltype(&::cuMemRelease) cuMemRelease;
  decltype(&::cuModuleLoadData) cuModuleLoadData;
  decltype(&::cuModuleGetFunction) cuModuleGetFunction;
  decltype(&::cuLaunchKernel) cuLaunchKernel;
};

// Loads the driver, makes the primary context of device 0 current. Never returns on failure.
const Cuda& Start();

// Ends the program unless RESULT is success.
void Must(CUresult result, const char* what);

// "key value" on stdout, flushed.
void Report(const char* key, uint64_t value);

// What cuMemGetInfo and NVML say now: cuda_total, cuda_free, nvml_total, nvml_used.
void ReportViews(const Cuda& cuda);

void Pause(double seconds);

}  // namespace guest
