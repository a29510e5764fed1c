// SPDX-License-Identifier: Apache-2.0
//
// Which slots the kubelet should pick, so that the GPU it counts is the GPU the container gets. Pure.

#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "device/types.h"

namespace hami::plugin {

// SIZE of AVAILABLE: MUST_INCLUDE first, then for each share of GRANT that those do not cover one slot of its GPU, the
// lowest first. When the GPUs of the grant have not enough slots left, only MUST_INCLUDE comes back: the kubelet then
// picks as it likes.
std::vector<std::string> PreferSlots(std::vector<std::string> available, const std::vector<std::string>& must_include,
                                     std::size_t size, const device::ContainerGrant& grant);

}  // namespace hami::plugin
