// SPDX-License-Identifier: Apache-2.0
//
// The sections of the configuration file that have the form of NVIDIA's device plugin (`version`, `flags`, `resources`,
// `sharing`, `imex`), and the readers of single values that it shares with the flags. For options.cc.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "plugin/options.h"

namespace hami::plugin {

base::Result<MigStrategy> ReadMigStrategy(const std::string& text);
base::Result<ListStrategy> ReadListStrategy(const std::string& text);
base::Result<IdStrategy> ReadIdStrategy(const std::string& text);
base::Result<int> ReadChannel(const std::string& text);
base::Result<double> ReadScaling(const std::string& text);

// Other sections of the file are not looked at.
base::Status ApplyOptionsFile(std::string_view text, const std::string& file, Options& out,
                              std::vector<std::string>& warnings);

}  // namespace hami::plugin
