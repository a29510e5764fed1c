// SPDX-License-Identifier: Apache-2.0
#include "vgpu/loader/symbols.h"

#include <string.h>

#include <array>
#include <iterator>

namespace hami::vgpu {
namespace {

constexpr int kSymbols = static_cast<int>(Sym::kCount);

struct SymbolInfo {
  const char* name = "";
  Library library = Library::kCuda;
};

constexpr auto kInfo = [] {
  std::array<SymbolInfo, kSymbols> info{};
#define HAMI_CUDA_HOOK(symbol, ...) info[static_cast<int>(Sym::symbol)] = {#symbol, Library::kCuda};
#define HAMI_CUDA_PASS(...)
#define HAMI_CUDA_ALIAS(...)
#include "abi/cuda_api.inc"
#define HAMI_NVML_HOOK(symbol) info[static_cast<int>(Sym::symbol)] = {#symbol, Library::kNvml};
#define HAMI_NVML_PASS(symbol)
#include "abi/nvml_api.inc"
#define HAMI_REAL_CUDA(symbol) info[static_cast<int>(Sym::symbol)] = {#symbol, Library::kCuda};
#define HAMI_REAL_NVML(symbol) info[static_cast<int>(Sym::symbol)] = {#symbol, Library::kNvml};
#include "vgpu/loader/real_functions.inc"
  return info;
}();

// Every row of the CUDA list. Only used while compiling; what survives are the families with a hook in them.
constexpr Variant kRows[] = {
#define HAMI_CUDA_HOOK(symbol, asked_as, since, flavour) {#asked_as, since, Flavour::flavour, Sym::symbol},
#define HAMI_CUDA_PASS(symbol, asked_as, since, flavour) {#asked_as, since, Flavour::flavour, Sym::kNone},
#define HAMI_CUDA_ALIAS(symbol, asked_as, since, flavour) {#asked_as, since, Flavour::flavour, Sym::kNone},
#include "abi/cuda_api.inc"
};

constexpr bool Equal(const char* a, const char* b) {
  for (; *a != '\0' && *a == *b; ++a, ++b) {
  }
  return *a == *b;
}

constexpr uint32_t Hash(const char* name) {
  uint32_t h = 2166136261u;
  for (; *name != '\0'; ++name) h = (h ^ static_cast<unsigned char>(*name)) * 16777619u;
  return h ^ (h >> 15);
}

// Open addressing, linear probing. A bucket holds index + 1. Compilers bound the steps of a constant expression, so
// this is also how the tables below are computed.
constexpr uint32_t kBuckets = 512;
using Buckets = std::array<uint16_t, kBuckets>;

constexpr void Insert(Buckets& buckets, const char* name, size_t index) {
  uint32_t at = Hash(name) % kBuckets;
  while (buckets[at] != 0) at = (at + 1) % kBuckets;
  buckets[at] = static_cast<uint16_t>(index + 1);
}

// The names of which at least one meaning is replaced.
constexpr bool ContainsRow(const Buckets& buckets, const char* asked_as) {
  for (uint32_t at = Hash(asked_as) % kBuckets; buckets[at] != 0; at = (at + 1) % kBuckets) {
    if (Equal(kRows[buckets[at] - 1u].asked_as, asked_as)) return true;
  }
  return false;
}
constexpr Buckets kFamilies = [] {
  Buckets buckets{};
  for (size_t i = 0; i < std::size(kRows); ++i) {
    if (kRows[i].sym != Sym::kNone && !ContainsRow(buckets, kRows[i].asked_as)) Insert(buckets, kRows[i].asked_as, i);
  }
  return buckets;
}();

constexpr auto kKept = [] {
  std::array<bool, std::size(kRows)> kept{};
  for (size_t i = 0; i < std::size(kRows); ++i) kept[i] = ContainsRow(kFamilies, kRows[i].asked_as);
  return kept;
}();
constexpr size_t kVariantCount = [] {
  size_t n = 0;
  for (const bool kept : kKept) n += kept ? 1 : 0;
  return n;
}();

// The rows of one name stand together, in the order of the list.
constexpr auto kVariants = [] {
  std::array<Variant, kVariantCount> out{};
  std::array<bool, std::size(kRows)> done{};
  size_t n = 0;
  for (size_t i = 0; i < std::size(kRows); ++i) {
    if (!kKept[i] || done[i]) continue;
    for (size_t j = i; j < std::size(kRows); ++j) {
      if (!kKept[j] || done[j] || !Equal(kRows[i].asked_as, kRows[j].asked_as)) continue;
      out[n++] = kRows[j];
      done[j] = true;
    }
  }
  return out;
}();

static_assert(kHooks < static_cast<int>(kBuckets) / 2 && kVariantCount < kBuckets / 2, "the hash tables are too full");

constexpr Buckets kHookBuckets = [] {
  Buckets buckets{};
  for (size_t i = 0; i < static_cast<size_t>(kHooks); ++i) Insert(buckets, kInfo[i].name, i);
  return buckets;
}();
constexpr Buckets kVariantBuckets = [] {
  Buckets buckets{};
  for (size_t i = 0; i < kVariantCount; ++i) {
    if (i == 0 || !Equal(kVariants[i].asked_as, kVariants[i - 1].asked_as)) Insert(buckets, kVariants[i].asked_as, i);
  }
  return buckets;
}();

}  // namespace

const char* NameOf(Sym sym) { return kInfo[static_cast<size_t>(sym)].name; }
Library LibraryOf(Sym sym) { return kInfo[static_cast<size_t>(sym)].library; }

Sym FindHook(const char* name) {
  for (uint32_t at = Hash(name) % kBuckets; kHookBuckets[at] != 0; at = (at + 1) % kBuckets) {
    const size_t index = kHookBuckets[at] - 1u;
    if (strcmp(kInfo[index].name, name) == 0) return static_cast<Sym>(index);
  }
  return Sym::kNone;
}

VariantRange FindVariants(const char* asked_as) {
  for (uint32_t at = Hash(asked_as) % kBuckets; kVariantBuckets[at] != 0; at = (at + 1) % kBuckets) {
    const Variant* first = &kVariants[static_cast<size_t>(kVariantBuckets[at] - 1)];
    if (strcmp(first->asked_as, asked_as) != 0) continue;
    const Variant* last = first;
    while (last != kVariants.data() + kVariantCount && strcmp(last->asked_as, asked_as) == 0) ++last;
    return {first, last};
  }
  return {};
}

}  // namespace hami::vgpu
