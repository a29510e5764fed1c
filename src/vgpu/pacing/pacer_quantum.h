// SPDX-License-Identifier: Apache-2.0
//
// How much work a task may have in flight, where that is bounded: all numbers are ns of GPU time. Time is always a
// parameter.
#pragma once

#include <stdint.h>

namespace hami::vgpu {

// What a task that gives way may have in flight, and as much may be ahead of a launch that is longer than that.
struct Quantum {
  int64_t most;
  int64_t ahead;
  int64_t turns = 1;  // it takes so many times as long, as others of this container take turns with it
};
// So that it stops within 2 ms, and the GPU need not wait for the host.
inline constexpr Quantum kQuantum{900'000, 200'000};
// While somebody more important is about, each of whose requests has to wait for what is in flight.
inline constexpr Quantum kShortQuantum{200'000, 0};
// Of a task with a limit that so many, itself included, keep from reaching it: what stops within 20 ms when they take
// turns. It is more than a turn on the GPU, so that none is missed.
inline constexpr int64_t kSharedMost = 6'000'000;
inline constexpr int64_t kSharedLeast = 3'000'000;
constexpr Quantum SharedQuantum(int64_t sharers) {
  const int64_t part = 2 * kSharedMost / sharers;
  const int64_t most = part > kSharedMost ? kSharedMost : part < kSharedLeast ? kSharedLeast : part;
  return {most, most / 3};
}

// The part of one of so many processes of a container, whose turns on the GPU come one after the other. As much as a
// launch takes to get there it always is.
inline constexpr int64_t kLeastPart = 50'000;
constexpr Quantum PartOf(const Quantum& quantum, int64_t workers) {
  const int64_t most = quantum.most / workers;
  return {most > kLeastPart ? most : kLeastPart, quantum.ahead / workers, workers};
}

inline constexpr int64_t kQuantumPoll = 50'000;   // what is in flight is looked at again after that at the soonest,
inline constexpr int64_t kLongestPoll = 500'000;  // and after that at the latest

// How long to wait before a launch of `cost` may go while `ahead` is in flight; 0: it may.
constexpr int64_t QuantumWait(int64_t ahead, int64_t cost, const Quantum& quantum) {
  const int64_t room = quantum.most - cost;
  const int64_t excess = (ahead - (room > quantum.ahead ? room : quantum.ahead)) * quantum.turns;
  return excess <= 0 ? 0 : excess < kQuantumPoll ? kQuantumPoll : excess < kLongestPoll ? excess : kLongestPoll;
}

}  // namespace hami::vgpu
