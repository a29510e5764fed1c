// SPDX-License-Identifier: Apache-2.0
//
// Every annotation that a vendor reads of a node or a pod, every amount that a pod may ask of it, and sections of the
// configuration, with any text in them. What cannot be read is an error; what is granted, its card has; and the books
// are as before when the pod is gone.
//
// An input is lines: whose text it is (0 node, 1 capacity and request, 2 pod, 3 configuration), the key, a tab, the
// text. A key that no vendor reads stands for one that some does.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/strings.h"
#include "sched/testing/vendors.h"
#include "sched/webhook.h"

namespace {

using namespace hami;

void Check(bool holds) {
  if (!holds) std::abort();
}

struct World {
  sched::SimulatedNode node{"n", {}};
  device::Pod pod;
  device::DeviceConfig config = sched::testing::AllSections();
};

// What of the world a line is about.
void Take(World& world, const std::string& line, const std::vector<std::string>& keys) {
  const std::size_t tab = std::min(line.find('\t'), line.size());
  const std::string word = line.substr(1, tab - 1);
  std::string text = line.substr(std::min(tab + 1, line.size()));
  std::size_t sum = 0;
  for (const char c : word) sum = sum * 31 + static_cast<unsigned char>(c);
  const auto known = std::find(keys.begin(), keys.end(), word);
  const std::string& key = known == keys.end() ? keys[sum % keys.size()] : *known;
  switch (line.front() & 3) {
    case 0:
      world.node.annotations[key] = std::move(text);
      break;
    case 1:
      world.node.capacity[key] = text;
      world.pod.containers[text.size() % 2].limits[key] = std::move(text);
      break;
    case 2:
      world.pod.annotations[key] = std::move(text);
      break;
    default: {
      auto section = world.config.others.find(word);
      if (section == world.config.others.end()) {
        section = world.config.others.begin();
        std::advance(section, sum % world.config.others.size());
      }
      section->second = std::move(text);
    }
  }
}

// Annotations and resources of all vendors, one list, without results, which claims_fuzz.cc is about: what is no
// annotation of a node is one that nobody reads.
std::vector<std::string> KeysOf(const device::Vendors& vendors) {
  std::vector<std::string> keys = {"huawei.com/vnpu-mode",
                                   "metax-tech.com/sgpu-app-class",
                                   "metax-tech.com/sgpu-qos-policy",
                                   "metax-tech.com/sgpu-topology-aware",
                                   "hami-vnpu-core",
                                   "hami.io/gpu-scheduler-policy"};
  for (const auto& vendor : vendors) {
    for (const std::string_view key : vendor->resources()) keys.emplace_back(key);
    for (const std::string_view key : vendor->node_annotations()) keys.emplace_back(key);
    if (!vendor->register_annotation().empty()) keys.emplace_back(vendor->register_annotation());
  }
  return keys;
}

void Decide(const World& world, const device::Vendors& vendors) {
  sched::Ledger ledger(vendors);
  for (std::size_t v = 0; v < vendors.size(); ++v) {
    if (auto cards = vendors[v]->ReadNode(world.node.facts())) ledger.SetCards("n", static_cast<int>(v), *cards);
  }
  if (ledger.Find("n") == sched::kNoNode) return;
  sched::Filter filter(ledger, vendors, {});
  const sched::Decision decision = filter.DecideAny(world.pod, {.now = 1, .explain = true});
  if (decision.outcome != sched::Outcome::kPlaced) return;
  device::Pod written = sched::testing::Written(world.pod, decision, true);
  ledger.UpsertPod(written);
  const sched::Node& node = ledger.node(ledger.Find("n"));
  for (std::size_t i = 0; i < node.devices().size(); ++i) {
    const device::CardState& used = node.used()[i];
    Check(used.slots == 0 || used.memory <= node.devices()[i].memory);
    Check(used.slots <= std::max(node.devices()[i].count, 0));
  }
  ledger.RemovePod(written.uid);
  for (const device::CardState& used : ledger.node(ledger.Find("n")).used()) Check(used == device::CardState{});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const device::Vendors usual = sched::testing::AllVendors();
  static const std::vector<std::string> keys = KeysOf(usual);
  World world;
  world.pod = sched::testing::PodOf("p", {});
  world.pod.containers.resize(2);
  std::vector<std::string> lines = base::Split({reinterpret_cast<const char*>(data), size}, '\n');
  if (lines.size() > 32) lines.resize(32);
  for (const std::string& line : lines) {
    if (!line.empty()) Take(world, line, keys);
  }
  const device::Vendors vendors = device::MakeVendors(world.config, {.ascend = true, .iluvatar = true});
  if (vendors.size() <= 64) Decide(world, vendors);
  base::json::object limits;
  for (const auto& [key, text] : world.pod.containers[0].limits) limits[key] = text;
  base::json::object annotations;
  for (const auto& [key, text] : world.pod.annotations) annotations[key] = text;
  const base::json::value pod = {{"metadata", {{"annotations", annotations}}},
                                 {"spec", {{"containers", {{{"name", "c"}, {"resources", {{"limits", limits}}}}}}}}};
  (void)sched::Admit(pod, {"hami-scheduler", true}, vendors,
                     [&](const auto&) { return std::vector<sched::QuotaRoom>(vendors.size()); });
  return 0;
}
