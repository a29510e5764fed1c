// SPDX-License-Identifier: Apache-2.0
//
// From a node's annotations to its cards in the books, and from the handshake to what has to be written on the node.
// Judges a node when it changed and when time alone can change the answer; a node that says nothing new costs nothing.
// A node without a register annotation is left alone: nobody there would answer. Called with the books' mutex held.

#pragma once

#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "device/handshake.h"
#include "scheduler/books.h"

namespace hami::scheduler {

struct NodeWrite {
  std::string node;
  Changes changes;
};

class Registration {
 public:
  // The node's view changed: its cards come into the books at once. What has to be written waits for Due.
  void Look(State& state, NodeBook& node, const device::LocalClock& clock);

  // Looks at the nodes whose time has come, and returns at most MOST handshakes that are to be written; each is due
  // again some seconds later, unless the node shows by then that it was written.
  std::vector<NodeWrite> Due(State& state, const device::LocalClock& clock, std::size_t most);
  // Nobody writes for us any more: everything owed is due now.
  void OweAll(const State& state);

 private:
  void LookAtVendor(State& state, NodeBook& node, int vendor, const device::LocalClock& clock);
  void DropCards(State& state, NodeBook& node, int vendor);
  void Schedule(const std::string& node, device::UnixSeconds when);

  // When to look at a node again; each node at most once.
  std::set<std::pair<device::UnixSeconds, std::string>> agenda_;
  std::unordered_map<std::string, device::UnixSeconds> due_;
};

// Two readings of one node whose cards must be the same have the same digest.
std::size_t CardsDigest(const device::NodeFacts& node, const device::Vendor& vendor);

}  // namespace hami::scheduler
