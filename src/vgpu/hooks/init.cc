// SPDX-License-Identifier: Apache-2.0
//
// The first call, and the look-up of all others.

#include "vgpu/hooks/proc_address.h"
#include "vgpu/loader/driver.h"
#include "vgpu/runtime/nvml_probe.h"
#include "vgpu/runtime/process.h"
#include "vgpu/runtime/visible.h"

using namespace hami::vgpu;  // NOLINT: this file only exports

// Attaching here rather than at the first allocation makes the process visible to the monitor from the start, and says
// which devices the driver may show.
HAMI_EXPORT CUresult cuInit(unsigned flags) {
  if (!real::cuInit || !Active()) return real::cuInit(flags);
  if (RefusesAll()) return CUDA_ERROR_INVALID_VALUE;
  const VisibleForDriver visible;
  OpenNvmlAhead();
  return real::cuInit(flags);
}

// The driver answers, with its own rules for version, flags and status; only the pointer is ours where we have one.
HAMI_EXPORT CUresult cuGetProcAddress(const char* name, void** out, int version, cuuint64_t flags) {
  const CUresult result = real::cuGetProcAddress(name, out, version, flags);
  if (result == CUDA_SUCCESS && out != nullptr) *out = ReplaceAddress(name, *out, version, flags);
  return result;
}

HAMI_EXPORT CUresult cuGetProcAddress_v2(const char* name, void** out, int version, cuuint64_t flags,
                                         CUdriverProcAddressQueryResult* status) {
  const CUresult result = real::cuGetProcAddress_v2(name, out, version, flags, status);
  if (result == CUDA_SUCCESS && out != nullptr) *out = ReplaceAddress(name, *out, version, flags);
  return result;
}
