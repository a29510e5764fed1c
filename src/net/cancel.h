// SPDX-License-Identifier: Apache-2.0
//
// Canceller: one switch, thrown once, seen by any number of threads, also by those that sleep in poll(2). Must outlive
// every call it was given to.

#pragma once

#include <atomic>

#include "base/fd.h"
#include "net/time.h"

namespace hami::net {

class Canceller {
 public:
  Canceller();
  Canceller(const Canceller&) = delete;
  Canceller& operator=(const Canceller&) = delete;

  void Cancel();
  bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }
  // Readable from the moment of cancellation on; -1 when the system had no descriptor left, in which case sleepers
  // notice only at their deadline.
  int fd() const { return event_.get(); }
  // Sleeps until the deadline, or until cancelled: true then.
  bool SleepUntil(Deadline deadline) const;

 private:
  base::Fd event_;
  std::atomic<bool> cancelled_ = false;
};

}  // namespace hami::net
