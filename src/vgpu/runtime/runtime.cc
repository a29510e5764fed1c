// SPDX-License-Identifier: Apache-2.0
#include "vgpu/runtime/runtime.h"

namespace hami::vgpu {

constinit Runtime g_runtime{};

}  // namespace hami::vgpu
