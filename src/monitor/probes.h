// SPDX-License-Identifier: Apache-2.0
//
// What the kubelet is told of this program. Alive: rounds come to an end. Ready: what is served is complete. Pure; an
// API server or a driver that does not answer makes no program dead, so neither of them is asked here.

#pragma once

#include <chrono>
#include <string>

#include "monitor/picture.h"
#include "net/http.h"

namespace hami::monitor {

// Without a round for so long the loop is not alive.
inline constexpr std::chrono::seconds kStuck{30};

// QUIET: since the last round ended.
net::Response Health(std::chrono::steady_clock::duration quiet);
// NODE_TROUBLE: why this can not be the node's monitor.
net::Response Readiness(const SelfPicture& self, const std::string& node_trouble = {});

net::Response PlainAnswer(int status, std::string text);

}  // namespace hami::monitor
