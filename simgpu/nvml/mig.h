// SPDX-License-Identifier: Apache-2.0
//
// How NVML numbers MIG profiles, and the machine's instances behind its handles.
#pragma once

#include "simgpu/nvml/common.h"

namespace simgpu::nvml {

// The card's profile with NVML_GPU_INSTANCE_PROFILE_* `number`, or with the id that NVML and nvidia-smi give it; -1:
// none.
int ProfileByNumber(int dev, unsigned int number);
int ProfileById(int dev, unsigned int id);

// Compute slices of NVML_COMPUTE_INSTANCE_PROFILE_*; 0 for the numbers that are only revisions of others. The same
// number serves as the profile's id.
unsigned int ComputeSlices(unsigned int profile);
unsigned int ComputeProfile(unsigned int slices);

}  // namespace simgpu::nvml
