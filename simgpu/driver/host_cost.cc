// SPDX-License-Identifier: Apache-2.0
#include "simgpu/driver/host_cost.h"

#include <cerrno>
#include <ctime>

#include "simgpu/machine/machine.h"

namespace simgpu {

constinit std::int32_t g_host_percent = 0;

namespace {

// From here on a thread sleeps, and gives the processor to others, instead of looking at the clock.
constexpr std::int64_t kWorthASleep = 1'000'000;
// A call is about to end when the work that it submits reaches the GPU.
constexpr std::int64_t kSubmitsAfterPercent = 85;

std::int64_t RealNow() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

void ReadHostCosts(int dev) {
  const Machine& machine = Machine::Get();
  g_host_percent =
      machine.options().virtual_clock != 0 ? 0 : static_cast<std::int32_t>(machine.spec(dev).profile.host_percent);
}

void SpendHost(std::int64_t nanos) {
  if (g_host_percent != 0 && nanos > 0) WaitOut(RealNow() + nanos * g_host_percent / 100);
}

void WaitOut(std::int64_t end) {
  if (end - RealNow() > kWorthASleep) {
    const timespec until = {static_cast<time_t>(end / 1'000'000'000), static_cast<long>(end % 1'000'000'000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
    }
  }
  while (RealNow() < end) {
  }
}

void CallTime::Begin(std::int64_t nanos) {
  const std::int64_t now = RealNow();
  const std::int64_t length = nanos * g_host_percent / 100;
  end_ = now + length;
  WaitOut(now + length * kSubmitsAfterPercent / 100);
}

}  // namespace simgpu
