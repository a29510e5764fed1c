// SPDX-License-Identifier: Apache-2.0
//
// What programs would do with a device-config.yaml, told before they are started with it: ours, and HAMi 2.10's, to
// which a cluster may have to go back. Every finding names file, line and key, and the remedy. Finds what is known of
// the programs; where nothing is found nothing is promised.

#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hami::device {

struct Finding {
  enum class Level { kError, kWarning, kNote };
  Level level = Level::kError;
  std::string where;    // "FILE:LINE", or FILE
  std::string key;      // "nvidia.libCudaLogLevel"; empty: the whole file
  std::string message;  // which program does what
  std::string remedy;   // may be empty
};

// FILE names TEXT.
std::vector<Finding> CheckForOurs(std::string_view text, const std::string& file);
std::vector<Finding> CheckForHami(std::string_view text, const std::string& file);

}  // namespace hami::device
