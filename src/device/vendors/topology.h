// SPDX-License-Identifier: Apache-2.0
//
// Which of the fitting cards lie best together. The choice is the exact optimum of the summed pair scores, the first in
// the order of enumeration when several are equal; partial sums and a bound keep 16 choose 8 in the microseconds. The
// work is capped: beyond the cap (nodes of more than about 20 equal cards) the best combination seen so far is taken.

#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace hami::device {

// PAIR(a, b) is the score of candidates a < b. Returns COUNT positions in rising order; 1 ≤ COUNT ≤ CANDIDATES.
// COUNT 1 takes the candidate with the lowest sum to the others: the one whose loss costs later pods least.
std::vector<int> ChooseClosest(int candidates, int count, const std::function<std::int64_t(int, int)>& pair);

}  // namespace hami::device
