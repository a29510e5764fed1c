// SPDX-License-Identifier: Apache-2.0
//
// Many processes that start at the same moment: each attaches, makes its context, allocates, frees and ends. All
// succeed. What the library costs them is printed; its budget is the benchmarks' matter. STRESS_STARTS is how many.
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstdio>

#include "simgpu/simgpu.h"
#include "test/stress/harness.h"

namespace stress {
namespace {

struct Crowd {
  uint64_t failed = 0;
  uint64_t cpu_us = 0;
  uint64_t took_ns = 0;
};

Crowd StartTogether(uint64_t many, bool under_library) {
  Crowd crowd;
  // Contexts take 8 MiB each.
  Container container(uint64_t{70} << 30);
  std::vector<pid_t> pids;
  for (uint64_t i = 0; i < many; ++i) pids.push_back(container.Start("start", {}, under_library));
  const uint64_t deadline = MonotonicNs() + 60'000'000'000;
  while (container.board().cells[0].calls < many && MonotonicNs() < deadline) SleepUs(1000);
  const uint64_t from = MonotonicNs();
  container.board().go = 1;
  syscall(SYS_futex, &container.board().go, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  for (const pid_t pid : pids) {
    const Finished finished = Container::Wait(pid);
    crowd.failed += finished.status != 0;
    crowd.cpu_us += finished.cpu_us;
  }
  crowd.took_ns = MonotonicNs() - from;
  for (const auto& [pid, bytes] : container.RegionBooks()) crowd.failed += bytes != 0;
  return crowd;
}

TEST(Starts, GivenManyProcessesAtOnce_ThenAllAttachAndEnd) {
  const uint64_t many = FromEnvironment("STRESS_STARTS", 500);
  const Crowd bare = StartTogether(many, false);
  const Crowd ours = StartTogether(many, true);
  std::printf("%llu processes: bare %.2f s CPU in %.2f s; under the library %.2f s CPU in %.2f s; added %.2f s CPU\n",
              static_cast<unsigned long long>(many), static_cast<double>(bare.cpu_us) / 1e6,
              static_cast<double>(bare.took_ns) / 1e9, static_cast<double>(ours.cpu_us) / 1e6,
              static_cast<double>(ours.took_ns) / 1e9,
              (static_cast<double>(ours.cpu_us) - static_cast<double>(bare.cpu_us)) / 1e6);
  EXPECT_EQ(bare.failed, 0u);
  EXPECT_EQ(ours.failed, 0u);
  EXPECT_LT(ours.took_ns, 60'000'000'000u);
  EXPECT_EQ(simgpu_used_bytes(0), 0u);
}

}  // namespace
}  // namespace stress
