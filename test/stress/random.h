// SPDX-License-Identifier: Apache-2.0
//
// The one source of chance in the stress tests: SplitMix64, the same numbers everywhere for the same seed.
#pragma once

#include <cstdint>

namespace stress {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // 0 … n − 1.
  uint64_t Below(uint64_t n) { return n == 0 ? 0 : Next() % n; }
  bool OneIn(uint64_t n) { return Below(n) == 0; }
  // Small and large sizes are equally likely: the exponent is uniform.
  uint64_t Size(uint64_t most) {
    const uint64_t ceiling = (uint64_t{1} << Below(27)) < most ? uint64_t{1} << Below(27) : most;
    return Below(ceiling < most ? ceiling : most) + 1;
  }

 private:
  uint64_t state_;
};

}  // namespace stress
