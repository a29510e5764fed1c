// SPDX-License-Identifier: Apache-2.0
//
// Kubernetes quantities: "2", "500m", "16Gi", "1e3", "1.5k". Owns the grammar; what a number counts is the business of
// amount.h. The API server keeps a binary suffix as it was written and writes every other number in its shortest form:
// `3000` comes as `3k`, `1.0` as `1`.

#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace hami::device {

struct Quantity {
  std::int64_t value = 0;  // rounded away from zero to a whole number; saturates
  bool whole = true;       // nothing was rounded
  bool binary = false;     // with a suffix from Ki to Ei

  // Rounded towards zero.
  std::int64_t Floor() const { return whole ? value : value - (value > 0 ? 1 : -1); }
};

// Errors: text that is no quantity.
base::Result<Quantity> ParseQuantity(std::string_view text);

}  // namespace hami::device
