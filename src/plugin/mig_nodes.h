// SPDX-License-Identifier: Apache-2.0
//
// The device nodes that let a container use a MIG device: that of its GPU, and one capability each for the GPU instance
// and the compute instance. Pure: the driver's list of capabilities is an argument.

#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hami::plugin {

inline constexpr const char* kMigMinors = "/proc/driver/nvidia-caps/mig-minors";

// "/dev/nvidia-caps/nvidia-cap12", for the lines `gpu0/gi3/access 12` and `gpu0/gi3/ci0/access 13` of MINORS, the text
// of kMigMinors. GPU_MINOR is that of /dev/nvidia<minor>. Nothing: the list does not have both.
std::optional<std::vector<std::string>> MigCapabilities(std::string_view minors, unsigned gpu_minor, int gpu_instance,
                                                        int compute_instance);

}  // namespace hami::plugin
