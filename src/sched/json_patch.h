// SPDX-License-Identifier: Apache-2.0
//
// JSON Patch (RFC 6902), as far as an admission answer needs it: the difference of two documents, and its application.
// Apply(Diff(a, b), a) = b for every a and b.

#pragma once

#include "base/json.h"
#include "base/result.h"

namespace hami::sched {

// `add`, `remove` and `replace` operations; empty when nothing differs.
base::json::array DiffJson(const base::json::value& from, const base::json::value& to);

base::Result<base::json::value> ApplyJsonPatch(const base::json::array& patch, base::json::value document);

}  // namespace hami::sched
