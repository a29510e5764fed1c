// SPDX-License-Identifier: Apache-2.0

#include "monitor/gc.h"

#include <algorithm>

namespace hami::monitor {

bool MayRemove(const GcFacts& facts, std::chrono::seconds resync) {
  if (facts.living) return false;
  if (facts.unwanted_for < resync || facts.unchanged_for < resync) return false;
  return !facts.doubtful || std::min(facts.silent_for, facts.unwanted_for) >= kSilence;
}

}  // namespace hami::monitor
