// SPDX-License-Identifier: Apache-2.0
//
// cuGetExportTable is where a program of the CUDA runtime looks for tables that only NVIDIA's driver has. The simulated
// driver has none and does not pretend to: it declines, and tells the person at the terminal what that means, once.

#include <cstdio>
#include <cstdlib>

#include <atomic>

#include "abi/cuda_abi.h"

namespace {

constinit std::atomic<bool> g_told{false};

void TellOnce() {
  if (g_told.exchange(true, std::memory_order_relaxed) || std::getenv("SIMGPU_QUIET") != nullptr) return;
  std::fputs(
      "simgpu: this program asked for tables that only NVIDIA's driver has. Programs of the CUDA runtime API need a "
      "machine with an NVIDIA GPU; programs of the driver API and of NVML run here (docs/develop/simgpu.md; "
      "SIMGPU_QUIET=1 "
      "hides this line)\n",
      stderr);
}

}  // namespace

extern "C" CUresult CUDAAPI cuGetExportTable(const void** ppExportTable, const CUuuid* pExportTableId) {
  if (ppExportTable != nullptr) *ppExportTable = nullptr;
  if (ppExportTable != nullptr && pExportTableId != nullptr) TellOnce();
  return CUDA_ERROR_INVALID_VALUE;
}
