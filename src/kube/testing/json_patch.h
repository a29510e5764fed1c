// SPDX-License-Identifier: Apache-2.0
//
// Applying patches to JSON documents: merge patch (RFC 7386) and JSON patch (RFC 6902). What an API server does; here
// for the fake one and for tests of what we send, so that a patch is read by other code than wrote it. A JSON patch
// applies as a whole or not at all.

#pragma once

#include "base/json.h"
#include "base/result.h"

namespace hami::kube {

void ApplyMergePatch(base::json::value& target, const base::json::value& patch);
base::Status ApplyJsonPatch(base::json::value& target, const base::json::value& patch);

}  // namespace hami::kube
