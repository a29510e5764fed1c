// SPDX-License-Identifier: Apache-2.0
#include "vgpu/loader/elf_lookup.h"

#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <string.h>

#include <initializer_list>

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

struct Search {
  const char* name;
  void* found;
};

int Visit(dl_phdr_info* object, size_t, void* data) {
  auto* search = static_cast<Search*>(data);
  if (object->dlpi_name == nullptr || !IsLibc(object->dlpi_name)) return 0;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    if (segment.p_type != PT_DYNAMIC) continue;
    const auto* dynamic = reinterpret_cast<const ElfW(Dyn)*>(object->dlpi_addr + segment.p_vaddr);  // NOLINT
    const Tables t = ReadDynamic(object->dlpi_addr, dynamic);
    if (t.symbols == nullptr || t.strings == nullptr) continue;
    const uint32_t index = t.gnu_hash != nullptr    ? FindGnu(t, search->name)
                           : t.sysv_hash != nullptr ? FindSysv(t, search->name)
                                                    : 0;
    if (index == 0) continue;
    search->found = reinterpret_cast<void*>(object->dlpi_addr + t.symbols[index].st_value);  // NOLINT
    return 1;
  }
  return 0;
}

}  // namespace

void* FindInLibc(const char* name) {
  Search search{name, nullptr};
  dl_iterate_phdr(&Visit, &search);
  return search.found;
}

}  // namespace hami::vgpu
