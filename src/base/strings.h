// SPDX-License-Identifier: Apache-2.0
//
// Small pure functions over text. ASCII only: nothing here depends on the locale.

#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hami::base {

std::string_view Trim(std::string_view text);
std::string ToLower(std::string_view text);

// "a,b,,c" → {"a", "b", "", "c"}; "" → {}.
std::vector<std::string> Split(std::string_view text, char separator);
std::string Concat(std::initializer_list<std::string_view> parts);
std::string Join(const std::vector<std::string>& parts, std::string_view separator);

// A non-empty run of decimal digits that fits; no sign, no space.
std::optional<std::uint64_t> ParseNumber(std::string_view text);

// The one of CANDIDATES that TEXT was probably meant to be, if any is near enough to be worth suggesting.
std::optional<std::string> Nearest(std::string_view text, const std::vector<std::string>& candidates);

// Quoted for a shell where that is needed: `python3 train.py` stays, `a b` becomes 'a b'.
std::string ShellQuote(std::string_view word);
std::string ShellJoin(const std::vector<std::string>& words);

// TEXT with control characters and invalid UTF-8 replaced by '?', so that what a stranger wrote can be shown on a
// terminal without commanding it.
std::string Printable(std::string_view text);

}  // namespace hami::base
