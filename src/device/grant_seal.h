// SPDX-License-Identifier: Apache-2.0
//
// The proof that a pod's grant is the scheduler's: an HMAC-SHA256 over the pod's uid, its node and the exact text of
// its grants, under a key that the scheduler and the plugins share and no tenant can read. A seal is good for one pod
// on one node: copied to another pod, or beside another grant, it proves nothing. Keys are lines of a file; the first
// one signs and all of them verify, so that a key is changed without a moment in which grants are refused. Refuses a
// key shorter than 16 bytes and a line that is neither hex nor base64.

#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/types.h"

namespace hami::device {

inline constexpr const char* kGrantSeal = "hami-cpp/grant-seal";

// The text that is sealed. It holds of ANNOTATIONS what stays as it was written while the pod lives: every
// `hami.io/*-devices-allocated`, which at the binding is the same text as the vendor's `*-devices-to-allocate`, and
// the places of MIG instances without the identity that the plugin adds to them. Two different claims never have the
// same text.
std::string SealedText(std::string_view uid, std::string_view node, const StringMap& annotations);

// Whether LEFT, what is still to be handed out, is ALLOCATED or what remains of it: each container's row is the same
// or empty. Both are texts of grants; one that cannot be read is none.
bool IsRemainderOf(std::string_view left, std::string_view allocated);

class GrantKeys {
 public:
  // TEXT: a key a line, hex (an even number of hex digits and nothing else) or else padded base64; blank lines and
  // lines that begin with # are skipped. WHERE names the text in errors.
  static base::Result<GrantKeys> Parse(std::string_view text, const std::string& where);

  std::string Seal(std::string_view text) const;
  // By any of the keys, in a time that says nothing of how near SEAL was.
  bool Verify(std::string_view text, std::string_view seal) const;

 private:
  std::vector<std::string> keys_;  // raw bytes; never empty
};

// Whether the annotation hami-cpp/grant-seal among ANNOTATIONS proves them. Without keys nothing is proven.
bool IsSealed(const GrantKeys* keys, std::string_view uid, std::string_view node, const StringMap& annotations);

// The keys of a file that may change while it is in use. Thread-safe.
class GrantKeyring {
 public:
  // The file's text if it is another than at the last call, else nothing.
  using Look = std::function<base::Result<std::optional<std::string>>()>;

  // Fails when the first look does, or shows no keys. WHERE names the file in errors.
  static base::Result<std::unique_ptr<GrantKeyring>> Make(Look look, std::string where);
  static base::Result<std::unique_ptr<GrantKeyring>> OfFile(const std::string& path);
  // The newest keys that were ever good. Of a change to what are no keys one line is logged.
  std::shared_ptr<const GrantKeys> Get();

 private:
  GrantKeyring(Look look, std::string where) : look_(std::move(look)), where_(std::move(where)) {}
  base::Status Read();

  const Look look_;
  const std::string where_;
  std::mutex mutex_;
  std::shared_ptr<const GrantKeys> keys_;
  std::string complaint_;  // the last one, which is not said twice
};

}  // namespace hami::device
