// SPDX-License-Identifier: Apache-2.0
//
// A program that is not linked with the driver and asks by weak references whether it is there
// (`if (cuInit != nullptr)`) would find the functions that this library replaces, and no others. Before the program
// runs, such references become null, as they are without this library. Objects that are loaded later keep theirs.
#include <fcntl.h>
#include <unistd.h>

#include "region/keep_errno.h"
#include "vgpu/loader/elf_tables.h"
#include "vgpu/loader/symbols.h"

namespace hami::vgpu {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kAddressTypes[] = {R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT, R_X86_64_64};
#elif defined(__aarch64__)
constexpr uint32_t kAddressTypes[] = {R_AARCH64_GLOB_DAT, R_AARCH64_JUMP_SLOT, R_AARCH64_ABS64};
#endif

bool HoldsAddress(const ElfW(Rela) & relocation) {
  for (const uint32_t type : kAddressTypes) {
    if (ELF64_R_TYPE(relocation.r_info) == type) return true;
  }
  return false;
}

bool DefinedElsewhere(const char* name, const void* here) {
  for (const link_map* object = FirstObject(); object != nullptr; object = object->l_next) {
    const void* const found = FindDefinition(ReadTables(*object), name);
    if (found != nullptr && found != here) return true;
  }
  return false;
}

// Written by way of the kernel, as the linker has made the page read-only.
void Clear(const void* place) {
  const int memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
  if (memory < 0) return;
  const uintptr_t none = 0;
  // Where that fails the program sees a function that answers that there is no driver.
  (void)!pwrite(memory, &none, sizeof none, static_cast<off_t>(reinterpret_cast<uintptr_t>(place)));
  close(memory);
}

void ClearIn(const ElfTables& tables, const RelocationTable& table) {
  if (table.first == nullptr || tables.symbols == nullptr || tables.strings == nullptr) return;
  for (size_t i = 0; i < table.count; ++i) {
    const ElfW(Rela)& relocation = table.first[i];
    if (!HoldsAddress(relocation)) continue;
    const ElfW(Sym)& symbol = tables.symbols[ELF64_R_SYM(relocation.r_info)];
    if (symbol.st_shndx != SHN_UNDEF || ELF64_ST_BIND(symbol.st_info) != STB_WEAK) continue;
    const char* const name = tables.strings + symbol.st_name;
    const Sym hook = FindHook(name);
    if (hook == Sym::kNone) continue;
    void* const* const place = reinterpret_cast<void* const*>(tables.base + relocation.r_offset);  // NOLINT
    if (*place == HookAddress(hook) && !DefinedElsewhere(name, *place)) Clear(place);
  }
}

[[gnu::constructor]] void ClearWeakReferences() {
  const region::KeepErrno keep;
  for (const link_map* object = FirstObject(); object != nullptr; object = object->l_next) {
    const ElfTables tables = ReadTables(*object);
    ClearIn(tables, tables.data);
    ClearIn(tables, tables.calls);
  }
}

}  // namespace
}  // namespace hami::vgpu
