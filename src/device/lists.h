// SPDX-License-Identifier: Apache-2.0
//
// The small texts that users write into annotations: comma lists of UUIDs and of type names, booleans, and the scoring
// weights. Refuses weights that are not wholly understood, with the sentence that the user sees.

#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/types.h"

namespace hami::device {

// "a, b,,c" → {"a", "b", "c"}: trimmed, without empty members.
std::vector<std::string> SplitList(std::string_view text);

// Go's strconv.ParseBool.
std::optional<bool> ParseBool(std::string_view text);

const std::string* Find(const StringMap& map, std::string_view key);
// Empty where there is none.
std::string_view TextAt(const StringMap& map, std::string_view key);

// The one of KNOWN that KEY, which is none of them, was probably meant to be: under the same prefix (up to the slash),
// with a name that is near.
std::optional<std::string> Misspelt(std::string_view key, const std::vector<std::string>& known);

// How much shares in use, cores and memory weigh in a card's score.
struct ScoringWeights {
  int slot = 1;
  int core = 1;
  int memory = 1;
  bool operator==(const ScoringWeights&) const = default;
};

// "slot=1,core=2,memory=0": each exactly once, whole numbers ≥ 0, not all zero; blanks allowed.
base::Result<ScoringWeights> ParseScoringWeights(std::string_view text);

// What a pod's annotations say about the cards it accepts. The lists hold what SplitList makes of them; an empty list
// is no constraint; type names are in lower case.
struct CardRules {
  std::vector<std::string> use_types;
  std::vector<std::string> avoid_types;
  std::vector<std::string> use_uuids;
  std::vector<std::string> avoid_uuids;
  bool numa_bind = false;
  std::string mode;  // empty: any
  StringMap words;   // what else of the pod its vendor goes by
  bool operator==(const CardRules&) const = default;

  bool AcceptsUuid(std::string_view uuid) const;
  // LOWER_TYPE is the card's type in lower case; a member matches as a substring.
  bool AcceptsType(std::string_view lower_type) const;
};

}  // namespace hami::device
