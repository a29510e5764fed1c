// SPDX-License-Identifier: Apache-2.0
//
// From the names of nodes to their numbers. A request names hundreds or thousands of nodes, and in a large cluster
// hardly any of what a name leads to is in the processor's cache: names are looked up many at a time, so that the waits
// for memory overlap. Each name stands once, and each number has one name.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hami::sched {

using NodeId = std::uint32_t;
inline constexpr NodeId kNoNode = ~NodeId{0};

class NodeNames {
 public:
  // Neither NAME nor ID is known yet.
  void Add(std::string_view name, NodeId id);
  void Remove(NodeId id);

  // kNoNode: unknown.
  NodeId Find(std::string_view name) const;
  // One id for each of NAMES.
  std::vector<NodeId> FindAll(std::span<const std::string_view> names) const;
  // For each of NAMES the id that it has unless it is unknown, which is for the caller to look at: few of many names
  // matter in the end, and to compare them all with those that are known takes half of the time.
  std::vector<NodeId> Guess(std::span<const std::string_view> names) const;
  std::size_t size() const { return size_; }

 private:
  struct Slot {
    std::uint32_t hash = 0;
    NodeId id = kNoNode;
  };

  using Hashes = std::array<std::uint32_t, 32>;  // of names on their way through memory

  static std::uint32_t HashOf(std::string_view name);
  // OUT: for each of NAMES, at most as many as there are HASHES, the first id with its hash.
  void FindHashes(std::span<const std::string_view> names, Hashes& hashes, std::span<NodeId> out) const;
  std::size_t Home(std::uint32_t hash) const { return hash & (slots_.size() - 1); }
  std::size_t After(std::size_t slot) const { return (slot + 1) & (slots_.size() - 1); }
  void Insert(Slot slot);
  void Grow();

  std::vector<Slot> slots_;         // a power of two, at most half of them taken; neighbours take what collides
  std::vector<std::string> names_;  // by id
  std::size_t size_ = 0;
  bool twins_ = false;  // two names had one hash
};

}  // namespace hami::sched
