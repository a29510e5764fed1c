// SPDX-License-Identifier: Apache-2.0
//
// The table of shares and processes, as `hami ps` prints it. Pure: what it shows arrives as an argument.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/terminal.h"
#include "cli/view.h"

namespace hami::cli {

std::vector<std::string> ShareLines(const std::vector<ShareView>& shares, std::int64_t now,
                                    const base::Terminal& terminal);

}  // namespace hami::cli
