// SPDX-License-Identifier: Apache-2.0
//
// Which device is which. CUDA numbers devices by CUDA_VISIBLE_DEVICES, NVML by PCI address, the region by the order in
// which its creator wrote the limits (NVML's). The one identity they share is the UUID, and everything here goes
// through it; a MIG instance that the region does not name belongs to its GPU. Answers are region indices (or
// kUnlimited, kForbidden, see process.h) and are remembered.
#pragma once

#include <atomic>
#include "abi/cuda_abi.h"

#include "abi/nvml_abi.h"
#include "region/region.h"
#include "vgpu/runtime/lock.h"

namespace hami::vgpu {

// What was found out so far (runtime.h); all zeros while that is nothing.
struct DeviceMap {
  static constexpr int kOrdinals = 128;
  static constexpr int kHandles = 64;
  struct Handle {
    std::atomic<nvmlDevice_t> handle{nullptr};
    std::atomic<int> device{0};
  };

  // Written under the lock, read without it.
  std::atomic<int> by_ordinal[kOrdinals] = {};
  Handle by_handle[kHandles] = {};

  Lock lock{LockRank::kDeviceMap};
  bool listed = false;
  bool replaced = false;
  region::DeviceList found = {};  // too large for a program's stack
};

// `ordinal` as the CUDA driver counts. Needs cuInit to have succeeded; before that kUnlimited, and not remembered.
int DeviceOfOrdinal(CUdevice ordinal);

// kUnlimited for handles that the driver does not know.
int DeviceOfHandle(nvmlDevice_t handle);

// The NVML handle of a CUDA ordinal, for somebody who holds an NvmlUse.
bool HandleOfOrdinal(CUdevice ordinal, nvmlDevice_t* out);

// CUDA and NVML show only the devices of the region, or without one those that the settings name.
bool DevicesAreFixed();

// Number of these devices, their whole UUIDs and their handles, in the region's order. For an enumeration that is
// restricted to them.
unsigned FixedDeviceCount();
const char* FixedDeviceName(unsigned index);  // index below the count
nvmlReturn_t FixedDeviceHandle(unsigned index, nvmlDevice_t* out);
// True for a MIG instance of one of them.
bool IsPartOfFixedDevice(const char* mig_uuid);

void ResetDeviceMap();

}  // namespace hami::vgpu
