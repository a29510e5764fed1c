// SPDX-License-Identifier: Apache-2.0

#include "monitor/gc.h"

namespace hami::monitor {

bool MayRemove(const GcFacts& facts, std::chrono::seconds resync) {
  if (facts.living) return false;
  if (facts.unwanted_for < resync || facts.unchanged_for < resync) return false;
  return !facts.doubtful || facts.silent_for >= kSilence;
}

}  // namespace hami::monitor
