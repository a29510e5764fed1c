// SPDX-License-Identifier: Apache-2.0
//
// What limits come to beside a neighbour without the library, with NVML's figures once a second, on the world's clock.
#include <gmock/gmock.h>

#include "vgpu/time/testing/programs.h"

namespace hami::vgpu::time::testing {
namespace {

constexpr int64_t kAsk = 1'000 * kMs;
constexpr int kSettled = 20, kMeasured = 20;  // seconds

// Whole percents of a second, as NVML has them.
struct Figures {
  std::vector<int64_t> had;

  NvmlUsage For(size_t self) const {
    NvmlUsage usage;
    for (size_t i = 0; i < had.size(); ++i) {
      if (i == self) continue;
      usage.others += had[i] * kAsk / 100;
      usage.processes += had[i] != 0 ? 1 : 0;
    }
    usage.own = had[self] * kAsk / 100;
    return usage;
  }
};
// What each had of a second as it was.
int64_t Exactly(size_t, int64_t busy) { return (busy * 100 + kAsk / 2) / kAsk; }

// What each tenant has of the GPU in percent, after kSettled. `says`: the percents that NVML has for a tenant that was
// busy for so many ns of the second. `knows`: tenants with the library, which ask it.
template <typename Says>
std::vector<double> SharesWithNvml(World& world, size_t knows, Says says) {
  std::vector<int64_t> before(world.tenants.size()), settled = before;
  for (int second = 1; second <= kSettled + kMeasured; ++second) {
    world.RunUntil(second * kAsk);
    Figures figures;
    for (size_t i = 0; i < before.size(); ++i) {
      const int64_t busy = world.gpu.BusyOf(world.tenants[i]->context);
      figures.had.push_back(says(i, busy - before[i]));
      before[i] = busy;
      if (second <= kSettled) settled[i] = busy;
    }
    for (size_t i = 0; i < knows; ++i) world.tenants[i]->gate.Correct(figures.For(i));
  }
  std::vector<double> shares;
  for (size_t i = 0; i < before.size(); ++i) {
    shares.push_back(100.0 * static_cast<double>(before[i] - settled[i]) / static_cast<double>(kMeasured * kAsk));
  }
  return shares;
}

// Without NVML 30 come to 28 with kernels of 0.5 ms, and to 14 to 16 where a segment is longer than a slice.
TEST(GpuTimeTrim, GivenAStranger_ThenNvmlKeepsTheLimit) {
  const std::pair<const char*, Tenant::Program> shapes[] = {
      {"5us", Endless(5 * kUs)},   {"20us", Endless(20 * kUs)}, {"half_ms", Endless(500 * kUs)},
      {"2ms", Endless(2 * kMs)},   {"5ms", Endless(5 * kMs)},   {"50ms_sync", OneByOne(50 * kMs, 0)},
      {"50ms", Endless(50 * kMs)}, {"mixed", Mixed()},          {"8_streams", Endless(200 * kUs, 8)},
  };
  const std::pair<const char*, Tenant::Program> strangers[] = {{"endless", Endless(500 * kUs)},
                                                               {"half the time", OneByOne(2 * kMs, 2 * kMs)}};
  for (const auto& [name, program] : shapes) {
    for (const auto& [stranger, works] : strangers) {
      for (const uint32_t limit : {1000U, 3000U, 4000U}) {
        World world;
        world.Add({.limit = limit}, program);
        world.Add({}, works, false);
        EXPECT_NEAR(SharesWithNvml(world, 1, Exactly)[0], limit / 100.0, 1.0) << name << " " << stranger;
      }
    }
  }
}

// What is half a second long is charged at once, and was had in other seconds.
TEST(GpuTimeTrim, GivenLongKernelsBesideAStranger_ThenTheMeanIsTheLimit) {
  for (const uint32_t limit : {1000U, 3000U}) {
    World world;
    world.Add({.limit = limit}, Endless(500 * kMs));
    world.Add({}, Endless(500 * kUs), false);
    EXPECT_NEAR(SharesWithNvml(world, 1, Exactly)[0], limit / 100.0, 3.0) << limit;
  }
}

TEST(GpuTimeTrim, GivenAStrangerAndAnother_ThenEachHasItsLimit) {
  World world;
  world.Add({.limit = 1000}, Endless(5 * kMs));
  world.Add({.limit = 2000}, Endless(500 * kUs));
  world.Add({}, Endless(500 * kUs), false);
  const std::vector<double> shares = SharesWithNvml(world, 2, Exactly);
  EXPECT_NEAR(shares[0], 10, 1.0);
  EXPECT_NEAR(shares[1], 20, 1.0);
}

TEST(GpuTimeTrim, GivenNoStranger_ThenNvmlsFiguresSayNothing) {
  std::vector<double> shares[2];
  for (const int64_t part : {1, 2}) {
    World world;
    world.Add({.limit = 3000}, Endless(500 * kUs));
    world.Add({.limit = 7000}, Endless(20 * kUs));
    shares[part - 1] = SharesWithNvml(world, 2, [=](size_t, int64_t busy) { return Exactly(0, busy) / part; });
  }
  EXPECT_EQ(shares[0], shares[1]);
}

TEST(GpuTimeTrim, GivenNvmlThatMissesUs_ThenNoMoreThanOthersHadIsGiven) {
  World world;
  world.Add({.limit = 3000}, Endless(500 * kUs));
  world.Add({}, OneByOne(kMs, 19 * kMs), false);
  const auto misses = [](size_t tenant, int64_t busy) { return tenant == 0 ? 0 : Exactly(0, busy); };
  const std::vector<double> shares = SharesWithNvml(world, 1, misses);
  EXPECT_LE(shares[0], 30 + shares[1] + 0.5);
  EXPECT_NEAR(shares[1], 4.5, 0.6);
}

TEST(GpuTimeTrim, WhenAStrangerLeaves_ThenTheMeterIsRightAgain) {
  World world;
  world.Add({.limit = 3000}, Endless(5 * kMs));
  world.Add(
      {},
      [](int64_t now) {
        return Step{now < (kSettled - 3) * kAsk ? Step::kLaunch : Step::kEnd, 500 * kUs};
      },
      false);
  EXPECT_NEAR(SharesWithNvml(world, 1, Exactly)[0], 30, 0.5);
}

}  // namespace
}  // namespace hami::vgpu::time::testing
