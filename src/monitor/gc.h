// SPDX-License-Identifier: Apache-2.0
//
// When the directory of a pod that is not known (any more) may go. Pure: facts in, verdict out. Keeps whatever could
// still be somebody's: while a process of the region lives, and for a while after the last sign of the pod or of one. A
// wrong "keep" costs a directory for some time; a wrong "remove" takes a running program's region away, so every doubt
// keeps.

#pragma once

#include <chrono>

namespace hami::monitor {

struct GcFacts {
  std::chrono::seconds unwanted_for{0};   // since the complete list of pods first lacked this one
  std::chrono::seconds unchanged_for{0};  // since a file in it came or went
  bool living = false;                    // a process is known to live
  bool doubtful = false;                  // a process may live: nobody can tell
  std::chrono::seconds silent_for{0};     // since the region was last written, or a kernel launched
};

// Without a pod, and with slots of processes that can not be looked at, so much silence means that they are gone: a
// library that runs writes the region's times every second or so while its program launches. Silence is told by times
// of the wall's clock, which can be set; so the pod has to be gone for as long by a clock that can not.
inline constexpr std::chrono::seconds kSilence{3600};

// RESYNC: how long a directory stays at least.
bool MayRemove(const GcFacts& facts, std::chrono::seconds resync);

}  // namespace hami::monitor
