// SPDX-License-Identifier: Apache-2.0
//
// Is a node's device plugin alive? Older plugins answer a `Requesting_<time>` annotation, newer ones do not and are
// judged by what the kubelet reports as allocatable. Pure: the annotation, the clock and the zone go in; a verdict,
// what to write and what to remember come out. A vendor that was dropped stays dropped until the node shows life: the
// removal of the annotation is itself a change of the node and must not bring dead cards back.

#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "device/types.h"

namespace hami::device {

struct LocalClock {
  UnixSeconds now = 0;
  int utc_offset_seconds = 0;  // the annotation is written in local time
};

inline constexpr UnixSeconds kHandshakeExpiry = 60;

// `Requesting_2026-08-01 12:00:00`.
std::string RequestingText(const LocalClock& clock);
// The time inside a `Requesting_…` value; nothing when it is not one or not understood.
std::optional<UnixSeconds> ParseRequesting(std::string_view value, int utc_offset_seconds);

struct HandshakeInput {
  std::optional<std::string> value;  // the handshake annotation
  std::int64_t allocatable = 0;      // of the vendor's count resource, on this node
  std::string_view register_text;    // the register annotation, empty when absent
  LocalClock clock;
};

// What is kept per node and vendor from one look to the next.
struct HandshakeMemory {
  std::int64_t allocatable = 0;
  std::string register_text;
  bool dropped = false;
  std::string last_value =
      {};  // the handshake annotation when it was dropped: an answer from before is no sign of life
  bool operator==(const HandshakeMemory&) const = default;
};

enum class HandshakeAction { kNothing, kWriteRequesting, kDelete };

struct HandshakeVerdict {
  bool healthy = false;  // false: drop the vendor's cards of this node
  bool refresh = false;  // true: read the register annotation again
  HandshakeAction action = HandshakeAction::kNothing;
  HandshakeMemory memory;
};

// The rule that every vendor with a handshake shares; allocatable and register text serve the return from a drop.
HandshakeVerdict JudgeHandshake(const HandshakeInput& input, const HandshakeMemory& memory);

// NVIDIA's plugin does not answer any more; changes of its allocatable count and of its annotation count instead.
HandshakeVerdict JudgeNvidia(const HandshakeInput& input, const HandshakeMemory& memory);

}  // namespace hami::device
