// SPDX-License-Identifier: Apache-2.0
//
// What memory does when contexts end and when the process is the child of a fork (runtime/listeners.h).
#pragma once

#include "vgpu/runtime/listeners.h"

namespace hami::vgpu {

void MemoryOfContextEnding();
void MemoryOfContextEnded(const EndedContext& context);
void ForgetMemory();

}  // namespace hami::vgpu
