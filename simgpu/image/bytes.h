// SPDX-License-Identifier: Apache-2.0
//
// Reading little-endian records out of a byte string that nobody vouches for. Every read is checked against the end of
// the string, and what the copies add up to is checked against a Budget: a small image can not make a parser allocate
// or scan much more than its own size, however often its tables point at the same bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

namespace simgpu {

using Bytes = std::span<const std::byte>;

template <typename T>
requires std::is_trivially_copyable_v<T> std::optional<T> LoadAt(Bytes bytes, std::uint64_t at) {
  if (at > bytes.size() || bytes.size() - at < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

inline std::optional<Bytes> SliceAt(Bytes bytes, std::uint64_t at, std::uint64_t size) {
  if (at > bytes.size() || bytes.size() - at < size) return std::nullopt;
  return bytes.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(size));
}

inline std::string_view AsText(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

inline Bytes AsBytes(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

// The text without what follows its first NUL.
inline std::string_view UpToNul(std::string_view text) { return text.substr(0, text.find('\0')); }

class Budget {
 public:
  explicit Budget(std::uint64_t bytes) : left_(bytes) {}

  // False when there is no more to spend; nothing is spent then.
  bool Spend(std::uint64_t bytes) {
    if (bytes > left_) return false;
    left_ -= bytes;
    return true;
  }

  std::uint64_t left() const { return left_; }

 private:
  std::uint64_t left_;
};

// The NUL-terminated string at `at`, paid for by its length.
inline std::optional<std::string_view> StringAt(Bytes bytes, std::uint64_t at, Budget* budget) {
  if (at >= bytes.size()) return std::nullopt;
  const std::uint64_t limit = std::min<std::uint64_t>(bytes.size() - at, budget->left());
  const char* start = reinterpret_cast<const char*>(bytes.data() + at);
  const void* end = std::memchr(start, 0, static_cast<std::size_t>(limit));
  if (end == nullptr) return std::nullopt;
  const auto length = static_cast<std::size_t>(static_cast<const char*>(end) - start);
  if (!budget->Spend(length + 1)) return std::nullopt;
  return std::string_view(start, length);
}

}  // namespace simgpu
