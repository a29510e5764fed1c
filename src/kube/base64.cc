// SPDX-License-Identifier: Apache-2.0

#include "kube/base64.h"

#include <cstdint>

namespace hami::kube {
namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string Base64Encode(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      group = group << 8U | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      // N bytes fill N + 1 digits.
      out += i + k <= bytes.size() ? kAlphabet[group >> (18U - 6U * k) & 63U] : '=';
    }
  }
  return out;
}

std::optional<std::string> Base64Decode(std::string_view text) {
  std::string out;
  std::uint32_t group = 0;
  unsigned digits = 0;
  unsigned padding = 0;
  for (const char c : text) {
    if (c == '\n' || c == '\r' || c == ' ' || c == '\t') continue;
    const auto value = kAlphabet.find(c);
    if (c == '=' && digits >= 2) {
      ++padding;
      group <<= 6U;
    } else if (value == std::string_view::npos || padding > 0) {
      return std::nullopt;
    } else {
      group = group << 6U | static_cast<std::uint32_t>(value);
    }
    if (++digits < 4) continue;
    for (unsigned k = 0; k < 3 - padding; ++k) out += static_cast<char>(group >> (16U - 8U * k) & 255U);
    digits = 0;
    group = 0;
  }
  return digits == 0 ? std::optional<std::string>(std::move(out)) : std::nullopt;
}

}  // namespace hami::kube
