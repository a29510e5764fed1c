// SPDX-License-Identifier: Apache-2.0
//
// ListScanner cuts a list document, which arrives in pieces of any size, into its items, so that at most one item and
// what surrounds the items is in memory. It knows just enough JSON for that (strings, nesting, commas); what an item
// says is the reader's business. Refuses items that are no objects, frames and items over a size, and broken nesting.

#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/json_cursor.h"
#include "base/json_parts.h"
#include "kube/error.h"

namespace hami::kube {

// What is wrong with TEXT.
Error NotJson(std::string_view text);

// READ(JsonCursor&) takes the value that TEXT is, and returns whether it could. An error where it could not, where that
// is not all of TEXT, and where READ threw.
template <typename Read>
Status ReadText(std::string_view text, Read read) {
  try {
    base::JsonCursor cursor(text);
    if (read(cursor) && cursor.AtEnd()) return {};
    return tl::unexpected(NotJson(text));
  } catch (const std::exception& exception) {
    return Fail(Reason::kBadAnswer, std::string("not valid JSON: ") + exception.what());
  }
}

// As base::ParseJson, for documents as deep as Kubernetes' own (managed fields, affinities). STORAGE may be a
// short-lived resource that outlives the value. PARTS: what of it will be looked at; empty: all.
Result<base::json::value> ParseDocument(std::string_view text, const base::json::storage_ptr& storage = {},
                                        base::Parts parts = {});

class ListScanner {
 public:
  using OnItem = std::function<Status(std::string_view item)>;

  explicit ListScanner(OnItem on_item, std::size_t most_item_bytes = 16U << 20U)
      : on_item_(std::move(on_item)), most_item_bytes_(most_item_bytes) {}

  Status Feed(std::string_view piece);
  // The whole list but for its items, which are an empty array now.
  Result<base::json::value> Finish() const;

 private:
  enum class Expect { kItemOrEnd, kItem, kCommaOrEnd };

  Status Structural(char c);
  Status BetweenItems(char c);
  bool OpensItems() const;

  const OnItem on_item_;
  const std::size_t most_item_bytes_;
  std::string frame_;
  std::string item_;
  std::size_t depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
  bool in_items_ = false;    // inside the array
  bool in_item_ = false;     // inside one of its objects
  bool items_seen_ = false;  // a second array of that name is refused
  Expect expect_ = Expect::kItemOrEnd;
};

}  // namespace hami::kube
