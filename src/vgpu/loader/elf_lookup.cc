// SPDX-License-Identifier: Apache-2.0
#include "vgpu/loader/elf_lookup.h"

#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <string.h>

#include <initializer_list>

// What debuggers read to know the loaded objects: glibc's list, and musl's, whose entries begin alike.
#pragma weak _r_debug
extern "C" r_debug* _dl_debug_addr __attribute__((weak));

namespace hami::vgpu {
namespace {

struct Tables {
  const ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
  const uint32_t* gnu_hash = nullptr;
  const uint32_t* sysv_hash = nullptr;
};

// glibc relocates the pointers of the dynamic section in place, musl does not.
template <typename T>
const T* Relocated(ElfW(Addr) base, ElfW(Addr) value) {
  const ElfW(Addr) address = value < base ? value + base : value;
  return reinterpret_cast<const T*>(address);  // NOLINT: that is what a dynamic section holds
}

Tables ReadDynamic(ElfW(Addr) base, const ElfW(Dyn) * dynamic) {
  Tables t;
  for (; dynamic->d_tag != DT_NULL; ++dynamic) {
    const ElfW(Addr) value = dynamic->d_un.d_ptr;
    switch (dynamic->d_tag) {
      case DT_SYMTAB:
        t.symbols = Relocated<ElfW(Sym)>(base, value);
        break;
      case DT_STRTAB:
        t.strings = Relocated<char>(base, value);
        break;
      case DT_GNU_HASH:
        t.gnu_hash = Relocated<uint32_t>(base, value);
        break;
      case DT_HASH:
        t.sysv_hash = Relocated<uint32_t>(base, value);
        break;
      default:
        break;
    }
  }
  return t;
}

bool Defines(const Tables& t, uint32_t index, const char* name) {
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
uint32_t FindGnu(const Tables& t, const char* name) {
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

uint32_t FindSysv(const Tables& t, const char* name) {
  const uint32_t count = t.sysv_hash[1];
  for (uint32_t i = 1; i < count; ++i) {
    if (Defines(t, i, name)) return i;
  }
  return 0;
}

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
  const Tables t = ReadDynamic(object.l_addr, object.l_ld);
  if (t.symbols == nullptr || t.strings == nullptr) return nullptr;
  const uint32_t index = t.gnu_hash != nullptr ? FindGnu(t, name) : t.sysv_hash != nullptr ? FindSysv(t, name) : 0;
  return index == 0 ? nullptr : reinterpret_cast<void*>(object.l_addr + t.symbols[index].st_value);  // NOLINT
}

}  // namespace

// The C library is loaded before any code of the program runs, and stays: the list is read up to there only.
void* FindInLibc(const char* name) {
  const r_debug* const loaded = &_r_debug != nullptr         ? &_r_debug
                                : &_dl_debug_addr != nullptr ? _dl_debug_addr
                                                             : nullptr;
  for (const link_map* object = loaded == nullptr ? nullptr : loaded->r_map; object != nullptr;
       object = object->l_next) {
    if (void* const found = FindIn(*object, name); found != nullptr) return found;
  }
  return nullptr;
}

}  // namespace hami::vgpu
