// SPDX-License-Identifier: Apache-2.0
//
// Decisions without a program around them: no request, no bind, no API server. What an exchange costs beside it is the
// difference to the other figures.

#pragma once

#include <cstddef>
#include <vector>

namespace hami::bench {

// Decisions a second for the request of a part of one card, among NODES nodes of eight cards with RUNNING pods: one
// figure for each number of candidates in NAMES. Each decision is charged, and the pod of some time ago let go.
std::vector<double> PureDecisions(int nodes, int running, const std::vector<std::size_t>& names);

}  // namespace hami::bench
