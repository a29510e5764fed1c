// SPDX-License-Identifier: Apache-2.0
//
// What a node says while our device plugin serves it, `hami-cpp/plugin-alive: UNIXSECONDS,MARK`: when it last said so,
// and a mark of the register annotation that it wrote. What a plugin promised holds only as long: after it was killed
// HAMi's plugin may serve the node, which writes its own register annotation and knows of no promises.

#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "device/types.h"

namespace hami::device {

inline constexpr const char* kPluginAlive = "hami-cpp/plugin-alive";
// Several pods at once may be on their way to the node.
inline constexpr const char* kConcurrentAllocate = "hami-cpp/concurrent-allocate";

// How often it is said, in seconds: each time is a write for everybody who watches nodes.
inline constexpr UnixSeconds kAliveEvery = 180;
// How old it may be: three times lost on the way. Clocks that differ by more make a node slow and nothing worse.
inline constexpr UnixSeconds kAliveFor = 600;

std::string FormatAlive(UnixSeconds now, std::string_view registered);

// When TEXT was said, if it is of REGISTERED.
std::optional<UnixSeconds> AliveSince(std::string_view text, std::string_view registered);

// Whether a node with ANNOTATIONS takes several pods at once: our plugin said so, and still serves it.
bool AllocatesConcurrently(const StringMap& annotations, std::string_view registered, UnixSeconds now);

}  // namespace hami::device
