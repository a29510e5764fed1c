// SPDX-License-Identifier: Apache-2.0
#include "simgpu/driver/entry_points.h"

#include <array>
#include <mutex>

// Only addresses are wanted: the declarations of the API would not fit symbols that the headers at hand do not know.
extern "C" {
// clang-format off
#define SIMGPU_DECLARE(symbol, asked_as, since, flavour) void symbol();
#define HAMI_CUDA_HOOK SIMGPU_DECLARE
#define HAMI_CUDA_PASS SIMGPU_DECLARE
#define HAMI_CUDA_ALIAS SIMGPU_DECLARE
#include "abi/cuda_api.inc"
// clang-format on
}

namespace simgpu {
namespace {

constexpr Flavour PLAIN = Flavour::kPlain;
constexpr Flavour PTDS = Flavour::kPtds;
constexpr Flavour PTSZ = Flavour::kPtsz;

// clang-format off
constexpr EntryPoint kEntryPoints[] = {
#define SIMGPU_ENTRY(symbol, asked_as, since, flavour) {#symbol, #asked_as, since, flavour, &::symbol},
#define HAMI_CUDA_HOOK SIMGPU_ENTRY
#define HAMI_CUDA_PASS SIMGPU_ENTRY
#define HAMI_CUDA_ALIAS SIMGPU_ENTRY
#include "abi/cuda_api.inc"
};
// clang-format on

constexpr std::size_t kCount = std::size(kEntryPoints);
constexpr std::size_t kSlots = 2048;
static_assert(kCount * 2 < kSlots, "the index wants to be half empty");

constexpr std::uint32_t Hash(std::string_view name) {
  std::uint32_t hash = 2166136261u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash;
}

// Rows of one name are a chain; the index finds its first. Filled once, in static storage that is never destroyed.
struct Index {
  std::once_flag once;
  std::array<std::int16_t, kSlots> first;
  std::array<std::int16_t, kCount> next;
};
constinit Index g_index{};

std::size_t SlotOf(std::string_view name) {
  std::size_t slot = Hash(name) % kSlots;
  while (g_index.first[slot] >= 0 && kEntryPoints[static_cast<std::size_t>(g_index.first[slot])].asked_as != name) {
    slot = (slot + 1) % kSlots;
  }
  return slot;
}

void BuildIndex() {
  g_index.first.fill(-1);
  for (std::size_t row = 0; row < kCount; ++row) {
    const std::size_t slot = SlotOf(kEntryPoints[row].asked_as);
    g_index.next[row] = g_index.first[slot];
    g_index.first[slot] = static_cast<std::int16_t>(row);
  }
}

std::string_view WithoutFlavour(std::string_view symbol) {
  for (const std::string_view suffix : {"_ptds", "_ptsz"}) {
    if (symbol.ends_with(suffix)) return symbol.substr(0, symbol.size() - suffix.size());
  }
  return symbol;
}

}  // namespace

std::span<const EntryPoint> EntryPoints() { return kEntryPoints; }

Lookup FindEntryPoint(std::string_view name, int version, bool per_thread, void (**address)()) {
  std::call_once(g_index.once, BuildIndex);
  *address = nullptr;
  const std::int16_t first = g_index.first[SlotOf(name)];
  if (first < 0) return Lookup::kUnknownName;
  const EntryPoint* plain = nullptr;
  for (std::int16_t row = first; row >= 0; row = g_index.next[static_cast<std::size_t>(row)]) {
    const EntryPoint& entry = kEntryPoints[static_cast<std::size_t>(row)];
    if (entry.flavour != Flavour::kPlain || entry.since > version) continue;
    if (plain == nullptr || entry.since > plain->since) plain = &entry;
  }
  if (plain == nullptr) return Lookup::kVersionTooOld;
  *address = plain->address;
  if (!per_thread) return Lookup::kFound;
  for (std::int16_t row = first; row >= 0; row = g_index.next[static_cast<std::size_t>(row)]) {
    const EntryPoint& entry = kEntryPoints[static_cast<std::size_t>(row)];
    const bool twin = entry.flavour != Flavour::kPlain && WithoutFlavour(entry.symbol) == plain->symbol;
    if (twin && entry.since <= version) *address = entry.address;
  }
  return Lookup::kFound;
}

}  // namespace simgpu
