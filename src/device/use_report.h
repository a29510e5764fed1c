// SPDX-License-Identifier: Apache-2.0
//
// What the shares of one node use at one moment: the document of hami-monitor's GET /v1/use, as it writes it and as
// hami-scheduler reads it. The reader takes it from the network: it refuses a document that is not whole, bounds what
// it keeps, and its amounts are within what a GPU can have.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/types.h"

namespace hami::device {

// Of one GPU, or MIG instance, within one container.
struct ShareUse {
  std::string ns;
  std::string pod;
  std::string container;
  std::string uuid;
  MiB used = 0;
  MiB limit = 0;                    // 0: none
  int core_limit = 100;             // percent of the GPU's time; 100: none
  std::optional<int> core_percent;  // nothing: it is not known
  bool operator==(const ShareUse&) const = default;
};

struct UseReport {
  std::string node;
  std::vector<ShareUse> shares;
};

inline constexpr std::size_t kMostUseBytes = 1U << 20U;
inline constexpr std::size_t kMostUseShares = 4096;
inline constexpr MiB kMostUseMiB = 1 << 30;  // 1 PiB

std::string WriteUse(const UseReport& report);
base::Result<UseReport> ReadUse(std::string_view text);

}  // namespace hami::device
