// SPDX-License-Identifier: Apache-2.0

#include "sched/node_names.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace hami::sched {
namespace {

constexpr std::size_t kFewestSlots = 16;

constexpr std::size_t kWord = sizeof(std::uint64_t);

void Fetch(const void* address) { __builtin_prefetch(address); }

std::uint64_t WordAt(const char* from) {
  std::uint64_t word = 0;
  std::memcpy(&word, from, kWord);
  return word;
}

// As ==, without a call.
bool Same(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  if (a.size() < kWord) return a == b;
  // A hash that is the same leaves little doubt: the words are looked at together.
  const auto differ = [&](std::size_t at) { return WordAt(a.data() + at) ^ WordAt(b.data() + at); };
  std::uint64_t different = differ(0) | differ(a.size() - kWord);
  for (std::size_t at = kWord; at + kWord < a.size(); at += kWord) different |= differ(at);
  return different == 0;
}

}  // namespace

// Eight characters at a time: a request brings thousands of names, and the hash of the standard library is a call that
// costs more than the search.
inline std::uint32_t NodeNames::HashOf(std::string_view name) {
  constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15;
  std::uint64_t hash = name.size();
  const auto add = [&](std::uint64_t word) {
    hash = (hash ^ word) * kOdd;
    hash ^= hash >> 29U;  // names differ in their last characters, which are the highest of a word
  };
  if (name.size() < kWord) {
    std::uint64_t word = 0;
    std::memcpy(&word, name.data(), name.size());
    add(word);
  } else {
    const char* const last = name.data() + name.size() - kWord;
    add(WordAt(name.data()));
    for (const char* at = name.data() + kWord; at < last; at += kWord) add(WordAt(at));
    add(WordAt(last));  // which may overlap the one before, or be the first
  }
  hash *= kOdd;
  return static_cast<std::uint32_t>(hash >> 32U);
}

void NodeNames::Insert(Slot slot) {
  std::size_t at = Home(slot.hash);
  for (; slots_[at].id != kNoNode; at = After(at)) twins_ = twins_ || slots_[at].hash == slot.hash;
  slots_[at] = slot;
}

void NodeNames::Grow() {
  std::vector<Slot> old(std::max(kFewestSlots, 2 * slots_.size()));
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.id != kNoNode) Insert(slot);
  }
}

void NodeNames::Add(std::string_view name, NodeId id) {
  if (2 * (size_ + 1) > slots_.size()) Grow();
  if (names_.size() <= id) names_.resize(id + 1);
  names_[id] = name;
  Insert({HashOf(name), id});
  ++size_;
}

void NodeNames::Remove(NodeId id) {
  std::size_t gap = Home(HashOf(names_[id]));
  while (slots_[gap].id != id) gap = After(gap);
  // What stands behind moves up, unless that is before its home: no search may end at a gap too early.
  for (std::size_t at = After(gap); slots_[at].id != kNoNode; at = After(at)) {
    const std::size_t mask = slots_.size() - 1;
    if (((at - Home(slots_[at].hash)) & mask) < ((at - gap) & mask)) continue;
    slots_[gap] = slots_[at];
    gap = at;
  }
  slots_[gap] = {};
  names_[id] = {};
  --size_;
}

NodeId NodeNames::Find(std::string_view name) const {
  if (slots_.empty()) return kNoNode;
  const std::uint32_t hash = HashOf(name);
  std::size_t at = Home(hash);
  while (slots_[at].id != kNoNode && (slots_[at].hash != hash || names_[slots_[at].id] != name)) at = After(at);
  return slots_[at].id;
}

void NodeNames::FindHashes(std::span<const std::string_view> names, Hashes& hashes, std::span<NodeId> out) const {
  for (std::size_t i = 0; i < names.size(); ++i) {
    hashes[i] = HashOf(names[i]);
    Fetch(&slots_[Home(hashes[i])]);
  }
  const Slot* const slots = slots_.data();
  for (std::size_t i = 0; i < names.size(); ++i) {
    std::size_t at = Home(hashes[i]);
    while (slots[at].id != kNoNode && slots[at].hash != hashes[i]) at = After(at);
    out[i] = slots[at].id;
  }
}

std::vector<NodeId> NodeNames::FindAll(std::span<const std::string_view> names) const {
  std::vector<NodeId> ids(names.size(), kNoNode);
  if (slots_.empty()) return ids;
  Hashes hashes;
  for (std::size_t begin = 0; begin < names.size(); begin += hashes.size()) {
    const std::size_t count = std::min(hashes.size(), names.size() - begin);
    const auto some = names.subspan(begin, count);
    const auto out = std::span(ids).subspan(begin, count);
    FindHashes(some, hashes, out);
    for (const NodeId id : out) {
      if (id != kNoNode) Fetch(&names_[id]);
    }
    for (const NodeId id : out) {
      if (id != kNoNode) Fetch(names_[id].data());
    }
    // Another name of the same hash stood before it: seldom enough to start again.
    for (std::size_t i = 0; i < count; ++i) {
      if (out[i] != kNoNode && !Same(names_[out[i]], some[i])) out[i] = Find(some[i]);
    }
  }
  return ids;
}

std::vector<NodeId> NodeNames::Guess(std::span<const std::string_view> names) const {
  if (twins_ || slots_.empty()) return FindAll(names);
  std::vector<NodeId> ids(names.size());
  Hashes hashes;
  for (std::size_t begin = 0; begin < names.size(); begin += hashes.size()) {
    const std::size_t count = std::min(hashes.size(), names.size() - begin);
    FindHashes(names.subspan(begin, count), hashes, std::span(ids).subspan(begin, count));
  }
  return ids;
}

}  // namespace hami::sched
