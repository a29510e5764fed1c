// SPDX-License-Identifier: Apache-2.0
//
// The gate between what changes this process's device memory and what measures it. Everything that is charged passes
// shared, from its reservation to the end of its driver call, and so does everything that gives back; who compares the
// driver's figures with the counts, or with each other, passes alone. Invariant: while a thread is alone, whatever this
// process has reserved it also holds, and neither changes.
//
// No wait is without end: who wants to be alone gives up after a moment (somebody may be inside the driver for long)
// and has to do with what is known already; who waits for a measurement that does not end goes on without it. The gate
// comes before every other lock but those around the making of contexts. A thread that is inside passes again at once.
#pragma once

#include <stdint.h>

namespace hami::vgpu {

enum class Way : uint8_t {
  kShared,
  kAlone,     // or shared, where that can not be had in time; alone() tells
  kTryAlone,  // without waiting; not inside at all where others are
};

class Passage {
 public:
  explicit Passage(Way way) { Enter(way); }
  ~Passage() { Leave(); }
  Passage(const Passage&) = delete;
  Passage& operator=(const Passage&) = delete;

  bool alone() const { return state_ == State::kAlone; }
  // Leaves and enters as given, unless this is alone already.
  void Become(Way way) {
    if (alone()) return;
    Leave();
    Enter(way);
  }

 private:
  enum class State : uint8_t { kOutside, kNested, kShared, kAlone };
  void Enter(Way way);
  void Leave();
  State state_ = State::kOutside;
};

// In the child of a fork.
void ResetGate();

}  // namespace hami::vgpu
