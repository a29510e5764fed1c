// SPDX-License-Identifier: Apache-2.0
//
// How NVML's utilisation of processes is read: one or more figures for each process that ran, each the mean of the time
// since the caller last asked, at the moment at which the process was last seen to run. Drivers were seen to show older
// figures as well, several of one process, and nonsense for a process that is gone.
#pragma once

#include <stdint.h>

#include <algorithm>

#include "abi/nvml_abi.h"

namespace hami::vgpu {

// Keeps the newest figure of each process, of those after `since` and not after `now` (us of the wall clock), in any
// order. Returns how many.
inline unsigned KeepNewest(nvmlProcessUtilizationSample_t* figures, unsigned count, uint64_t since, uint64_t now) {
  unsigned kept = 0;
  for (unsigned i = 0; i < count; ++i) {
    const nvmlProcessUtilizationSample_t figure = figures[i];
    if (figure.timeStamp <= since || figure.timeStamp > now || figure.smUtil > 100) continue;
    nvmlProcessUtilizationSample_t* const end = figures + kept;
    auto* const same = std::find_if(figures, end, [&](const auto& other) { return other.pid == figure.pid; });
    if (same == end) {
      figures[kept++] = figure;
    } else if (same->timeStamp < figure.timeStamp) {
      *same = figure;
    }
  }
  return kept;
}

// What processes had of a device's time between two figures.
struct Utilization {
  int64_t own = 0, others = 0;  // ns
  int processes = 0;            // of others that had any
};

struct UtilizationWatch {
  uint64_t since = 0;   // the newest figure so far, us of the wall clock; 0: none
  bool listed = false;  // this process, `self` to NVML, was among them

  // False: there is nothing new, or this process was never listed. `self`: 0: not known.
  bool Take(nvmlProcessUtilizationSample_t* figures, unsigned count, uint64_t now, unsigned self, Utilization* had) {
    count = KeepNewest(figures, count, since, now);
    uint64_t newest = since;
    for (unsigned i = 0; i < count; ++i) newest = std::max<uint64_t>(newest, figures[i].timeStamp);
    const auto span = static_cast<int64_t>(newest - since) * 1000;
    for (unsigned i = 0; i < count; ++i) {
      const bool own = figures[i].pid == self && self != 0;
      (own ? had->own : had->others) += span * figures[i].smUtil / 100;
      had->processes += own || figures[i].smUtil == 0 ? 0 : 1;
      listed |= own;
    }
    since = newest;
    return span != 0 && listed;
  }
};

}  // namespace hami::vgpu
