// SPDX-License-Identifier: Apache-2.0
//
// What the node object says about this node's GPUs, and the patch that makes it say so. Pure. Compared with what the
// API server holds, never with what was sent: a lost patch is sent again, a deleted annotation comes back, and a node
// that is right is left alone. Owns only the annotations named here; in the list of cordoned GPUs it adds those that
// are out and leaves what others wrote.

#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "device/handshake.h"
#include "device/register_codec.h"
#include "device/sign_of_life.h"
#include "plugin/health.h"
#include "plugin/inventory.h"

namespace hami::plugin {

inline constexpr const char* kRegisterKey = "hami.io/node-nvidia-register";
inline constexpr const char* kScoreKey = "hami.io/node-nvidia-score";
inline constexpr const char* kHandshakeKey = "hami.io/node-handshake";
inline constexpr const char* kConcurrentKey = device::kConcurrentAllocate;
inline constexpr const char* kHealthKey = "hami-cpp/gpu-health";

// Whether the annotation is of interest here; for filtering what is kept of a node.
bool IsNodeKey(std::string_view key);

struct Registration {
  std::string cards;                  // the register annotation
  std::optional<std::string> scores;  // absent: not offered
  bool concurrent_allocate = false;   // several pods may be bound to this node at once
  HealthJournal health;
  bool answer_handshake = false;
  bool operator==(const Registration&) const = default;
};

std::string EncodeCards(const Cards& cards);
// Of the offered cards only.
std::string EncodeScores(const device::PairScores& scores, const Cards& cards);

// The merge patch that turns a node with ANNOTATIONS into one that says WANTED; nothing when it does.
std::optional<base::json::value> PatchFor(const device::StringMap& annotations, const Registration& wanted,
                                          const device::LocalClock& clock);

// Whether PATCH says nothing but that we still live.
bool OnlySaysAlive(const base::json::value& patch);

// What a node with ANNOTATIONS remembers of its GPUs' health. What is not understood is nothing.
HealthJournal JournalOf(const device::StringMap& annotations);
// GPUs that the journal holds out and whose cordon somebody has lifted.
std::vector<std::string> LiftedCordons(const device::StringMap& annotations);

}  // namespace hami::plugin
