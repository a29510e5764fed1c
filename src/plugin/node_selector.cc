// SPDX-License-Identifier: Apache-2.0

#include "plugin/node_selector.h"

#include <algorithm>

#include "base/strings.h"

namespace hami::plugin {
namespace {

using base::Fail;
using base::Result;

bool IsLabelText(std::string_view text, bool may_be_empty) {
  return (may_be_empty || !text.empty()) && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
                  c == '.' || c == '/';
         });
}

}  // namespace

bool MatchesPattern(std::string_view pattern, std::string_view name) {
  // Where the last * was, and how much of NAME it has taken: on a mismatch it takes one more.
  std::size_t star = std::string_view::npos;
  std::size_t taken = 0;
  std::size_t p = 0;
  std::size_t n = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

bool IsPattern(std::string_view text) { return text.find_first_of("*?") != std::string_view::npos; }

Result<LabelSelector::Term> LabelSelector::ParseTerm(std::string_view text) {
  Term term{{}, Operation::kExists, {}};
  std::string_view key = text;
  std::string_view value;
  if (const auto at = text.find('='); at != std::string_view::npos) {
    const bool differs = at > 0 && text[at - 1] == '!';
    const bool twice = at + 1 < text.size() && text[at + 1] == '=';
    term.operation = differs ? Operation::kDiffers : Operation::kEquals;
    key = base::Trim(text.substr(0, differs ? at - 1 : at));
    value = base::Trim(text.substr(at + (twice ? 2 : 1)));
  } else if (text.starts_with('!')) {
    term.operation = Operation::kAbsent;
    key = base::Trim(text.substr(1));
  }
  if (!IsLabelText(key, false) || !IsLabelText(value, true)) {
    return Fail("not understood: " + base::ShellQuote(base::Printable(text)),
                "A selector is key=value, key!=value, key or !key, separated by commas.");
  }
  term.key = key;
  term.value = value;
  return term;
}

Result<LabelSelector> LabelSelector::Parse(std::string_view text) {
  LabelSelector selector;
  for (const std::string& part : base::Split(text, ',')) {
    auto term = ParseTerm(base::Trim(part));
    if (!term) return tl::unexpected(term.error());
    selector.terms_.push_back(*std::move(term));
  }
  if (selector.terms_.empty()) return Fail("a selector must name at least one label");
  return selector;
}

bool LabelSelector::Matches(const Labels& labels) const {
  return std::all_of(terms_.begin(), terms_.end(), [&](const Term& term) {
    const auto label = labels.find(term.key);
    const bool there = label != labels.end();
    switch (term.operation) {
      case Operation::kEquals:
        return there && label->second == term.value;
      case Operation::kDiffers:
        return !there || label->second != term.value;
      case Operation::kExists:
        return there;
      case Operation::kAbsent:
        return !there;
    }
    return false;
  });
}

}  // namespace hami::plugin
