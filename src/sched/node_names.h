// SPDX-License-Identifier: Apache-2.0
//
// From the names of nodes to their numbers. A request names hundreds or thousands of nodes, and in a large cluster
// hardly any of what a name leads to is in the processor's cache: names are looked up many at a time, so that the waits
// for memory overlap. Each name stands once, and each number has one name.

#pragma once

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
  std::size_t size() const { return size_; }

 private:
  struct Slot {
    std::uint32_t hash = 0;
    NodeId id = kNoNode;
  };

  static std::uint32_t HashOf(std::string_view name);
  std::size_t Home(std::uint32_t hash) const { return hash & (slots_.size() - 1); }
  std::size_t After(std::size_t slot) const { return (slot + 1) & (slots_.size() - 1); }
  void Insert(Slot slot);
  void Grow();

  std::vector<Slot> slots_;         // a power of two, at most half of them taken; neighbours take what collides
  std::vector<std::string> names_;  // by id
  std::size_t size_ = 0;
};

}  // namespace hami::sched
