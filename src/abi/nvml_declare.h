// SPDX-License-Identifier: Apache-2.0
//
// What the NVML function headers declare with, and where their types come from: ours, or, with HAMI_OFFICIAL_NVML_H,
// NVIDIA's header, which then holds every prototype of ours to its own.
#pragma once

#ifdef HAMI_OFFICIAL_NVML_H
#ifndef NVML_NO_UNVERSIONED_FUNC_DEFS
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#endif
#include <nvml.h>
#else
#include "abi/nvml_fields.h"
#include "abi/nvml_structs.h"
#include "abi/nvml_types.h"
#endif

#define HAMI_NVML(name, ...) nvmlReturn_t name(__VA_ARGS__)
// A query about one device, which is most of NVML.
#define HAMI_NVML_DEVICE(name, ...) HAMI_NVML(nvmlDevice##name, nvmlDevice_t device, __VA_ARGS__)
