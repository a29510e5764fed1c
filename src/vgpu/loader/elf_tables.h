// SPDX-License-Identifier: Apache-2.0
//
// The loaded objects and what their dynamic sections hold, read in memory. Nothing is loaded, locked or called.
#pragma once

#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>

namespace hami::vgpu {

struct RelocationTable {
  const ElfW(Rela) * first = nullptr;
  size_t count = 0;
};

// nullptr or 0 where an object has no such table.
struct ElfTables {
  ElfW(Addr) base = 0;
  const ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
  const uint32_t* gnu_hash = nullptr;
  const uint32_t* sysv_hash = nullptr;
  RelocationTable data;  // those that name no symbol are left out
  RelocationTable calls;
};

// The program itself; l_next leads to the others. nullptr where the C library keeps no list.
const link_map* FirstObject();

ElfTables ReadTables(const link_map& object);

// The address of the function `name` that the object defines, or nullptr.
void* FindDefinition(const ElfTables& tables, const char* name);

}  // namespace hami::vgpu
