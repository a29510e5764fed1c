// SPDX-License-Identifier: Apache-2.0

#include "mps/client.h"

#include "base/strings.h"

namespace hami::mps {

std::vector<std::pair<std::string, std::string>> ClientEnvironment(const std::string& pipe,
                                                                   const ClientLimits& limits) {
  std::vector<std::pair<std::string, std::string>> variables;
  if (limits.percent > 0 && limits.percent < 100) {
    variables.emplace_back(kPercentVariable, std::to_string(limits.percent));
  }
  if (limits.memory_mib > 0) {
    variables.emplace_back(kMemoryVariable, base::Concat({"0=", std::to_string(limits.memory_mib), "M"}));
  }
  variables.emplace_back(kPipeVariable, pipe);
  return variables;
}

}  // namespace hami::mps
