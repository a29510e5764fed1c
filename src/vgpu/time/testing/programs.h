// SPDX-License-Identifier: Apache-2.0
//
// Programs for the world: what they launch, and when they wait.
#pragma once

#include <algorithm>
#include <memory>
#include <random>

#include "vgpu/time/testing/world.h"

namespace hami::vgpu::time::testing {

inline constexpr int64_t kSeconds = 4;  // of the GPU, that a row lasts

// Kernels of `length` without end, on `streams` by turns.
inline Tenant::Program Endless(int64_t length, int streams = 1) {
  return [=, n = 0](int64_t) mutable { return Step{Step::kLaunch, length, n++ % streams, 1}; };
}

// Of one kind, and as long as its argument says.
inline Tenant::Program ByArgument(int64_t least, int64_t most) {
  return [=, random = std::mt19937_64(3)](int64_t) mutable {
    return Step{Step::kLaunch, least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least)), 0, 1};
  };
}

// Of one kernel, and no two in a row of the same grid.
inline Tenant::Program NewGrids() {
  return [n = 0](int64_t) mutable {
    const int64_t size = n++ * 97 % 924;
    return Step{Step::kLaunch, 80 * kUs * (132 + size) / 1056, 0, static_cast<uint64_t>(1'000 + n), 7};
  };
}

// An eighth of the GPU wide, on eight streams by turns, a tenth longer or shorter by chance.
inline Tenant::Program SideBySide(int64_t length) {
  return [=, random = std::mt19937(1), n = 0](int64_t) mutable {
    const auto tenth = static_cast<uint64_t>(length / 10);
    return Step{Step::kLaunch, length - length / 10 + static_cast<int64_t>(random() % (2 * tenth)), n++ % 8, 1};
  };
}

// Kernels of 0.2 ms on a stream, and on another one of 100 ms, the next as soon as that has ended. Tenant `context`.
inline Tenant::Program ShortBesideLong(World* world, int context, int64_t length = 100 * kMs) {
  return [=, turn = 0](int64_t) mutable {
    const bool wants = turn++ % 2 == 0 && world->gpu.Idle(context, 0);
    return wants ? Step{Step::kLaunch, length, 0, 1} : Step{Step::kLaunch, 200 * kUs, 1, 2};
  };
}

// `batch` of them by turns on `streams`, and no more than two batches under way.
inline Tenant::Program Batches(int64_t length, int streams, int batch) {
  return [=, random = std::mt19937(1), n = 0](int64_t) mutable {
    const int i = n++ % (batch + 1);
    if (i == batch) return Step{Step::kDrain, 2 * batch, 0, 1};
    const auto tenth = static_cast<uint64_t>(length / 10);
    return Step{Step::kLaunch, length - length / 10 + static_cast<int64_t>(random() % (2 * tenth)), i % streams, 1};
  };
}

// Graphs and the like, no more than `depth` of them under way.
inline Tenant::Program Bounded(int64_t length, int depth) {
  return [=, n = 0](int64_t) mutable {
    if (n++ % 2 == 0) return Step{Step::kDrain, depth - 1, 0, 1};
    return Step{Step::kLaunch, length, 0, 1};
  };
}

// Each is waited for, and long or short by chance; the host takes `host` in between, more or less.
inline Tenant::Program OneByOneByChance(int64_t shorter, int64_t longer, int64_t host, unsigned seed = 1) {
  return [=, random = std::mt19937(seed), n = 0](int64_t) mutable {
    switch (n++ % 3) {
      case 0:
        return Step{Step::kLaunch, random() % 2 == 0 ? shorter : longer, 0, 1};
      case 1:
        return Step{Step::kSync, 0, 0, 1};
      default:
        return Step{Step::kThink, host / 2 + static_cast<int64_t>(random() % static_cast<uint64_t>(host)), 0, 1};
    }
  };
}

// Launches one, waits for it, and thinks for `host`.
inline Tenant::Program OneByOne(int64_t length, int64_t host) {
  return [=, n = 0](int64_t) mutable {
    switch (n++ % 3) {
      case 0:
        return Step{Step::kLaunch, length, 0, 1};
      case 1:
        return Step{Step::kSync, 0, 0, 1};
      default:
        return Step{Step::kThink, host, 0, 1};
    }
  };
}

// As one that decodes tokens: `count` kernels, a wait for them, and the host takes `host`.
inline Tenant::Program Bursts(int count, int64_t length, int64_t host) {
  return [=, n = 0](int64_t) mutable {
    const int i = n++ % (count + 2);
    if (i == count) return Step{Step::kSync, 0, 0, 1};
    if (i > count) return Step{Step::kThink, host, 0, 1};
    return Step{Step::kLaunch, length, 0, 1};
  };
}

// As an eager framework: kernels of 10 to 70 us, a wait after each 200 of them, and a ms without any.
inline Tenant::Program Mixed() {
  return [n = 0](int64_t) mutable {
    const int i = n++ % 202;
    if (i == 200) return Step{Step::kSync, 0, 0, 1};
    if (i == 201) return Step{Step::kThink, kMs, 0, 1};
    return Step{Step::kLaunch, (i % 7 + 1) * 10 * kUs, 0, static_cast<uint64_t>(i % 7 + 1)};
  };
}

// A training step of an eager framework: 350 kernels of as many kinds, 2 to 14 us long, and some up to 82, with `host`
// between two of them, so that the stream rests behind most of them.
inline Tenant::Program Eager(int64_t host, uint64_t handles) {
  constexpr int kKernels = 350;
  std::mt19937 random(1);
  std::vector<int64_t> lengths(kKernels);
  for (int64_t& length : lengths) {
    const bool is_short = random() % 100 < 85;
    length = 2 * kUs + static_cast<int64_t>(random() % static_cast<uint64_t>((is_short ? 12 : 80) * kUs));
  }
  return [=, n = 0](int64_t) mutable {
    const int i = n++ / 2 % kKernels;
    if (n % 2 == 0) return Step{Step::kThink, host, 0, 1};
    const auto kind = static_cast<uint64_t>(i) + 1;
    return Step{Step::kLaunch, lengths[static_cast<size_t>(i)], 0, kind, 10'000 + kind % handles};
  };
}

// Kernels of 8 us, and each tenth of 80 us in a grid that was never seen, all of one function.
inline Tenant::Program NewGridsAmongKnown(int64_t host) {
  return [=, n = 0](int64_t) mutable {
    const int i = n++ / 2;
    if (n % 2 == 0) return Step{Step::kThink, host, 0, 1};
    if (i % 10 != 0) return Step{Step::kLaunch, 8 * kUs, 0, 1, 7};
    return Step{Step::kLaunch, 80 * kUs, 0, static_cast<uint64_t>(1'000 + i), 7};
  };
}

// Requests that come at random, `rate` a second.
inline Tenant::Program Requests(int64_t length, double rate) {
  return [=, random = std::mt19937_64(5), n = 0, next = int64_t{0}](int64_t now) mutable {
    switch (n++ % 3) {
      case 0:
        next += static_cast<int64_t>(std::exponential_distribution<double>(rate)(random) * 1e9);
        return Step{Step::kThink, std::max<int64_t>(0, next - now), 0, 1};
      case 1:
        return Step{Step::kLaunch, length, 0, 1};
      default:
        return Step{Step::kSync, 0, 0, 1};
    }
  };
}

// What each tenant has of the GPU in percent, over `seconds` after the first one.
inline std::vector<double> SharesOf(World& world, int64_t seconds) {
  constexpr int64_t kSecond = 1'000 * kMs;
  world.RunUntil(kSecond);
  std::vector<int64_t> before;
  for (auto& tenant : world.tenants) {
    before.push_back(world.gpu.BusyOf(tenant->context));
    tenant->latencies.clear();
  }
  world.RunUntil((1 + seconds) * kSecond);
  std::vector<double> shares;
  for (size_t i = 0; i < before.size(); ++i) {
    const int64_t had = world.gpu.BusyOf(world.tenants[i]->context) - before[i];
    shares.push_back(100.0 * static_cast<double>(had) / static_cast<double>(seconds * kSecond));
  }
  return shares;
}

inline double SumOf(const std::vector<double>& shares) {
  double sum = 0;
  for (const double share : shares) sum += share;
  return sum;
}

// ms; one of 100 takes longer.
inline double Percentile99(const Tenant& tenant) {
  std::vector<int64_t> sorted = tenant.latencies;
  std::sort(sorted.begin(), sorted.end());
  return sorted.empty() ? 0 : static_cast<double>(sorted[sorted.size() * 99 / 100]) / 1e6;
}

}  // namespace hami::vgpu::time::testing
