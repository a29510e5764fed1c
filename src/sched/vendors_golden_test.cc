// SPDX-License-Identifier: Apache-2.0
//
// Runs every case of test/golden/vendors: a folder per vendor, in it files of cases, each with the node, the pod and
// what must come out. `base` of a file is part of each of its cases. The vendors are those that HAMi's own
// device-config.yaml configures, test/golden/vendors/device-config.yaml.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "base/json.h"
#include "base/strings.h"
#include "device/config.h"
#include "device/vendors/sections.h"
#include "kube/testing/json_patch.h"
#include "sched/filter.h"
#include "sched/simulate.h"
#include "sched/webhook.h"

namespace hami::sched {
namespace {

namespace json = base::json;
namespace fs = std::filesystem;

std::string TextOf(const fs::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

const json::object& Member(const json::object& object, std::string_view key) {
  static const json::object none;
  const json::value* member = object.if_contains(key);
  return member == nullptr ? none : member->as_object();
}

std::string Text(const json::object& object, std::string_view key, const std::string& otherwise = "") {
  return base::GetString(object, key).value_or(otherwise);
}

// Lists and objects as the text that an annotation holds.
device::StringMap Map(const json::object& object) {
  device::StringMap map;
  for (const auto& [key, value] : object) {
    map[std::string(key)] = value.is_string() ? value.as_string().c_str() : json::serialize(value);
  }
  return map;
}

device::Vendors MakeVendors(const json::object& test) {
  static const std::string usual = TextOf(fs::path(HAMI_GOLDEN_VENDORS) / "device-config.yaml");
  const json::value* own = test.if_contains("config");
  const std::string text = own == nullptr ? usual : json::serialize(*own);
  const auto config = device::ParseDeviceConfig(text, "case");
  EXPECT_TRUE(config) << config.error().message;
  return device::MakeVendors(*config, {.ascend = true, .iluvatar = true});
}

// `{"limits": {…}}`, or `{"init": […], "containers": […], "annotations": {…}}`, as the object that it stands for.
json::object PodObject(const json::object& pod) {
  const auto containers = [&](const char* key) {
    json::array list;
    if (const json::array* given = base::GetArray(pod, key)) {
      for (const json::value& one : *given) {
        json::object container = one.as_object();
        json::object resources;
        for (const char* kind : {"limits", "requests"}) {
          if (const json::value* amounts = container.if_contains(kind)) resources[kind] = *amounts;
          container.erase(kind);
        }
        const std::string name = (std::string(key) == "init" ? "i" : "c") + std::to_string(list.size());
        container.emplace("name", name);
        container["resources"] = std::move(resources);
        list.push_back(std::move(container));
      }
    }
    return list;
  };
  json::object spec{{"containers", containers("containers")}, {"initContainers", containers("init")}};
  if (pod.contains("limits") || pod.contains("requests")) {
    json::object resources;
    for (const char* kind : {"limits", "requests"}) {
      if (const json::value* amounts = pod.if_contains(kind)) resources[kind] = *amounts;
    }
    spec["containers"] = json::array{{{"name", "c0"}, {"resources", std::move(resources)}}};
  }
  json::object metadata{{"name", "p"}, {"namespace", "default"}, {"uid", "uid-p"}};
  metadata["annotations"] = Member(pod, "annotations");
  return {{"metadata", std::move(metadata)}, {"spec", std::move(spec)}};
}

struct World {
  explicit World(const json::object& test) : vendors(MakeVendors(test)), ledger(vendors) {
    for (const auto& [name, value] : Member(test, "nodes")) {
      const json::object& node = value.as_object();
      nodes.push_back({std::string(name), Map(Member(node, "annotations")), Map(Member(node, "capacity")),
                       Text(node, "instanceType")});
      for (std::size_t v = 0; v < vendors.size(); ++v) {
        const auto cards = vendors[v]->ReadNode(nodes.back().facts());
        if (cards) ledger.SetCards(nodes.back().name, static_cast<int>(v), *cards);
        if (!cards) unreadable = cards.error().message;
      }
    }
    if (const json::array* running = base::GetArray(test, "running")) {
      for (const json::value& run : *running) Run(run.as_object());
    }
    if (test.contains("quota")) ledger.quotas().Set("default", "q", Map(Member(test, "quota")));
  }

  // A pod of one container that holds what its annotations say.
  void Run(const json::object& run) {
    json::object pod = PodObject({{"limits", json::object{}}, {"annotations", Member(run, "annotations")}});
    json::object& metadata = pod["metadata"].as_object();
    metadata["uid"] = metadata["name"] = "run-" + std::to_string(runs++);
    metadata["annotations"].as_object()["hami.io/vgpu-node"] = Text(run, "node", "a");
    pod["spec"].as_object()["nodeName"] = Text(run, "node", "a");
    ledger.UpsertPod(*device::ReadPod(json::serialize(pod)));
  }

  device::Vendors vendors;
  Ledger ledger;
  std::vector<SimulatedNode> nodes;
  std::string unreadable;
  int runs = 0;
};

void RunFilter(const json::object& test, World& world) {
  const json::object& expect = test.at("expect").as_object();
  const json::object& policies = Member(test, "policy");
  Filter filter(world.ledger, world.vendors, {Text(policies, "node", "binpack"), Text(policies, "device", "spread")});
  const device::Pod pod = *device::ReadPod(json::serialize(PodObject(Member(test, "pod"))));
  std::vector<std::string_view> names;
  for (const SimulatedNode& node : world.nodes) names.push_back(node.name);
  const Decision decision = filter.Decide(pod, names, {.now = 1'700'000'000, .explain = true});
  if (expect.contains("notOurs")) {
    EXPECT_EQ(decision.outcome, Outcome::kNotOurs) << decision.error;
    return;
  }
  EXPECT_EQ(decision.error, Text(expect, "error"));
  EXPECT_EQ(decision.node, Text(expect, "node"));
  if (const json::value* score = expect.if_contains("score")) {
    EXPECT_FLOAT_EQ(decision.score, static_cast<float>(score->to_number<double>()));
  }
  device::StringMap failed;
  for (const NodeReason& failure : decision.failures) failed[failure.node] = failure.reason;
  EXPECT_EQ(failed, Map(Member(expect, "failed")));
  const std::map<std::string, std::optional<std::string>> got(decision.annotations.begin(), decision.annotations.end());
  for (const auto& [key, value] : Member(expect, "annotations")) {
    const auto found = got.find(std::string(key));
    if (value.is_null()) {
      EXPECT_EQ(found, got.end()) << key;
    } else {
      ASSERT_NE(found, got.end()) << key;
      EXPECT_EQ(found->second.value_or("(removed)"), Map({{"x", value}})["x"]) << key;
    }
  }
}

void RunAdmission(const json::object& test, World& world) {
  const json::object& expect = test.at("expect").as_object();
  json::value pod = PodObject(Member(test, "pod"));
  const Admission admission = Admit(pod, {"hami-scheduler", true}, world.vendors,
                                    [&](const auto& traits) { return world.ledger.quotas().Rooms("default", traits); });
  EXPECT_EQ(admission.allowed ? "" : admission.message, Text(expect, "refused"));
  ASSERT_TRUE(kube::ApplyJsonPatch(pod, admission.patch));
  const json::object& spec = pod.as_object().at("spec").as_object();
  EXPECT_EQ(Text(spec, "schedulerName") == "hami-scheduler", base::GetBool(expect, "uses").value_or(admission.allowed));
  EXPECT_EQ(Text(spec, "runtimeClassName"), Text(expect, "runtimeClass"));
  const json::object& container = spec.at("containers").as_array().at(0).as_object();
  for (const char* kind : {"limits", "requests"}) {
    if (expect.contains(kind)) {
      EXPECT_EQ(Map(Member(Member(container, "resources"), kind)), Map(Member(expect, kind))) << kind;
    }
  }
  device::StringMap variables;
  if (const json::array* env = base::GetArray(container, "env")) {
    for (const json::value& one : *env) variables[Text(one.as_object(), "name")] = Text(one.as_object(), "value");
  }
  EXPECT_EQ(variables, Map(Member(expect, "env")));
  const device::StringMap before = Map(Member(Member(test, "pod"), "annotations"));
  device::StringMap after = Map(Member(Member(pod.as_object(), "metadata"), "annotations"));
  for (const auto& [key, value] : before) after.erase(key);
  EXPECT_EQ(after, Map(Member(expect, "annotations")));
}

// `UUID index count memory cores type numa`, and what else is to be said.
std::string LineOf(const device::Device& card) {
  std::string line = card.uuid;
  for (const std::int64_t number :
       {std::int64_t{card.index}, std::int64_t{card.count}, card.memory, std::int64_t{card.cores}}) {
    line += " " + std::to_string(number);
  }
  line += " " + card.type + " " + std::to_string(card.numa);
  if (!card.mode.empty()) line += " mode=" + card.mode;
  if (card.group >= 0) line += " group=" + std::to_string(card.group);
  return line + (card.healthy ? "" : " sick");
}

void RunRegister(const json::object& test, const World& world) {
  const json::object& expect = test.at("expect").as_object();
  std::vector<std::string> got;
  const NodeId id = world.ledger.Find("a");
  if (id != kNoNode) {
    for (const device::Device& card : world.ledger.node(id).devices()) got.push_back(LineOf(card));
  }
  std::vector<std::string> want;
  if (const json::array* cards = base::GetArray(expect, "cards")) {
    for (const json::value& card : *cards) want.emplace_back(card.as_string().c_str());
  }
  EXPECT_EQ(got, want);
  EXPECT_EQ(world.unreadable, Text(expect, "unreadable"));
}

// What a vendor is called, where it writes, and which locks it takes.
void RunTerms(const json::object& test, const World& world) {
  for (const auto& [key, value] : test.at("expect").as_object()) {
    const auto found = std::find_if(world.vendors.begin(), world.vendors.end(),
                                    [&, name = std::string_view(key)](const auto& one) { return one->key() == name; });
    ASSERT_NE(found, world.vendors.end()) << key;
    const device::Vendor& vendor = **found;
    const json::object& terms = value.as_object();
    EXPECT_EQ(vendor.to_allocate_annotation(), Text(terms, "toAllocate"));
    EXPECT_EQ(vendor.allocated_annotation(), Text(terms, "allocated"));
    EXPECT_EQ(vendor.register_annotation(), Text(terms, "register"));
    EXPECT_EQ(vendor.handshake_annotation(), Text(terms, "handshake"));
    EXPECT_EQ(vendor.takes_node_lock(), base::GetBool(terms, "lock").value_or(false));
    EXPECT_EQ(vendor.own_lock_annotation(), Text(terms, "ownLock"));
    const device::QuotaResources quota = vendor.quota_resources();
    EXPECT_EQ(quota.memory, Text(terms, "quotaMemory"));
    EXPECT_EQ(quota.cores, Text(terms, "quotaCores"));
    EXPECT_EQ(quota.memory_factor, static_cast<std::int64_t>(base::GetUint(terms, "factor").value_or(1)));
  }
}

std::map<std::string, json::object> ReadCases() {
  std::map<std::string, json::object> cases;
  for (const auto& entry : fs::recursive_directory_iterator(HAMI_GOLDEN_VENDORS)) {
    if (entry.path().extension() != ".json") continue;
    json::parse_options options;
    options.max_depth = 64;
    const json::value file = json::parse(TextOf(entry.path()), {}, options);
    for (const auto& [name, value] : file.as_object()) {
      if (name == "base") continue;
      json::object test = Member(file.as_object(), "base");
      for (const auto& [key, member] : value.as_object()) test[key] = member;
      const fs::path& path = entry.path();
      cases[path.parent_path().filename().string() + "/" + path.stem().string() + "/" + std::string(name)] = test;
    }
  }
  return cases;
}

const std::map<std::string, json::object>& Cases() {
  static const std::map<std::string, json::object> cases = ReadCases();
  return cases;
}

std::vector<std::string> CaseNames() {
  std::vector<std::string> names;
  for (const auto& [name, test] : Cases()) names.push_back(name);
  return names;
}

class VendorGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(VendorGolden, ComesOutAsWritten) {
  const json::object& test = Cases().at(GetParam());
  World world(test);
  const std::string kind = Text(test, "kind", "filter");
  if (kind == "admit") return RunAdmission(test, world);
  if (kind == "register") return RunRegister(test, world);
  if (kind == "terms") return RunTerms(test, world);
  RunFilter(test, world);
}

INSTANTIATE_TEST_SUITE_P(Vendors, VendorGolden, ::testing::ValuesIn(CaseNames()), [](const auto& golden) {
  std::string name = golden.param;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
});

TEST(VendorGoldenFolder, HoldsFifteenCasesOfEveryVendor) {
  std::map<std::string, int> counts;
  for (const auto& [name, test] : Cases()) ++counts[name.substr(0, name.find('/'))];
  for (const auto& [vendor, count] : counts) EXPECT_GE(count, HAMI_LEAST_CASES) << vendor;
  EXPECT_GE(counts.size(), static_cast<std::size_t>(HAMI_LEAST_VENDORS));
}

}  // namespace
}  // namespace hami::sched
