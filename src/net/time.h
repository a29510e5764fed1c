// SPDX-License-Identifier: Apache-2.0
//
// Deadlines. Every blocking call of net/ takes a point in time by which it returns, never a span: spans add up along a
// call chain, points do not.

#pragma once

#include <chrono>

namespace hami::net {

using Clock = std::chrono::steady_clock;
using Duration = Clock::duration;
using Deadline = Clock::time_point;

inline constexpr Deadline kNever = Deadline::max();

// Saturates: a huge span means never, a negative one means now.
inline Deadline After(Duration span) {
  const Deadline now = Clock::now();
  return span >= kNever - now ? kNever : now + span;
}

}  // namespace hami::net
