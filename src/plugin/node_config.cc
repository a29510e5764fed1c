// SPDX-License-Identifier: Apache-2.0

#include "plugin/node_config.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/strings.h"
#include "device/config_reader.h"
#include "plugin/options_file.h"

namespace hami::plugin {
namespace {

using base::Fail;
using base::Result;
using base::Status;
using device::ConfigReader;

constexpr std::int64_t kMostSlots = 256;
constexpr double kMostScaling = 100;
// 16 PiB: keeps memory × scaling inside 64 bits.
constexpr std::int64_t kMostMemory = std::int64_t{1} << 34;

bool LevelFits(const std::string& level) {
  return level.empty() || (level.size() == 1 && level.front() >= '0' && level.front() <= '4');
}
bool SlotsFit(std::int64_t value) { return value >= 1 && value <= kMostSlots; }
bool ScalingFits(double value) { return value > 0 && value <= kMostScaling; }
constexpr const char* kSlotsRange = "must be from 1 to 256";
constexpr const char* kScalingRange = "must be more than 0 and at most 100";

// A key that may be absent or null.
template <typename T, typename Read>
void Maybe(ConfigReader& in, const char* key, std::optional<T>& out, Read read) {
  if (!in.Has(key)) return in.Keep(key);
  T value{};
  (in.*read)(key, value);
  out = std::move(value);
}

void ReadExclusion(ConfigReader& in, Exclusion& out) {
  in.Texts("uuid", out.uuids);
  std::vector<std::string> indices;
  in.Texts("index", indices);
  for (const std::string& text : indices) {
    const auto number = base::ParseNumber(text);
    if (!number || *number > 1024) return in.Fail("index", "must be a list of GPU indices");
    out.indices.push_back(static_cast<std::int64_t>(*number));
  }
}

void ReadMode(ConfigReader& in, NodeEntry& entry) {
  constexpr const char* kKey = "operatingmode";
  std::string mode;
  in.Text(kKey, mode);
  if (mode.empty()) return;
  entry.mode = ParseMode(mode);
  if (!entry.mode) in.Fail(kKey, "must be hami-core, mig or mps");
}

void ReadStrategy(ConfigReader& in, NodeEntry& entry) {
  constexpr const char* kKey = "migstrategy";
  std::string text;
  in.Text(kKey, text);
  if (text.empty()) return;
  const auto strategy = ReadMigStrategy(text);
  if (!strategy) return in.Fail(kKey, strategy.error().message);
  entry.mig_strategy = *strategy;
  const OperatingMode mode = entry.mode.value_or(OperatingMode::kHamiCore);
  if (*strategy == MigStrategy::kNone || mode == OperatingMode::kHamiCore) return;
  in.Fail(kKey, base::Concat({"must be none with operatingmode ", ModeName(mode),
                              ": it offers MIG devices that were there before, in mode hami-core"}));
}

void CheckEntry(ConfigReader& in, const NodeEntry& entry) {
  if (entry.split_count && !SlotsFit(*entry.split_count)) in.Fail("devicesplitcount", kSlotsRange);
  if (entry.memory_scaling && !ScalingFits(*entry.memory_scaling)) in.Fail("devicememoryscaling", kScalingRange);
  if (entry.core_scaling && !ScalingFits(*entry.core_scaling)) in.Fail("devicecorescaling", kScalingRange);
  if (entry.preconfigured_memory && (*entry.preconfigured_memory < 0 || *entry.preconfigured_memory > kMostMemory)) {
    in.Fail("preconfigureddevicememory", "must be a size in MiB");
  }
  if (entry.log_level && !LevelFits(*entry.log_level)) in.Fail("libcudaloglevel", "must be from 0 to 4");
}

// For which nodes it is, every node has to know; what else is wrong with it is the business of those.
void CheckNodes(ConfigReader& in, NodeEntry& entry, std::vector<std::string>& names) {
  if (entry.name.empty() == entry.selector.empty()) {
    return in.Fail("name", "either name or selector says which nodes are meant");
  }
  if (!entry.selector.empty()) {
    const auto selector = LabelSelector::Parse(entry.selector);
    if (!selector) return in.Fail("selector", selector.error().message);
  } else if (std::find(names.begin(), names.end(), entry.name) != names.end()) {
    return in.Fail("name", base::Printable(entry.name) + " has an entry already");
  } else {
    names.push_back(entry.name);
  }
  if (const auto mistake = in.TakeError()) entry.mistake = mistake->message;
}

void ReadEntry(ConfigReader& in, NodeEntry& entry, std::vector<std::string>& names) {
  in.Text("name", entry.name);
  in.Text("selector", entry.selector);
  ReadMode(in, entry);
  Maybe(in, "devicesplitcount", entry.split_count, &ConfigReader::Integer);
  Maybe(in, "devicememoryscaling", entry.memory_scaling, &ConfigReader::Real);
  Maybe(in, "devicecorescaling", entry.core_scaling, &ConfigReader::Real);
  Maybe(in, "preconfigureddevicememory", entry.preconfigured_memory, &ConfigReader::Integer);
  Maybe(in, "libcudaloglevel", entry.log_level, &ConfigReader::Text);
  Maybe(in, "enablenumatopology", entry.numa_topology, &ConfigReader::Bool);
  Maybe(in, "enablegetpreferredallocation", entry.align_allocation, &ConfigReader::Bool);
  ReadStrategy(in, entry);
  if (in.Has("filterdevices")) entry.excluded.emplace();
  in.Section("filterdevices", [&](ConfigReader& inner) { ReadExclusion(inner, *entry.excluded); });
  CheckEntry(in, entry);
  CheckNodes(in, entry, names);
}

Status ReadEntries(const YAML::Node& document, const std::string& file, std::vector<NodeEntry>& entries) {
  std::vector<std::string> names;
  ConfigReader root(document, file, "");
  root.Each("nodeconfig", [&](ConfigReader& in) { ReadEntry(in, entries.emplace_back(), names); });
  return root.Finish();
}

Result<std::vector<NodeEntry>> ParseEntries(const std::string& text, const std::string& file) {
  std::vector<NodeEntry> entries;
  // JSON is YAML.
  HAMI_TRY(device::ReadDocument(text, file, [&](const YAML::Node& root) { return ReadEntries(root, file, entries); }));
  return entries;
}

Result<NodeSettings> Defaults(const ConfigTexts& texts, const Options& options) {
  device::NvidiaConfig nvidia;
  if (texts.device_text) {
    auto config = device::ParseDeviceConfig(*texts.device_text, texts.device_file);
    if (!config) return tl::unexpected(config.error());
    nvidia = std::move(config->nvidia);
  }
  NodeSettings out;
  if (!nvidia.count_resource.empty()) out.resource_name = nvidia.count_resource;
  if (texts.device_text) out.requests = nvidia;
  out.requests.count_resource = out.resource_name;
  out.mig_strategy = options.mig_strategy;
  out.split_count = options.split_count.value_or(nvidia.split_count);
  out.memory_scaling = options.memory_scaling.value_or(nvidia.memory_scaling);
  out.core_scaling = options.core_scaling.value_or(nvidia.core_scaling);
  out.preconfigured_memory = nvidia.preconfigured_memory;
  out.log_level = nvidia.log_level;
  out.numa_topology = nvidia.numa_topology;
  // Charts always write the flag, and mostly as false: only "true" says something.
  out.disable_core_limit = nvidia.disable_core_limit || options.disable_core_limit.value_or(false);
  out.mig_allowlist = std::move(nvidia.mig_allowlist);

  // Flags are judged when they are read, so what does not fit is the file's.
  const auto fail = [&](const char* key, const char* why) {
    return Fail(base::Concat({texts.device_file, ":", std::to_string(nvidia.lines[key]), ": nvidia.", key, ": ", why}));
  };
  if (!SlotsFit(out.split_count)) return fail("deviceSplitCount", kSlotsRange);
  if (!ScalingFits(out.memory_scaling)) return fail("deviceMemoryScaling", kScalingRange);
  if (!ScalingFits(out.core_scaling)) return fail("deviceCoreScaling", kScalingRange);
  if (out.preconfigured_memory > kMostMemory) return fail("preConfiguredDeviceMemory", "must be a size in MiB");
  if (!LevelFits(nvidia.log_level)) return fail("libCudaLogLevel", "must be from 0 to 4");
  HAMI_TRY(CheckResourceName(options, out.resource_name));
  return out;
}

template <typename T>
void Override(T& setting, const std::optional<T>& value) {
  if (value) setting = *value;
}

const NodeEntry* EntryFor(const NodeConfig& config, const std::string& node, const Labels& labels) {
  const auto first = [&](auto fits) -> const NodeEntry* {
    const auto found = std::find_if(config.entries.begin(), config.entries.end(), fits);
    return found == config.entries.end() ? nullptr : &*found;
  };
  if (const NodeEntry* entry = first([&](const NodeEntry& e) { return e.name == node; })) return entry;
  const auto selected = [&](const NodeEntry& e) {
    if (e.selector.empty()) return false;
    const auto selector = LabelSelector::Parse(e.selector);
    return selector && selector->Matches(labels);
  };
  if (const NodeEntry* entry = first(selected)) return entry;
  return first([&](const NodeEntry& e) { return IsPattern(e.name) && MatchesPattern(e.name, node); });
}

Result<std::optional<std::string>> LoadIfThere(const std::string& path) {
  if (path.empty()) return std::optional<std::string>();
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error) return std::optional<std::string>();
  auto text = ReadConfigText(path);
  if (!text) return tl::unexpected(text.error());
  return std::optional<std::string>(*std::move(text));
}

}  // namespace

base::Status CheckResourceName(const Options& options, const std::string& configured) {
  if (options.resource_name.empty() || options.resource_name == configured) return {};
  return Fail(base::Concat(
                  {"--resource-name=", options.resource_name, " contradicts resourceCountName, which is ", configured}),
              "The scheduler reads resourceCountName; set it there, for both.");
}

bool NodeConfig::NeedsLabels() const {
  return std::any_of(entries.begin(), entries.end(), [](const NodeEntry& e) { return !e.selector.empty(); });
}

Result<NodeConfig> ParseNodeConfig(const ConfigTexts& texts, const Options& options) {
  NodeConfig config;
  auto defaults = Defaults(texts, options);
  if (!defaults) return tl::unexpected(defaults.error());
  config.defaults = *std::move(defaults);
  if (texts.node_text) {
    auto entries = ParseEntries(*texts.node_text, texts.node_file);
    if (!entries) return tl::unexpected(entries.error());
    config.entries = *std::move(entries);
  }
  // By its name an entry is a node's for certain; for the others the labels must be known.
  for (const NodeEntry& entry : config.entries) {
    const bool ours = !entry.name.empty() && entry.name == options.node_name;
    if (ours && !entry.mistake.empty()) return Fail(entry.mistake);
  }
  return config;
}

std::string MistakeFor(const NodeConfig& config, const std::string& node, const Labels& labels) {
  const NodeEntry* const entry = EntryFor(config, node, labels);
  return entry == nullptr ? std::string() : entry->mistake;
}

NodeSettings SettingsFor(const NodeConfig& config, const std::string& node, const Labels& labels) {
  NodeSettings out = config.defaults;
  const NodeEntry* const entry = EntryFor(config, node, labels);
  if (entry == nullptr || !entry->mistake.empty()) return out;
  Override(out.mode, entry->mode);
  out.wanted_mode = out.mode;
  Override(out.mig_strategy, entry->mig_strategy);
  Override(out.split_count, entry->split_count);
  Override(out.memory_scaling, entry->memory_scaling);
  Override(out.core_scaling, entry->core_scaling);
  Override(out.preconfigured_memory, entry->preconfigured_memory);
  Override(out.log_level, entry->log_level);
  Override(out.numa_topology, entry->numa_topology);
  Override(out.align_allocation, entry->align_allocation);
  Override(out.excluded, entry->excluded);
  return out;
}

Result<ConfigTexts> LoadConfigTexts(const Options& options) {
  ConfigTexts texts;
  texts.device_file = options.config_file;
  texts.node_file = options.node_config_file;
  // A file that was asked for has to be there; the other one is where charts put it, if they do.
  if (!options.config_file.empty()) {
    auto device = ReadConfigText(options.config_file);
    if (!device) return tl::unexpected(device.error());
    texts.device_text = *std::move(device);
  }
  auto node = LoadIfThere(options.node_config_file);
  if (!node) return tl::unexpected(node.error());
  texts.node_text = *std::move(node);
  return texts;
}

}  // namespace hami::plugin
