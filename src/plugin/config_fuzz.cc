// SPDX-License-Identifier: Apache-2.0
//
// What people and other programs write for the plugin: configuration files, selectors, the node's memory of its GPUs'
// health. Any text gives a value or an error; an error about a file begins with its name; what is written is read back.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "device/vendors/mig_placement.h"
#include "plugin/health.h"
#include "plugin/mig_journal.h"
#include "plugin/mig_nodes.h"
#include "plugin/mig_profiles.h"
#include "plugin/mig_static.h"
#include "plugin/mode.h"
#include "plugin/node_config.h"
#include "plugin/options.h"
#include "plugin/registration.h"
#include "plugin/xid_policy.h"

namespace {

using namespace hami;
using namespace hami::plugin;

void Require(bool condition) {
  if (!condition) std::abort();
}

void OptionsFile(const std::string& text) {
  const auto start = ReadOptions(
      {"--config-file=f"},
      [](const std::string& name) -> std::optional<std::string> {
        return name == "NODE_NAME" ? std::optional<std::string>("n") : std::nullopt;
      },
      [&](const std::string&) -> base::Result<std::string> { return text; });
  if (start) Require(!start->options.node_name.empty());
}

void NodeFile(const std::string& text) {
  const auto config = ParseNodeConfig({"d", std::nullopt, "f", text}, {});
  if (!config) {
    Require(config.error().message.starts_with("f:"));
    return;
  }
  const NodeSettings settings = SettingsFor(*config, "node-1", {{"a", "b"}});
  Require(settings.split_count >= 1 && settings.split_count <= 256);
  Require(settings.memory_scaling > 0 && settings.memory_scaling <= 100);
  Require(settings.Strategy() == MigStrategy::kNone || settings.mode == OperatingMode::kHamiCore);
}

void DeviceFile(const std::string& text) {
  const auto config = ParseNodeConfig({"f", text, "n", std::nullopt}, {});
  if (!config) Require(config.error().message.starts_with("f:"));
}

// What our own earlier life wrote to disk, and what the driver lists.
void OwnFiles(const std::string& text) {
  if (const auto journal = DecodeMigJournal(text)) {
    const auto again = DecodeMigJournal(EncodeMigJournal(*journal));
    Require(again && *again == *journal);
  }
  if (const auto mode = DecodeModeFile(text)) Require(EncodeModeFile(*mode) == text);
  if (const auto nodes = MigCapabilities(text, 0, 3, 0)) Require(nodes->size() == 2);
  if (const auto gpu = device::GpuOfOldInstance(text)) Require(gpu->size() < text.size());
}

void Annotation(const std::string& text) {
  OwnFiles(text);
  const auto journal = DecodeJournal(text);
  if (journal) {
    const auto again = DecodeJournal(EncodeJournal(*journal));
    Require(again && *again == *journal);
    HealthBook book;
    book.Restore(*journal, 1000);
    for (const auto& [uuid, entry] : *journal) book.Condemn(uuid, "XID 48", 1001);
    Require(book.Current().size() == journal->size());
  }
  Registration wanted;
  wanted.cards = "[]";
  const device::StringMap annotations = {{kHealthKey, text}, {"hami.io/device-cordon", text}, {kHandshakeKey, text}};
  Require(PatchFor(annotations, wanted, {0, 0}).has_value());
}

void Words(const std::string& text) {
  const auto selector = LabelSelector::Parse(text);
  if (selector) static_cast<void>(selector->Matches({{"a", "b"}}));
  static_cast<void>(XidPolicy(text, text).Judge(48));
  const std::size_t half = text.size() / 2;
  static_cast<void>(MatchesPattern(std::string_view(text).substr(0, half), std::string_view(text).substr(half)));
  Require(MatchesPattern("*", text));
  static_cast<void>(IsModel(text, "NVIDIA H100 80GB HBM3", 81559));
  static_cast<void>(IsProfile(text, "1g.10gb+me"));
  if (const auto profile = ProfileOfDevice(text)) {
    const std::string resource = MigResource(*profile);  // a name that the kubelet takes, and of a socket
    Require(resource.starts_with("nvidia.com/mig-") && resource.find_first_of("+ \n", 0) == std::string::npos);
    Require(resource.find('/', 11) == std::string::npos);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0 || size > 4096) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 5) {
    case 0:
      OptionsFile(text);
      break;
    case 1:
      NodeFile(text);
      break;
    case 2:
      DeviceFile(text);
      break;
    case 3:
      Annotation(text);
      break;
    default:
      Words(text);
  }
  return 0;
}
