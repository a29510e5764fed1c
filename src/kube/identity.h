// SPDX-License-Identifier: Apache-2.0
//
// Who a Kubernetes object is, read from the begin of its text: enough to know whether the rest is worth reading.

#pragma once

#include <string_view>

#include "base/json_cursor.h"

namespace hami::kube {

// Views into the text.
struct Identity {
  std::string_view ns;
  std::string_view name;
  std::string_view uid;
  std::string_view version;
};

// True: CURSOR stood before an object with plain metadata, which IDENTITY shows. The cursor is then somewhere within.
bool FindIdentity(base::JsonCursor& cursor, Identity& identity);

}  // namespace hami::kube
