// SPDX-License-Identifier: Apache-2.0

#include "monitor/resized.h"

#include <algorithm>
#include <utility>

#include "base/fd.h"
#include "base/files.h"
#include "base/strings.h"
#include "monitor/directory.h"

namespace hami::monitor {
namespace {

constexpr std::size_t kMostBytes = 1 << 20;

}  // namespace

std::set<std::string> ParseResized(std::string_view text) {
  std::set<std::string> names;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (ParseContainerName(text.substr(0, end))) names.emplace(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return names;
}

Resized::Resized(std::string path) : path_(std::move(path)) {
  if (const auto text = base::ReadFile(path_, kMostBytes)) names_ = ParseResized(*text);
}

base::Status Resized::Add(const std::string& name) {
  if (!names_.insert(name).second) return {};
  return Write();
}

base::Status Resized::Remove(const std::string& name) {
  if (names_.erase(name) == 0) return {};
  return Write();
}

base::Status Resized::Keep(const std::function<bool(const std::string& name)>& wanted) {
  if (std::erase_if(names_, [&](const std::string& name) { return !wanted(name); }) == 0) return {};
  return Write();
}

base::Status Resized::Write() const {
  std::string text;
  for (const std::string& name : names_) text += name + "\n";
  return base::ReplaceFile(path_, text, 0600);
}

}  // namespace hami::monitor
