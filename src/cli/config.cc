// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <iostream>

#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"
#include "base/strings.h"
#include "cli/commands.h"
#include "device/config_check.h"

namespace hami::cli {
namespace {

namespace json = base::json;

constexpr std::size_t kMostBytes = 4U << 20U;

const char* LevelName(const device::Finding& finding) {
  if (finding.level == device::Finding::Level::kNote) return "note";
  return finding.level == device::Finding::Level::kError ? "error" : "warning";
}

void PrintText(const std::vector<device::Finding>& findings, const ConfigOptions& options) {
  for (const device::Finding& finding : findings) {
    const std::string key = finding.key.empty() ? "" : finding.key + ": ";
    std::cout << base::Printable(base::Concat({finding.where, ": ", key, LevelName(finding), ": ", finding.message}))
              << "\n";
    if (!finding.remedy.empty()) std::cout << "  " << base::Printable(finding.remedy) << "\n";
  }
  const bool fine = std::all_of(findings.begin(), findings.end(), [](const device::Finding& finding) {
    return finding.level == device::Finding::Level::kNote;
  });
  if (!fine) return;
  std::cout << base::Printable(options.file) << ": "
            << (options.for_hami ? "nothing is known of HAMi 2.10's programs that would stop them\n"
                                 : "hami-scheduler and hami-device-plugin take it as it is\n");
}

void PrintJson(const std::vector<device::Finding>& findings, const ConfigOptions& options) {
  json::array list;
  for (const device::Finding& finding : findings) {
    list.push_back({{"level", LevelName(finding)},
                    {"where", finding.where},
                    {"key", finding.key},
                    {"message", finding.message},
                    {"remedy", finding.remedy}});
  }
  std::cout << base::Pretty({{"file", options.file}, {"for", options.for_hami ? "hami" : "ours"}, {"findings", list}});
}

}  // namespace

int Config(const ConfigOptions& options) {
  const auto text = base::ReadLinkedFile(options.file, kMostBytes);
  if (!text) {
    base::LogError(text.error());
    return kFailed;
  }
  const auto findings =
      options.for_hami ? device::CheckForHami(*text, options.file) : device::CheckForOurs(*text, options.file);
  (options.output == Output::kJson ? PrintJson : PrintText)(findings, options);
  const bool ends = std::any_of(findings.begin(), findings.end(), [](const device::Finding& finding) {
    return finding.level == device::Finding::Level::kError;
  });
  return ends ? kFailed : 0;
}

}  // namespace hami::cli
