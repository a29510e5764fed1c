// SPDX-License-Identifier: Apache-2.0
//
// The one correction against NVML. A neighbour without this library takes no turns, so the meter takes what that does
// within a segment for this process's work. Where NVML lists more processes at work than the turns' table knows, the
// charge follows NVML's figure for this process over some seconds. NVML has whole percents, so nothing else uses them.
#pragma once

#include <stdint.h>

#include <algorithm>
#include <utility>

#include "vgpu/time/constants.h"

namespace hami::vgpu::time {

// What NVML says of the time since it was last asked, ns.
struct NvmlUsage {
  int64_t own = 0, others = 0;
  int processes = 0;  // of others that had any
};

class Trim {
 public:
  // What is charged of what was measured, or is expected to be.
  int64_t Charged(int64_t measured) {
    measured_ += measured;
    return measured * part_ / kWhole;
  }
  // `known`: so many other processes are known. What was measured beyond this one's own is no more than others had of
  // late: once they are gone it is its own.
  void Correct(const NvmlUsage& usage, int known) {
    const int64_t measured = std::exchange(measured_, 0);
    const bool unknown = usage.processes > known;
    sum_measured_ += measured - sum_measured_ / kSmooth;
    sum_own_ += (unknown ? usage.own : measured) - sum_own_ / kSmooth;
    const int64_t had = std::max(sum_own_, sum_measured_ - (unknown ? kSmooth * usage.others : 0));
    if (sum_measured_ > kSegment) part_ = std::clamp(had * kWhole / sum_measured_, kWhole / kSmooth, kWhole);
  }

 private:
  static constexpr int64_t kWhole = 1'024;
  int64_t part_ = kWhole, measured_ = 0;
  int64_t sum_measured_ = 0, sum_own_ = 0;  // of the last kSmooth times, the older the less
};

}  // namespace hami::vgpu::time
