// SPDX-License-Identifier: Apache-2.0
//
// What Prometheus may know of the cards: whether they are given out, and if not, why. The use of GPUs is the monitor's
// to tell.

#pragma once

#include <string>

#include "plugin/inventory.h"

namespace hami::plugin {

std::string RenderCardMetrics(const std::string& node, const Cards& cards);

}  // namespace hami::plugin
