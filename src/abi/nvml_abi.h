// SPDX-License-Identifier: Apache-2.0
//
// NVML as the library exports it, every version under its own name, without NVIDIA's header. With HAMI_OFFICIAL_NVML_H
// the types and constants are NVIDIA's, and its declarations are held against ours. Nothing of our own is defined here.
#pragma once

#include "abi/nvml_functions.h"
