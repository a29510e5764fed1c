// SPDX-License-Identifier: Apache-2.0

#include "upgrade/plan.h"

#include <algorithm>
#include <optional>

#include "base/strings.h"

namespace hami::upgrade {
namespace {

using base::Concat;
using base::Fail;
using base::Result;
using Steps = std::vector<Step>;

constexpr const char* kReplicas = "hami-upgrade/replicas";
constexpr const char* kAside = "hami-upgrade/webhooks";
constexpr const char* kCordoned = "hami-upgrade/cordoned";

const json::value* Find(const json::value& object, std::string_view pointer) {
  boost::system::error_code failed;
  return object.find_pointer(pointer, failed);
}

std::string Text(const json::value& object, std::string_view pointer) {
  const json::value* found = Find(object, pointer);
  return found != nullptr && found->is_string() ? std::string(found->get_string()) : std::string();
}

std::int64_t Number(const json::value& object, std::string_view pointer) {
  const json::value* found = Find(object, pointer);
  return found != nullptr && found->is_int64() ? found->get_int64() : 0;
}

std::string Note(const json::value& object, std::string_view key) {
  std::string escaped(key);
  if (const auto slash = escaped.find('/'); slash != std::string::npos) escaped.replace(slash, 1, "~1");
  return Text(object, "/metadata/annotations/" + escaped);
}

std::string Version(const json::value& object) { return Text(object, "/metadata/resourceVersion"); }

// Every word with which the containers of a Deployment are started.
std::vector<std::string> WordsOf(const json::value& deployment) {
  std::vector<std::string> all;
  const json::value* containers = Find(deployment, "/spec/template/spec/containers");
  if (containers == nullptr || !containers->is_array()) return all;
  for (const json::value& container : containers->get_array()) {
    for (const char* list : {"/command", "/args"}) {
      const json::value* words = Find(container, list);
      if (words == nullptr || !words->is_array()) continue;
      for (const json::value& one : words->get_array()) {
        if (one.is_string()) all.emplace_back(one.get_string());
      }
    }
  }
  return all;
}

// Whether our scheduler believes what HAMi's plugin writes; else that is refused on nodes that still have it.
base::Status CheckWriters(const Cluster& cluster) {
  constexpr std::string_view kFlag = "--trusted-writers=";
  const std::string plugin = Concat({"system:serviceaccount:", cluster.hami.ns, ":", cluster.hami.plugin});
  bool given = false;
  for (const std::string& word : WordsOf(cluster.ours.deployment)) {
    if (!word.starts_with(kFlag)) continue;
    given = true;
    for (const std::string& writer : base::Split(word.substr(kFlag.size()), ',')) {
      const bool open = writer.ends_with('*');
      if (open ? plugin.starts_with(writer.substr(0, writer.size() - 1)) : plugin == writer) return {};
    }
  }
  if (!given) return {};
  return Fail(Concat({"our scheduler does not believe ", plugin, ": HAMi's plugin could serve no pod of its"}),
              "helm upgrade ours with --set compat.besideRelease=RELEASE, the name of HAMi's release");
}

// The lease that a Deployment's programs hold, "NS/NAME"; empty: they elect nobody.
std::string LeaseOf(const json::value& deployment) {
  std::string name;
  std::string ns;
  bool elects = false;
  for (const std::string& word : WordsOf(deployment)) {
    const auto value = [&](std::string_view flag) -> std::optional<std::string> {
      if (!word.starts_with(flag)) return std::nullopt;
      return word.substr(flag.size());
    };
    if (word == "--leader-elect" || word == "--leader-elect=true") elects = true;
    if (word == "--leader-elect=false") elects = false;
    if (const auto given = value("--leader-elect-resource-name=")) name = *given;
    if (const auto given = value("--leader-elect-resource-namespace=")) ns = *given;
  }
  return elects && !name.empty() && !ns.empty() ? ns + "/" + name : "";
}

json::object Merge(const json::value& read, json::object patch) {
  json::object& metadata =
      patch["metadata"].is_object() ? patch["metadata"].get_object() : patch["metadata"].emplace_object();
  metadata["resourceVersion"] = Version(read);
  return patch;
}

Step Scale(const Side& side, std::int64_t replicas, bool remember) {
  const std::int64_t now = Number(side.deployment, "/spec/replicas");
  json::object patch{{"spec", {{"replicas", replicas}}}};
  if (remember) patch["metadata"] = {{"annotations", {{kReplicas, std::to_string(now)}}}};
  return {Step::Kind::kPatch,
          Concat({"scale ", side.called, "'s scheduler (Deployment ", side.ns, "/", side.scheduler, ") from ",
                  std::to_string(now), " to ", std::to_string(replicas)}),
          kDeployments,
          side.ns,
          side.scheduler,
          Merge(side.deployment, std::move(patch)),
          false};
}

// A webhook that answers nothing: no pod has that label's value. What it was stands beside it.
std::optional<Step> SetAside(const Side& side) {
  const json::value* hooks = Find(side.hook, "/webhooks");
  if (hooks == nullptr || !hooks->is_array() || !Note(side.hook, kAside).empty()) return std::nullopt;
  json::array aside = hooks->get_array();
  for (json::value& hook : aside) {
    if (!hook.is_object()) continue;
    hook.get_object()["failurePolicy"] = "Ignore";
    hook.get_object()["objectSelector"] = {{"matchLabels", {{kNodeLabel, "set-aside"}}}};
  }
  json::object patch{{"metadata", {{"annotations", {{kAside, base::Compact(*hooks)}}}}}, {"webhooks", aside}};
  return Step{Step::Kind::kPatch,
              Concat({"set aside ", side.called, "'s webhook ", side.webhook}),
              kWebhooks,
              "",
              side.webhook,
              Merge(side.hook, std::move(patch)),
              false};
}

// The webhooks as they were, with the authority that they trust by now.
Result<std::optional<Step>> TakeUp(const Side& side) {
  const std::string kept = Note(side.hook, kAside);
  if (kept.empty()) return std::nullopt;
  auto before = base::ParseJson(kept);
  const json::value* now = Find(side.hook, "/webhooks");
  if (!before || !before->is_array() || now == nullptr || !now->is_array()) {
    return Fail(Concat({"annotation ", kAside, " of ", side.webhook, " cannot be read"}),
                "write its objectSelector and failurePolicy by hand, and remove the annotation");
  }
  for (std::size_t i = 0; i < before->get_array().size() && i < now->get_array().size(); ++i) {
    const json::value* bundle = Find(now->get_array()[i], "/clientConfig/caBundle");
    const json::value* config = Find(before->get_array()[i], "/clientConfig");
    if (bundle == nullptr || config == nullptr || !config->is_object()) continue;
    before->get_array()[i].at("clientConfig").get_object()["caBundle"] = *bundle;
  }
  json::object patch{{"metadata", {{"annotations", {{kAside, nullptr}}}}}, {"webhooks", *before}};
  return std::optional(Step{Step::Kind::kPatch,
                            Concat({"let ", side.called, "'s webhook ", side.webhook, " answer again"}), kWebhooks, "",
                            side.webhook, Merge(side.hook, std::move(patch)), false});
}

Step Waits(Step::Kind kind, std::string text, const Side& side, const Cluster& cluster) {
  return {kind, std::move(text), {}, side.ns, side.scheduler, nullptr, &side == &cluster.ours};
}

std::string Escaped(std::string text) {
  for (std::size_t at = 0; (at = text.find_first_of("~/", at)) != std::string::npos; at += 2)
    text.replace(at, 1, text[at] == '~' ? "~0" : "~1");
  return text;
}

std::string Label(const NodeState& node, const std::string& key) {
  return Text(node.object, "/metadata/labels/" + Escaped(key));
}

// The first label that HAMi's DaemonSet asks for and ours does not.
Result<std::pair<std::string, std::string>> HamiLabel(const Cluster& cluster) {
  const json::value* selector = Find(cluster.hami.daemon_set, "/spec/template/spec/nodeSelector");
  const json::value* others = Find(cluster.ours.daemon_set, "/spec/template/spec/nodeSelector");
  if (selector != nullptr && selector->is_object()) {
    for (const auto& [key, value] : selector->get_object()) {
      if (others != nullptr && others->is_object() && others->get_object().contains(key)) continue;
      if (value.is_string()) return std::pair(std::string(key), std::string(value.get_string()));
    }
  }
  return Fail(Concat({"HAMi's DaemonSet ", cluster.hami.ns, "/", cluster.hami.plugin,
                      " selects nodes by no label that ours does not: it cannot be kept from a node"}),
              "give it devicePlugin.nvidiaNodeSelector, gpu: \"on\" by default, and ours another");
}

base::Status CheckPlugins(const Cluster& cluster) {
  if (!cluster.hami.daemon_set.is_object() || !cluster.ours.daemon_set.is_object()) {
    const Side& side = cluster.hami.daemon_set.is_object() ? cluster.ours : cluster.hami;
    return Fail(Concat({"there is no DaemonSet ", side.ns, "/", side.plugin}),
                "--hami and --ours name the releases, NAMESPACE/NAME");
  }
  if (Text(cluster.ours.daemon_set, std::string("/spec/template/spec/nodeSelector/") + kNodeLabel) != kNodeValue) {
    return Fail(Concat({"DaemonSet ", cluster.ours.ns, "/", cluster.ours.plugin, " does not select nodes by ",
                        kNodeLabel, "=", kNodeValue, ": both plugins would come to one node"}),
                Concat({"install it with --set devicePlugin.nvidiaNodeSelector.", kNodeLabel, "=", kNodeValue,
                        " --set devicePlugin.nvidiaNodeSelector.gpu=null"}));
  }
  return {};
}

Step PatchNode(const std::string& node, std::string text, json::value patch) {
  return {Step::Kind::kPatch, std::move(text), kube::kNodes, "", node, std::move(patch), false};
}

}  // namespace

std::string NodeState::name() const { return Text(object, "/metadata/name"); }

Result<Steps> PlanScheduler(const Cluster& cluster, int replicas, bool back) {
  const Side& from = back ? cluster.ours : cluster.hami;
  const Side& to = back ? cluster.hami : cluster.ours;
  for (const Side* side : {&cluster.hami, &cluster.ours}) {
    if (!side->deployment.is_object()) {
      return Fail(Concat({"there is no Deployment ", side->ns, "/", side->scheduler}),
                  "--hami and --ours name the releases, NAMESPACE/NAME");
    }
  }
  if (!back) HAMI_TRY(CheckWriters(cluster));
  const std::string lease = LeaseOf(from.deployment);
  const std::string other = LeaseOf(to.deployment);
  if (lease.empty() || lease != other) {
    const auto shown = [](const std::string& text) { return text.empty() ? std::string("none") : text; };
    return Fail(Concat({"the two schedulers do not hold one lease (", from.called, ": ", shown(lease), ", ", to.called,
                        ": ", shown(other), "): both would place pods at the same time"}),
                "both releases need scheduler.leaderElect=true, the same schedulerName and the same namespace");
  }
  Steps steps;
  const std::int64_t runs = Number(to.deployment, "/spec/replicas");
  const std::string kept = Note(to.deployment, kReplicas);
  const std::int64_t wanted = runs > 0 ? runs : base::ParseNumber(kept).value_or(static_cast<std::uint64_t>(replicas));
  if (runs != wanted) steps.push_back(Scale(to, wanted, false));
  steps.push_back(Waits(Step::Kind::kAvailable,
                        Concat({"wait until ", to.called, "'s scheduler is ready; ", from.called, "'s holds the lease ",
                                lease, " meanwhile"}),
                        to, cluster));
  auto up = TakeUp(to);
  if (!up) return tl::unexpected(up.error());
  if (*up) steps.push_back(**up);
  if (auto aside = SetAside(from)) steps.push_back(*std::move(aside));
  if (Number(from.deployment, "/spec/replicas") > 0) steps.push_back(Scale(from, 0, true));
  steps.push_back(Waits(
      Step::Kind::kGone,
      Concat({"wait until the pods of ", from.called, "'s scheduler are gone; ", to.called, "'s takes the lease"}),
      from, cluster));
  return steps;
}

Result<Steps> PlanNode(const Cluster& cluster, const std::string& name, bool back) {
  HAMI_TRY(CheckPlugins(cluster));
  const auto label = HamiLabel(cluster);
  if (!label) return tl::unexpected(label.error());
  const auto node = std::find_if(cluster.nodes.begin(), cluster.nodes.end(),
                                 [&](const NodeState& one) { return one.name() == name; });
  if (node == cluster.nodes.end())
    return Fail("there is no node " + base::ShellQuote(name), "kubectl get nodes lists them");
  const bool is_ours = Label(*node, kNodeLabel) == kNodeValue;
  const bool is_hami = Label(*node, label->first) == label->second;
  if (!is_ours && !is_hami) {
    return Fail(Concat({"node ", name, " has neither plugin: ", label->first, " is not ", label->second}),
                Concat({"kubectl label node ", name, " ", label->first, "=", label->second, " gives it HAMi's"}));
  }
  const Side& from = back ? cluster.ours : cluster.hami;
  const Side& to = back ? cluster.hami : cluster.ours;
  const bool labelled = back ? is_hami && !is_ours : is_ours && !is_hami;
  const bool cordoned = Note(node->object, kCordoned) == "true";
  Steps steps;
  const json::value* unschedulable = Find(node->object, "/spec/unschedulable");
  const bool closed = unschedulable != nullptr && unschedulable->is_bool() && unschedulable->get_bool();
  if (!labelled) {
    if (!closed) {
      steps.push_back(
          PatchNode(name, Concat({"cordon ", name, ": no pod is bound to it while it has no plugin"}),
                    {{"spec", {{"unschedulable", true}}}, {"metadata", {{"annotations", {{kCordoned, "true"}}}}}}));
    }
    steps.push_back({Step::Kind::kIdle,
                     Concat({"wait until no pod of ", name, " is between its binding and Allocate"}),
                     {},
                     "",
                     name,
                     nullptr,
                     false});
    json::object labels{{kNodeLabel, back ? json::value(nullptr) : json::value(kNodeValue)},
                        {label->first, back ? json::value(label->second) : json::value("hami-upgrade")}};
    steps.push_back(PatchNode(name,
                              Concat({"label ", name, " for ", to.called, "'s plugin in place of ", from.called, "'s; ",
                                      std::to_string(node->running), " pods keep what they have"}),
                              {{"metadata", {{"labels", std::move(labels)}}}}));
  }
  steps.push_back({Step::Kind::kServed,
                   Concat({"wait until ", to.called, "'s plugin serves ", name, " and ", from.called, "'s is gone"}),
                   {},
                   "",
                   name,
                   nullptr,
                   !back});
  if (cordoned || (!labelled && !closed)) {
    steps.push_back(
        PatchNode(name, Concat({"uncordon ", name}),
                  {{"spec", {{"unschedulable", nullptr}}}, {"metadata", {{"annotations", {{kCordoned, nullptr}}}}}}));
  }
  return steps;
}

bool Holds(const Step& step, const Cluster& cluster) {
  const Side& side = step.of_ours ? cluster.ours : cluster.hami;
  const auto node = std::find_if(cluster.nodes.begin(), cluster.nodes.end(),
                                 [&](const NodeState& one) { return one.name() == step.name; });
  switch (step.kind) {
    case Step::Kind::kPatch:
      return true;
    case Step::Kind::kAvailable: {
      const std::int64_t wanted = Number(side.deployment, "/spec/replicas");
      const bool seen =
          Number(side.deployment, "/status/observedGeneration") >= Number(side.deployment, "/metadata/generation");
      return seen && wanted > 0 && Number(side.deployment, "/status/availableReplicas") >= wanted;
    }
    case Step::Kind::kGone: {
      const bool seen =
          Number(side.deployment, "/status/observedGeneration") >= Number(side.deployment, "/metadata/generation");
      return seen && Number(side.deployment, "/spec/replicas") == 0 && Number(side.deployment, "/status/replicas") == 0;
    }
    case Step::Kind::kIdle:
      return node != cluster.nodes.end() && node->lock.empty() && node->allocating == 0;
    case Step::Kind::kServed:
      return node != cluster.nodes.end() && node->ready &&
             (step.of_ours ? node->ours && !node->hami : node->hami && !node->ours);
  }
  return false;
}

}  // namespace hami::upgrade
