// SPDX-License-Identifier: Apache-2.0
#include "vgpu/loader/elf_lookup.h"

#include <string.h>

#include <initializer_list>

#include "vgpu/loader/elf_tables.h"

namespace hami::vgpu {
namespace {

bool IsLibc(const char* path) {
  const char* slash = strrchr(path, '/');
  const char* file = slash != nullptr ? slash + 1 : path;
  for (const char* prefix : {"libc.so", "libc-2.", "libdl.so", "libdl-2.", "ld-musl", "libc.musl"}) {
    if (strncmp(file, prefix, strlen(prefix)) == 0) return true;
  }
  return false;
}

void* FindIn(const link_map& object, const char* name) {
  if (object.l_name == nullptr || object.l_ld == nullptr || !IsLibc(object.l_name)) return nullptr;
  return FindDefinition(ReadTables(object), name);
}

}  // namespace

// The C library is loaded before any code of the program runs, and stays: the list is read up to there only.
void* FindInLibc(const char* name) {
  for (const link_map* object = FirstObject(); object != nullptr; object = object->l_next) {
    if (void* const found = FindIn(*object, name); found != nullptr) return found;
  }
  return nullptr;
}

}  // namespace hami::vgpu
