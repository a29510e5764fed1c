// SPDX-License-Identifier: Apache-2.0
//
// Base64 (RFC 4648, padded). Decoding skips line breaks and blanks, and refuses everything else that is not of the
// alphabet or not a whole number of groups.

#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hami::kube {

std::string Base64Encode(std::string_view bytes);
std::optional<std::string> Base64Decode(std::string_view text);

}  // namespace hami::kube
