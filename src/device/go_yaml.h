// SPDX-License-Identifier: Apache-2.0
//
// What Go's yaml.v2, with which HAMi reads its file, takes for a value of a type: 1.0, 2.5 and 0x10 for a whole number,
// and nothing in quotation marks for a number or a flag.

#pragma once

#include <string>

namespace hami::device {

enum class GoType { kAny, kText, kBool, kInt32, kInt64 };

// Of a scalar, with its tag as yaml-cpp tells it: `?` of a plain one, `!` of one in quotation marks.
bool GoTakes(const std::string& tag, const std::string& scalar, GoType type);

}  // namespace hami::device
