// SPDX-License-Identifier: Apache-2.0
#pragma once
#ifdef HAMI_OFFICIAL_CUDA_H
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#else
#error "own declarations not written yet: configure with -DHAMI_OFFICIAL_HEADERS=DIR"
#endif
