// SPDX-License-Identifier: Apache-2.0

#include "scheduler/registration.h"

#include <algorithm>
#include <charconv>

#include "base/log.h"
#include "base/strings.h"
#include "device/annotations.h"
#include "device/lists.h"
#include "scheduler/node_lock.h"

namespace hami::scheduler {
namespace {

using device::HandshakeAction;

constexpr device::UnixSeconds kWriteAgain = 15;

std::int64_t CountAt(const device::StringMap& resources, std::string_view key) {
  const std::string_view text = device::TextAt(resources, key);
  std::int64_t count = 0;
  std::from_chars(text.data(), text.data() + text.size(), count);
  return count;
}

device::HandshakeVerdict Judge(const device::Vendor& vendor, const device::HandshakeInput& input,
                               const device::HandshakeMemory& memory) {
  if (vendor.handshake_annotation().empty()) return {true, true, HandshakeAction::kNothing, {}};
  // The one plugin that stopped answering; what it says in other ways counts.
  return vendor.key() == "NVIDIA" ? device::JudgeNvidia(input, memory) : device::JudgeHandshake(input, memory);
}

bool Requesting(const std::optional<std::string>& value) {
  return value && value->find("Requesting") != std::string::npos;
}

// Is what was owed still to be written?
HandshakeAction StillOwed(HandshakeAction owed, const device::HandshakeVerdict& verdict,
                          const std::optional<std::string>& value) {
  if (verdict.action != HandshakeAction::kNothing) return verdict.action;
  if (owed == HandshakeAction::kDelete && (verdict.healthy || !value)) return HandshakeAction::kNothing;
  if (owed == HandshakeAction::kWriteRequesting && Requesting(value)) return HandshakeAction::kNothing;
  return owed;
}

}  // namespace

std::size_t CardsDigest(const device::NodeFacts& node, const device::Vendor& vendor) {
  std::size_t digest = 1;
  const std::hash<std::string_view> hash;
  const auto add = [&](std::string_view text) { digest = (digest ^ hash(text)) * 0x9E3779B97F4A7C15ULL; };
  for (const auto& [key, value] : node.annotations) {
    if (key == device::kNodeLock || key == kBindTicket || key == vendor.handshake_annotation()) continue;
    add(key);
    add(value);
  }
  for (const auto& [key, value] : node.capacity) {
    add(key);
    add(value);
  }
  add(node.instance_type);
  return digest == 0 ? 1 : digest;
}

void Registration::DropCards(State& state, NodeBook& node, int vendor) {
  node.vendors[static_cast<std::size_t>(vendor)].read_from = 0;
  state.CardsSeen(node, vendor, {});
}

void Registration::LookAtVendor(State& state, NodeBook& node, int index, const device::LocalClock& clock) {
  const device::Vendor& vendor = *state.vendors()[static_cast<std::size_t>(index)];
  NodeBook::Vendor& known = node.vendors[static_cast<std::size_t>(index)];
  const std::string_view registered = device::TextAt(node.view.annotations, vendor.register_annotation());
  if (!node.view.selected || !vendor.Registers(node.view.facts())) {
    known.memory = {};
    known.owed = HandshakeAction::kNothing;
    return DropCards(state, node, index);
  }
  device::HandshakeInput input;
  if (const std::string* value = device::Find(node.view.annotations, vendor.handshake_annotation())) {
    input.value = *value;
  }
  input.allocatable = CountAt(node.view.allocatable, vendor.count_resource());
  input.register_text = registered;
  input.clock = clock;
  const device::HandshakeVerdict verdict = Judge(vendor, input, known.memory);
  known.memory = verdict.memory;
  known.owed = StillOwed(known.owed, verdict, input.value);
  if (known.owed == HandshakeAction::kDelete && !vendor.clears_handshake()) known.owed = HandshakeAction::kNothing;
  // A plugin that was asked has a minute to answer.
  if (verdict.healthy && Requesting(input.value) && input.allocatable == 0) {
    const auto asked = device::ParseRequesting(*input.value, clock.utc_offset_seconds);
    if (asked) Schedule(node.view.name, std::max(*asked + device::kHandshakeExpiry, clock.now + 1));
  }
  if (!verdict.healthy) {
    if (known.read_from != 0) {
      base::LogInfo(
          base::Concat({"node ", node.view.name, ": ", vendor.key(), " cards dropped, their plugin is gone"}));
    }
    return DropCards(state, node, index);
  }
  const std::size_t digest = CardsDigest(node.view.facts(), vendor);
  if (digest == known.read_from) return;
  const auto cards = vendor.ReadNode(node.view.facts());
  known.read_from = digest;
  if (cards && !cards->complaint.empty()) {
    base::LogWarning(base::Concat({"node ", node.view.name, ": ", cards->complaint}));
  }
  if (cards) return state.CardsSeen(node, index, *cards);
  // Half-written by its plugin, or by hand: what was known before is better than nothing.
  base::LogWarning(base::Concat({"node ", node.view.name, ": annotation ", vendor.register_annotation(),
                                 " can not be read: ", cards.error().message}));
}

void Registration::Look(State& state, NodeBook& node, const device::LocalClock& clock) {
  bool owes = false;
  node.looked_at = node.view.version;
  for (std::size_t v = 0; v < node.vendors.size(); ++v) {
    LookAtVendor(state, node, static_cast<int>(v), clock);
    owes = owes || node.vendors[v].owed != HandshakeAction::kNothing;
  }
  if (owes && due_.count(node.view.name) == 0) Schedule(node.view.name, clock.now);
}

void Registration::Schedule(const std::string& node, device::UnixSeconds when) {
  const auto [known, fresh] = due_.try_emplace(node, when);
  if (!fresh) {
    if (known->second <= when) return;
    agenda_.erase({known->second, node});
    known->second = when;
  }
  agenda_.emplace(when, node);
}

void Registration::OweAll(const State& state) {
  for (const auto& [name, node] : state.nodes()) {
    const bool owes = std::any_of(node.vendors.begin(), node.vendors.end(),
                                  [](const auto& vendor) { return vendor.owed != HandshakeAction::kNothing; });
    if (owes) Schedule(name, 0);
  }
}

std::vector<NodeWrite> Registration::Due(State& state, const device::LocalClock& clock, std::size_t most) {
  std::vector<NodeWrite> writes;
  while (writes.size() < most && !agenda_.empty() && agenda_.begin()->first <= clock.now) {
    const std::string name = agenda_.begin()->second;
    agenda_.erase(agenda_.begin());
    due_.erase(name);
    NodeBook* node = state.FindNode(name);
    if (node == nullptr || !node->exists) continue;
    Look(state, *node, clock);
    NodeWrite write{name, {}};
    for (std::size_t v = 0; v < node->vendors.size(); ++v) {
      const std::string key(state.vendors()[v]->handshake_annotation());
      if (node->vendors[v].owed == HandshakeAction::kDelete) write.changes.emplace_back(key, std::nullopt);
      if (node->vendors[v].owed == HandshakeAction::kWriteRequesting) {
        write.changes.emplace_back(key, device::RequestingText(clock));
      }
    }
    if (write.changes.empty()) continue;
    if (const auto again = due_.find(name); again != due_.end()) {
      agenda_.erase({again->second, name});
      due_.erase(again);
    }
    Schedule(name, clock.now + kWriteAgain);
    writes.push_back(std::move(write));
  }
  return writes;
}

}  // namespace hami::scheduler
