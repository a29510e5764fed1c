// SPDX-License-Identifier: Apache-2.0
//
// What the function headers declare with, and where their types come from: ours, or, with HAMI_OFFICIAL_CUDA_H,
// NVIDIA's header. There every version is declared under the name the driver exports it by, so that a prototype of ours
// that differs from NVIDIA's is a conflicting declaration of a C function and does not compile.
//
// A function that takes a default stream has a twin (_ptsz, or _ptds where it takes no stream argument) that means the
// per-thread one; both are declared in one line.
#pragma once

#ifdef HAMI_OFFICIAL_CUDA_H
#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL
#endif
#include <cuda.h>
#else
#include "abi/cuda_codes.h"
#include "abi/cuda_enums.h"
#include "abi/cuda_graph_structs.h"
#include "abi/cuda_structs.h"
#include "abi/cuda_types.h"
#endif

#define HAMI_CU(name, ...) CUresult CUDAAPI name(__VA_ARGS__)
#define HAMI_CU_PTSZ(name, ...) \
  HAMI_CU(name, __VA_ARGS__);   \
  HAMI_CU(name##_ptsz, __VA_ARGS__)
#define HAMI_CU_PTDS(name, ...) \
  HAMI_CU(name, __VA_ARGS__);   \
  HAMI_CU(name##_ptds, __VA_ARGS__)
