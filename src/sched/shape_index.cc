// SPDX-License-Identifier: Apache-2.0

#include "sched/shape_index.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace hami::sched {

const std::string& ShapeIndex::reason(NodeId id) const {
  static const std::string none;
  const std::int32_t reason = entries_[id].reason;
  return reason < 0 ? none : reasons_[static_cast<std::size_t>(reason)];
}

NodeId ShapeIndex::Better(const Ledger& ledger, NodeId a, NodeId b) const {
  if (a == kNoNode || !fits(a)) return b != kNoNode && fits(b) ? b : kNoNode;
  if (b == kNoNode || !fits(b)) return a;
  // Names lie far apart in memory, and few are needed.
  const bool tie = score(a) == score(b);
  const auto name = [&](NodeId id) { return tie ? std::string_view(ledger.node(id).name()) : std::string_view(); };
  return Beats(b, name(b), a, name(a)) ? b : a;
}

std::int32_t ShapeIndex::Intern(std::string reason) {
  const auto [found, fresh] = reason_ids_.try_emplace(std::move(reason), static_cast<std::int32_t>(reasons_.size()));
  if (fresh) reasons_.push_back(found->first);
  return found->second;
}

// True when the node had to be asked.
bool ShapeIndex::Update(const Ledger& ledger, const Ask& ask, NodeId id) {
  Entry& entry = entries_[id];
  const Node& node = ledger.node(id);
  if (entry.version == node.version) return false;
  entry.version = node.version;
  Verdict verdict = ask(node);
  entry.score = verdict.score;
  entry.reason = verdict.fits ? kFits : Intern(std::move(verdict.reason));
  Climb(ledger, id);
  return true;
}

void ShapeIndex::Climb(const Ledger& ledger, NodeId id) {
  std::size_t at = entries_.size() + id;
  tree_[at] = fits(id) ? id : kNoNode;
  for (at /= 2; at > 0; at /= 2) {
    const NodeId before = std::exchange(tree_[at], Better(ledger, tree_[2 * at], tree_[2 * at + 1]));
    // Another won here and still does: nothing changes further up.
    if (before == tree_[at] && before != id) return;
  }
}

void ShapeIndex::Grow(const Ledger& ledger) {
  const std::size_t needed = std::bit_ceil(std::max<std::size_t>(ledger.node_ids(), 1));
  if (needed <= entries_.size()) return;
  entries_.resize(needed);
  tree_.assign(2 * needed, kNoNode);
  // Nodes that left since the last look would be compared by names they no longer have; they go before the tree.
  for (NodeId id = 0; id < ledger.node_ids(); ++id) {
    if (!ledger.exists(id)) entries_[id] = {};
    tree_[needed + id] = fits(id) ? id : kNoNode;
  }
  for (std::size_t at = needed - 1; at > 0; --at) tree_[at] = Better(ledger, tree_[2 * at], tree_[2 * at + 1]);
}

std::size_t ShapeIndex::Refresh(const Ledger& ledger, const Ask& ask) {
  Grow(ledger);
  // Removed nodes leave the tree before any comparison needs their names.
  const bool all = !started_ || !ledger.ChangesSince(cursor_, changed_);
  if (all) {
    changed_.resize(ledger.node_ids());
    for (NodeId id = 0; id < ledger.node_ids(); ++id) changed_[id] = id;
  }
  started_ = true;
  cursor_ = ledger.change_count();
  for (const NodeId id : changed_) {
    if (!ledger.exists(id)) entries_[id] = {};
  }
  std::size_t asked = 0;
  for (const NodeId id : changed_) {
    if (!ledger.exists(id)) {
      Climb(ledger, id);
    } else if (Update(ledger, ask, id)) {
      ++asked;
    }
  }
  return asked;
}

}  // namespace hami::sched
