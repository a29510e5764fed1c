// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/memory.h"

#include "vgpu/memory/flags.h"

namespace hami::vgpu {

constinit Memory g_memory{};
constinit MemoryFlags g_memory_flags{};

Table& table() { return g_memory.table; }

}  // namespace hami::vgpu
