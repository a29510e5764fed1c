// SPDX-License-Identifier: Apache-2.0
//
// Which nodes an entry of the node configuration is for: a name with * and ?, or a selector of labels in the equality
// form of Kubernetes. Pure. Set-based selectors (`in`, `notin`) are refused, not ignored.

#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hami::plugin {

using Labels = std::map<std::string, std::string, std::less<>>;

// Whether NAME is PATTERN, where * stands for any text and ? for any one character.
bool MatchesPattern(std::string_view pattern, std::string_view name);
bool IsPattern(std::string_view text);

// `key=value`, `key==value`, `key!=value`, `key`, `!key`, separated by commas; all must hold.
class LabelSelector {
 public:
  static base::Result<LabelSelector> Parse(std::string_view text);
  bool Matches(const Labels& labels) const;

 private:
  enum class Operation { kEquals, kDiffers, kExists, kAbsent };
  struct Term {
    std::string key;
    Operation operation;
    std::string value;
  };
  static base::Result<Term> ParseTerm(std::string_view text);

  std::vector<Term> terms_;
};

}  // namespace hami::plugin
