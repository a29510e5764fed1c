// SPDX-License-Identifier: Apache-2.0
//
// What a grid that was never seen is expected to cost, from others of the same kernel, and an executable graph that was
// updated, from what it did before. Programs whose batches differ in length launch few grids twice, and to wait for the
// measurement of each would leave the GPU idle in between. It is measured and settled all the same; the guess says what
// is in flight meanwhile. No clock, no driver.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "vgpu/policy/pacer_model.h"

namespace hami::vgpu {

// A kernel in the grid that was measured last, or a graph.
struct KernelCost {
  uint64_t handle = 0;   // 0 = free
  uint64_t threads = 0;  // of the grid
  int64_t cost = 0;      // ns, 0 = never measured
  uint32_t right = 0;    // so many guesses in a row were
};

inline constexpr uint32_t kTrusted = 4;              // right guesses before one counts
inline constexpr int64_t kLongestGuess = 2'000'000;  // ns; whoever launches longer ones loses little by waiting
inline constexpr uint64_t kLikeness = 8;             // grids of more or fewer threads by this are no guide

// By the number of threads; 0 = nobody knows.
constexpr int64_t Extrapolate(const KernelCost& k, uint64_t threads) {
  const bool alike = threads / kLikeness < k.threads && k.threads / kLikeness < threads;
  if (k.cost == 0 || !alike || k.cost > kLongestGuess) return 0;
  const auto cost =
      static_cast<int64_t>(static_cast<double>(k.cost) * static_cast<double>(threads) / static_cast<double>(k.threads));
  return cost < 1 ? 1 : cost <= kLongestGuess ? cost : 0;
}

constexpr int64_t Guess(const KernelCost& k, uint64_t threads) {
  return k.right < kTrusted ? 0 : Extrapolate(k, threads);
}

// Half or twice as much is near enough for what is settled soon; of short ones the gap is more than that.
constexpr bool IsRight(int64_t guess, int64_t measured) {
  return measured <= 2 * guess + kGap && guess <= 2 * measured + kGap;
}

// A grid was measured for the first time, or a graph after an update. What others may have drawn out says nothing
// against a guess.
constexpr void LearnKernel(KernelCost* k, uint64_t threads, int64_t measured, bool contended) {
  const int64_t guess = Extrapolate(*k, threads);
  const bool right = guess != 0 && IsRight(guess, measured);
  if (contended && k->cost != 0 && !right) return;
  k->right = !right ? 0 : k->right < kTrusted ? k->right + 1 : kTrusted;
  k->threads = threads;
  k->cost = measured;
}

// The kernels and graphs of this process, for whoever has the lock of pacer_samples.cc.
int64_t GuessLocked(const LaunchName& name);
void LearnKernelLocked(const LaunchName& name, int64_t measured, bool contended);
void ResetGuesses();

}  // namespace hami::vgpu
