// SPDX-License-Identifier: Apache-2.0

#include "device/grant_seal.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/log.h"
#include "base/strings.h"
#include "base/watched_file.h"
#include "device/allocation_codec.h"
#include "device/annotations.h"
#include "device/lists.h"

namespace hami::device {
namespace {

using base::Result;
using base::Status;

constexpr std::string_view kVersion = "v1:";
constexpr std::string_view kDomain = "hami-cpp/grant-seal/v1";
constexpr std::size_t kLeastKeyBytes = 16;
constexpr std::size_t kMostKeys = 16;  // each verification tries them all
constexpr std::size_t kDigestBytes = 32;
constexpr std::string_view kHexDigits = "0123456789abcdef";
constexpr const char* kRemedy =
    "write one key a line, 16 bytes or more in hex or base64, like the output of `openssl rand -hex 32`";

// With its length, so that no two lists of fields have the same text.
void AddField(std::string& text, std::string_view field) {
  text += std::to_string(field.size());
  text += ':';
  text += field;
}

std::optional<int> HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

std::optional<std::string> FromHex(std::string_view text) {
  if (text.size() % 2 != 0) return std::nullopt;
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); i += 2) {
    const auto high = HexDigit(text[i]);
    const auto low = HexDigit(text[i + 1]);
    if (!high || !low) return std::nullopt;
    bytes.push_back(static_cast<char>(*high * 16 + *low));
  }
  return bytes;
}

std::optional<std::string> FromBase64(std::string_view text) {
  const std::size_t padding = text.size() - std::min(text.size(), text.find_last_not_of('=') + 1);
  if (text.empty() || text.size() % 4 != 0 || padding > 2) return std::nullopt;
  std::string bytes(text.size() / 4 * 3, '\0');
  const auto* in = reinterpret_cast<const unsigned char*>(text.data());
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()), in, static_cast<int>(text.size()));
  if (size < 0) return std::nullopt;
  bytes.resize(bytes.size() - padding);
  return bytes;
}

// Hex; empty when the library has no HMAC, which then verifies nothing.
std::string Digest(const std::string& key, std::string_view text) {
  std::array<unsigned char, kDigestBytes> digest{};
  std::size_t size = 0;
  const auto* data = reinterpret_cast<const unsigned char*>(text.data());
  if (EVP_Q_mac(nullptr, "HMAC", nullptr, "SHA256", nullptr, key.data(), key.size(), data, text.size(), digest.data(),
                digest.size(), &size) == nullptr ||
      size != digest.size()) {
    return {};
  }
  std::string hex;
  for (const unsigned char byte : digest) {
    hex += kHexDigits[byte >> 4U];
    hex += kHexDigits[byte & 15U];
  }
  return hex;
}

// Without what the plugin adds. A text that cannot be read stays as it is: it is sealed as any other.
std::string PlacesOf(const std::string& text) {
  auto reservations = DecodeReservations(text);
  if (!reservations) return text;
  for (MigReservation& one : *reservations) {
    one.mig_uuid.clear();
    one.gpu_instance = one.compute_instance = -1;
  }
  return EncodeReservations(*reservations);
}

}  // namespace

std::string SealedText(std::string_view uid, std::string_view node, const StringMap& annotations) {
  std::string text;
  AddField(text, kDomain);
  AddField(text, uid);
  AddField(text, node);
  for (const auto& [key, value] : annotations) {
    if (!IsAllocatedKey(key)) continue;
    AddField(text, key);
    AddField(text, value);
  }
  const std::string* places = Find(annotations, kMigAllocations);
  if (places != nullptr && *places != "[]") {  // an empty list is how a Binding takes the key off
    AddField(text, kMigAllocations);
    AddField(text, PlacesOf(*places));
  }
  return text;
}

bool IsRemainderOf(std::string_view left, std::string_view allocated) {
  const auto rest = DecodeGrant(left);
  const auto whole = DecodeGrant(allocated);
  if (!rest || !whole || rest->size() > whole->size()) return false;
  return std::equal(rest->begin(), rest->end(), whole->begin(),
                    [](const ContainerGrant& a, const ContainerGrant& b) { return a.empty() || a == b; });
}

Result<GrantKeys> GrantKeys::Parse(std::string_view text, const std::string& where) {
  GrantKeys keys;
  std::size_t number = 0;
  for (const std::string& whole : base::Split(text, '\n')) {
    const std::string at = base::Concat({where, ":", std::to_string(++number), ": "});
    const std::string_view line = base::Trim(whole);
    if (line.empty() || line.front() == '#') continue;
    auto key = FromHex(line);
    if (!key) key = FromBase64(line);
    if (!key) return base::Fail(at + "this is neither hex nor base64", kRemedy);
    if (key->size() < kLeastKeyBytes) {
      return base::Fail(at + "a key of " + std::to_string(key->size()) + " bytes is too short", kRemedy);
    }
    if (keys.keys_.size() == kMostKeys) {
      return base::Fail(at + "more than " + std::to_string(kMostKeys) + " keys", "remove the oldest, at the end");
    }
    keys.keys_.push_back(*std::move(key));
  }
  if (keys.keys_.empty()) return base::Fail(where + " has no key", kRemedy);
  return keys;
}

std::string GrantKeys::Seal(std::string_view text) const {
  return base::Concat({kVersion, Digest(keys_.front(), text)});
}

bool GrantKeys::Verify(std::string_view text, std::string_view seal) const {
  if (seal.substr(0, kVersion.size()) != kVersion) return false;
  seal.remove_prefix(kVersion.size());
  if (seal.size() != 2 * kDigestBytes) return false;
  bool good = false;
  for (const std::string& key : keys_) {
    const std::string digest = Digest(key, text);
    good = (digest.size() == seal.size() && CRYPTO_memcmp(digest.data(), seal.data(), seal.size()) == 0) || good;
  }
  return good;
}

bool IsSealed(const GrantKeys* keys, std::string_view uid, std::string_view node, const StringMap& annotations) {
  const std::string_view seal = TextAt(annotations, kGrantSeal);
  if (keys == nullptr || seal.empty()) return false;
  return keys->Verify(SealedText(uid, node, annotations), seal);
}

Result<std::unique_ptr<GrantKeyring>> GrantKeyring::Make(Look look, std::string where) {
  std::unique_ptr<GrantKeyring> ring(new GrantKeyring(std::move(look), std::move(where)));
  HAMI_TRY(ring->Read());
  if (ring->keys_ == nullptr) return base::Fail(ring->where_ + " has no key", kRemedy);
  return ring;
}

Result<std::unique_ptr<GrantKeyring>> GrantKeyring::OfFile(const std::string& path) {
  constexpr std::size_t kMostBytes = 64U << 10U;
  const auto file = std::make_shared<base::WatchedFile>(path, kMostBytes);
  return Make([file] { return file->Look(); }, path);
}

Status GrantKeyring::Read() {
  const auto text = look_();
  HAMI_TRY(text);
  if (!*text) return {};
  auto keys = GrantKeys::Parse(**text, where_);
  HAMI_TRY(keys);
  keys_ = std::make_shared<const GrantKeys>(*std::move(keys));
  complaint_.clear();
  return {};
}

std::shared_ptr<const GrantKeys> GrantKeyring::Get() {
  const std::scoped_lock lock(mutex_);
  if (const Status read = Read(); !read && read.error().message != complaint_) {
    complaint_ = read.error().message;
    base::LogWarning("keeping the previous keys of grants: " + complaint_ + "; " + kRemedy);
  }
  return keys_;
}

}  // namespace hami::device
