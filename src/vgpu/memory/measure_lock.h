// SPDX-License-Identifier: Apache-2.0
//
// The lock between what changes this process's device memory and what measures it: readers and a writer, with bounded
// waits. Everything that is charged holds it shared, from its reservation to the end of its driver call, and so does
// everything that gives back. A measurement, which compares the driver's figures with the counts, holds it exclusively.
// Invariant: while it is held exclusively, whatever this process has reserved it also holds, and neither changes.
//
// All waits are bounded. A measurement gives up after 100 ms, because a driver's call may take long, and goes by what
// is known already; a charge goes on after 2 s without the lock. A thread that holds it gets it again at once. It comes
// before every other lock but those around the making of contexts.
#pragma once

#include <stdint.h>

#include <atomic>

namespace hami::vgpu {

enum class LockMode : uint8_t {
  kShared,
  kExclusive,     // or shared, where that cannot be had in time; exclusive() tells
  kTryExclusive,  // without waiting; not held at all where others hold it
};

class MeasureLock {
 public:
  explicit MeasureLock(LockMode mode) { Enter(mode); }
  ~MeasureLock() { Leave(); }
  MeasureLock(const MeasureLock&) = delete;
  MeasureLock& operator=(const MeasureLock&) = delete;

  bool exclusive() const { return state_ == State::kExclusive; }
  // Lets go and takes it as given, unless this holds it exclusively already.
  void Become(LockMode mode) {
    if (exclusive()) return;
    Leave();
    Enter(mode);
  }

 private:
  enum class State : uint8_t { kOutside, kNested, kShared, kExclusive };
  void Enter(LockMode mode);
  void Leave();
  State state_ = State::kOutside;
};

// What the threads of this process wait at.
struct alignas(64) MeasureWord {
  uint32_t word = 0;
  std::atomic<int64_t> no_wait_before{0};  // monotonic nanoseconds

  void Reset();  // in the child of a fork
};

}  // namespace hami::vgpu
