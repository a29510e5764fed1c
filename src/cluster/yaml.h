// SPDX-License-Identifier: Apache-2.0
//
// A JSON value as YAML, for people: block style, every text in double quotes as JSON writes it, so that no text is
// taken for something else.

#pragma once

#include <string>

#include "base/json.h"

namespace hami::cluster {

// Ends with a newline.
std::string Yaml(const base::json::value& value);

}  // namespace hami::cluster
