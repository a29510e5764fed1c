// SPDX-License-Identifier: Apache-2.0
#include "simgpu/machine/real_clock.h"

#include <cerrno>
#include <ctime>

namespace simgpu {
namespace {

// From here on a thread sleeps, and gives the processor to others, instead of looking at the clock.
constexpr Nanos kWorthASleep = 1'000'000;

}  // namespace

Nanos RealNow() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return Nanos{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void WaitOut(Nanos end) {
  Nanos now = RealNow();
  if (end - now > kWorthASleep) {
    const timespec until = {static_cast<time_t>(end / 1'000'000'000), static_cast<long>(end % 1'000'000'000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
    }
  }
  while (now < end) now = RealNow();
}

}  // namespace simgpu
