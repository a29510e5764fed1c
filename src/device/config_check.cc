// SPDX-License-Identifier: Apache-2.0

#include "device/config_check.h"

#include <array>
#include <set>

#include "base/strings.h"
#include "device/config.h"
#include "device/config_reader.h"
#include "device/vendors/sections.h"

namespace hami::device {
namespace {

using Level = Finding::Level;

std::string Place(const std::string& file, int line) { return base::Concat({file, ":", std::to_string(line)}); }

int LineOf(const YAML::Node& node) { return node.Mark().is_null() ? 1 : node.Mark().line + 1; }

// Where KEY stands, by the key: a value that is empty has no place of its own. Else the section.
int LineOf(const YAML::Node& section, const char* key) {
  for (const auto& member : section) {
    if (member.first.IsScalar() && member.first.Scalar() == key) return LineOf(member.first);
  }
  return LineOf(section);
}

bool Given(const YAML::Node& section, const char* key) { return section[key] && !section[key].IsNull(); }

// "FILE:LINE: KEY: what" into its parts; what has no such form is the message as a whole. BEGIN: what it means.
Finding FromError(const base::Error& error, const std::string& file, std::string_view begin) {
  Finding finding{Level::kError, file, "", error.message, error.hint};
  std::string_view rest = error.message;
  if (rest.starts_with(file + ":")) {
    rest.remove_prefix(file.size() + 1);
    const std::size_t end = rest.find(": ");
    if (end != std::string_view::npos && base::ParseNumber(rest.substr(0, end))) {
      finding.where = base::Concat({file, ":", rest.substr(0, end)});
      rest.remove_prefix(end + 2);
    } else if (rest.starts_with(' ')) {
      rest.remove_prefix(1);
    }
    if (const std::size_t key = rest.find(": "); key != std::string_view::npos && rest.find(' ') > key) {
      finding.key = rest.substr(0, key);
      rest.remove_prefix(key + 2);
    }
  }
  finding.message = base::Concat({begin, ": ", rest});
  return finding;
}

// What HAMi's plugin follows as a pointer without looking whether it is there.
struct Needed {
  const char* key;
  const char* when;
  const char* usual;
};
constexpr std::array<Needed, 4> kNeeded = {{
    {"deviceSplitCount", "as soon as it registers the node's cards", "10"},
    {"deviceMemoryScaling", "as soon as it registers the node's cards", "1"},
    {"deviceCoreScaling", "as soon as it registers the node's cards", "1"},
    {"libCudaLogLevel", "at its first Allocate, with the kubelet's call, again and again", "1"},
}};

void CheckNvidia(const YAML::Node& nvidia, const std::string& file, std::vector<Finding>& findings) {
  for (const Needed& needed : kNeeded) {
    if (Given(nvidia, needed.key)) continue;
    findings.push_back(
        {Level::kError, Place(file, LineOf(nvidia, needed.key)), std::string("nvidia.") + needed.key,
         base::Concat({"HAMi's device plugin ends ", needed.when,
                       ", unless config.json has the key for the node: it takes what is not there for a value"}),
         base::Concat({"write ", needed.key, ": ", needed.usual, ", which ours takes where it is missing"})});
  }
  if (Given(nvidia, "resourceCountName")) return;
  findings.push_back({Level::kError, Place(file, LineOf(nvidia, "resourceCountName")), "nvidia.resourceCountName",
                      "HAMi's plugin registers no resource that pods could ask for", "write nvidia.com/gpu"});
}

base::Status Look(const YAML::Node& root, const std::string& file, std::vector<Finding>& findings) {
  if (!root.IsMap()) return {};
  if (const YAML::Node nvidia = root["nvidia"]; nvidia && nvidia.IsMap()) {
    CheckNvidia(nvidia, file, findings);
  } else {
    findings.push_back({Level::kWarning, file, "nvidia",
                        "HAMi's device plugin for NVIDIA's cards would find nothing here",
                        "add the section nvidia where there are such cards"});
  }
  return {};
}

}  // namespace

std::vector<Finding> CheckForOurs(std::string_view text, const std::string& file) {
  std::vector<Finding> findings;
  const auto config = ParseDeviceConfig(text, file);
  if (!config) {
    findings.push_back(FromError(config.error(), file, "neither hami-scheduler nor hami-device-plugin starts with it"));
    return findings;
  }
  if (config->nvidia.count_resource.empty()) {
    findings.push_back({Level::kWarning, file, "nvidia.resourceCountName", "hami-scheduler gives no pod a GPU",
                        "write the name that pods ask for, usually nvidia.com/gpu"});
  }
  std::set<std::string> others;
  for (const auto& [path, value] : config->others) others.insert(path.substr(0, path.find_first_of(".[")));
  const VendorSwitches all{.ascend = true, .iluvatar = true};
  for (const std::string& name : others) {
    DeviceConfig alone;
    for (const auto& [path, value] : config->others) {
      if (path.substr(0, path.find_first_of(".[")) == name) alone.others.emplace(path, value);
    }
    std::vector<std::string> kinds;
    for (const auto& vendor : MakeVendors(alone, all)) {
      if (!vendor->count_resource().empty())
        kinds.push_back(base::Concat({vendor->key(), " (", vendor->count_resource(), ")"}));
    }
    if (kinds.empty()) {
      findings.push_back({Level::kWarning, file, name, "hami-scheduler gives no pod one of these devices",
                          "write the resource names that pods ask for"});
      continue;
    }
    const char* flag = name == "vnpus" ? " with --enable-ascend" : name == "iluvatars" ? " with --enable-iluvatar" : "";
    findings.push_back({Level::kNote, file, name,
                        base::Concat({"hami-scheduler schedules", flag, ": ", base::Join(kinds, ", ")}), ""});
  }
  if (const auto plain = CheckVendors(MakeVendors(*config, all)); !plain) {
    findings.push_back(
        {Level::kError, file, "", "hami-scheduler does not start: " + plain.error().message, plain.error().hint});
  }
  return findings;
}

std::vector<Finding> CheckForHami(std::string_view text, const std::string& file) {
  std::vector<Finding> findings;
  const auto read = ReadDocument(text, file, [&](const YAML::Node& root) { return Look(root, file, findings); });
  if (!read) {
    findings.push_back(FromError(read.error(), file, "none of HAMi's programs starts with it"));
    return findings;
  }
  const auto ours = ParseDeviceConfig(text, file);
  if (ours) return findings;
  Finding finding = FromError(ours.error(), file, "none of HAMi's programs starts with it");
  // What ours refuses and HAMi passes over without a word is a setting that does nothing there.
  if (finding.message.find("unknown key") != std::string::npos) {
    finding.level = Level::kWarning;
    finding.message = "HAMi passes over a key that it does not know without a word: it does nothing there";
  } else if (finding.message.find("are empty") == std::string::npos) {
    finding.level = Level::kWarning;
    finding.message = "hami-scheduler and hami-device-plugin refuse this, and HAMi may: " +
                      finding.message.substr(finding.message.find(": ") + 2);
  }
  findings.push_back(std::move(finding));
  return findings;
}

}  // namespace hami::device
