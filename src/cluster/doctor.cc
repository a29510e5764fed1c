// SPDX-License-Identifier: Apache-2.0

#include "cluster/doctor.h"

#include <algorithm>
#include <ctime>
#include <map>
#include <set>

#include "base/strings.h"
#include "cluster/document.h"
#include "cluster/fields.h"
#include "device/annotations.h"
#include "kube/timestamp.h"
#include "kube/views.h"
#include "page/snapshot.h"

namespace hami::cluster {
namespace {

using Level = Finding::Level;

constexpr kube::Resource kWebhooks{"admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations",
                                   "MutatingWebhookConfiguration", false};
constexpr kube::Resource kReviews{"authorization.k8s.io/v1", "subjectaccessreviews", "SubjectAccessReview", false};
constexpr const char* kWebhookName = "vgpu.hami.io";
constexpr const char* kGpuLabel = "gpu";
constexpr std::int64_t kOldLock = 300;  // as --node-lock-timeout

struct Need {
  std::string_view component;
  const char* verb;
  const char* group;
  const char* resource;
};
// docs/operate/scheduler.md and device-plugin.md, Permissions.
constexpr Need kNeeds[] = {
    {"hami-scheduler", "list", "", "pods"},
    {"hami-scheduler", "watch", "", "pods"},
    {"hami-scheduler", "patch", "", "pods"},
    {"hami-scheduler", "create", "", "pods/binding"},
    {"hami-scheduler", "list", "", "nodes"},
    {"hami-scheduler", "watch", "", "nodes"},
    {"hami-scheduler", "patch", "", "nodes"},
    {"hami-scheduler", "list", "", "resourcequotas"},
    {"hami-scheduler", "watch", "", "resourcequotas"},
    {"hami-scheduler", "create", "", "events"},
    {"hami-device-plugin", "list", "", "nodes"},
    {"hami-device-plugin", "watch", "", "nodes"},
    {"hami-device-plugin", "patch", "", "nodes"},
    {"hami-device-plugin", "list", "", "pods"},
    {"hami-device-plugin", "watch", "", "pods"},
    {"hami-device-plugin", "patch", "", "pods"},
    {"hami-monitor", "list", "", "pods"},
    {"hami-monitor", "watch", "", "pods"},
};

Facts::Objects List(kube::Client& client, const kube::Resource& resource, std::string selector = {}) {
  std::vector<json::value> items;
  kube::ListRequest request;
  request.selection.label_selector = std::move(selector);
  const auto listed = client.List(
      resource, {}, request,
      {[&](const json::value& item) { items.emplace_back(item, json::storage_ptr()); }, [&] { items.clear(); }});
  if (!listed) return base::Fail(listed.error().message);
  return items;
}

const json::object& Member(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  static const json::object kNone;
  return value == nullptr ? kNone : Object(*value);
}

std::string ComponentOf(const json::object& pod) {
  return Text(Member(Member(pod, "metadata"), "labels"), kComponentLabel);
}

std::optional<bool> MayDo(kube::Client& client, const std::string& ns, const std::string& account, const Need& need) {
  const std::string resource = need.resource;
  const std::size_t slash = resource.find('/');
  json::object attributes{{"verb", need.verb}, {"group", need.group}, {"resource", resource.substr(0, slash)}};
  if (slash != std::string::npos) attributes["subresource"] = resource.substr(slash + 1);
  const json::value review{
      {"apiVersion", kReviews.group_version},
      {"kind", kReviews.kind},
      {"spec", {{"user", "system:serviceaccount:" + ns + ":" + account}, {"resourceAttributes", attributes}}}};
  const auto answer = client.Create(kReviews, {}, review);
  if (!answer) return std::nullopt;
  return Flag(Member(Object(*answer), "status"), "allowed");
}

void AskPermissions(kube::Client& client, Facts& facts) {
  std::map<std::string, std::pair<std::string, std::string>> accounts;  // by component
  for (const json::value& value : *facts.pods) {
    const json::object& pod = Object(value);
    const std::string account = Text(Member(pod, "spec"), "serviceAccountName");
    if (!account.empty()) accounts[ComponentOf(pod)] = {Text(Member(pod, "metadata"), "namespace"), account};
  }
  for (const Need& need : kNeeds) {
    const auto found = accounts.find(std::string(need.component));
    if (found == accounts.end()) continue;
    const auto& [ns, account] = found->second;
    facts.permissions.push_back({ns + "/" + account, need.verb, need.resource, MayDo(client, ns, account, need)});
    if (!facts.permissions.back().allowed) return;
  }
}

class Examiner {
 public:
  Examiner(const Facts& facts, const device::Vendors& vendors) : facts_(facts), vendors_(vendors) {}

  std::vector<Finding> Run() {
    Nodes();
    Programs();
    Webhook();
    Permissions();
    return std::move(findings_);
  }

 private:
  void Good(std::string about, std::string message) {
    findings_.push_back({Level::kGood, std::move(about), std::move(message), {}});
  }
  void Warn(std::string about, std::string message, std::string remedy) {
    findings_.push_back({Level::kWarning, std::move(about), std::move(message), std::move(remedy)});
  }
  void Err(std::string about, std::string message, std::string remedy) {
    findings_.push_back({Level::kError, std::move(about), std::move(message), std::move(remedy)});
  }

  void Nodes() {
    if (!facts_.nodes) {
      return Err("nodes", "cannot be listed: " + facts_.nodes.error().message,
                 "use a kubeconfig of a user that may list nodes");
    }
    std::size_t cards = 0;
    std::size_t with = 0;
    for (const json::value& object : *facts_.nodes) {
      const auto node = kube::ReadNode(object);
      if (!node) continue;
      const std::size_t found = OneNode(*node);
      cards += found;
      with += found > 0 ? 1 : 0;
    }
    if (cards > 0) return Good("nodes", std::to_string(with) + " register " + std::to_string(cards) + " cards");
    Err("nodes", "none has registered a card",
        "label the nodes with GPUs gpu=on, and look at the logs of hami-device-plugin's pods there");
  }

  // The cards that it registers.
  std::size_t OneNode(const kube::Node& node) {
    const std::string about = "node " + node.metadata.name;
    const auto& annotations = node.metadata.annotations;
    std::size_t cards = 0;
    for (const auto& vendor : vendors_) {
      const auto read = vendor->ReadNode(FactsOf(node));
      if (!read) {
        Err(about, std::string(vendor->register_annotation()) + " cannot be read: " + read.error().message,
            "restart hami-device-plugin on this node, which writes it anew");
        continue;
      }
      if (device::TextAt(annotations, vendor->handshake_annotation()).starts_with("Deleted")) {
        Warn(about, "its plugin has not answered, and its cards are taken back",
             "look at the pod of hami-device-plugin on this node");
        continue;
      }
      cards += read->devices.size();
      for (const device::Device& device : read->devices) {
        if (!device.healthy) {
          Warn(about, "card " + device.uuid + " is unhealthy",
               "look at dmesg for Xid messages; the plugin's log has more");
        }
      }
    }
    const auto label = node.metadata.labels.find(kGpuLabel);
    if (cards == 0 && label != node.metadata.labels.end() && label->second == "on") {
      Err(about, "has the label gpu=on and registers no card",
          "look at the pod of hami-device-plugin there, and run `hami doctor` on the node");
    }
    OldLock(node, about);
    return cards;
  }

  void OldLock(const kube::Node& node, const std::string& about) {
    const auto lock = page::ReadLock(device::TextAt(node.metadata.annotations, device::kNodeLock));
    if (!lock) return;
    const auto since = kube::ParseUnixTime(lock->since);
    if (since && facts_.now - *since <= kOldLock) return;
    Warn(about, "is locked since " + lock->since + (lock->pod.empty() ? "" : " by " + lock->ns + "/" + lock->pod),
         "the scheduler takes an old lock over at the next pod; a lock that stays: remove the annotation " +
             std::string(device::kNodeLock));
  }

  void Programs() {
    if (!facts_.pods) {
      return Err("programs", "their pods cannot be listed: " + facts_.pods.error().message,
                 "use a kubeconfig of a user that may list pods");
    }
    std::map<std::string, std::pair<int, int>> counts;  // ready, all
    std::set<std::string> images;
    for (const json::value& value : *facts_.pods) {
      const json::object& pod = Object(value);
      auto& [ready, all] = counts[ComponentOf(pod)];
      ++all;
      ready += IsReady(pod) ? 1 : 0;
      for (const json::value& container : cluster::List(Member(pod, "spec"), "containers")) {
        const std::string image = Text(Object(container), "image");
        if (image.find("hami") != std::string::npos) images.insert(image);
      }
    }
    for (const char* component : {"hami-scheduler", "hami-device-plugin", "hami-monitor"}) {
      const auto [ready, all] = counts[component];
      const std::string text = std::to_string(ready) + " of " + std::to_string(all) + " pods are ready";
      if (all == 0) {
        Err(component, "no pod with the label " + std::string(kComponentLabel) + "=" + component,
            "helm install hami deploy/chart, or look whether its DaemonSet or Deployment may make pods");
      } else if (ready < all) {
        Err(component, text, "kubectl get pods -A -l " + std::string(kComponentLabel) + "=" + component);
      } else {
        Good(component, text);
      }
    }
    if (images.size() > 1) {
      Warn("versions", "programs run from different images: " + base::Join({images.begin(), images.end()}, ", "),
           "wait for the roll-out, or give all the same tag");
    }
  }

  static bool IsReady(const json::object& pod) {
    for (const json::value& condition : cluster::List(Member(pod, "status"), "conditions")) {
      if (Text(Object(condition), "type") == "Ready") return Text(Object(condition), "status") == "True";
    }
    return false;
  }

  void Webhook() {
    if (!facts_.webhooks) {
      return Warn("webhook", "cannot be looked at: " + facts_.webhooks.error().message,
                  "use a kubeconfig of a user that may list mutatingwebhookconfigurations");
    }
    for (const json::value& configuration : *facts_.webhooks) {
      for (const json::value& value : cluster::List(Object(configuration), "webhooks")) {
        const json::object& webhook = Object(value);
        if (Text(webhook, "name") != kWebhookName) continue;
        if (!Text(Member(webhook, "clientConfig"), "caBundle").empty()) {
          return Good("webhook", std::string(kWebhookName) + " is registered, with an authority");
        }
        return Err("webhook", std::string(kWebhookName) + " has no caBundle: the API server cannot trust the scheduler",
                   "hami cert --help, or let cert-manager inject it");
      }
    }
    Err("webhook", std::string(kWebhookName) + " is not registered: pods keep their schedulerName and get no share",
        "helm upgrade with scheduler.admissionWebhook.enabled=true");
  }

  void Permissions() {
    std::size_t good = 0;
    for (const Permission& permission : facts_.permissions) {
      if (!permission.allowed) {
        return Warn("RBAC", "the programs' rights cannot be asked",
                    "use a kubeconfig of a user that may create subjectaccessreviews");
      }
      if (*permission.allowed) {
        ++good;
      } else {
        Err("RBAC", permission.account + " may not " + permission.verb + " " + permission.resource,
            "apply the ClusterRole of deploy/chart or deploy/manifests anew");
      }
    }
    if (good > 0 && good == facts_.permissions.size()) {
      Good("RBAC", "all " + std::to_string(good) + " rights that were asked for are there");
    }
  }

  const Facts& facts_;
  const device::Vendors& vendors_;
  std::vector<Finding> findings_;
};

}  // namespace

Facts Gather(kube::Client& client) {
  Facts facts;
  facts.now = std::time(nullptr);
  facts.nodes = List(client, kube::kNodes);
  facts.pods =
      List(client, kube::kPods, std::string(kComponentLabel) + " in (hami-scheduler,hami-device-plugin,hami-monitor)");
  facts.webhooks = List(client, kWebhooks);
  if (facts.pods) AskPermissions(client, facts);
  return facts;
}

std::vector<Finding> Examine(const Facts& facts, const device::Vendors& vendors) {
  return Examiner(facts, vendors).Run();
}

}  // namespace hami::cluster
