// SPDX-License-Identifier: Apache-2.0
//
// The CUDA driver API as a driver exports it, every version under its own name (cuMemAlloc and cuMemAlloc_v2), without
// the CUDA toolkit. With HAMI_OFFICIAL_CUDA_H the types and constants are NVIDIA's, and its declarations are held
// against ours. Nothing of our own is defined here.
#pragma once

#include "abi/cuda_functions_13.h"
#include "abi/cuda_functions_core.h"
#include "abi/cuda_functions_memory.h"
#include "abi/cuda_functions_stream.h"
