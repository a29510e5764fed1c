// SPDX-License-Identifier: Apache-2.0

#include <algorithm>

#include "base/strings.h"
#include "cluster/doctor.h"

namespace hami::cluster {
namespace {

const char* LevelName(Finding::Level level) {
  if (level == Finding::Level::kError) return "error";
  return level == Finding::Level::kWarning ? "warning" : "good";
}

}  // namespace

std::string FindingsText(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += base::Printable(base::Concat({LevelName(finding.level), ": ", finding.about, ": ", finding.message}));
    text += '\n';
    if (finding.remedy.empty()) continue;
    for (const std::string& line : base::Split(finding.remedy, '\n')) text += "  " + base::Printable(line) + "\n";
  }
  return text;
}

base::json::value FindingsJson(const std::vector<Finding>& findings) {
  base::json::array list;
  for (const Finding& finding : findings) {
    list.push_back({{"level", LevelName(finding.level)},
                    {"about", finding.about},
                    {"message", finding.message},
                    {"remedy", finding.remedy}});
  }
  return {{"healthy", FindingsStatus(findings) == 0}, {"findings", list}};
}

int FindingsStatus(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.level == Finding::Level::kError; })
             ? 1
             : 0;
}

}  // namespace hami::cluster
