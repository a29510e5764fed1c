// SPDX-License-Identifier: Apache-2.0
//
// Virtual memory management: what pointer queries need to know of reservations and of the handle behind a mapping.
#pragma once

#include <cstddef>

#include "abi/cuda_abi.h"

namespace simgpu {

struct VmmHandle;

// The reservation that contains `address`. False when there is none.
bool FindReservation(CUdeviceptr address, CUdeviceptr* base, std::size_t* size);

CUmemAllocationHandleType HandleTypesOf(const VmmHandle& handle);

}  // namespace simgpu
