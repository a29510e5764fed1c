// SPDX-License-Identifier: Apache-2.0
//
// The GPUs of the machine with the shares drawn into them, as `hami smi` prints it. Pure: what it shows arrives as an
// argument.

#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/terminal.h"
#include "cli/view.h"

namespace hami::cli {

std::vector<std::string> GpuLines(const Inventory& inventory, const std::vector<ShareView>& shares,
                                  const base::Terminal& terminal);
base::json::array GpusToJson(const Inventory& inventory, const std::vector<ShareView>& shares);

}  // namespace hami::cli
