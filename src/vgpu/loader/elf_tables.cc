// SPDX-License-Identifier: Apache-2.0
#include "vgpu/loader/elf_tables.h"

#include <string.h>

// What debuggers read to know the loaded objects: glibc's list, and musl's, whose entries begin alike.
#pragma weak _r_debug
extern "C" r_debug* _dl_debug_addr __attribute__((weak));

namespace hami::vgpu {
namespace {

// glibc relocates the pointers of the dynamic section in place, musl does not.
template <typename T>
const T* Relocated(ElfW(Addr) base, ElfW(Addr) value) {
  const ElfW(Addr) address = value < base ? value + base : value;
  return reinterpret_cast<const T*>(address);  // NOLINT: that is what a dynamic section holds
}

bool Defines(const ElfTables& t, uint32_t index, const char* name) {
  const ElfW(Sym)& s = t.symbols[index];
  return s.st_shndx != SHN_UNDEF && (s.st_info & 0xf) == STT_FUNC && strcmp(t.strings + s.st_name, name) == 0;
}

uint32_t GnuHash(const char* name) {
  uint32_t h = 5381;
  for (; *name != '\0'; ++name) h = h * 33 + static_cast<unsigned char>(*name);
  return h;
}

// Index of the symbol, 0 when absent. Table: nbuckets, first symbol, bloom words, bloom shift, bloom[], buckets[],
// chain[].
uint32_t FindGnu(const ElfTables& t, const char* name) {
  const uint32_t buckets = t.gnu_hash[0];
  const uint32_t first = t.gnu_hash[1];
  const uint32_t* bucket = t.gnu_hash + 4 + t.gnu_hash[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  const uint32_t* chain = bucket + buckets;
  if (buckets == 0) return 0;
  const uint32_t hash = GnuHash(name);
  for (uint32_t i = bucket[hash % buckets]; i >= first && i != 0; ++i) {
    const uint32_t entry = chain[i - first];
    if ((entry | 1) == (hash | 1) && Defines(t, i, name)) return i;
    if ((entry & 1) != 0) break;
  }
  return 0;
}

uint32_t FindSysv(const ElfTables& t, const char* name) {
  const uint32_t count = t.sysv_hash[1];
  for (uint32_t i = 1; i < count; ++i) {
    if (Defines(t, i, name)) return i;
  }
  return 0;
}

}  // namespace

const link_map* FirstObject() {
  const r_debug* const loaded = &_r_debug != nullptr         ? &_r_debug
                                : &_dl_debug_addr != nullptr ? _dl_debug_addr
                                                             : nullptr;
  return loaded == nullptr ? nullptr : loaded->r_map;
}

ElfTables ReadTables(const link_map& object) {
  ElfTables t;
  t.base = object.l_addr;
  size_t without_symbol = 0;
  if (object.l_ld == nullptr) return t;
  for (const ElfW(Dyn)* entry = object.l_ld; entry->d_tag != DT_NULL; ++entry) {
    const ElfW(Addr) value = entry->d_un.d_ptr;
    switch (entry->d_tag) {
      case DT_SYMTAB:
        t.symbols = Relocated<ElfW(Sym)>(t.base, value);
        break;
      case DT_STRTAB:
        t.strings = Relocated<char>(t.base, value);
        break;
      case DT_GNU_HASH:
        t.gnu_hash = Relocated<uint32_t>(t.base, value);
        break;
      case DT_HASH:
        t.sysv_hash = Relocated<uint32_t>(t.base, value);
        break;
      case DT_RELA:
        t.data.first = Relocated<ElfW(Rela)>(t.base, value);
        break;
      case DT_RELASZ:
        t.data.count = value / sizeof(ElfW(Rela));
        break;
      case DT_RELACOUNT:
        without_symbol = value;
        break;
      case DT_JMPREL:
        t.calls.first = Relocated<ElfW(Rela)>(t.base, value);
        break;
      case DT_PLTRELSZ:
        t.calls.count = value / sizeof(ElfW(Rela));
        break;
      default:
        break;
    }
  }
  if (t.data.first != nullptr && without_symbol <= t.data.count) {
    t.data.first += without_symbol;
    t.data.count -= without_symbol;
  }
  return t;
}

void* FindDefinition(const ElfTables& t, const char* name) {
  if (t.symbols == nullptr || t.strings == nullptr) return nullptr;
  const uint32_t index = t.gnu_hash != nullptr ? FindGnu(t, name) : t.sysv_hash != nullptr ? FindSysv(t, name) : 0;
  return index == 0 ? nullptr : reinterpret_cast<void*>(t.base + t.symbols[index].st_value);  // NOLINT
}

}  // namespace hami::vgpu
