// SPDX-License-Identifier: Apache-2.0
#include "simgpu/driver/host_cost.h"

#include <algorithm>

#include "simgpu/machine/machine.h"

namespace simgpu {

constinit std::int32_t g_host_percent = 0;

namespace {

// What a caller sees beyond what is measured here: the call itself and the last look at the clock, about two looks.
constinit std::int64_t g_unseen = 0;

// How long a look at the clock takes on this host: the least of some means, as a busy host only ever adds.
std::int64_t LookNanos() {
  constexpr int kLooks = 64;
  std::int64_t least = INT64_MAX;
  for (int round = 0; round < 32; ++round) {
    const std::int64_t begin = RealNow();
    for (int i = 1; i < kLooks; ++i) RealNow();
    least = std::min<std::int64_t>(least, (RealNow() - begin) / kLooks);
  }
  return least;
}

}  // namespace

void ReadHostCosts(int dev) {
  const Machine& machine = Machine::Get();
  g_host_percent =
      machine.options().virtual_clock != 0 ? 0 : static_cast<std::int32_t>(machine.spec(dev).profile.host_percent);
  if (g_host_percent != 0 && g_unseen == 0) g_unseen = 2 * LookNanos();
}

void SpendHost(std::int64_t nanos, Nanos begin) {
  if (g_host_percent != 0 && nanos > 0) WaitOut(begin + nanos * g_host_percent / 100);
}

void SpendWake(Nanos ended) { SpendHost(kWakeNanos, std::min(ended, RealNow())); }

void CallTime::Begin(const HostNanos& nanos) {
  const std::int64_t now = RealNow();
  end_ = now + nanos.total * g_host_percent / 100 - g_unseen;
  if (nanos.before != 0) WaitOut(now + nanos.before * g_host_percent / 100);
}

}  // namespace simgpu
