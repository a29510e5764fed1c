// SPDX-License-Identifier: Apache-2.0
//
// The views of `hami cluster`: of the page's document, the part that a view is about, as JSON and as lines for a
// terminal. The document came over a wire: what is missing in it reads as empty, and every text is made printable.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/terminal.h"

namespace hami::cluster {

enum class View { kTop, kNodes, kCards, kPods, kWhy, kLocks, kQuotas };

struct Look {
  View view = View::kTop;
  std::string ns;   // of pods, quotas, locks; empty: all
  std::string pod;  // of kWhy: NAME or NAMESPACE/NAME
};

// A list of objects, in the order in which they are shown; of kTop an object.
base::Result<base::json::value> Select(const base::json::value& document, const Look& look);

// SELECTED as Select gave it. NOW: in Unix seconds, for ages.
std::vector<std::string> Lines(const base::json::value& selected, const Look& look, std::int64_t now,
                               const base::Terminal& terminal);

}  // namespace hami::cluster
