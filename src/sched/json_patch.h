// SPDX-License-Identifier: Apache-2.0
//
// The difference of two documents as a JSON Patch (RFC 6902), for an admission answer: applied to the one, it makes the
// other.

#pragma once

#include "base/json.h"

namespace hami::sched {

// `add`, `remove` and `replace` operations; empty when nothing differs.
base::json::array DiffJson(const base::json::value& from, const base::json::value& to);

}  // namespace hami::sched
