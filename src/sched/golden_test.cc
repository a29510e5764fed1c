// SPDX-License-Identifier: Apache-2.0
//
// Runs every case of test/golden/sched: one JSON file each, with the cluster, the pod, what must come out and why. The
// cluster is built the way the scheduler builds it: from annotations, pod objects and quota objects.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/json.h"
#include "device/allocation_codec.h"
#include "device/annotations.h"
#include "device/config.h"
#include "device/vendors/nvidia.h"
#include "kube/testing/json_patch.h"
#include "sched/filter.h"
#include "sched/simulate.h"
#include "sched/webhook.h"

namespace hami::sched {
namespace {

namespace json = base::json;
namespace fs = std::filesystem;

json::value Load(const fs::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  // Cases nest deeper than annotations may.
  json::parse_options options;
  options.max_depth = 64;
  return json::parse(text.str(), {}, options);
}

std::string Text(const json::object& object, const char* key, const std::string& fallback = "") {
  return base::GetString(object, key).value_or(fallback);
}

device::StringMap Map(const json::value* value) {
  device::StringMap map;
  if (value == nullptr) return map;
  for (const auto& pair : value->as_object()) map[std::string(pair.key())] = pair.value().as_string().c_str();
  return map;
}

// `"scopes": [["PriorityClass", "In", "high", "low"], ["Terminating"]]`.
QuotaScopes Scopes(const json::object& quota) {
  QuotaScopes scopes;
  const json::array* list = base::GetArray(quota, "scopes");
  if (list == nullptr) return scopes;
  for (const json::value& item : *list) {
    const json::array& words = item.as_array();
    QuotaScope& scope = scopes.emplace_back();
    scope.name = words.at(0).as_string().c_str();
    if (words.size() > 1) scope.what = words.at(1).as_string().c_str();
    for (std::size_t i = 2; i < words.size(); ++i) scope.values.emplace_back(words[i].as_string().c_str());
  }
  return scopes;
}

device::Vendors MakeVendors(const json::object& test) {
  json::object nvidia{{"resourceCountName", "nvidia.com/gpu"},
                      {"resourceMemoryName", "nvidia.com/gpumem"},
                      {"resourceMemoryPercentageName", "nvidia.com/gpumem-percentage"},
                      {"resourceCoreName", "nvidia.com/gpucores"},
                      {"resourcePriorityName", "nvidia.com/priority"}};
  if (const json::value* changes = test.if_contains("nvidia")) {
    for (const auto& pair : changes->as_object()) nvidia[pair.key()] = pair.value();
  }
  const auto config = device::ParseDeviceConfig(json::serialize(json::object{{"nvidia", nvidia}}), "case");
  EXPECT_TRUE(config) << config.error().message;
  device::Vendors vendors;
  vendors.push_back(std::make_unique<device::NvidiaVendor>(config->nvidia));
  return vendors;
}

device::StringMap NodeAnnotations(const json::object& node) {
  device::StringMap annotations = Map(node.if_contains("annotations"));
  if (const json::value* cards = node.if_contains("register")) {
    annotations["hami.io/node-nvidia-register"] = json::serialize(*cards);
  }
  if (const json::value* scores = node.if_contains("scores")) {
    annotations["hami.io/node-nvidia-score"] = json::serialize(*scores);
  }
  return annotations;
}

// A pod of the case's short form as the object that the API server would show.
json::value RunningPod(const json::object& run) {
  json::array inits;
  json::array statuses;
  if (const json::array* list = base::GetArray(run, "init")) {
    for (const json::value& kind : *list) {
      const std::string name = "init-" + std::to_string(inits.size());
      const bool sidecar = kind == json::value("sidecar");
      json::object container{{"name", name}};
      if (sidecar) container.emplace("restartPolicy", "Always");
      inits.push_back(std::move(container));
      const json::value state =
          sidecar ? json::value{{"running", json::object{}}} : json::value{{"terminated", {{"exitCode", 0}}}};
      statuses.push_back({{"name", name}, {"state", state}});
    }
  }
  json::array containers;
  for (std::uint64_t i = 0; i < base::GetUint(run, "containers").value_or(1); ++i) {
    containers.push_back(json::object{{"name", "c" + std::to_string(i)}});
  }
  const std::string node = Text(run, "node");
  json::object annotations{{device::kAssignedNode, node}, {"hami.io/vgpu-devices-allocated", run.at("allocated")}};
  if (const json::value* mig = run.if_contains("mig")) {
    annotations.emplace(device::kMigAllocations, json::serialize(*mig));
  }
  json::object spec{{"containers", containers}, {"initContainers", inits}};
  if (base::GetBool(run, "bound").value_or(true)) spec.emplace("nodeName", node);
  for (const char* key : {"restartPolicy", "priorityClassName", "activeDeadlineSeconds", "affinity"}) {
    if (const json::value* value = run.if_contains(key)) spec.emplace(key, *value);
  }
  json::object status{{"phase", Text(run, "phase", "Running")}, {"qosClass", Text(run, "qosClass", "Burstable")}};
  if (base::GetBool(run, "initDone").value_or(false)) status.emplace("initContainerStatuses", statuses);
  return {{"metadata",
           {{"uid", run.at("uid")},
            {"name", run.at("uid")},
            {"namespace", Text(run, "namespace", "default")},
            {"annotations", annotations}}},
          {"spec", spec},
          {"status", status}};
}

struct World {
  explicit World(const json::object& test) : vendors(MakeVendors(test)), ledger(vendors) {
    if (const json::value* nodes = test.if_contains("nodes")) {
      for (const auto& pair : nodes->as_object()) {
        names.emplace_back(pair.key());
        simulated.push_back({names.back(), NodeAnnotations(pair.value().as_object())});
        const auto cards = vendors[0]->ReadNode(simulated.back().facts());
        if (cards) ledger.SetCards(names.back(), 0, *cards);
      }
    }
    if (const json::array* runs = base::GetArray(test, "running")) {
      for (const json::value& run : *runs)
        ledger.UpsertPod(*device::ReadPod(json::serialize(RunningPod(run.as_object()))));
    }
    if (const json::array* quotas = base::GetArray(test, "quotas")) {
      for (const json::value& quota : *quotas) Quota(quota.as_object());
    }
  }

  void Quota(const json::object& quota) {
    const std::string ns = Text(quota, "namespace");
    const std::string name = Text(quota, "name");
    if (quota.contains("remove")) {
      ledger.quotas().Remove(ns, name);
    } else {
      ledger.quotas().Set(ns, name, Map(quota.if_contains("hard")), Scopes(quota));
    }
  }

  device::Vendors vendors;
  Ledger ledger;
  std::vector<std::string> names;
  std::vector<SimulatedNode> simulated;
};

void CheckEvents(const json::array& expected, const Decision& decision) {
  std::vector<std::pair<std::string, std::string>> want;
  std::vector<std::pair<std::string, std::string>> got;
  for (const json::value& item : expected) {
    want.emplace_back(Text(item.as_object(), "reason"), Text(item.as_object(), "message"));
  }
  for (const Event& event : EventsOf(decision)) got.emplace_back(event.reason, event.message);
  EXPECT_EQ(got, want);
}

void CheckAnnotations(const json::object& expect, const Decision& decision) {
  std::map<std::string, std::optional<std::string>> got(decision.annotations.begin(), decision.annotations.end());
  if (const json::value* allocated = expect.if_contains("allocated")) {
    EXPECT_EQ(got["hami.io/vgpu-devices-allocated"].value_or(""), allocated->as_string().c_str());
    EXPECT_EQ(got["hami.io/vgpu-devices-to-allocate"], got["hami.io/vgpu-devices-allocated"]);
  }
  if (const json::value* reservations = expect.if_contains("reservations")) {
    const auto want = device::DecodeReservations(json::serialize(*reservations));
    ASSERT_TRUE(want) << want.error().message;
    EXPECT_EQ(decision.allocation.reservations, *want);
    EXPECT_EQ(got[device::kMigAllocations], device::EncodeReservations(*want));
  }
  if (const json::value* annotations = expect.if_contains("annotations")) {
    for (const auto& pair : annotations->as_object()) {
      const std::string key(pair.key());
      ASSERT_TRUE(got.contains(key)) << key;
      if (pair.value().is_null()) {
        EXPECT_EQ(got[key], std::nullopt) << key;
      } else {
        EXPECT_EQ(got[key].value_or("(none)"), pair.value().as_string().c_str()) << key;
      }
    }
  }
}

void CheckDecision(const json::object& expect, const Decision& decision) {
  if (expect.contains("notOurs")) {
    EXPECT_EQ(decision.outcome, Outcome::kNotOurs);
    return;
  }
  if (expect.contains("error")) {
    EXPECT_EQ(decision.outcome, Outcome::kError);
    EXPECT_EQ(decision.error, Text(expect, "error"));
    CheckEvents({{{"reason", "FilteringFailed"}, {"message", decision.error}}}, decision);
    return;
  }
  EXPECT_EQ(decision.outcome, expect.contains("node") ? Outcome::kPlaced : Outcome::kNoFit) << decision.error;
  EXPECT_EQ(decision.node, Text(expect, "node"));
  if (const json::value* score = expect.if_contains("score")) {
    EXPECT_FLOAT_EQ(decision.score, static_cast<float>(score->to_number<double>()));
  }
  CheckAnnotations(expect, decision);
  device::StringMap failed;
  for (const NodeReason& failure : decision.failures) failed[failure.node] = failure.reason;
  if (expect.contains("failed")) {
    EXPECT_EQ(failed, Map(expect.if_contains("failed")));
  } else {
    EXPECT_TRUE(failed.empty()) << failed.begin()->first << ": " << failed.begin()->second;
  }
  if (const json::array* events = base::GetArray(expect, "events")) CheckEvents(*events, decision);
}

void RunFilter(const json::object& test, World& world) {
  const json::object& defaults = test.contains("defaults") ? test.at("defaults").as_object() : json::object{};
  const PolicyDefaults policies{Text(defaults, "node", "binpack"), Text(defaults, "device", "spread")};
  Filter filter(world.ledger, world.vendors, policies);
  const device::Pod pod = *device::ReadPod(json::serialize(test.at("pod")));
  if (Text(test, "kind") == "simulate") {
    const auto room = world.ledger.quotas().Rooms(pod.ns, pod.traits);
    CheckDecision(test.at("expect").as_object(), Simulate(pod, world.simulated, world.vendors, policies, room));
    return;
  }
  world.ledger.Forget(pod.uid);
  std::vector<std::string> names = world.names;
  if (const json::array* candidates = base::GetArray(test, "candidates")) {
    names.clear();
    for (const json::value& name : *candidates) names.emplace_back(name.as_string().c_str());
  }
  const std::vector<std::string_view> views(names.begin(), names.end());
  FilterOptions options;
  options.now = static_cast<device::UnixSeconds>(base::GetUint(test, "now").value_or(0));
  options.explain = base::GetBool(test, "explain").value_or(false);
  const Decision decision = filter.Decide(pod, views, options);
  CheckDecision(test.at("expect").as_object(), decision);
  if (test.contains("candidates")) return;
  EXPECT_EQ(filter.DecideAny(pod, options).node, decision.node);
}

void RunWebhook(const json::object& test, World& world) {
  WebhookConfig config{"hami-scheduler", true};
  if (const json::value* changes = test.if_contains("webhook")) {
    config.scheduler_name = Text(changes->as_object(), "scheduler", config.scheduler_name);
    config.overwrite_default_scheduler = base::GetBool(changes->as_object(), "overwrite").value_or(true);
  }
  const json::value& pod = test.at("pod");
  const json::object& expect = test.at("expect").as_object();
  const Admission admission = Admit(pod, config, world.vendors,
                                    [&](const auto& traits) { return world.ledger.quotas().Rooms("default", traits); });
  EXPECT_EQ(admission.code, static_cast<int>(base::GetUint(expect, "code").value_or(200)));
  EXPECT_EQ(admission.message, Text(expect, "message"));
  std::vector<std::string> warnings;
  if (const json::array* list = base::GetArray(expect, "warnings")) {
    for (const json::value& warning : *list) warnings.emplace_back(warning.as_string().c_str());
  }
  EXPECT_EQ(admission.warnings, warnings);
  EXPECT_EQ(admission.allowed, expect.contains("mutated"));
  if (!expect.contains("mutated")) return;
  json::value mutated = pod;
  const auto applied = kube::ApplyJsonPatch(mutated, admission.patch);
  ASSERT_TRUE(applied) << applied.error().message;
  EXPECT_EQ(mutated, expect.at("mutated")) << json::serialize(mutated);
}

class Golden : public ::testing::TestWithParam<std::string> {};

TEST_P(Golden, ComesOutAsWritten) {
  const json::value document = Load(fs::path(HAMI_GOLDEN) / (GetParam() + ".json"));
  const json::object& test = document.as_object();
  SCOPED_TRACE(Text(test, "why"));
  World world(test);
  if (Text(test, "kind") == "webhook") {
    RunWebhook(test, world);
  } else {
    RunFilter(test, world);
  }
}

std::vector<std::string> Cases() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(HAMI_GOLDEN)) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Sched, Golden, ::testing::ValuesIn(Cases()), [](const auto& golden) {
  std::string name = golden.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(GoldenFolder, GivenTheCommittedCases_ThenNoneIsMissing) { EXPECT_GE(Cases().size(), 285U); }

}  // namespace
}  // namespace hami::sched
