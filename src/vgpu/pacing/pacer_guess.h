// SPDX-License-Identifier: Apache-2.0
//
// What a grid that was never seen is expected to cost, from others of the same kernel, and an executable graph that was
// updated, from what it did before. Programs whose batches differ in length launch few grids twice, and to wait for the
// measurement of each would leave the GPU idle in between. It is measured and settled all the same; the guess says what
// is in flight meanwhile. No clock, no driver.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "vgpu/pacing/pacer_model.h"

namespace hami::vgpu {

// A kernel in the grid that was measured last, and in the last one of quite another size; or a graph.
struct KernelCost {
  uint64_t handle = 0;   // 0 = free
  uint64_t threads = 0;  // of the grid
  int64_t cost = 0;      // ns, 0 = never measured
  uint64_t other_threads = 0;
  int64_t other_cost = 0;
  uint32_t right = 0;   // so many guesses in a row were
  uint32_t beyond = 0;  // so many in a row took far longer beside others
  int64_t most = 0;     // about what the dearest grids take,
  uint32_t within = 0;  // which so many in a row were not beyond
};

inline constexpr uint32_t kTrusted = 4;              // right guesses before one counts
inline constexpr uint32_t kDoubted = 4;              // far too low ones beside others, before none counts
inline constexpr uint32_t kWithin = 16;              // grids that were not far dearer than all before
inline constexpr uint64_t kLikeness = 8;             // grids of more or fewer threads by this are no guide
inline constexpr int64_t kLongestGuess = 2'000'000;  // ns; whoever launches longer ones loses little by waiting

constexpr bool AreAlike(const KernelCost& k, uint64_t threads) {
  return threads / kLikeness < k.threads && k.threads / kLikeness < threads;
}

// By the number of threads, and what does not go by it as far as two grids tell; 0 = nobody knows.
constexpr int64_t Extrapolate(const KernelCost& k, uint64_t threads) {
  if (k.cost == 0 || !AreAlike(k, threads) || k.cost > kLongestGuess) return 0;
  const auto known = static_cast<double>(k.threads);
  const auto cost = static_cast<double>(k.cost);
  double slope = cost / known;
  if (k.other_threads != 0) {
    const double seen = (cost - static_cast<double>(k.other_cost)) / (known - static_cast<double>(k.other_threads));
    slope = seen < 0 ? 0 : seen < slope ? seen : slope;
  }
  const auto guess = static_cast<int64_t>(cost + slope * (static_cast<double>(threads) - known));
  return guess < 1 ? 1 : guess <= kLongestGuess ? guess : 0;
}

// Of a kernel whose cost goes by something else it is the most that its grids take: what was charged too much comes
// back with the measurement.
constexpr int64_t Guess(const KernelCost& k, uint64_t threads) {
  const int64_t guess = k.right < kTrusted ? 0 : Extrapolate(k, threads);
  const bool within = k.within >= kWithin && k.most <= kLongestGuess && AreAlike(k, threads);
  return guess != 0 ? guess : within ? k.most : 0;
}

// Half or twice as much is near enough for what is settled soon; of short ones the gap is more than that.
constexpr bool IsRight(int64_t guess, int64_t measured) {
  return measured <= 2 * guess + kGap && guess <= 2 * measured + kGap;
}

// What is charged for one that was guessed: what was measured, but for what is likely a slice of others.
constexpr int64_t AcceptGuessed(int64_t guess, int64_t measured, bool contended) {
  const int64_t near = BandTop(guess) + kNear < 6 * guess + kGap ? BandTop(guess) + kNear : 6 * guess + kGap;
  return contended && measured > near ? guess : measured;
}

// A grid was measured for the first time, or a graph after an update. What others may have drawn out is not learnt; but
// who takes all that is longer for theirs, again and again, would be charged too little, take more, and have it so for
// ever. Launches of one grid that were under way together are one guess.
constexpr void LearnKernel(KernelCost* k, uint64_t threads, int64_t measured, bool contended) {
  const int64_t guess = Extrapolate(*k, threads);
  const bool right = guess != 0 && IsRight(guess, measured);
  if (contended && k->cost != 0 && !right && measured > guess) {
    if (guess != 0 && ++k->beyond >= kDoubted) k->right = k->beyond = 0;
    return;
  }
  const bool another = threads != k->threads || threads == 1;
  k->beyond = 0;
  if (!contended) {
    const bool far = measured > 4 * k->most + kGap || !AreAlike(*k, threads);
    k->within = far ? 0 : another && k->within < kWithin ? k->within + 1 : k->within;
    k->most = measured > k->most || far ? measured : k->most - (k->most - measured) / 32;
  }
  k->right = !right ? 0 : another && k->right < kTrusted ? k->right + 1 : k->right;
  if (threads > k->threads + k->threads / 2 || threads < k->threads - k->threads / 3) {
    k->other_threads = k->threads;
    k->other_cost = k->cost;
  }
  k->threads = threads;
  k->cost = measured;
}

// The kernels and graphs of this process, for whoever has the samples' lock.
int64_t GuessLocked(const LaunchName& name);
void LearnKernelLocked(const LaunchName& name, int64_t measured, bool contended);
void ForgetGuessLocked(const LaunchName& name);
void ResetGuesses();  // likewise, or of a process of its own

}  // namespace hami::vgpu
