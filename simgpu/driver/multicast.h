// SPDX-License-Identifier: Apache-2.0
//
// Multicast objects: a range of offsets to which the devices of a team bind memory. What is shared is the team: which
// devices it has, in a page that every process which imported the object sees. What a process binds is its own affair:
// it holds the memory until it is unbound, or until nothing of that process refers to the object any more.
//
// Nothing is stored through a multicast object: only kernels could, and those compute nothing here. Its mappings are
// addresses that copies and fills refuse. Refuses devices without an NVSwitch that multicasts, and pool memory.
#pragma once

#include "simgpu/driver/mem_vmm.h"

namespace simgpu {

// The handle, after its team is complete if it is a multicast object: until then the caller waits, without the lock, as
// the driver makes it wait. Null when the value names no handle.
VmmHandle* AwaitTeam(CUmemGenericAllocationHandle value, MemLock& held);

// The object behind a descriptor that another process, or this one, exported. CUDA_ERROR_INVALID_VALUE for others.
CUresult ImportMulticast(CUmemGenericAllocationHandle* out, int fd);

// The object is gone, and what is bound to it with it.
void EndMulticast(Multicast* multicast, const MemLock& held);

}  // namespace simgpu
