// SPDX-License-Identifier: Apache-2.0

#include "plugin/mig_nodes.h"

#include "base/strings.h"

namespace hami::plugin {
namespace {

// The kernel has 20 bits for it.
constexpr std::uint64_t kMostMinor = (1U << 20U) - 1;

std::optional<std::uint64_t> MinorOf(std::string_view minors, std::string_view name) {
  for (const std::string& line : base::Split(minors, '\n')) {
    const std::size_t space = line.find(' ');
    if (space == std::string::npos || std::string_view(line).substr(0, space) != name) continue;
    const auto number = base::ParseNumber(base::Trim(std::string_view(line).substr(space + 1)));
    if (number && *number <= kMostMinor) return number;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::vector<std::string>> MigCapabilities(std::string_view minors, unsigned gpu_minor, int gpu_instance,
                                                        int compute_instance) {
  const std::string of_gpu = base::Concat({"gpu", std::to_string(gpu_minor), "/gi", std::to_string(gpu_instance), "/"});
  std::vector<std::string> nodes;
  for (const std::string& name :
       {of_gpu + "access", base::Concat({of_gpu, "ci", std::to_string(compute_instance), "/access"})}) {
    const auto minor = MinorOf(minors, name);
    if (!minor) return std::nullopt;
    nodes.push_back("/dev/nvidia-caps/nvidia-cap" + std::to_string(*minor));
  }
  return nodes;
}

}  // namespace hami::plugin
