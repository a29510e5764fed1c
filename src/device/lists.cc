// SPDX-License-Identifier: Apache-2.0

#include "device/lists.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/strings.h"

namespace hami::device {

using base::Fail;
using base::Result;

std::vector<std::string> SplitList(std::string_view text) {
  std::vector<std::string> members;
  for (const std::string& part : base::Split(text, ',')) {
    const std::string_view member = base::Trim(part);
    if (!member.empty()) members.emplace_back(member);
  }
  return members;
}

std::optional<bool> ParseBool(std::string_view text) {
  for (const char* word : {"1", "t", "T", "true", "TRUE", "True"}) {
    if (text == word) return true;
  }
  for (const char* word : {"0", "f", "F", "false", "FALSE", "False"}) {
    if (text == word) return false;
  }
  return std::nullopt;
}

const std::string* Find(const StringMap& map, std::string_view key) {
  const auto found = map.find(key);
  return found == map.end() ? nullptr : &found->second;
}

std::string_view TextAt(const StringMap& map, std::string_view key) {
  const std::string* text = Find(map, key);
  return text == nullptr ? std::string_view() : std::string_view(*text);
}

std::optional<std::string> Misspelt(std::string_view key, const std::vector<std::string>& known) {
  constexpr std::size_t kMostName = 63;  // of Kubernetes
  const std::size_t slash = key.find('/');
  if (slash == std::string_view::npos || key.size() - slash - 1 > kMostName) return std::nullopt;
  const std::string_view prefix = key.substr(0, slash + 1);
  std::vector<std::string> names;
  for (const std::string& one : known) {
    if (one == key) return std::nullopt;
    if (one.starts_with(prefix)) names.push_back(one.substr(prefix.size()));
  }
  const auto name = base::Nearest(key.substr(slash + 1), names);
  return name ? std::optional<std::string>(base::Concat({prefix, *name})) : std::nullopt;
}

Result<ScoringWeights> ParseScoringWeights(std::string_view text) {
  const auto fail = [&](std::string_view why) {
    return Fail(
        base::Concat({"invalid hami.io/device-scoring-weights annotation \"", base::Printable(text), "\": ", why}));
  };
  const std::vector<std::string> parts = base::Split(text, ',');
  if (parts.size() != 3) return fail("expected exactly slot=<n>,core=<n>,memory=<n>");
  ScoringWeights weights;
  const std::array<std::pair<std::string_view, int*>, 3> names = {
      {{"slot", &weights.slot}, {"core", &weights.core}, {"memory", &weights.memory}}};
  std::array<bool, 3> seen = {};
  for (const std::string& part : parts) {
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos) return fail("a part is not of the form <name>=<weight>");
    const std::string_view name = base::Trim(std::string_view(part).substr(0, equals));
    const auto found = std::find_if(names.begin(), names.end(), [&](const auto& entry) { return entry.first == name; });
    if (found == names.end()) return fail(base::Concat({"unknown name \"", base::Printable(name), "\""}));
    bool& once = seen[static_cast<std::size_t>(found - names.begin())];
    if (once) return fail(base::Concat({"\"", name, "\" is given twice"}));
    once = true;
    const auto weight = base::ParseNumber(base::Trim(std::string_view(part).substr(equals + 1)));
    if (!weight || *weight > static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max())) {
      return fail(base::Concat({"the weight of \"", name, "\" must be a whole number that is not negative"}));
    }
    *found->second = static_cast<int>(*weight);
  }
  if (weights.slot == 0 && weights.core == 0 && weights.memory == 0) return fail("all weights are zero");
  return weights;
}

bool CardRules::AcceptsUuid(std::string_view uuid) const {
  const auto has = [&](const std::vector<std::string>& list) {
    return std::find(list.begin(), list.end(), uuid) != list.end();
  };
  return !has(avoid_uuids) && (use_uuids.empty() || has(use_uuids));
}

bool CardRules::AcceptsType(std::string_view lower_type) const {
  const auto has = [&](const std::vector<std::string>& list) {
    return std::any_of(list.begin(), list.end(),
                       [&](const std::string& member) { return lower_type.find(member) != std::string_view::npos; });
  };
  return !has(avoid_types) && (use_types.empty() || has(use_types));
}

}  // namespace hami::device
