// SPDX-License-Identifier: Apache-2.0

#include "kube/scanner.h"

#include <optional>

namespace hami::kube {
namespace {

constexpr std::size_t kMostDepth = base::JsonCursor::kMostDepth;
constexpr std::size_t kMostFrameBytes = 1U << 20U;
constexpr std::size_t kItemDepth = 2;  // the list object, then its array

bool IsBlank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

bool IsBracket(char c) { return c == '{' || c == '}' || c == '[' || c == ']'; }

std::string_view TrimEnd(std::string_view text) {
  while (!text.empty() && IsBlank(text.back())) text.remove_suffix(1);
  return text;
}

// A parser says it better than a cursor.
std::string WhatIsWrong(std::string_view text) {
  base::json::error_code error;
  base::json::parse_options options;
  options.max_depth = kMostDepth;
  base::json::parse({text.data(), text.size()}, error, {}, options);
  return error ? error.message() : "a syntax error";
}

}  // namespace

Error NotJson(std::string_view text) {
  return Fail(Reason::kBadAnswer, "not valid JSON: " + WhatIsWrong(text)).value();
}

Result<base::json::value> ParseDocument(std::string_view text, const base::json::storage_ptr& storage,
                                        base::Parts parts) {
  std::optional<base::json::value> value;
  HAMI_NET_TRY(ReadText(text, [&](base::JsonCursor& cursor) {
    value = base::TakeParts(cursor, parts, storage);
    return value.has_value();
  }));
  return *std::move(value);
}

// Whether the '[' that comes now is the value of the list's own key "items".
bool ListScanner::OpensItems() const {
  std::string_view before = TrimEnd(frame_);
  if (depth_ != 1 || !before.ends_with(':')) return false;
  before.remove_suffix(1);
  before = TrimEnd(before);
  static constexpr std::string_view kKey = "\"items\"";
  if (!before.ends_with(kKey)) return false;
  before.remove_suffix(kKey.size());
  // An escaped quotation mark: the key only ends like ours.
  return !before.ends_with('\\');
}

Status ListScanner::BetweenItems(char c) {
  if (IsBlank(c)) return {};
  if (c == ']' && expect_ != Expect::kItem) {
    in_items_ = false;
    --depth_;
    frame_ += c;
    return {};
  }
  if (c == ',' && expect_ == Expect::kCommaOrEnd) {
    expect_ = Expect::kItem;
    return {};
  }
  if (c == '{' && expect_ != Expect::kCommaOrEnd) {
    in_item_ = true;
    expect_ = Expect::kCommaOrEnd;
    ++depth_;
    return {};
  }
  return Fail(Reason::kBadAnswer, "list: something that is no object among the items");
}

// A bracket outside strings, in the frame or in an item.
Status ListScanner::Structural(char c) {
  if (c == '{' || c == '[') {
    if (!in_item_ && c == '[' && OpensItems()) {
      if (std::exchange(items_seen_, true)) return Fail(Reason::kBadAnswer, "list: items given twice");
      in_items_ = true;
      expect_ = Expect::kItemOrEnd;
    }
    if (++depth_ > kMostDepth) return Fail(Reason::kBadAnswer, "list: nested too deeply");
  } else {
    if (depth_ == 0) return Fail(Reason::kBadAnswer, "list: closed more often than opened");
    --depth_;
  }
  return {};
}

Status ListScanner::Feed(std::string_view piece) {
  std::size_t item_start = 0;  // where the part of the current item in PIECE begins
  for (std::size_t i = 0; i < piece.size(); ++i) {
    if (in_string_ && !escaped_) {  // most of a list is the inside of strings, which changes nothing here
      const std::size_t plain = base::PlainLength(piece.substr(i));
      if (!in_item_) frame_ += piece.substr(i, plain);
      i += plain;
      if (i == piece.size()) break;
    }
    const char c = piece[i];
    if (in_items_ && !in_item_) {
      HAMI_NET_TRY(BetweenItems(c));
      if (in_item_) item_start = i;
      continue;
    }
    const bool was_in_item = in_item_;
    if (in_string_) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == '"') {
        in_string_ = false;
      }
    } else if (c == '"') {
      in_string_ = true;
    } else if (IsBracket(c)) {
      HAMI_NET_TRY(Structural(c));
    }
    if (!was_in_item) {
      frame_ += c;
      if (frame_.size() > kMostFrameBytes) return Fail(Reason::kBadAnswer, "list: too much around the items");
    } else if (depth_ == kItemDepth) {
      in_item_ = false;
      const std::string_view rest = piece.substr(item_start, i + 1 - item_start);
      if (item_.size() + rest.size() > most_item_bytes_) return Fail(Reason::kBadAnswer, "list: an item is too large");
      // Usually an item lies within one piece and need not be copied.
      HAMI_NET_TRY(item_.empty() ? on_item_(rest) : on_item_(item_.append(rest)));
      item_.clear();
    }
  }
  if (frame_.size() > kMostFrameBytes) return Fail(Reason::kBadAnswer, "list: too much around the items");
  if (in_item_) item_ += piece.substr(item_start);
  if (item_.size() > most_item_bytes_) return Fail(Reason::kBadAnswer, "list: an item is too large");
  return {};
}

Result<base::json::value> ListScanner::Finish() const {
  if (depth_ != 0 || in_string_) return Fail(Reason::kBadAnswer, "list: cut off");
  return ParseDocument(frame_);
}

}  // namespace hami::kube
