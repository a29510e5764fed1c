// SPDX-License-Identifier: Apache-2.0
//
// The ceiling: an extender that answers the first name it was sent and posts the binding, and does nothing else. What
// it reaches is what the driver, the in-memory API server, TLS and the machine allow.

#pragma once

#include <string>

namespace hami::bench {

// Serves until it is killed; says "null extender on port N" on stderr.
int RunNullExtender(const std::string& api_server, const std::string& certificate, const std::string& key);

}  // namespace hami::bench
