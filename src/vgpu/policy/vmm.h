// SPDX-License-Identifier: Apache-2.0
//
// Virtual memory management: physical memory that a handle names and mappings use. Invariant: a physical allocation is
// charged once, to the device it lies on, from its creation until the last reference to its handle is released *and*
// its last mapping is gone, in whatever order. Memory imported from another process is charged while it is mapped here,
// because its maker may let go of it while we hold it; two processes of one container that share memory this way
// therefore count it twice while both map it. Sparse arrays (cuMemMapArrayAsync) are not followed.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "abi/cuda_abi.h"

namespace hami::vgpu {

// The device whose memory `prop` asks for; kUnlimited for host memory.
int DeviceOfProperties(const CUmemAllocationProp& prop);

void VmmCreated(CUmemGenericAllocationHandle handle, uint64_t bytes, int device);
void VmmImported(CUmemGenericAllocationHandle handle, int device);
void VmmRetained(CUmemGenericAllocationHandle handle, CUdeviceptr address);
// Around the driver's release: the name goes first, because the driver may hand out the same value again at once; the
// charge goes afterwards. `id` is what VmmReleasing answered.
uint64_t VmmReleasing(CUmemGenericAllocationHandle handle);
void VmmReleased(CUmemGenericAllocationHandle handle, uint64_t id, bool released);
// Before a mapping: false when imported memory does not fit. VmmMapFailed takes it back.
bool VmmMapping(CUdeviceptr address, uint64_t bytes, CUmemGenericAllocationHandle handle);
void VmmMapFailed(CUdeviceptr address);
void VmmUnmapped(CUdeviceptr address, uint64_t bytes);

void ResetVmm();

}  // namespace hami::vgpu
