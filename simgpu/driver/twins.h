// SPDX-License-Identifier: Apache-2.0
//
// An exported function and its per-thread-default-stream twin, from one expression that may use `per_thread`.
#pragma once

#include "simgpu/driver/core.h"

#define SIMGPU_TWINS(name, suffix, params, expression) \
  CUresult name params {                               \
    SIMGPU_ENTER(name);                                \
    constexpr bool per_thread = false;                 \
    return expression;                                 \
  }                                                    \
  CUresult name##suffix params {                       \
    SIMGPU_ENTER(name##suffix);                        \
    constexpr bool per_thread = true;                  \
    return expression;                                 \
  }
