// SPDX-License-Identifier: Apache-2.0
#pragma once
#ifdef HAMI_OFFICIAL_NVML_H
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>
#else
#error "own declarations not written yet: configure with -DHAMI_OFFICIAL_HEADERS=DIR"
#endif
