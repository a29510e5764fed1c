// SPDX-License-Identifier: Apache-2.0
#include "simgpu/driver/host_cost.h"

#include "simgpu/machine/machine.h"

namespace simgpu {

constinit std::int32_t g_host_percent = 0;

namespace {

// What a caller sees beyond what is measured here: the call itself, and the last look at the clock.
constexpr std::int64_t kUnseen = 45;

}  // namespace

void ReadHostCosts(int dev) {
  const Machine& machine = Machine::Get();
  g_host_percent =
      machine.options().virtual_clock != 0 ? 0 : static_cast<std::int32_t>(machine.spec(dev).profile.host_percent);
}

void SpendHost(std::int64_t nanos) {
  if (g_host_percent != 0 && nanos > 0) WaitOut(RealNow() + nanos * g_host_percent / 100);
}

void CallTime::Begin(const HostNanos& nanos) {
  const std::int64_t now = RealNow();
  end_ = now + nanos.total * g_host_percent / 100 - kUnseen;
  if (nanos.before != 0) WaitOut(now + nanos.before * g_host_percent / 100);
}

}  // namespace simgpu
