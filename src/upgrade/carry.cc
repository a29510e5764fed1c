// SPDX-License-Identifier: Apache-2.0

#include "upgrade/carry.h"

#include <map>
#include <set>
#include <thread>

#include "base/strings.h"

namespace hami::upgrade {
namespace {

constexpr auto kPause = std::chrono::milliseconds(500);

base::Result<json::value> Maybe(kube::Client& client, const kube::Resource& resource, const std::string& ns,
                                const std::string& name) {
  auto read = client.Get(resource, ns, name);
  if (read) return *std::move(read);
  if (read.error().reason == kube::Reason::kNotFound) return json::value(nullptr);
  return base::Fail(read.error().message, read.error().hint);
}

base::Status ReadSide(kube::Client& client, const std::string& called, const std::string& ns,
                      const std::string& release, Side& side) {
  side.called = called;
  side.ns = ns;
  side.scheduler = release + "-scheduler";
  side.plugin = release + "-device-plugin";
  side.webhook = release + "-webhook";
  auto deployment = Maybe(client, kDeployments, ns, side.scheduler);
  if (!deployment) return tl::unexpected(deployment.error());
  auto daemon_set = Maybe(client, kDaemonSets, ns, side.plugin);
  if (!daemon_set) return tl::unexpected(daemon_set.error());
  auto hook = Maybe(client, kWebhooks, "", side.webhook);
  if (!hook) return tl::unexpected(hook.error());
  side.deployment = *std::move(deployment);
  side.daemon_set = *std::move(daemon_set);
  side.hook = *std::move(hook);
  return {};
}

std::string Text(const json::value& object, std::string_view pointer) {
  boost::system::error_code failed;
  const json::value* found = object.find_pointer(pointer, failed);
  return found != nullptr && found->is_string() ? std::string(found->get_string()) : std::string();
}

bool IsReady(const json::value& pod) {
  boost::system::error_code failed;
  const json::value* conditions = pod.find_pointer("/status/conditions", failed);
  if (conditions == nullptr || !conditions->is_array()) return false;
  for (const json::value& one : conditions->get_array()) {
    if (Text(one, "/type") == "Ready") return Text(one, "/status") == "True";
  }
  return false;
}

// Whether POD is of the DaemonSet SIDE.plugin.
bool IsPluginOf(const json::value& pod, const Side& side) {
  if (Text(pod, "/metadata/namespace") != side.ns) return false;
  boost::system::error_code failed;
  const json::value* owners = pod.find_pointer("/metadata/ownerReferences", failed);
  if (owners == nullptr || !owners->is_array()) return false;
  for (const json::value& owner : owners->get_array()) {
    if (Text(owner, "/kind") == "DaemonSet" && Text(owner, "/name") == side.plugin) return true;
  }
  return false;
}

void Count(const json::value& pod, const Cluster& cluster, NodeState& node) {
  const std::string phase = Text(pod, "/status/phase");
  if (phase == "Succeeded" || phase == "Failed") return;
  const bool hami = IsPluginOf(pod, cluster.hami);
  const bool ours = IsPluginOf(pod, cluster.ours);
  node.hami = node.hami || hami;
  node.ours = node.ours || ours;
  node.ready = node.ready || ((hami || ours) && IsReady(pod));
  if (Text(pod, "/metadata/annotations/hami.io~1vgpu-node").empty()) return;
  if (Text(pod, "/metadata/annotations/hami.io~1bind-phase") == "allocating") {
    ++node.allocating;
  } else {
    ++node.running;
  }
}

}  // namespace

base::Result<Cluster> Read(kube::Client& client, const Names& names) {
  Cluster cluster;
  HAMI_TRY(ReadSide(client, "HAMi", names.hami_ns, names.hami, cluster.hami));
  HAMI_TRY(ReadSide(client, "hami-cpp", names.ours_ns, names.ours, cluster.ours));
  std::map<std::string, NodeState> nodes;
  const kube::ListSink take_node{[&](const json::value& item) {
                                   NodeState& node = nodes[Text(item, "/metadata/name")];
                                   node.object = item;
                                   node.lock = Text(item, "/metadata/annotations/hami.io~1mutex.lock");
                                 },
                                 [&] { nodes.clear(); }};
  const auto listed = client.List(kube::kNodes, "", {}, take_node);
  if (!listed) return base::Fail(listed.error().message, listed.error().hint);
  std::map<std::string, NodeState> counted = nodes;
  const kube::ListSink take_pod{[&](const json::value& item) {
                                  const auto node = counted.find(Text(item, "/spec/nodeName"));
                                  if (node != counted.end()) Count(item, cluster, node->second);
                                },
                                [&] { counted = nodes; }};
  const auto pods = client.List(kube::kPods, "", {}, take_pod);
  if (!pods) return base::Fail(pods.error().message, pods.error().hint);
  for (auto& [name, node] : counted) cluster.nodes.push_back(std::move(node));
  return cluster;
}

base::Status Carry(kube::Client& client, const Names& names, const Plan& plan, std::chrono::seconds wait,
                   const std::function<void(const Step& step)>& say) {
  auto end = std::chrono::steady_clock::now() + wait;
  std::set<std::string> said;
  while (true) {
    const auto cluster = Read(client, names);
    if (!cluster) return tl::unexpected(cluster.error());
    const auto steps = plan(*cluster);
    if (!steps) return tl::unexpected(steps.error());
    const Step* next = nullptr;
    for (const Step& step : *steps) {
      if (step.kind != Step::Kind::kPatch && Holds(step, *cluster)) continue;
      next = &step;
      break;
    }
    if (next == nullptr) return {};
    if (said.insert(next->text).second) {
      say(*next);
      end = std::chrono::steady_clock::now() + wait;
    }
    if (next->kind == Step::Kind::kPatch) {
      const auto written = client.Patch(next->resource, next->ns, next->name, kube::PatchType::kMerge, next->patch);
      if (written) continue;
      if (written.error().reason != kube::Reason::kConflict)
        return base::Fail(written.error().message, written.error().hint);
    }
    if (std::chrono::steady_clock::now() >= end) {
      return base::Fail(
          base::Concat({"not within ", std::to_string(wait.count()), " s: ", next->text}),
          "see what holds it up, then run the same again: it goes on where it stopped; --back takes it back");
    }
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace hami::upgrade
