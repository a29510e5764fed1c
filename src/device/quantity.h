// SPDX-License-Identifier: Apache-2.0
//
// Kubernetes quantities: "2", "500m", "16Gi", "1e3", "1.5k". Owns the grammar and the one subtle question that HAMi
// asks of them: is it an integer the way resource.Quantity.AsInt64 means it? That is stricter than arithmetic: `1000m`,
// `1.0` and `16.0Gi` are not, nor is a binary quantity too long for the API's quick form (`1Pi`), while `1.5k` is.

#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"

namespace hami::device {

struct Quantity {
  std::optional<std::int64_t> integer;  // what AsInt64 answers
  std::int64_t value = 0;               // rounded away from zero to a whole number; saturates
};

// Errors: text that is no quantity.
base::Result<Quantity> ParseQuantity(std::string_view text);

// The AsInt64 of TEXT; nothing when it is not integral or no quantity at all.
std::optional<std::int64_t> QuantityAsInt64(std::string_view text);

}  // namespace hami::device
