// SPDX-License-Identifier: Apache-2.0

#include "net/cancel.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "net/socket.h"

namespace hami::net {

Canceller::Canceller() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void Canceller::Cancel() {
  if (cancelled_.exchange(true, std::memory_order_acq_rel)) return;
  const std::uint64_t one = 1;
  // A fresh eventfd takes one addition without blocking; there is no other failure.
  [[maybe_unused]] const ssize_t put = ::write(event_.get(), &one, sizeof one);
}

bool Canceller::SleepUntil(Deadline deadline) const {
  if (cancelled()) return true;
  // No descriptor of interest: only the deadline and this switch can end the wait.
  const Status ended = WaitReady(-1, 0, deadline, this);
  return !ended && ended.error().cause == Cause::kCancelled;
}

}  // namespace hami::net
