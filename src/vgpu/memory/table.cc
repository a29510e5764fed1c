// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/table.h"

#include "vgpu/runtime/mapped_vector.h"

namespace hami::vgpu {
namespace {

constexpr uint32_t kFirstCapacity = 4096 / sizeof(Entry);

uint32_t HomeOf(uint64_t hash, uint32_t capacity) { return static_cast<uint32_t>(hash) & (capacity - 1); }

}  // namespace

uint64_t Table::Hash(HandleKind kind, uint64_t key) {
  uint64_t h = (key ^ (static_cast<uint64_t>(kind) << 56)) * 0x9e3779b97f4a7c15u;
  h ^= h >> 29;  // pointers are multiples of 512: their low bits say nothing
  return h * 0xbf58476d1ce4e5b9u ^ h >> 32;
}

Entry* Table::Locate(Shard& shard, HandleKind kind, uint64_t key, uint64_t hash) {
  if (shard.capacity == 0) return nullptr;
  for (uint32_t at = HomeOf(hash, shard.capacity);; at = (at + 1) & (shard.capacity - 1)) {
    Entry& entry = shard.entries[at];
    if (entry.kind == HandleKind::kNone) return nullptr;
    if (entry.key == key && entry.kind == kind) return &entry;
  }
}

bool Table::Grow(Shard& shard) {
  const uint32_t capacity = shard.capacity == 0 ? kFirstCapacity : shard.capacity * 2;
  auto* const entries = static_cast<Entry*>(MapPages(capacity * sizeof(Entry)));
  if (entries == nullptr) return false;
  for (uint32_t i = 0; i < shard.capacity; ++i) {
    const Entry& entry = shard.entries[i];
    if (entry.kind == HandleKind::kNone) continue;
    uint32_t at = HomeOf(Hash(entry.kind, entry.key), capacity);
    while (entries[at].kind != HandleKind::kNone) at = (at + 1) & (capacity - 1);
    entries[at] = entry;
  }
  UnmapPages(shard.entries, shard.capacity * sizeof(Entry));
  shard.entries = entries;
  shard.capacity = capacity;
  return true;
}

bool Table::AddLocked(Shard& shard, const Entry& entry, uint64_t hash) {
  // At most three quarters full, so that a search always meets a hole.
  if ((shard.count + 1) * 4 > shard.capacity * 3 && !Grow(shard)) return false;
  uint32_t at = HomeOf(hash, shard.capacity);
  while (shard.entries[at].kind != HandleKind::kNone) at = (at + 1) & (shard.capacity - 1);
  shard.entries[at] = entry;
  ++shard.count;
  return true;
}

bool Table::Insert(const Entry& entry, Entry* replaced) {
  if (replaced != nullptr) *replaced = Entry{};
  const uint64_t hash = Hash(entry.kind, entry.key);
  Shard& shard = ShardOf(hash);
  const Locked locked(shard.lock);
  if (Entry* const old = Locate(shard, entry.kind, entry.key, hash); old != nullptr) {
    if (replaced != nullptr) *replaced = *old;
    *old = entry;
    return true;
  }
  return AddLocked(shard, entry, hash);
}

void Table::Update(const Entry& key, bool (*change)(Entry* entry, void* arg), void* arg) {
  const uint64_t hash = Hash(key.kind, key.key);
  Shard& shard = ShardOf(hash);
  const Locked locked(shard.lock);
  Entry* const stored = Locate(shard, key.kind, key.key, hash);
  Entry entry = stored != nullptr ? *stored : key;
  const bool stays = change(&entry, arg);
  if (stored == nullptr) {
    if (stays) AddLocked(shard, entry, hash);
  } else if (stays) {
    *stored = entry;
  } else {
    Erase(shard, stored);
  }
}

bool Table::Find(HandleKind kind, uint64_t key, Entry* out) {
  const uint64_t hash = Hash(kind, key);
  Shard& shard = ShardOf(hash);
  const Locked locked(shard.lock);
  const Entry* const entry = Locate(shard, kind, key, hash);
  if (entry == nullptr) return false;
  *out = *entry;
  return true;
}

// Closes the hole by moving back whatever was displaced past it, so that no tombstones pile up.
void Table::Erase(Shard& shard, Entry* entry) {
  const uint32_t mask = shard.capacity - 1;
  auto hole = static_cast<uint32_t>(entry - shard.entries);
  for (uint32_t at = (hole + 1) & mask; shard.entries[at].kind != HandleKind::kNone; at = (at + 1) & mask) {
    const uint32_t home = HomeOf(Hash(shard.entries[at].kind, shard.entries[at].key), shard.capacity);
    if (((at - home) & mask) < ((at - hole) & mask)) continue;  // its home lies behind the hole
    shard.entries[hole] = shard.entries[at];
    hole = at;
  }
  shard.entries[hole] = Entry{};
  --shard.count;
}

bool Table::Take(HandleKind kind, uint64_t key, Entry* out) {
  const uint64_t hash = Hash(kind, key);
  Shard& shard = ShardOf(hash);
  const Locked locked(shard.lock);
  Entry* const entry = Locate(shard, kind, key, hash);
  if (entry == nullptr) return false;
  *out = *entry;
  Erase(shard, entry);
  return true;
}

bool Table::TakeOfContext(uint32_t context, Entry* out) {
  for (Shard& shard : shards_) {
    const Locked locked(shard.lock);
    for (uint32_t i = 0; i < shard.capacity; ++i) {
      Entry& entry = shard.entries[i];
      if (entry.kind == HandleKind::kNone || entry.context != context) continue;
      *out = entry;
      Erase(shard, &entry);
      return true;
    }
  }
  return false;
}

uint64_t Table::size() {
  uint64_t n = 0;
  for (Shard& shard : shards_) {
    const Locked locked(shard.lock);
    n += shard.count;
  }
  return n;
}

void Table::Reset() {
  for (Shard& shard : shards_) {
    UnmapPages(shard.entries, shard.capacity * sizeof(Entry));
    shard.lock.Reset();
    shard.entries = nullptr;
    shard.count = shard.capacity = 0;
  }
}

}  // namespace hami::vgpu
