// SPDX-License-Identifier: Apache-2.0
//
// What every node answers to pods of one shape, kept current: a verdict is asked for again only when its node changed.
// A tree of winners over the nodes gives the best one in O(log n) per changed node. Answers are exactly those of asking
// every node anew; only the work differs.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sched/evaluate.h"
#include "sched/ledger.h"

namespace hami::sched {

class ShapeIndex {
 public:
  using Ask = std::function<Verdict(const Node&)>;

  explicit ShapeIndex(bool spread) : spread_(spread) {}

  // Asks the nodes that changed since the last time. Returns how many.
  std::size_t Refresh(const Ledger& ledger, const Ask& ask);

  // The best of all nodes, or kNoNode.
  NodeId Best() const { return tree_.empty() ? kNoNode : tree_[1]; }
  // Whether node A, which fits as B does, is to be chosen before B. Equal scores: the smaller name.
  bool Beats(NodeId a, std::string_view a_name, NodeId b, std::string_view b_name) const {
    const float x = score(a);
    const float y = score(b);
    return x == y ? a_name < b_name : (x < y) == spread_;
  }

  bool fits(NodeId id) const { return entries_[id].reason == kFits; }
  float score(NodeId id) const { return entries_[id].score; }
  // Empty when it fits.
  const std::string& reason(NodeId id) const;

 private:
  static constexpr std::int32_t kFits = -1;
  static constexpr std::int32_t kAbsent = -2;
  struct Entry {
    std::uint64_t version = 0;
    float score = 0;
    std::int32_t reason = kAbsent;
  };

  // The better of two ids, either of which may be kNoNode.
  NodeId Better(const Ledger& ledger, NodeId a, NodeId b) const;
  bool Update(const Ledger& ledger, const Ask& ask, NodeId id);
  void Climb(const Ledger& ledger, NodeId id);
  void Grow(const Ledger& ledger);
  std::int32_t Intern(std::string reason);

  bool spread_;
  std::uint64_t cursor_ = 0;
  bool started_ = false;
  std::vector<Entry> entries_;
  std::vector<NodeId> tree_;  // tree_[1] is the winner of all; leaves start at the size of entries_, a power of two
  std::vector<std::string> reasons_;
  std::unordered_map<std::string, std::int32_t> reason_ids_;
  std::vector<NodeId> changed_;
};

}  // namespace hami::sched
