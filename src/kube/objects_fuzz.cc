// SPDX-License-Identifier: Apache-2.0
//
// Any text as an answer of the API server: a list in pieces (the first byte says how large), an object of each kind, a
// Status, a patch. Where a whole parse and the scanner both accept a list, they agree about its items.

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/json_cursor.h"
#include "base/testing/json_parts.h"
#include "kube/error.h"
#include "kube/identity.h"
#include "kube/scanner.h"
#include "kube/testing/json_patch.h"
#include "kube/views.h"

namespace {

using namespace hami::kube;
namespace json = hami::base::json;

std::optional<json::array> Scan(std::string_view text, std::size_t piece) {
  json::array items;
  ListScanner scanner([&](std::string_view item) -> Status {
    auto value = ParseDocument(item);
    if (!value) return tl::unexpected(value.error());
    items.push_back(*std::move(value));
    return {};
  });
  for (std::size_t at = 0; at < text.size(); at += piece) {
    if (!scanner.Feed(text.substr(at, piece))) return std::nullopt;
  }
  const auto frame = scanner.Finish();
  if (!frame || !frame->is_object()) return std::nullopt;
  return items;
}

constexpr hami::base::Part kSpec[] = {{"nodeName"}, {"containers", kMetadataMembers}};
constexpr hami::base::Part kParts[] = {{"metadata", kMetadataMembers}, {"spec", kSpec}, {"items", kMetadataMembers}};

// Parts of a document are what a parser makes of the whole, less the rest. Exponents out of all bounds, which a parser
// refuses, are no harm where nobody looks at them.
void CheckParts(std::string_view text) {
  using namespace hami::base::testing;
  if (text.find_first_of("eE.") == std::string_view::npos || ByParser(text, {})) {
    if (ByCursor(text, kParts) != ByParser(text, kParts) || ByCursor(text, {}) != ByParser(text, {})) std::abort();
  } else {
    ByCursor(text, kParts);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::size_t piece = 1 + data[0] % 31;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto scanned = Scan(text, piece);
  if (scanned != Scan(text, size)) std::abort();
  auto whole = ParseDocument(text);
  CheckParts(text);
  // A key written with escapes is "items" to a parser and is not to the scanner: no server writes that.
  const bool plain = text.find('\\') == std::string_view::npos;
  if (scanned && !whole) std::abort();
  if (scanned && plain) {
    const json::value* items = whole->as_object().if_contains("items");
    const bool array = items != nullptr && items->is_array();
    if (array ? items->get_array() != *scanned : !scanned->empty()) std::abort();
  }
  hami::base::JsonCursor cursor(text);
  if (Identity identity; FindIdentity(cursor, identity) && identity.name.empty()) std::abort();
  FromAnswer(data[0] * 4, text, nullptr);
  if (!whole) return 0;
  if (const auto pod = ReadPod(*whole); pod && pod->metadata.name.empty()) std::abort();
  ReadNode(*whole).has_value();
  ReadQuota(*whole).has_value();
  ReadLease(*whole).has_value();
  FromStatus(*whole, 500);
  json::value target = *whole;
  if (!ApplyJsonPatch(target, *whole) && target != *whole) std::abort();
  ApplyMergePatch(target, *whole);
  return 0;
}
