// SPDX-License-Identifier: Apache-2.0
//
// Names below HOOK_PATH. `containers/<podUID>_<container>` is one container of one pod: a directory, or a link to one
// below `shares/` that the device plugin keeps (and removes). Whatever else lies there is nobody's business: it is
// neither read nor removed.

#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hami::monitor {

struct ContainerName {
  std::string pod_uid;
  std::string container;
  bool operator==(const ContainerName&) const = default;
};

// Splits at the first '_'. Nothing when a part is empty, too long, or holds what no uid and no container name holds.
std::optional<ContainerName> ParseContainerName(std::string_view name);

// Whether TARGET is what a link among the containers may lead to: `../shares/<id>`.
bool IsShareTarget(std::string_view target);

// Whether a directory entry may be a region: `*.cache`, not hidden.
bool IsCacheName(std::string_view name);

}  // namespace hami::monitor
